"""The number of quadrics: an estimate from the variances along principal axes.

If the rows lie near a linear manifold of dimension d - m, then m functions vanish on it, and m quadrics are a start. The
paper's appendix estimates the dimension in two ways. The curve of ``-log(λₙ / λ₁)`` bends where the variances become noise. By
Wold's criterion (1978), an axis belongs to the manifold if it helps to predict held-out entries of rows.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from pyod_quadric.data.rows import rows_of
from pyod_quadric.model.moments import Moments, moments_of_folds, sum_of_moments

N_FOLDS = 7  # Wold's
BLOCK_ROWS = 8192


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Variances along principal axes, and the number of quadrics that they suggest.

    Parameters
    ----------
    variances : ndarray of shape (d,)
        λ, in descending order.
    wold_ratios : ndarray of shape (d - 1,)
        For each axis but the last: the squared error of predicting held-out entries with all axes up to this one, divided by
        the squared residual of the rows with only the axes before it. A ratio below 1 speaks for the axis.

    Examples
    --------
    >>> import numpy as np
    >>> Spectrum(np.array([4.0, 1.0, 0.1]), np.array([0.5, 1.2])).n_quadrics
    2
    """

    variances: NDArray[np.float64]
    wold_ratios: NDArray[np.float64]

    @property
    def dimension(self) -> int:
        """The number of axes up to the last one with a ratio below 1."""
        worth = np.flatnonzero(self.wold_ratios < 1)
        return int(worth[-1]) + 1 if len(worth) else 0

    @property
    def n_quadrics(self) -> int:
        """The suggested number of quadrics, one for each remaining axis and at least 1."""
        return max(1, len(self.variances) - self.dimension)

    def decay(self) -> NDArray[np.float64]:
        """Return ``-log(λₙ / λ₁)``, shape (d,); infinite for a variance of 0."""
        with np.errstate(divide="ignore"):
            decay: NDArray[np.float64] = -np.log(self.variances / self.variances[0])
        return decay


def principal_spectrum(X: ArrayLike, *, random_state: int = 0) -> Spectrum:
    """Return the variances of rows (n, d) along their principal axes, and Wold's ratios from seven folds.

    Parameters
    ----------
    X : array-like of shape (n, d), Tensor, or path of a ``.npy`` file
        At least 7 rows and 2 features.
    random_state : int, default=0
        The seed of the folds.

    Examples
    --------
    A noisy plane in five dimensions:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> plane = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 5))
    >>> rows = plane + 0.1 * rng.normal(size=(200, 5))
    >>> found = principal_spectrum(rows)
    >>> found.dimension, found.n_quadrics
    (2, 3)
    """
    rows = rows_of(X)
    if rows.n_rows < N_FOLDS or rows.n_features < 2:
        raise ValueError(f"at least {N_FOLDS} rows of 2 features are needed, got {rows.n_rows} of {rows.n_features}")
    folds = torch.from_numpy(np.random.default_rng(random_state).permutation(np.arange(rows.n_rows) % N_FOLDS))
    moments = moments_of_folds(rows.placed_blocks(BLOCK_ROWS), Moments.none(rows.read(slice(1))), folds, N_FOLDS)
    total = sum_of_moments(moments)
    variances = torch.linalg.eigvalsh(total.covariance()).flip(0).clamp(min=0)
    if variances[0] == 0:
        raise ValueError("all rows are equal, so they have no spectrum; give rows that differ")
    errors = torch.stack([_prediction_errors(total - fold, fold) * fold.weight for fold in moments]).sum(dim=0) / total.weight
    left = variances.flip(0).cumsum(0).flip(0)[:-1]  # without the axes before
    return Spectrum(variances.cpu().numpy(), (errors / left.clamp(min=torch.finfo(left.dtype).tiny)).cpu().numpy())


def _prediction_errors(others: Moments, fold: Moments) -> Tensor:
    """Return the mean squared error of predicting entries of a fold's rows from the others, by 1, 2, ... axes: (d - 1,).

    Least squares without one entry has the residual of least squares with all, over 1 minus the leverage of that entry.
    """
    axes = torch.linalg.eigh(others.covariance()).eigenvectors.flip(1)  # (d, d), columns
    residual = fold.about(others.mean)  # second moments of what the axes leave, (d, d)
    leverage = torch.zeros_like(others.mean)
    errors = []
    for axis in axes.T[:-1]:
        removed = torch.outer(axis, residual @ axis)
        residual = residual - removed - removed.T + torch.outer(axis, axis) * (axis @ residual @ axis)
        leverage = leverage + axis.square()
        errors.append((residual.diagonal() / (1 - leverage).clamp(min=1e-12).square()).sum())
    return torch.stack(errors)
