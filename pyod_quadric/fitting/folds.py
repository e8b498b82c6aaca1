"""The rows as a fit sees them: in folds, normalised or not, and in coordinates of their span where they are few."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyod_quadric.data.groups import group_folds
from pyod_quadric.data.rows import Rows, row_norms
from pyod_quadric.geometry.quadrics import BLOCK_NUMBERS
from pyod_quadric.model.coordinates import WorkingCoordinates
from pyod_quadric.model.linear import FLOOR, LinearPart, cross_validated
from pyod_quadric.model.moments import Moments, in_folds, moments_of_folds, sum_of_moments
from pyod_quadric.parallel.ranks import from_first_rank, sum_over_ranks
from pyod_quadric.parameters import LEAST_ROWS, Parameters

MOST_BLOCK_ROWS = 8192
LEAST_FOLDS = LEAST_ROWS
# Where rows are few, each of them matters to what is learnt from the others, and many folds are cheap.
USUAL_FOLDS, MOST_FOLDS = 5, 10
ROWS_OF_ALL_FOLDS = 20_000
# Rows are normalised only if their norms hold less than this share of the variance, and their mean more than that of the
# squared norms: for centred rows the origin means nothing, but embeddings, even of texts of many kinds, have a mean.
NORM_SHARE = 0.1
MEAN_SHARE = 0.05
NORM_FEATURES = 32  # and only in embeddings: few features lose too much with their norm


@dataclass(frozen=True, eq=False)
class FoldedRows:
    """Rows on a device, in folds, and in coordinates of their span if that is smaller.

    Parameters
    ----------
    rows : Rows
        Normalised, if the model normalises.
    device : torch.device
    folds : Tensor of shape (n,)
        Which fold each row is in.
    n_folds : int
    origin : Tensor of shape (d,), optional
    basis : Tensor of shape (r, d), optional
        Orthonormal rows; with the origin, the span of the rows.
    """

    rows: Rows
    device: torch.device
    folds: Tensor
    n_folds: int
    origin: Tensor | None = None
    basis: Tensor | None = None

    @property
    def dtype(self) -> torch.dtype:
        """The type of the rows: their own, or float64 in coordinates of their span."""
        return self.rows.dtype if self.basis is None else torch.float64

    def merged(self) -> "FoldedRows":
        """Return the same rows in as few folds as can be, each of which is a union of some of these."""
        return replace(self, folds=self.folds % LEAST_FOLDS, n_folds=LEAST_FOLDS)

    def in_span(self) -> "FoldedRows":
        """Return the same rows in coordinates of their span, if there are no more rows than features."""
        if self.rows.n_rows > self.rows.n_features:
            return self
        everything = self.read(np.arange(self.rows.n_rows)).double()
        origin = everything.mean(dim=0)
        _, lengths, axes = torch.linalg.svd(everything - origin, full_matrices=False)
        kept = lengths > torch.finfo(self.rows.dtype).eps * lengths[0]
        origin, basis = from_first_rank((origin, axes[kept]), self.device)
        return replace(self, origin=origin, basis=basis)

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Go through this process's share of all rows; gives where they stand, and the rows."""
        for place, block in self.rows.placed_blocks(block_rows(self.rows)):
            yield place, self._seen(block)

    def in_folds(self) -> Iterator[tuple[int, slice, Tensor, Tensor]]:
        """Go through the blocks fold by fold; see :func:`pyod_quadric.model.moments.in_folds`."""
        return in_folds(self.blocks(), self.folds, self.n_folds)

    def read(self, indices: NDArray[np.int64]) -> Tensor:
        """Return some rows by index."""
        return self._seen(self.rows.read(indices))

    def moments(self, row_weights: Tensor) -> list[Moments]:
        """Return the weighted moments of each fold, from one pass."""
        return moments_of_folds(self.blocks(), Moments.none(self.read(np.arange(1))), self.folds, self.n_folds, row_weights)

    def lifted(self, part: LinearPart) -> LinearPart:
        """Express a linear part of these coordinates in those of the rows."""
        if self.basis is None or self.origin is None:
            return part
        return replace(part, mean=self.origin + part.mean @ self.basis, axes=part.axes @ self.basis)

    def lifted_coordinates(self, coordinates: WorkingCoordinates) -> WorkingCoordinates:
        """Express working coordinates of these coordinates as a map from the rows."""
        if self.basis is None or self.origin is None:
            return coordinates
        return WorkingCoordinates(self.origin + coordinates.mean @ self.basis, coordinates.matrix @ self.basis)

    def _seen(self, rows: Tensor) -> Tensor:
        rows = rows.to(self.device)
        return rows if self.basis is None or self.origin is None else (rows.double() - self.origin) @ self.basis.T


