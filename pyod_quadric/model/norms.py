"""The norms of rows, if rows are normalised.

Normalised rows are directions, so their norms are scored separately: networks give short embeddings to inputs they do not know,
and a fault may give very long ones. As one more feature among hundreds, the norm would hardly count. Norms of usual rows should
add nothing. So a norm counts beyond two deviations of its logarithm, in the unit of the other parts.
"""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from pyod_quadric.data.rows import row_norms

CONSISTENCY = 1.4826  # of the median absolute deviation with the standard deviation of a normal distribution
LEAST_SPREAD = 0.01  # of the logarithms: a per cent more or less is rounding, as of embeddings that were normalised before
SHORTEST = torch.finfo(torch.float32).tiny  # rows of zeros have a logarithm, too
USUAL = 2.0  # deviations, up to which a norm does not count
# What is shorter than e^-7 of the usual length, a thousandth, is as good as empty. Rows of zeros would be infinitely far
# otherwise, and where there are many of them no other row would be an outlier beside them.
EMPTY = 7.0
# What a norm adds at one deviation beyond, in deviations of the rest of the score. More finds bad pictures of faces better, and
# outliers among texts less well.
SHARE = 0.25


def robust_deviation(numbers: Tensor) -> tuple[float, float]:
    """Return the median of numbers (n,), and a robust standard deviation: the scaled median distance from it.

    Examples
    --------
    >>> import torch
    >>> robust_deviation(torch.tensor([0.0, 1.0, 2.0, 3.0, 1e9]))
    (2.0, 1.4826)
    """
    median = numbers.median()
    return float(median), CONSISTENCY * float((numbers - median).abs().median())


@dataclass(frozen=True)
class Norms:
    """Median and spread of the logarithms of norms, and the weight of an unusual one.

    Parameters
    ----------
    median, spread : float
    weight : float
        The weight of the squared number of deviations beyond two.

    Examples
    --------
    >>> import torch
    >>> Norms(median=0.0, spread=0.1, weight=3.0).scores(torch.tensor([[0.0, 1.0], [0.0, 2.0]]))
    tensor([ 0.0000, 72.9582], dtype=torch.float64)
    """

    median: float
    spread: float
    weight: float

    @classmethod
    def of(cls, norms: Tensor, scores: Tensor) -> Self:
        """Learn by medians from the norms (n,) of rows and the other parts of their scores (n,)."""
        median, deviation = robust_deviation(norms.double().clamp(min=SHORTEST).log())
        spread = max(deviation if math.isfinite(deviation) else 0.0, LEAST_SPREAD)
        return cls(median, spread, max(1.0, SHARE * robust_deviation(scores)[1]))

    def scores(self, points: Tensor) -> Tensor:
        """Return what the norms of points (n, d) add to their scores (n,), in float64."""
        return self.scores_of(row_norms(points))

    def scores_of(self, norms: Tensor) -> Tensor:
        """Return what norms (n,) add to the scores (n,), in float64."""
        deviations = (norms.clamp(min=SHORTEST).log() - self.median).clamp(min=-EMPTY).abs() / self.spread
        return self.weight * (deviations - USUAL).clamp(min=0).square()

    def contributions(self, points: Tensor) -> Tensor:
        """Return what each feature adds to the scores (n, d): its share of the squared length."""
        squares = points.double().square()
        sums = squares.sum(dim=1, keepdim=True)
        usable = (sums > 0) & sums.isfinite()
        shares = torch.where(usable, squares / torch.where(usable, sums, 1), 1 / points.shape[1])
        return shares * self.scores(points)[:, None]
