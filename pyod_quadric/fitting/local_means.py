"""Axes along which rows are in clusters, without asking for clusters or for their number.

A row's local mean, that of the rows nearest to it, is near the centre of its cluster. So the covariance of local means shows
how far clusters lie apart, and the covariance of rows about them how wide they are. Where the first is larger beside the second
than in a Gaussian cloud of the same spreads, distances to neighbours count more. A row between clusters is then farther from
all of them, and new rows of a cluster are not. In a Gaussian cloud, hardly anything changes.

This is what discriminant analysis does for given classes. Clusters of k-means in place of classes have nearly the same effect;
but where there are none, they cut a cloud at random, and scores depend on how.
"""

import torch
from torch import Tensor

from pyod_quadric.geometry.quadrics import BLOCK_NUMBERS

N_NEAREST = 30  # rows in a local mean, beside the row itself; 10 serve some sets better and others worse
N_LOCAL_MEANS = 2000  # at most; 5,000 change no ROC-AUC by more than .001
TOO_FEW_ROWS, ENOUGH_ROWS = 200, 1000  # few rows make the lengths uncertain, so between the two they are nearer to 1
LEAST_WITHIN = 0.05  # of the variance along an axis: about values of a feature that has two of them there is none


def stretch(points: Tensor, seed: int = 0, n_rows: int | None = None) -> Tensor:
    """Return a map (r, r) that makes axes longer along which points (n, r), in principal coordinates, are in clusters.

    It keeps volumes. Its rows are orthogonal, in descending order of the spread of the mapped points.

    Parameters
    ----------
    points : Tensor of shape (n, r)
    seed : int, default=0
        The seed of the Gaussian cloud that the points are compared with.
    n_rows : int, optional
        The number of rows that the map may be trusted for; default: n. Parts of the same rows have maps of one kind by the same
        number, so that scores of held-out rows are those of new ones.

    Examples
    --------
    >>> import torch
    >>> points = torch.randn(2000, 8, generator=torch.Generator().manual_seed(0))
    >>> points[:, 3] = torch.where(points[:, 3] > 0, 1.0, -1.0) + 0.2 * points[:, 4]
    >>> longer, *others = torch.linalg.vector_norm(stretch(points), dim=1)
    >>> bool(longer > 2), bool(max(others) < 1.1)
    (True, True)
    """
    cloud = torch.randn(points.shape, generator=torch.Generator().manual_seed(seed)).to(points)
    cloud *= points.std(dim=0, correction=0)
    (local, about), of_cloud = _local_means(points), _local_means(cloud)
    _, axes = torch.linalg.eigh(local.T @ local)
    # The directions of principal coordinates are open, and a cloud is symmetric: so squares along coordinates are all of it.
    in_cloud = _apart(*(some.square().mean(dim=0) @ axes.square() for some in of_cloud))
    squares = (_apart(*((some @ axes).square().mean(dim=0) for some in (local, about))) / in_cloud).flip(0)
    n = len(points) if n_rows is None else n_rows
    logs = min(1.0, max(0.0, (n - TOO_FEW_ROWS) / (ENOUGH_ROWS - TOO_FEW_ROWS))) * squares.log() / 2
    axes = (axes.flip(1) * (logs - logs.mean()).exp()).T
    order = (points.double() @ axes.T).square().mean(dim=0).argsort(descending=True, stable=True)
    found: Tensor = axes[order]
    return found


def _local_means(points: Tensor) -> tuple[Tensor, Tensor]:
    """Return the centred means (q, r) of the first points (n, r) and those nearest to each, and the points about them."""
    count = min(N_NEAREST + 1, len(points))
    size = max(1, BLOCK_NUMBERS // (len(points) + count * points.shape[1]))
    nearest = [
        torch.cdist(some, points).topk(count, largest=False).indices for some in torch.split(points[:N_LOCAL_MEANS], size)
    ]
    local = torch.cat([points[indices].double().mean(dim=1) for indices in nearest])
    return local - local.mean(dim=0), points[: len(local)] - local


def _apart(between: Tensor, within: Tensor) -> Tensor:
    """Return 1 + b / w along each axis (r,), with the variances b of local means and w of rows about them."""
    total = between + within
    return 1 + torch.where(total > 0, between / torch.maximum(within, LEAST_WITHIN * total), 0)
