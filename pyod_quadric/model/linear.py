"""The linear part of a manifold: a Mahalanobis distance with variances of held-out rows.

Sample eigenvalues are too large at the top and too small at the bottom, especially with few rows per feature. Held-out rows
show the true variance along an axis (Abadir, Distaso and Žikeš 2014). So the variances here are those of held-out rows along
the axes of the other rows. With fewer rows than features, the orthogonal complement of all axes gets one variance, that of
held-out rows there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from scipy.optimize import isotonic_regression
from torch import Tensor

from pyod_quadric.model.moments import Moments, sum_of_moments
from pyod_quadric.progress import counted

# The share of the median variance that is added to all; normalised rows have one unit for all features, and bear more.
FLOOR, FLOOR_NORMALIZED = 0.1, 1.0
# How much the variances without the floor have to say. It matters only where rows are far tighter than the floor: along those
# directions a point that leaves the rows by many of their deviations would be lost otherwise.
TIGHT_SHARE = 0.1
# Principal axes with less than this share of the largest variance are rounding.
NEGLIGIBLE = 1e-12
TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True, eq=False)
class LinearPart:
    """A mean, principal axes with one variance each, and one variance for the orthogonal complement.

    Parameters
    ----------
    mean : Tensor of shape (d,)
    axes : Tensor of shape (r, d)
        Orthonormal rows.
    variances : Tensor of shape (r,)
        Positive, in descending order.
    complement : float
        The variance in each direction orthogonal to the axes, if there are any.

    Examples
    --------
    >>> import torch
    >>> part = LinearPart(torch.zeros(2), torch.eye(1, 2), torch.tensor([4.0]), complement=1.0)
    >>> part.squared_distances(torch.tensor([[2.0, 3.0]]))
    tensor([10.])
    """

    mean: Tensor
    axes: Tensor
    variances: Tensor
    complement: float

    def whitened(self, points: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return coordinates of unit variance: along the axes (n, r), and in their complement (n, d), if there is one."""
        centred = points - self.mean.to(points)
        axes = self.axes.to(points)
        along = centred @ axes.T
        beside = (centred - along @ axes) / self.complement**0.5 if len(axes) < axes.shape[1] else None
        # A variance may be out of the range of float32 where its root is not.
        return along / self.variances.sqrt().to(points), beside

    def squared_distances(self, points: Tensor) -> Tensor:
        """Return the squared Mahalanobis distances (n,) of points (n, d), in their type and on their device."""
        along, beside = self.whitened(points)
        squared = along.square().sum(dim=1)
        return squared if beside is None else squared + beside.square().sum(dim=1)

    def contributions(self, points: Tensor) -> Tensor:
        """Return what each feature adds to the squared distance (n, d): the squared entries of ``C^(-1/2) (x - mean)``."""
        along, beside = self.whitened(points)
        standardized = along @ self.axes.to(points)
        return (standardized if beside is None else standardized + beside).square()

    def weighted(self, share: float) -> "LinearPart":
        """Return a part whose squared distances are a share of these.

        Examples
        --------
        >>> import torch
        >>> part = LinearPart(torch.zeros(1), torch.eye(1), torch.ones(1), complement=1.0)
        >>> part.weighted(0.25).squared_distances(torch.tensor([[2.0]]))
        tensor([1.])
        """
        return replace(self, variances=self.variances / share, complement=self.complement / share)

    def log_determinant(self) -> float:
        """Return the logarithm of the determinant of the covariance."""
        r, d = self.axes.shape
        return float(self.variances.log().sum()) + (d - r) * math.log(self.complement)


