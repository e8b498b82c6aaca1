"""From input to working coordinates: equivariant steps that compose to one affine map.

Centring, one isotropic scale and principal coordinates turn any isometry or similarity of the data into the identity: a cloud
and its rotated, reflected, shifted or scaled copy have the same working coordinates up to rounding. So whatever is fitted in
them, by whatever optimiser, is equivariant up to what it makes of rounding: a closed form keeps it small, a long descent on
absolute values amplifies it. The sign of each axis, which the covariance leaves open, is decided from the sample (its third
moment along the axis is positive); deciding it from the axis itself would tie it to the input's coordinates. A cloud with axes
of equal variance, or one that is symmetric along an axis, leaves axes or signs open, and then rounding decides.

Row normalisation, the one step that is not affine, happens before these and is not equivariant under shifts.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from pyod_quadric.data.rows import normalized
from pyod_quadric.geometry.quadrics import Quadrics, check_finite
from pyod_quadric.model.closed_form import negligible_variance
from pyod_quadric.model.moments import Moments, sum_of_moments


@dataclass(frozen=True, eq=False)
class WorkingCoordinates:
    """The map ``x → matrix @ (x - mean)``, after an optional normalisation of rows.

    Parameters
    ----------
    mean : Tensor of shape (d,)
    matrix : Tensor of shape (k, d)
        Principal axes over the scale (or over the standard deviation along each, when whitening).
    normalize : bool
        Whether rows are divided by their Euclidean norm first.
    variances : Tensor of shape (d,)
        The variance along all principal axes in input units, in descending order.

    Examples
    --------
    >>> import torch
    >>> halved = WorkingCoordinates(torch.ones(2), torch.eye(2) / 2, normalize=False, variances=torch.ones(2))
    >>> halved.transform(torch.tensor([[3.0, 1.0]]))
    tensor([[1., 0.]])
    """

    mean: Tensor
    matrix: Tensor
    normalize: bool
    variances: Tensor

    def transform(self, points: Tensor) -> Tensor:
        """Return the working coordinates (n, k) of points (n, d), in their dtype and on their device."""
        points = normalized(points) if self.normalize else points
        return (points - self.mean.to(points)) @ self.matrix.to(points).T

    def in_input_space(self, quadrics: Quadrics) -> Quadrics:
        """Express quadrics of the working coordinates as quadrics of the (normalised) input."""
        matrix, mean = self.matrix.to(quadrics.linear), self.mean.to(quadrics.linear)
        return quadrics.compose(matrix, -matrix @ mean)


def fit_working_coordinates(
    blocks: Callable[[], Iterable[Tensor]],
    n_components: int | None = None,
    *,
    normalize: bool = False,
    whiten: bool = False,
    principal: bool = True,
) -> WorkingCoordinates:
    """Learn the working coordinates in two passes over blocks of rows.

    Parameters
    ----------
    blocks : callable
        Called for each pass; gives tensors of shape (?, d). Sums are kept in float64 on their device.
    n_components : int, optional
        How many principal axes to keep, those with the largest variance; at most, and by default, all that carry any.
    normalize : bool, default=False
        Whether to divide every row by its norm first.
    whiten : bool, default=False
        Whether to scale every axis to unit variance instead of all by one number.
    principal : bool, default=True
        Whether to rotate to principal axes at all; without, the map is the centring and the scale.

    Examples
    --------
    >>> import torch
    >>> points = torch.tensor([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]])
    >>> fit_working_coordinates(lambda: [points]).transform(points)
    tensor([[-1.0690],
            [-0.2673],
            [ 1.3363]])
    """
    if not principal and (n_components is not None or whiten):
        raise ValueError("n_components and whiten are about principal axes, so they do not go with principal=False")
    dtypes = set()

    def rows() -> Iterable[Tensor]:
        for block in blocks():
            check_finite(block, "rows")
            dtypes.add(block.dtype)
            yield (normalized(block) if normalize else block).to(torch.float64)

    moments = sum_of_moments(Moments.of(block) for block in rows() if len(block))
    mean = moments.mean
    variances, axes = torch.linalg.eigh(moments.covariance())
    variances, axes = variances.flip(0).clamp(min=0), axes.flip(1).T  # descending; rows are axes
    if variances[0] == 0:
        raise ValueError("all rows are equal, so they have no coordinates to work in; give rows that differ")
    if n_components is not None and not 1 <= n_components <= len(mean):
        raise ValueError(f"n_components must be from 1 to the number of features, {len(mean)}, got {n_components}")
    rank = int((variances > negligible_variance(variances, mean, max(torch.finfo(dtype).eps for dtype in dtypes))).sum())
    if not principal:
        return WorkingCoordinates(mean, torch.eye(len(mean)).to(mean) / variances.mean().sqrt(), normalize, variances)
    axes = axes[: min(rank, n_components or rank)]
    kept = variances[: len(axes)]
    # One number keeps angles and ratios of distances; after it the mean variance along the kept axes is 1.
    scale = kept.sqrt()[:, None] if whiten else kept.mean().sqrt()
    signs = _signs((block - mean) @ axes.T for block in rows())
    return WorkingCoordinates(mean, axes * signs[:, None] / scale, normalize, variances)


def _signs(blocks: Iterable[Tensor]) -> Tensor:
    """Return the sign of the third moment along each axis; 1 where it vanishes."""
    total = sum((block**3).sum(dim=0) for block in blocks)
    return torch.where(torch.as_tensor(total) < 0, -1.0, 1.0)
