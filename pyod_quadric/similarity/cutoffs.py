"""Cutoffs of outlier scores: at shares of the rows, at the best identification rate, and as a table for deployment."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta

from pyod_quadric.similarity.identification import IdentificationRate, n_allowed
from pyod_quadric.similarity.pairs import checked_scores

# Shares of rows that a cutoff may declare outliers: none, then from one in a thousand to half of them.
SHARES = (0.0, *(float(share) for share in np.geomspace(0.001, 0.5, 40)))


def cutoffs_at_shares(scores: NDArray[np.float64], shares: ArrayLike | None = None) -> NDArray[np.float64]:
    """Return the cutoffs (g,) that at most such shares of the scores reach; infinity for a share of 0.

    Examples
    --------
    >>> import numpy as np
    >>> cutoffs_at_shares(np.array([1.0, 2.0, 3.0, 4.0]), [0.0, 0.5])
    array([inf,  3.])
    """
    wanted = np.asarray(SHARES if shares is None else shares, dtype=np.float64)
    if wanted.ndim != 1 or wanted.size == 0 or not ((wanted >= 0) & (wanted <= 1)).all():
        raise ValueError(f"shares must be one or more numbers from 0 to 1, of shape (g,), got {wanted.tolist()}")
    return np.array([cutoff_at_share(scores, share) if share > 0 else np.inf for share in wanted])


def cutoff_at_share(scores: NDArray[np.float64], share: float) -> float:
    """Return the lowest score that at most this share of the scores reaches; just above all scores if none is so low."""
    values, counts = np.unique(scores, return_counts=True)
    reached = np.cumsum(counts[::-1])[::-1]  # how many scores are no lower than each value
    low_enough = values[reached <= n_allowed(share, len(scores))]
    return float(low_enough[0] if len(low_enough) else np.nextafter(values[-1], np.inf))


def best_cutoff(cutoffs: NDArray[np.float64], rates: list[IdentificationRate], full: bool) -> int:
    """Return the place of the largest rate; of equal ones that of the largest cutoff."""
    values = [rate.full_ir if full else rate.ir for rate in rates]
    return max(range(len(values)), key=lambda place: (values[place], cutoffs[place]))


@dataclass(frozen=True)
class CutoffAtRate:
    """A row of :func:`threshold_table`.

    Parameters
    ----------
    target : float
        The rate that was asked for.
    cutoff : float
        Rows with a score at or above the cutoff are outliers.
    rate : float
        The share of the held-out rows, or inliers, that reach it: at most the target.
    upper_bound : float
        An upper bound of the rate among new rows, with a confidence of 95 % (Clopper and Pearson).
    recall : float or None
        The share of the known outliers that reach the cutoff, if there are any.

    Examples
    --------
    >>> CutoffAtRate(target=0.01, cutoff=3.5, rate=0.009, upper_bound=0.015, recall=None).cutoff
    3.5
    """

    target: float
    cutoff: float
    rate: float
    upper_bound: float
    recall: float | None


def threshold_table(
    scores: ArrayLike, rates: ArrayLike = (0.001, 0.003, 0.01, 0.03, 0.1), *, outliers: ArrayLike | None = None
) -> list[CutoffAtRate]:
    """Return cutoffs for deployment from the scores of held-out rows, that is, rows that the detector was not fitted to.

    Parameters
    ----------
    scores : array-like of shape (n,)
        Outlier scores, higher for more abnormal rows.
    rates : array-like of shape (r,)
        The largest shares that may reach the cutoff: shares of all rows or, if outliers are known, of the inliers, which are
        false-positive rates. If a share is less than one row, the cutoff is just above all scores, and the upper bound shows
        what that is worth.
    outliers : array-like of shape (n,), optional
        Which of the rows are known to be outliers: 1 or True.

    Returns
    -------
    list of CutoffAtRate

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.arange(1000.0)
    >>> [(row.cutoff, row.rate) for row in threshold_table(scores, [0.01, 0.1])]
    [(990.0, 0.01), (900.0, 0.1)]
    >>> (row,) = threshold_table(scores, [0.1], outliers=scores >= 950)
    >>> row.cutoff, row.rate, row.recall, round(row.upper_bound, 3)
    (855.0, 0.1, 1.0, 0.117)
    """
    values = checked_scores(scores, np.size(scores), "scores")
    wanted = np.atleast_1d(np.asarray(rates, dtype=np.float64))
    if not ((wanted >= 0) & (wanted <= 1)).all():
        raise ValueError(f"rates must be from 0 to 1, got {wanted.tolist()}")
    known = np.zeros(len(values), dtype=bool) if outliers is None else _checked_outliers(outliers, len(values))
    inliers = values[~known]
    if len(inliers) == 0:
        raise ValueError(
            "scores of inliers are needed, but there are none" + (": all rows are outliers" if len(values) else "")
        )
    return [_cutoff_row(inliers, values[known], float(rate)) for rate in wanted]


def _checked_outliers(outliers: ArrayLike, n_rows: int) -> NDArray[np.bool_]:
    known = np.asarray(outliers)
    if known.shape != (n_rows,) or not np.isin(known, (0, 1)).all():
        raise ValueError(f"outliers must be {n_rows} zeros and ones, one for each score, got {known.dtype} of {known.shape}")
    return known.astype(bool)


def _cutoff_row(inliers: NDArray[np.float64], outliers: NDArray[np.float64], target: float) -> CutoffAtRate:
    cutoff = cutoff_at_share(inliers, target)
    count, n = int((inliers >= cutoff).sum()), len(inliers)
    bound = 1.0 if count == n else float(beta.ppf(0.95, count + 1, n - count))
    recall = float(np.mean(outliers >= cutoff)) if len(outliers) else None
    return CutoffAtRate(target, cutoff, count / n, bound, recall)
