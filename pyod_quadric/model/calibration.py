"""Calibration: how unusual a score would be for a row like those of the fit.

Everything here compares scores with the out-of-fold scores of the training rows. The p-value of a row is the share of these
scores that are at least as high, counting the row itself (Vovk, Gammerman and Shafer 2005; for outliers Bates et al. 2023).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import ks_2samp, kstwo
from torch import Tensor

from pyod_quadric.model.norms import robust_deviation

EXACT_RANKS = 1000  # the highest scores, which are all kept
MARGIN = 0.02  # what distributions of scores may differ by without drift
DEVIATIONS = 3.0  # from which on a logarithm of a score is far out
MOST = 1e300  # a threshold is finite
LEAST_DEVIATION = 1e-150  # of scores: the largest ones can be divided by it
STEP = 1.01  # of the ranks that are kept beyond those, so that p-values are rounded up by at most a hundredth of them


@dataclass(frozen=True, eq=False)
class Calibration:
    """A table from scores to p-values, of bounded size.

    Parameters
    ----------
    knots : Tensor of shape (t,)
        Some of the training scores, in ascending order.
    p_values : Tensor of shape (t + 1,)
        The p-values of scores above none of the knots, above the first one, and so on.

    Examples
    --------
    >>> import numpy as np, torch
    >>> Calibration.of(np.arange(9.0)).p_values_of(torch.tensor([-1.0, 7.5, 8.5]))
    tensor([1.0000, 0.2000, 0.1000], dtype=torch.float64)
    """

    knots: Tensor
    p_values: Tensor

    @classmethod
    def of(cls, scores: NDArray[np.float64]) -> "Calibration":
        """Make the table from the scores (n,) of training rows."""
        n = len(scores)
        n_beyond = int(np.ceil(np.log(max(1, n / EXACT_RANKS)) / np.log(STEP)))
        beyond = np.floor(EXACT_RANKS * STEP ** np.arange(1, n_beyond + 1))
        ranks = np.unique(np.minimum(np.concatenate([np.arange(1, EXACT_RANKS + 1), beyond, [n]]), n)).astype(np.int64)[::-1]
        # A score above the one of rank r, counted from the highest, has less than r others that are as high.
        table = np.concatenate([[1.0], ranks / (n + 1)])
        return cls(torch.from_numpy(np.sort(scores)[n - ranks]), torch.from_numpy(table))

    def p_values_of(self, scores: Tensor) -> Tensor:
        """Return the p-values (n,) of scores (n,)."""
        return self.p_values.to(scores.device)[torch.searchsorted(self.knots.to(scores), scores.contiguous())]


def posterior_of(p_values: NDArray[np.float64], prior: float) -> NDArray[np.float64]:
    """Return the probability of being an outlier, from p-values and the expected share of outliers.

    P-values of inliers are uniform. Those of outliers are near 0, with an assumed density ``a p^(a - 1)`` of unknown shape
    ``a``, uniform from 0 to 1 (Sellke, Bayarri and Berger 2001). Averaged over ``a``, the density is ``(1 - p + p log p) / (p
    log² p)``.

    Examples
    --------
    >>> import numpy as np
    >>> posterior_of(np.array([0.001, 0.05, 1.0]), prior=0.1).round(3)
    array([0.698, 0.165, 0.053])
    """
    logarithms = np.log(p_values)
    near_one = logarithms > -1e-4  # where the quotient would be 0 / 0
    safe = np.where(near_one, -1.0, logarithms)
    density = np.where(near_one, 0.5, (np.exp(-safe) - 1 + safe) / safe**2)
    return np.asarray(prior * density / (prior * density + 1 - prior))


def far_out(scores: NDArray[np.float64]) -> float:
    """Return the score above which a row is far out: three robust standard deviations above the median log score.

    Logarithms are used since squared distances have long tails. Median and median deviation are used since even a fifth of
    outliers hardly moves them (the modified z-score of Iglewicz and Hoaglin 1993). No null distribution is assumed, so the
    share of flagged rows is not guaranteed. Other rules were compared: Benjamini and Hochberg with a normal, gamma or
    power-normal bulk, the adjusted boxplot, and exponential tails. Of all rules that flag at most 3 % of clean rows on average,
    this one found the most rows that are far out.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        Out-of-fold scores of the training rows.

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.random.default_rng(0).chisquare(10, 1000)
    >>> far_out(scores) < far_out(np.append(scores, np.full(200, 1e3))) < 1e3
    True
    """
    logarithms = torch.from_numpy(scores).clamp(min=torch.finfo(torch.float64).tiny).log()
    median, deviation = robust_deviation(logarithms)
    if deviation == 0:  # most scores are equal
        deviation = float(logarithms.std(correction=0))
    return math.exp(min(median + DEVIATIONS * deviation, math.log(MOST)))


def spread_of(scores: NDArray[np.float64]) -> float:
    """Return the standard deviation of scores (n,); if all are equal, a small positive number instead of 0.

    Examples
    --------
    >>> import numpy as np
    >>> spread_of(np.array([1.0, 3.0])), spread_of(np.ones(3)) > 0
    (1.0, True)
    """
    return max(float(np.std(scores)), float(np.finfo(np.float64).eps * np.max(scores)), LEAST_DEVIATION)


class DriftResult(NamedTuple):
    """The result of a drift test of a batch of rows against the training rows.

    Parameters
    ----------
    statistic : float
        The largest difference, from 0 to 1, between the distribution functions of the scores of the batch and of the training
        rows.
    pvalue : float
        The probability of a difference at least this large, if the true distributions differ by at most 0.02.
    """

    statistic: float
    pvalue: float


def drift_of(scores: ArrayLike, training_scores: ArrayLike) -> DriftResult:
    """Compare the scores of a batch (m,) with those of training rows (n,) by the two-sample Kolmogorov–Smirnov test.

    The null hypothesis is that the distributions differ by at most 0.02. Training rows are scored by models of fewer rows, and
    a large batch would detect this small difference, which calls for no action.

    Examples
    --------
    >>> import numpy as np
    >>> drift_of(np.arange(50) + 0.5, np.arange(60)).pvalue > 0.1
    True
    """
    statistic = float(ks_2samp(scores, training_scores, method="asymp").statistic)
    n_effective = np.size(scores) * np.size(training_scores) / (np.size(scores) + np.size(training_scores))
    return DriftResult(statistic, float(kstwo.sf(max(0.0, statistic - MARGIN), max(1, round(n_effective)))))
