"""The neighbours of a point among rows of the fit. They describe clusters and topics, which have no common shape.

The score is the mean squared distance to the nearest few of the kept rows, in coordinates of their own, times a weight that
brings it to the unit of the linear part.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pyod_quadric.geometry.quadrics import BLOCK_NUMBERS
from pyod_quadric.model.coordinates import WorkingCoordinates

TINY = torch.finfo(torch.float64).tiny
N_NEIGHBORS = 3  # a single one may be an outlier itself
# Of more than a few rows, so many candidates are the nearest along so many axes, those of the largest variance; the neighbours
# are the nearest of these along all axes. At 512 features a search along all of them would take twice as long.
FEW_ROWS, SEARCHED_AXES, N_CANDIDATES = 2000, 128, 8


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Kept rows of a fit in coordinates of their own, and the weight of distances to them.

    Parameters
    ----------
    coordinates : WorkingCoordinates
        The map from (prepared) input to r coordinates, in descending order of variance.
    prototypes : Tensor of shape (p, r)
        The kept rows, in these coordinates.
    weight : float
        The weight of the mean squared distance in the score.

    Examples
    --------
    >>> import torch
    >>> identity = WorkingCoordinates(torch.zeros(2), torch.eye(2))
    >>> kept = Neighbors(identity, torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [9.0, 9.0]]), weight=2.0)
    >>> kept.scores(torch.tensor([[0.0, 1.0]]))
    tensor([1.3333])
    """

    coordinates: WorkingCoordinates
    prototypes: Tensor
    weight: float

    def scores(self, points: Tensor) -> Tensor:
        """Return the weighted mean squared distances (n,) of points (n, d) to their neighbours, in their type."""
        scores: Tensor = self.weight * self._away(points).square().sum(dim=2).mean(dim=1)
        return scores

    def contributions(self, points: Tensor) -> Tensor:
        """Return what each feature adds to the scores (n, d): its squared differences, in the units of the coordinates."""
        contributions: Tensor = self.weight * (self._away(points) @ self._turn.to(points)).square().mean(dim=1).double()
        return contributions

    @cached_property
    def _turn(self) -> Tensor:
        """Orthonormal rows (r, d) that turn coordinates back to features; of all that do, those nearest to the map."""
        matrix = self.coordinates.matrix.double()
        left, _, right = torch.linalg.svd(matrix / matrix.abs().max().clamp(min=TINY), full_matrices=False)
        turn: Tensor = left @ right
        return turn

    def _away(self, points: Tensor) -> Tensor:
        """Return the ways (n, k, r) from the neighbours to the points, in the coordinates of the prototypes."""
        found = self.coordinates.transform(points)
        prototypes, halves = self.prototypes.to(found), self._half_squares.to(found)
        size = max(1, BLOCK_NUMBERS // len(prototypes))
        nearest = torch.cat([nearest_rows(block, prototypes, halves) for block in torch.split(found, size)])
        return found[:, None] - prototypes[nearest]

    @cached_property
    def _half_squares(self) -> Tensor:
        return half_squares(self.prototypes)


def half_squares(rows: Tensor) -> Tensor:
    """Return half the squared norms (2, p) of rows (p, r): along the searched axes, and along all."""
    return torch.stack([rows[:, :SEARCHED_AXES].square().sum(dim=1), rows.square().sum(dim=1)]) / 2


def nearest_rows(points: Tensor, rows: Tensor, halves: Tensor) -> Tensor:
    """Return the indices (n, k) of the rows (p, r) nearest to points (n, r), given the :func:`half_squares` of the rows.

    The compared numbers are squared distances up to the squared norms of the points, computed by products. Cancellation makes
    them inexact, but good enough to find the nearest rows. Compute distances from differences.
    """
    count = min(N_NEIGHBORS, len(rows))
    if rows.shape[1] <= SEARCHED_AXES or len(rows) <= FEW_ROWS:
        return torch.topk(torch.addmm(halves[1], points, rows.T, alpha=-1), count, dim=1, largest=False).indices
    few = slice(SEARCHED_AXES)
    along_few = torch.addmm(halves[0], points[:, few], rows[:, few].T, alpha=-1)
    candidates = torch.topk(along_few, N_CANDIDATES, dim=1, largest=False, sorted=False).indices
    along_all = halves[1][candidates] - (rows[candidates] @ points[:, :, None])[:, :, 0]
    return candidates.gather(1, torch.topk(along_all, count, dim=1, largest=False).indices)
