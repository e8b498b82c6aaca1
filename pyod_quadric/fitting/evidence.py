"""How much each quadric says about rows that it has not seen.

A quadric that describes the data is near held-out rows and far from points that share their mean and covariance but not their
shape. With h and g the mean squared distances of the two, a point's squared distance over h, less the same over g, is how much
more surprising the quadric makes it: twice a log-likelihood ratio of two Gaussian models of the signed distance, without its
constant. So ``1 / h - 1 / g`` is the weight of a quadric, and one that tells the rows from the references no better than chance
has none.
"""

import numpy as np
import torch
from torch import Tensor

# The share of g that is added to h. A quadric that held-out rows fit perfectly, as duplicates do, would weigh infinitely much.
SOFTNESS = 0.05


def evidence_weights(held_out: Tensor, reference: Tensor, row_weights: Tensor, n_features: int) -> Tensor:
    """Return the weight of each quadric in a score of squared distances, shape (m,), in float64.

    Parameters
    ----------
    held_out : Tensor of shape (n, m)
        Squared distances from rows to quadrics that were fitted without them.
    reference : Tensor of shape (r, m)
        Squared distances from reference points, to quadrics fitted to all rows.
    row_weights : Tensor of shape (n,)
        How much each row counts.
    n_features : int
        Together the quadrics weigh no more than so many directions of the linear part: they depend on each other, and
        a point has no more ways to be abnormal.

    Examples
    --------
    >>> import torch
    >>> held_out, reference = torch.tensor([[0.1, 1.0], [0.1, 1.0]]), torch.ones(3, 2)
    >>> evidence_weights(held_out, reference, torch.ones(2), n_features=5)
    tensor([5.6667, 0.0000], dtype=torch.float64)
    """
    shares = row_weights.double() / row_weights.double().sum()
    typical = reference.double().mean(dim=0)
    near = shares @ held_out.double() + SOFTNESS * typical
    near, typical = near.clamp(min=torch.finfo(torch.float64).tiny), typical.clamp(min=torch.finfo(torch.float64).tiny)
    weights = (1 / near - 1 / typical).clamp(min=0)
    directions = float((weights * near).nan_to_num().sum())  # what the quadrics add to the score of a typical row
    return weights * min(1.0, n_features / max(directions, 1e-300))


def elliptical_references(rows: Tensor, row_weights: Tensor, n_references: int, rng: np.random.Generator) -> Tensor:
    """Return points with the mean, the covariance and the radii of rows (n, k), but in random directions: (n_references, k)."""
    shares = (row_weights.double() / row_weights.double().sum()).cpu().numpy()
    chosen = torch.from_numpy(rng.choice(len(rows), n_references, p=shares)).to(rows.device)
    directions = torch.from_numpy(rng.standard_normal((n_references, rows.shape[1]))).to(rows)
    directions = directions / torch.linalg.vector_norm(directions, dim=1, keepdim=True)
    weighted = row_weights.to(rows) / row_weights.to(rows).sum()
    mean = weighted @ rows
    centred = (rows - mean).double()
    variances, axes = torch.linalg.eigh((centred * weighted.double()[:, None]).T @ centred)
    roots = variances.clamp(min=0).sqrt()
    inverse = torch.where(roots > 1e-6 * roots[-1], 1 / roots, 0)
    radii = torch.linalg.vector_norm(centred[chosen] @ axes * inverse, dim=1)
    # The symmetric root: in coordinates that are white already, it is near the identity and leaves directions alone.
    root = (axes * roots @ axes.T).to(rows)
    references: Tensor = mean + directions @ root * radii.to(rows)[:, None]
    return references
