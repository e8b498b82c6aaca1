"""The evidence for each quadric, from rows that it has not seen.

A quadric that describes the data is near held-out rows, and far from reference points with the same mean and covariance but
without the shape. Let h and g be the mean squared distances of both. Then a squared distance times ``1 / h - 1 / g`` is twice a
log-likelihood ratio of two Gaussian models of the signed distance, up to a constant. So ``1 / h - 1 / g`` is the weight of a
quadric; a quadric that is no nearer to the rows than to the references gets 0.
"""

import numpy as np
import torch
from torch import Tensor

# The share of g that is added to h. A quadric that held-out rows fit perfectly, as duplicates do, would weigh infinitely much.
SOFTNESS = 0.05
SHARE = 1.5  # by the likelihood alone it would be 1; a little more ranks better in all kinds of clean data


def evidence_weights(held_out: Tensor, reference: Tensor, row_weights: Tensor, n_features: int) -> Tensor:
    """Return the weights (m,) of quadrics in a score of squared distances, in float64.

    Parameters
    ----------
    held_out : Tensor of shape (n, m)
        Squared distances from rows to quadrics fitted without them.
    reference : Tensor of shape (r, m)
        Squared distances from reference points, to quadrics fitted to all rows.
    row_weights : Tensor of shape (n,)
        The weights of the rows.
    n_features : int
        All quadrics together weigh at most as much as this many directions of the linear part, since they depend on each other.

    Examples
    --------
    >>> import torch
    >>> held_out, reference = torch.tensor([[0.1, 1.0], [0.1, 1.0]]), torch.ones(3, 2)
    >>> evidence_weights(held_out, reference, torch.ones(2), n_features=5)
    tensor([8.5000, 0.0000], dtype=torch.float64)
    """
    shares = row_weights.double() / row_weights.double().sum()
    typical = reference.double().mean(dim=0)
    near = shares @ held_out.double() + SOFTNESS * typical
    near, typical = near.clamp(min=torch.finfo(torch.float64).tiny), typical.clamp(min=torch.finfo(torch.float64).tiny)
    weights = (1 / near - 1 / typical).clamp(min=0)
    directions = float((weights * near).nan_to_num().sum())  # what the quadrics add to the score of a typical row
    return SHARE * weights * min(1.0, n_features / max(directions, 1e-300))


def gaussian_references(rows: Tensor, row_weights: Tensor, n_references: int) -> Tensor:
    """Return points (n_references, k) of a Gaussian distribution with the mean and covariance of rows (n, k).

    The references must not keep the rows' distances from the mean: for rows on a sphere they would lie on the same sphere, and
    there would be no evidence for it. They depend on the rows alone, so no seed decides what counts as a shape.
    """
    shares = row_weights.double() / row_weights.double().sum()
    mean = shares @ rows.double()
    centred = rows.double() - mean
    variances, axes = torch.linalg.eigh((centred * shares[:, None]).T @ centred)
    # The symmetric root: in coordinates that are white already, it is near the identity and leaves directions alone.
    root = axes * variances.clamp(min=0).sqrt() @ axes.T
    directions = torch.from_numpy(np.random.default_rng(0).standard_normal((n_references, rows.shape[1]))).to(root)
    references: Tensor = (mean + directions @ root).to(rows)
    return references
