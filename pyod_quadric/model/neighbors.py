"""The neighbours of a point among rows of the fit. They describe clusters and topics, which have no common shape.

The score is the mean squared distance to the nearest few of the kept rows, in coordinates of their own, times a weight that
brings it to the unit of the linear part.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from pyod_quadric.model.coordinates import WorkingCoordinates

TINY = torch.finfo(torch.float64).tiny
N_NEIGHBORS = 3  # a single one may be an outlier itself
# Of more than a few rows, so many candidates are the nearest along so many axes, those of the largest variance; the neighbours
# are the nearest of these along all axes. At 512 features a search along all of them would take twice as long.
FEW_ROWS, SEARCHED_AXES, N_CANDIDATES = 2000, 128, 8
BLOCK_NUMBERS = 2**21  # distances at a time: few enough to be in the cache still when the smallest are looked for
MANY_POINTS = 100  # in a block, for which a copy of the rows pays
IN_A_GROUP = 16  # numbers of which the smallest is found first


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
        return torch.cat([self.weight * away.square().sum(dim=2).mean(dim=1) for away in self._away(points)])

    def contributions(self, points: Tensor) -> Tensor:
        """Return what each feature adds to the scores (n, d): its squared differences, in the units of the coordinates."""
        turn = self._turn.to(points)
        return torch.cat([self.weight * (away @ turn).square().mean(dim=1).double() for away in self._away(points)])

    @cached_property
    def _turn(self) -> Tensor:
        """Orthonormal rows (r, d) that turn coordinates back to features; of all that do, those nearest to the map."""
        matrix = self.coordinates.matrix.double()
        left, _, right = torch.linalg.svd(matrix / matrix.abs().max().clamp(min=TINY), full_matrices=False)
        turn: Tensor = left @ right
        return turn

    def _away(self, points: Tensor) -> Iterator[Tensor]:
        """Yield the ways (b, k, r) from the neighbours to the points, in the coordinates of the prototypes, block by block."""
        found = self.coordinates.transform(points)
        prototypes, halves = self.prototypes.to(found), self._half_squares.to(found)
        size = max(1, BLOCK_NUMBERS // max(len(prototypes), N_CANDIDATES * prototypes.shape[1]))
        compare = comparison(prototypes, halves, by_onednn=True) if len(found) >= size >= MANY_POINTS else None
        for block in torch.split(found, size):
            # oneDNN keeps what it has prepared for every size it has seen, so there is only one.
            compare_block = compare if len(block) == size else None
            yield block[:, None] - embedding(nearest_rows(block, prototypes, halves, compare_block), prototypes)

    @cached_property
    def _half_squares(self) -> Tensor:
        return half_squares(self.prototypes)


def half_squares(rows: Tensor) -> Tensor:
    """Return half the squared norms (2, p) of rows (p, r): along the searched axes, and along all."""
    return torch.stack([rows[:, :SEARCHED_AXES].square().sum(dim=1), rows.square().sum(dim=1)]) / 2


def comparison(rows: Tensor, halves: Tensor, by_onednn: bool = False) -> Callable[[Tensor], Tensor]:
    """Return the function that compares points (n, r) with rows (p, r) along the searched axes, by numbers (n, p).

    They are half the squared distances, but for the squared norms of the points. Cancellation makes them inexact, but good
    enough to find candidates. With ``by_onednn``, float32 products are oneDNN's, if it is there: on processors of AMD it is
    twice as fast as MKL, which uses only half of their vector units. It takes a copy of the rows, which pays for many points.
    """
    few = slice(SEARCHED_AXES if _are_many(rows) else None)
    searched, constant = rows[:, few], halves[0 if _are_many(rows) else 1]
    there = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch has no types here
    if by_onednn and there and rows.dtype == torch.float32 and rows.device.type == "cpu":
        weight, bias = (-searched).to_mkldnn(), constant.to_mkldnn()
        return lambda points: linear(points[:, few].detach().to_mkldnn(), weight, bias).to_dense()
    return lambda points: torch.addmm(constant, points[:, few], searched.T, alpha=-1)


def _are_many(rows: Tensor) -> bool:
    return len(rows) > FEW_ROWS and rows.shape[1] > SEARCHED_AXES


def nearest_rows(points: Tensor, rows: Tensor, halves: Tensor, compare: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """Return the indices (n, k) of the rows (p, r) nearest to points (n, r).

    The rows come with their :func:`half_squares`, and with their :func:`comparison` where there are several blocks of points.
    """
    count = min(N_NEIGHBORS, len(rows))
    compared = (compare or comparison(rows, halves))(points)
    if not _are_many(rows):
        return smallest(compared, count)
    candidates = smallest(compared, N_CANDIDATES)
    # Whole rows are copied by embedding, number by number by an index; and many small products cost more than one sum.
    along_all = halves[1][candidates] - (embedding(candidates, rows) * points[:, None]).sum(dim=2)
    return candidates.gather(1, smallest(along_all, count))


def smallest(numbers: Tensor, count: int) -> Tensor:
    """Return the indices (n, count) of the smallest of numbers (n, p), in any order.

    The smallest of all are in those groups whose smallest are smallest, so most groups need not be searched.

    Examples
    --------
    >>> import torch
    >>> smallest(-torch.arange(1000.0)[None], 2).sort().values
    tensor([[998, 999]])
    """
    n_groups = numbers.shape[1] // IN_A_GROUP
    if n_groups <= count:
        return torch.topk(numbers, count, dim=1, largest=False, sorted=False).indices
    n_grouped = n_groups * IN_A_GROUP
    # Every n_groups-th number is in the same group, so that consecutive ones are compared at once.
    least = numbers[:, :n_grouped].reshape(numbers.shape[0], IN_A_GROUP, n_groups).amin(dim=1)
    groups = torch.topk(least, count, dim=1, largest=False, sorted=False).indices
    places = torch.arange(numbers.shape[1], device=numbers.device)
    searched = (groups[:, None] + places[:n_grouped:n_groups, None]).flatten(1)
    # What is left over is in no group. A length by len() would be a fixed number in a traced graph.
    searched = torch.cat([searched, places[n_grouped:].expand(searched.shape[0], -1)], dim=1)
    found = torch.topk(numbers.gather(1, searched), count, dim=1, largest=False, sorted=False).indices
    return searched.gather(1, found)