@dataclass(frozen=True, eq=False)
class HeldOutSpreads:
    """Principal axes of all rows and of the complement of each fold, and the spread of each fold along the latter.

    Parameters
    ----------
    means : list of Tensor of shape (d,)
        The means of all rows, and of the complement of each fold.
    axes : list of Tensor of shape (r, d)
        The axes, likewise.
    spreads : Tensor of shape (n_folds, r + 2)
        For each fold: its weight, and the weighted sums of squares of its rows along the axes of its complement, and orthogonal
        to them.
    least : float
        The smallest variance allowed.
    """

    means: list[Tensor]
    axes: list[Tensor]
    spreads: Tensor
    least: float

    def parts(self, floor: float, tight_share: float = TIGHT_SHARE) -> tuple[LinearPart, list[LinearPart]]:
        """Return the linear part of all rows, and for each fold a part that has not seen it; see :func:`with_floor`.

        The first has the principal axes of all rows, with the variances of each fold along the axes of its complement, averaged
        over the folds. The part of a fold has the mean and axes of the other folds, and the variances averaged over the other
        folds only.
        """
        numbers = torch.arange(len(self.spreads), device=self.spreads.device)
        counted = [numbers >= 0, *(numbers != number for number in numbers)]
        whole, *held_out = (
            self._part(mean, axes, self.spreads[some], floor, tight_share)
            for mean, axes, some in zip(self.means, self.axes, counted, strict=True)
        )
        return whole, held_out

    def _part(self, mean: Tensor, axes: Tensor, spreads: Tensor, floor: float, tight_share: float) -> LinearPart:
        spread = spreads[:, 1:].sum(dim=0) / spreads[:, 0].sum().clamp(min=TINY)
        # The largest stays the largest: axes are in the order of the spread of the others, held-out rows may disagree a little.
        decreasing = torch.from_numpy(isotonic_regression(spread[:-1].cpu().numpy(), increasing=False).x.copy()).to(spread)
        decreasing = decreasing.clamp(min=self.least)
        typical = float(decreasing.median())  # of as many axes for all, although the rest of a fold may have fewer
        # That none of n rows has entered a direction does not mean that the next one will not.
        unseen = typical / max(1.0, float(spreads[:, 0].sum()))
        complement = max(min(float(spread[-1]), float(decreasing[-1])), self.least, unseen)
        beside = with_floor(torch.tensor(complement, dtype=torch.float64), typical, floor, tight_share)
        return LinearPart(mean, axes, with_floor(decreasing[: len(axes)], typical, floor, tight_share), float(beside))


def held_out_spreads(folds: Sequence[Moments], n_features: int) -> HeldOutSpreads:
    """Measure each fold along the principal axes of the others.

    Parameters
    ----------
    folds : sequence of Moments
        The moments of two or more disjoint parts of the rows.
    n_features : int
        The number of features, which exceeds that of the moments if they are in coordinates of the span of all rows.
    """
    total = sum_of_moments(folds)
    axes = principal_axes(total.covariance())[1]
    r = len(axes)
    found = HeldOutSpreads([total.mean], [axes], torch.empty(0), NEGLIGIBLE * float(total.covariance().trace()))
    seen = []
    for fold in counted(folds, len(folds), "folds"):
        rest = total - fold
        other = principal_axes(rest.covariance())[1][:r]
        spread = fold.scatter_about(rest.mean)
        along = ((other @ spread) * other).sum(dim=1)
        beside = float((spread.trace() - along.sum()).clamp(min=0)) / max(1, n_features - len(other))
        seen.append(torch.cat([along.new_full((1,), fold.weight), along, along.new_full((r - len(other) + 1,), beside)]))
        found.means.append(rest.mean)
        found.axes.append(other)
    return replace(found, spreads=torch.stack(seen))


def with_floor(variances: Tensor, typical: float, floor: float, tight_share: float = TIGHT_SHARE) -> Tensor:
    """Return the variances used as divisors of a squared distance: mostly with a floor, to a small share without.

    Variances far below the typical one are not taken at face value. Precisions are averaged:
    ``1 / v = (1 - tight_share) / (variance + floor * typical) + tight_share / variance``.

    Examples
    --------
    >>> import torch
    >>> with_floor(torch.tensor([1.0, 1e-6]), typical=1.0, floor=1.0)
    tensor([1.8182e+00, 9.9999e-06])
    """
    return 1 / ((1 - tight_share) / (variances + floor * typical) + tight_share / variances)


def without_floor(typical: float, floor: float) -> float:
    """Return the typical variance before :func:`with_floor`, from the one after it.

    Examples
    --------
    >>> import torch
    >>> found = with_floor(torch.tensor(2.0), typical=2.0, floor=1.0)
    >>> round(without_floor(float(found), floor=1.0), 6)
    2.0
    """
    return typical * ((1 - TIGHT_SHARE) / (1 + floor) + TIGHT_SHARE)


def principal_axes(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Return the variances (r,), descending, and the axes (r, d), without those of rounding error; at least one.

    One axis is kept even if all rows are equal, since the rest of a fold may be equal although the rows are not.
    """
    variances, axes = torch.linalg.eigh(covariance)
    variances, axes = variances.flip(0), axes.flip(1).T
    kept = variances > NEGLIGIBLE * variances[0].clamp(min=0)
    kept[0] = True
    return variances[kept], axes[kept]