def folds_of(
    n_rows: int,
    groups: NDArray[np.int64] | None,
    n_folds: int | Literal["auto"] | None,
    rng: np.random.Generator,
    are_trained: bool = False,
) -> tuple[int, Tensor]:
    """Return how many folds there are, and which one each row is in (n,): at random, or by its group.

    Parameters
    ----------
    n_rows : int
    groups : ndarray of shape (n,), optional
    n_folds : int, "auto" or None
        The detector's; where rows need not be held out (None), folds are still needed for variances.
    rng : numpy.random.Generator
    are_trained : bool
        Whether each fold costs a training, so that there should not be many.

    Examples
    --------
    >>> folds_of(4, np.array([7, 8, 7, 9]), 3, np.random.default_rng(0))[1].tolist()
    [0, 2, 0, 1]
    """
    n_groups = n_rows if groups is None else len(np.unique(groups))
    if n_groups < LEAST_FOLDS:
        raise ValueError(
            f"rows must be in at least {LEAST_FOLDS} groups, so that each can be judged by others, got {n_groups}; leave out "
            "groups if rows have nothing to do with each other"
        )
    if isinstance(n_folds, int) and n_folds > n_groups:
        raise ValueError(f"n_folds={n_folds} folds need as many {'rows' if groups is None else 'groups'}, got {n_groups}")
    count = n_folds if isinstance(n_folds, int) else auto_folds(n_groups, are_trained)
    folds = rng.permutation(np.arange(n_rows) % count) if groups is None else group_folds(groups, count)
    return count, torch.from_numpy(folds)


def auto_folds(n_groups: int, are_trained: bool = False) -> int:
    """Return how many folds: 20,000 divided by the number of groups, or of rows without groups, from 5 (or 3) to 10.

    Examples
    --------
    >>> auto_folds(4), auto_folds(500), auto_folds(3000), auto_folds(10**6), auto_folds(10**6, are_trained=True)
    (4, 10, 7, 5, 3)
    """
    least = LEAST_FOLDS if are_trained else USUAL_FOLDS
    return min(n_groups, MOST_FOLDS, max(least, round(ROWS_OF_ALL_FOLDS / n_groups)))


def in_fewer_folds(moments: list[Moments]) -> list[Moments]:
    """Return the moments of folds that are merged as in :meth:`FoldedRows.merged`."""
    return [sum_of_moments(moments[fold::LEAST_FOLDS]) for fold in range(LEAST_FOLDS)]


def block_rows(rows: Rows) -> int:
    """Return how many rows to read at once."""
    return min(MOST_BLOCK_ROWS, max(1, BLOCK_NUMBERS // rows.n_features))


def norms_of(rows: Rows, device: torch.device) -> Tensor:
    """Return the norms (n,) of rows, from one pass."""
    norms = torch.zeros(rows.n_rows, dtype=torch.float64, device=device)
    for place, block in rows.placed_blocks(block_rows(rows)):
        norms[place] = row_norms(block.to(device))
    sum_over_ranks(norms)
    return norms


def folded_rows(
    rows: Rows, folds: Tensor, n_folds: int, device: torch.device, parameters: Parameters
) -> tuple[FoldedRows, list[Moments], Tensor | None]:
    """Return the rows in folds, normalised if that is asked for or better, the moments of the folds, and the norms.

    The norms (n,) are those of rows that are normalised; else None.
    """

    def seen(normalize: bool) -> tuple[FoldedRows, list[Moments]]:
        folded = FoldedRows(rows.normalized() if normalize else rows, device, folds, n_folds)
        folded = folded if parameters.n_components is None else folded.in_span()
        moments = folded.moments(torch.ones(len(folds), dtype=torch.float64, device=device))
        _check_spread(sum_of_moments(moments), "normalised rows" if normalize else "rows")
        return folded, moments

    if parameters.normalize is False or (parameters.normalize == "auto" and rows.n_features < NORM_FEATURES):
        return *seen(normalize=False), None
    if parameters.normalize is True:
        return *seen(normalize=True), norms_of(rows, device)
    raw, norms = seen(normalize=False), norms_of(rows, device)
    if not _norms_say_little(sum_of_moments(raw[1]), norms):
        return *raw, None
    unit = seen(normalize=True)
    return (*unit, norms) if _is_likelier(unit, raw, norms) else (*raw, None)


def _norms_say_little(moments: Moments, norms: Tensor) -> bool:
    """Return whether norms hold little of the variance, and rows are not around the origin, as centred rows are."""
    variance, mean_square = float(moments.covariance().trace()), float(norms.square().mean())
    if not norms.min() > 0 or norms.var(correction=0) >= NORM_SHARE * variance:
        return False
    return mean_square - variance > MEAN_SHARE * mean_square


def _is_likelier(unit: tuple[FoldedRows, list[Moments]], raw: tuple[FoldedRows, list[Moments]], norms: Tensor) -> bool:
    """Return whether held-out normalised rows have the larger Gaussian likelihood.

    The Jacobian of the normalisation counts, as in the choice of a Box-Cox transformation.
    """
    d = raw[0].rows.n_features
    volumes = [
        folded.lifted(cross_validated(in_fewer_folds(moments), d, FLOOR)[0]).log_determinant()
        for folded, moments in (unit, raw)
    ]
    return volumes[0] + 2 * d * float(norms.log().mean()) < volumes[1]


def _check_spread(moments: Moments, name: str) -> None:
    """Raise a ValueError unless rows have a covariance and differ by more than rounding."""
    if not moments.scatter.isfinite().all():
        raise ValueError("the squares of the rows are too large for float64; give rows in a larger unit")
    rounding = torch.finfo(torch.float64).eps ** 2 * len(moments.mean) * float(moments.mean.square().sum())
    if not float(moments.covariance().trace()) > rounding:
        raise ValueError(f"all {name} are equal, so nothing can be learnt from them; give rows that differ")
