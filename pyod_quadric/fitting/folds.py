"""The rows as a fit sees them: normalised or not, and in coordinates of their span where they are few."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyod_quadric.data.rows import Rows, normalized, row_norms
from pyod_quadric.geometry.quadrics import BLOCK_NUMBERS
from pyod_quadric.model.coordinates import WorkingCoordinates
from pyod_quadric.model.linear import FLOOR, LinearPart, cross_validated
from pyod_quadric.model.moments import Moments, moments_of_folds, sum_of_moments
from pyod_quadric.parallel.ranks import from_first_rank, sum_over_ranks
from pyod_quadric.training.options import FitOptions

N_FOLDS = 3
MOST_BLOCK_ROWS = 8192
# Norms are dropped only if they hold less than this share of the variance, and the mean more than that of the squared norms:
# for rows that somebody has centred the origin means nothing, but embeddings, even of texts of many kinds, have a mean.
NORM_SHARE = 0.1
MEAN_SHARE = 0.05
NORM_FEATURES = 32  # and only in embeddings: of a few features the norm is one too many to lose


@dataclass(frozen=True, eq=False)
class View:
    """The rows as the fit sees them: on a device, normalised or not, and in coordinates of their span if that is smaller."""

    rows: Rows
    device: torch.device
    folds: Tensor  # (n,), which fold each row is in
    normalize: bool = False
    origin: Tensor | None = None  # (d,)
    basis: Tensor | None = None  # (r, d), orthonormal

    @property
    def dtype(self) -> torch.dtype:
        """The type of the rows: their own, or float64 in coordinates of their span."""
        return self.rows.dtype if self.basis is None else torch.float64

    def in_span(self) -> "View":
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
        for place, block in self.rows.placed_blocks(self._block_rows()):
            yield place, self._seen(block)

    def _block_rows(self) -> int:
        return min(MOST_BLOCK_ROWS, max(1, BLOCK_NUMBERS // self.rows.n_features))

    def read(self, numbers: NDArray[np.int64]) -> Tensor:
        """Return some rows by number."""
        return self._seen(self.rows.read(numbers))

    def norms(self) -> Tensor:
        """Return the norms (n,) of the rows as they are, from one pass."""
        norms = torch.zeros(self.rows.n_rows, dtype=torch.float64, device=self.device)
        for place, block in self.rows.placed_blocks(self._block_rows()):
            norms[place] = row_norms(block.to(self.device))
        sum_over_ranks(norms)
        return norms

    def moments(self, weights: Tensor) -> list[Moments]:
        """Return the weighted moments of each fold, from one pass."""
        return moments_of_folds(self.blocks(), Moments.none(self.read(np.arange(1))), self.folds, N_FOLDS, weights)

    def lifted(self, part: LinearPart) -> LinearPart:
        """Express a linear part of the view in (normalised) input coordinates."""
        if self.basis is None or self.origin is None:
            return part
        return replace(part, mean=self.origin + part.mean @ self.basis, axes=part.axes @ self.basis)

    def lifted_coordinates(self, coordinates: WorkingCoordinates) -> WorkingCoordinates:
        """Express working coordinates of the view as a map from the input."""
        if self.basis is not None and self.origin is not None:
            mean = self.origin + coordinates.mean @ self.basis
            coordinates = replace(coordinates, mean=mean, matrix=coordinates.matrix @ self.basis)
        return replace(coordinates, normalize=self.normalize)

    def _seen(self, rows: Tensor) -> Tensor:
        rows = rows.to(self.device)
        if self.normalize:
            rows = normalized(rows)
        return rows if self.basis is None or self.origin is None else (rows.double() - self.origin) @ self.basis.T


def choose_view(plain: View, options: FitOptions) -> tuple[View, list[Moments]]:
    """Return the view, normalised if that is asked for or better, and the moments of its folds.

    It is better if the norms hold little of the variance, so that little can be lost; if rows are not around the origin, since
    the norm of centred rows is their distance from the mean; and if held-out normalised rows have the larger Gaussian
    likelihood, with the Jacobian of the normalisation, as in the choice of a Box-Cox transformation.
    """

    def look(normalize: bool) -> tuple[View, list[Moments]]:
        view = replace(plain, normalize=normalize)
        view = view if options.n_components is None else view.in_span()
        moments = view.moments(torch.ones(len(view.folds), dtype=torch.float64, device=view.device))
        total = sum_of_moments(moments)
        if not total.scatter.isfinite().all():
            raise ValueError("the squares of the rows are too large for float64; give rows in a larger unit")
        if not _is_spread(total):
            rows = "normalised rows" if normalize else "rows"
            raise ValueError(f"all {rows} are equal, so nothing can be learnt from them; give rows that differ")
        return view, moments

    if options.normalize != "auto":
        return look(bool(options.normalize))
    raw = look(normalize=False)
    d = plain.rows.n_features
    if d < NORM_FEATURES:
        return raw
    norms = plain.norms()
    spread, size = float(sum_of_moments(raw[1]).covariance().trace()), float(norms.square().mean())
    if not norms.min() > 0 or norms.var(correction=0) >= NORM_SHARE * spread:
        return raw
    if size - spread <= MEAN_SHARE * size:
        return raw
    unit = look(normalize=True)
    volumes = [view.lifted(cross_validated(moments, d, FLOOR)[0]).log_determinant() for view, moments in (raw, unit)]
    return unit if volumes[1] + 2 * d * float(norms.log().mean()) < volumes[0] else raw


def _is_spread(moments: Moments) -> bool:
    """Return whether rows differ by more than rounding."""
    rounding = torch.finfo(torch.float64).eps ** 2 * len(moments.mean) * float(moments.mean.square().sum())
    return float(moments.covariance().trace()) > rounding
