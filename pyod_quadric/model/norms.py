"""Norms of rows, where the rows themselves are normalised.

Normalised rows are directions. Whether a norm is usual is a question of its own: networks make short embeddings of what they
do not know, and a fault may make very long ones. So the logarithm of the norm counts in the score as one more direction of
the linear part.
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


@dataclass(frozen=True)
class Norms:
    """Median and spread of the logarithms of norms.

    Parameters
    ----------
    median, spread : float

    Examples
    --------
    >>> import torch
    >>> Norms(median=0.0, spread=0.5).squared_deviations(torch.tensor([[0.0, 1.0], [0.0, 2.0]]))
    tensor([0.0000, 1.9218], dtype=torch.float64)
    """

    median: float
    spread: float

    @classmethod
    def of(cls, norms: Tensor) -> Self:
        """Learn from the norms (n,) of rows, by medians, so that a few absurd ones change little."""
        logarithms = norms.double().clamp(min=SHORTEST).log()
        median = logarithms.median()
        deviation = float((logarithms - median).abs().median())
        spread = max(CONSISTENCY * deviation if math.isfinite(deviation) else 0.0, LEAST_SPREAD)
        return cls(float(median), spread)

    def squared_deviations(self, points: Tensor) -> Tensor:
        """Return the squared deviations (n,) of points (n, d) from the median, in units of the spread, in float64."""
        return self.squared_deviations_of(row_norms(points))

    def squared_deviations_of(self, norms: Tensor) -> Tensor:
        """Return the same of norms (n,)."""
        return ((norms.clamp(min=SHORTEST).log() - self.median) / self.spread).square()

    def contributions(self, points: Tensor) -> Tensor:
        """Return what each feature adds to the squared deviation (n, d): its share of the squared length."""
        squares = points.double().square()
        sums = squares.sum(dim=1, keepdim=True)
        usable = (sums > 0) & sums.isfinite()
        shares = torch.where(usable, squares / torch.where(usable, sums, 1), 1 / points.shape[1])
        return shares * self.squared_deviations(points)[:, None]
