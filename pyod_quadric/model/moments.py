"""Weighted means and covariances that can be added and subtracted.

The moments of all rows are the sum over blocks, so one pass computes them. The moments of all rows but one fold are the total
minus the fold, so cross-validation costs no further pass.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyod_quadric.parallel.ranks import gathered, n_ranks


@dataclass(frozen=True, eq=False)
class Moments:
    """Weight, mean and scatter of rows, in float64.

    Addition uses the update of Chan, Golub and LeVeque (1983), which keeps a small covariance accurate despite a large mean.

    Parameters
    ----------
    weight : float
        The sum of the weights of the rows; their number, if each weighs 1.
    mean : Tensor of shape (d,)
    scatter : Tensor of shape (d, d)
        The weighted sum of ``(x - mean)(x - mean)ᵀ``.

    Examples
    --------
    >>> import torch
    >>> first, second = Moments.of(torch.tensor([[0.0], [2.0]])), Moments.of(torch.tensor([[4.0]]))
    >>> (first + second).mean
    tensor([2.], dtype=torch.float64)
    >>> (first + second - second).covariance()
    tensor([[1.]], dtype=torch.float64)
    """

    weight: float
    mean: Tensor
    scatter: Tensor

    @classmethod
    def of(cls, rows: Tensor, weights: Tensor | None = None) -> "Moments":
        """Return the moments of rows (n, d), with optional weights (n,)."""
        rows = rows.to(torch.float64)
        if weights is None:
            mean = rows.mean(dim=0)
            centred = rows - mean
            return cls(float(len(rows)), mean, centred.T @ centred)
        weights = weights.to(rows)
        total = float(weights.sum())
        if total == 0:
            return cls.none(rows)
        mean = weights @ rows / total
        centred = (rows - mean) * weights.sqrt()[:, None]
        return cls(total, mean, centred.T @ centred)

    @classmethod
    def none(cls, like: Tensor) -> "Moments":
        """Return the moments of no rows, with the number of features and the device of these rows."""
        d = like.shape[1]
        zeros = torch.zeros(d + 1, d, dtype=torch.float64, device=like.device)
        return cls(0.0, zeros[0], zeros[1:])

    def __add__(self, other: "Moments") -> "Moments":
        if 0 in (self.weight, other.weight):
            return self if other.weight == 0 else other
        weight = self.weight + other.weight
        shift = other.mean - self.mean
        between = torch.outer(shift, shift) * (self.weight * other.weight / weight)
        return Moments(weight, self.mean + shift * (other.weight / weight), self.scatter + other.scatter + between)

    def __sub__(self, part: "Moments") -> "Moments":
        """Subtract a part of smaller weight that was added before."""
        weight = self.weight - part.weight
        mean = self.mean + (self.mean - part.mean) * (part.weight / weight)
        shift = part.mean - mean
        between = torch.outer(shift, shift) * (weight * part.weight / self.weight)
        return Moments(weight, mean, self.scatter - part.scatter - between)

    def covariance(self) -> Tensor:
        """Return the covariance (d, d)."""
        return self.scatter / self.weight

    def about(self, point: Tensor) -> Tensor:
        """Return the second moments (d, d) about a point (d,)."""
        return self.scatter_about(point) / self.weight

    def scatter_about(self, point: Tensor) -> Tensor:
        """Return the weighted sum (d, d) of ``(x - point)(x - point)ᵀ``."""
        shift = self.mean - point
        return self.scatter + self.weight * torch.outer(shift, shift)


def in_folds(
    blocks: Iterable[tuple[slice, Tensor]], folds: Tensor, n_folds: int
) -> Iterator[tuple[int, slice, Tensor, Tensor]]:
    """Split blocks of rows by fold; yield the fold, the slice of the block, the mask of its chosen rows, and these rows.

    Parameters
    ----------
    blocks : iterable of (slice, Tensor of shape (?, d))
        Blocks of rows, with their slices.
    folds : Tensor of shape (n,)
        Which fold each row is in.
    n_folds : int
    """
    for place, block in blocks:
        for fold in range(n_folds):
            chosen = folds[place] == fold
            yield fold, place, chosen, block[chosen]


def moments_of_folds(
    blocks: Iterable[tuple[slice, Tensor]], none: Moments, folds: Tensor, n_folds: int, weights: Tensor | None = None
) -> list[Moments]:
    """Return the moments of each fold, in one pass that all processes share.

    Parameters
    ----------
    blocks : iterable of (slice, Tensor of shape (?, d))
        Blocks of rows, with their slices; in each process its share of all rows.
    none : Moments
        The moments of no rows.
    folds : Tensor of shape (n,)
        Which fold each row is in.
    n_folds : int
    weights : Tensor of shape (n,), optional
    """
    weights = torch.ones(len(folds), dtype=torch.float64, device=folds.device) if weights is None else weights
    total = [none] * n_folds
    for fold, place, chosen, rows in in_folds(blocks, folds, n_folds):
        total[fold] = total[fold] + Moments.of(rows, weights[place][chosen])
    return [_over_ranks(moments) for moments in total]


def _over_ranks(moments: Moments) -> Moments:
    """Return the moments of the rows of all processes."""
    if n_ranks() == 1:
        return moments
    d = len(moments.mean)
    numbers = torch.cat([moments.mean.new_tensor([moments.weight]), moments.mean, moments.scatter.flatten()])
    return sum_of_moments(Moments(float(n[0]), n[1 : d + 1], n[d + 1 :].view(d, d)) for n in gathered(numbers))


def sum_of_moments(parts: Iterable[Moments]) -> Moments:
    """Return the sum of the moments of all parts."""
    parts = iter(parts)
    total = next(parts, None)
    if total is None:
        raise ValueError("there are no rows to learn coordinates from; give at least two that differ")
    for part in parts:
        total = total + part
    return total


def negligible_variance(variances: Tensor, mean: Tensor, eps: float) -> float:
    """Return the variance below which a principal direction is rounding error.

    The error comes from the decomposition in float64, or from the rows, which are rounded to a relative error of ``eps``.
    """
    decomposition = len(variances) * torch.finfo(torch.float64).eps * variances.max()
    rows = eps**2 * (mean.square().max() + variances.max())
    return float(torch.maximum(decomposition, rows))
