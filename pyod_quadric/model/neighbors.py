"""The neighbours of a point among rows of the fit: what clusters and topics are, which no shape of the whole cloud knows.

Geometrically it is a union of small balls in coordinates of unit spread, beside the intersection of quadrics: the mean squared
distance to the nearest few of the rows that were kept. With a weight it is in the unit of the linear part.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pyod_quadric.geometry.quadrics import BLOCK_NUMBERS
from pyod_quadric.model.coordinates import WorkingCoordinates

N_NEIGHBORS = 3  # a single one may be an outlier itself
# Neighbours are looked for along so many axes, those of the largest variance, and measured along all. Over 13 regimes no mean
# ROC-AUC changes by more than .003 for it; at 512 features the search takes half the time.
SEARCHED_AXES = 200


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Rows of a fit in coordinates of unit spread, and how much distances to them weigh.

    Parameters
    ----------
    coordinates : WorkingCoordinates
        From (prepared) input to r coordinates, in descending order of variance; the rows of its matrix are orthogonal.
    prototypes : Tensor of shape (p, r)
        The rows that were kept, in these coordinates.
    weight : float
        Of the mean squared distance in the score.

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
        """Return what each feature adds to the scores (n, d): squared entries of the ways, in the units of the coordinates."""
        axes = (self.coordinates.matrix.double() / self.coordinates.lengths()[:, None]).to(points)
        contributions: Tensor = self.weight * (self._away(points) @ axes).square().mean(dim=1).double()
        return contributions

    def _away(self, points: Tensor) -> Tensor:
        """Return the ways (n, k, r) from the neighbours to the points, in the coordinates of the prototypes."""
        found = self.coordinates.transform(points)
        prototypes = self.prototypes.to(found)
        size = max(1, BLOCK_NUMBERS // len(prototypes))
        nearest = torch.cat([nearest_rows(block, prototypes) for block in torch.split(found, size)])
        return found[:, None] - prototypes[nearest]


def nearest_rows(points: Tensor, rows: Tensor) -> Tensor:
    """Return which rows (p, r) are nearest to points (n, r), along the first few of their coordinates: (n, k).

    The squared distances that are compared lack the squared norms of the points, and are products, which may cancel; what is
    nearest is seen well enough, and its distance is better computed from the difference.
    """
    points, rows = points[:, :SEARCHED_AXES], rows[:, :SEARCHED_AXES]
    halves = rows.square().sum(dim=1) / 2
    return torch.topk(halves - points @ rows.T, min(N_NEIGHBORS, len(rows)), dim=1, largest=False).indices
