"""The rows of a fit: in folds, normalised or not, and in coordinates of their span if there are few rows."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyod_quadric.data.groups import group_folds
from pyod_quadric.data.rows import Rows
from pyod_quadric.fitting.preparation import PreparedRows, block_rows
from pyod_quadric.model.coordinates import WorkingCoordinates
from pyod_quadric.model.linear import LinearPart
from pyod_quadric.model.moments import Moments, in_folds, moments_of_folds, sum_of_moments
from pyod_quadric.parallel.ranks import from_first_rank
from pyod_quadric.parameters import LEAST_ROWS
from pyod_quadric.progress import stage

LEAST_FOLDS = LEAST_ROWS
# Where rows are few, each of them matters to what is learnt from the others, and many folds are cheap.
USUAL_FOLDS, MOST_FOLDS = 5, 10
ROWS_OF_ALL_FOLDS = 20_000


class NotYetError(ValueError):
    """Raised when rows are valid, but too few or too equal to learn from yet."""


@dataclass(frozen=True, eq=False)
class FoldedRows:
    """Rows on a device, in folds, and in coordinates of their span if that is smaller.

    Parameters
    ----------
    rows : Rows
        Normalised, if the model normalises.
    device : torch.device
    folds : Tensor of shape (n,)
        The fold of each row.
    n_folds : int
    n_distinct : int
        The number of different rows: copies count once.
    origin : Tensor of shape (d,), optional
    basis : Tensor of shape (r, d), optional
        Orthonormal rows that span, from the origin, the rows.
    """

    rows: Rows
    device: torch.device
    folds: Tensor
    n_folds: int
    n_distinct: int
    origin: Tensor | None = None
    basis: Tensor | None = None

    @property
    def dtype(self) -> torch.dtype:
        """The type of the rows in computations; float64 in coordinates of their span, else their own."""
        return self.rows.dtype if self.basis is None else torch.float64

    def merged(self) -> "FoldedRows":
        """Return the same rows in as few folds as possible, each a union of some of these."""
        return replace(self, folds=self.folds % LEAST_FOLDS, n_folds=LEAST_FOLDS)

    def in_span(self) -> "FoldedRows":
        """Return the same rows in coordinates of their span, if there are at most as many rows as features."""
        if self.rows.n_rows > self.rows.n_features:
            return self
        everything = self.read(np.arange(self.rows.n_rows)).double()
        origin = everything.mean(dim=0)
        _, lengths, axes = torch.linalg.svd(everything - origin, full_matrices=False)
        kept = lengths > torch.finfo(self.rows.dtype).eps * lengths[0]
        origin, basis = from_first_rank((origin, axes[kept]), self.device)
        return replace(self, origin=origin, basis=basis)

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield this process's share of all rows, as slices and the rows in them."""
        for place, block in self.rows.placed_blocks(block_rows(self.rows)):
            yield place, self._seen(block)

    def in_folds(self) -> Iterator[tuple[int, slice, Tensor, Tensor]]:
        """Yield the blocks fold by fold; see :func:`pyod_quadric.model.moments.in_folds`."""
        return in_folds(self.blocks(), self.folds, self.n_folds)

    def read(self, indices: NDArray[np.int64]) -> Tensor:
        """Return some rows by index."""
        return self._seen(self.rows.read(indices))

    def moments(self, row_weights: Tensor) -> list[Moments]:
        """Return the weighted moments of each fold, in one pass."""
        return moments_of_folds(self.blocks(), Moments.none(self.read(np.arange(1))), self.folds, self.n_folds, row_weights)

    def lifted(self, part: LinearPart) -> LinearPart:
        """Express a linear part in these coordinates as one in the coordinates of the rows."""
        if self.basis is None or self.origin is None:
            return part
        return replace(part, mean=self.origin + part.mean @ self.basis, axes=part.axes @ self.basis)

    def lifted_coordinates(self, coordinates: WorkingCoordinates) -> WorkingCoordinates:
        """Compose working coordinates with the map from the rows to these coordinates."""
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
    """Return the number of folds, and the fold (n,) of each row: at random, or by its group.

    Parameters
    ----------
    n_rows : int
    groups : ndarray of shape (n,), optional
    n_folds : int, "auto" or None
        The parameter of the detector. Without held-out scores (None), folds are still needed for variances.
    rng : numpy.random.Generator
    are_trained : bool
        Whether each fold costs a training, so that there should be few.

    Examples
    --------
    >>> folds_of(4, np.array([7, 8, 7, 9]), 3, np.random.default_rng(0))[1].tolist()
    [0, 2, 0, 1]
    """
    n_groups = n_rows if groups is None else len(np.unique(groups))
    if n_groups < LEAST_FOLDS:
        raise NotYetError(
            f"rows must be in at least {LEAST_FOLDS} groups, so that each can be judged by others, got {n_groups}; leave out "
            "groups if rows have nothing to do with each other"
        )
    if isinstance(n_folds, int) and n_folds > n_groups:
        raise ValueError(f"n_folds={n_folds} folds need as many {'rows' if groups is None else 'groups'}, got {n_groups}")
    count = n_folds if isinstance(n_folds, int) else auto_folds(n_groups, are_trained)
    folds = rng.permutation(np.arange(n_rows) % count) if groups is None else group_folds(groups, count)
    return count, torch.from_numpy(folds)


def auto_folds(n_groups: int, are_trained: bool = False) -> int:
    """Return the number of folds: 20,000 divided by the number of groups (or rows), from 5 (3 if trained) to 10.

    Examples
    --------
    >>> auto_folds(4), auto_folds(500), auto_folds(3000), auto_folds(10**6), auto_folds(10**6, are_trained=True)
    (4, 10, 7, 5, 3)
    """
    least = LEAST_FOLDS if are_trained else USUAL_FOLDS
    return min(n_groups, MOST_FOLDS, max(least, round(ROWS_OF_ALL_FOLDS / n_groups)))


def in_fewer_folds(moments: list[Moments]) -> list[Moments]:
    """Return the moments of folds merged as in :meth:`FoldedRows.merged`."""
    return [sum_of_moments(moments[fold::LEAST_FOLDS]) for fold in range(LEAST_FOLDS)]


@stage("moments")
def folded_rows(
    prepared: PreparedRows, folds: Tensor, n_folds: int, n_distinct: int, device: torch.device, in_span: bool
) -> tuple[FoldedRows, list[Moments]]:
    """Return the rows in folds and the moments of the folds; in coordinates of the span if requested and smaller."""
    folded = FoldedRows(prepared.rows, device, folds, n_folds, n_distinct)
    folded = folded.in_span() if in_span else folded
    moments = folded.moments(torch.ones(len(folds), dtype=torch.float64, device=device))
    _check_spread(sum_of_moments(moments), are_normalized=prepared.norms is not None)
    return folded, moments


def _check_spread(moments: Moments, are_normalized: bool) -> None:
    """Raise an error unless rows differ by more than rounding."""
    rounding = torch.finfo(torch.float64).eps ** 2 * len(moments.mean) * float(moments.mean.square().sum())
    if float(moments.covariance().trace()) > rounding:
        return
    if are_normalized:
        raise NotYetError(
            "all normalised rows are equal, so nothing can be learnt from them; give rows of other directions, or set "
            "normalize=False if their lengths count"
        )
    raise NotYetError(
        "all rows are equal, so nothing can be learnt from them, or they differ by no more than rounding; give rows that "
        "differ, or take away what they have in common"
    )
