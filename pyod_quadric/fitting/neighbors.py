"""The rows kept as neighbours of new ones: which rows, in which coordinates, and with which weight.

The weight makes the neighbour scores of held-out rows spread as widely as their scores by the linear part, so both are in one
unit, whether rows are dense or not. Spreads are median deviations, so outliers among the rows do not decide the weight.
Coordinates are whitened, and longer along axes where rows are in clusters.

Where rows are in several clusters, a distance from the mean of them all says little of how isolated a row is. So the linear
part keeps the share to which its distances agree with those to the neighbours, by their correlation over held-out rows, and the
neighbours get the rest. Where rows are in one cluster, the share is near 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyod_quadric.fitting.cross_fit import Sample
from pyod_quadric.fitting.folds import FoldedRows
from pyod_quadric.fitting.local_means import stretch
from pyod_quadric.geometry.quadrics import BLOCK_NUMBERS
from pyod_quadric.model.coordinates import WorkingCoordinates
from pyod_quadric.model.linear import LinearPart
from pyod_quadric.model.neighbors import Neighbors
from pyod_quadric.model.norms import robust_deviation
from pyod_quadric.parallel.ranks import from_first_rank

FLOOR_NEIGHBORS = 1.0  # of the variances: to neighbours, directions of little variance are noise
LEAST_ROW_WEIGHT = 0.5  # of a row that is kept: outliers among the rows should not be neighbours of others
# Unless a share of all rows, and at least so many, is within so many times the distance that is typical of usual rows.
MANY, LEAST_MANY, MANY_WITHIN = 0.02, 10, 3.0
N_TYPICAL = 500  # usual rows by which that distance is seen
LEAST_AGREEMENT = 0.05  # however little the linear part knows, it is heard of rows that are far from all clusters
MOST_DEVIATIONS = 3.0  # of a distance in the correlation, so that a few far rows do not decide it
# The least spread, as a share of the standard deviation: where most rows are near copies, neighbours are no distance away.
LEAST_SHARE = 0.02
EXTREMES = 0.01  # of the rows are left out of that standard deviation, so that one gross row does not silence all neighbours
TINY = torch.finfo(torch.float64).tiny


class CrossNeighbors(NamedTuple):
    """Neighbours among all rows, and then for each fold those among the others, with what each leaves to the linear part.

    Parameters
    ----------
    found : list of Neighbors
    linear_shares : list of float
        In (0, 1], of the linear part's squared distances.
    """

    found: list[Neighbors]
    linear_shares: list[float]


def cross_neighbors(
    folded: FoldedRows,
    sample: Sample,
    units: tuple[LinearPart, list[LinearPart]],
    linear_parts: list[LinearPart],
    row_weights: Tensor,
    n_prototypes: int,
    rng: np.random.Generator,
    grouped: bool,
) -> CrossNeighbors:
    """Return the neighbours among all rows and those among the others of each fold, for the folded rows.

    Parameters
    ----------
    folded : FoldedRows
    sample : Sample
        The rows from which the weights are computed.
    units : LinearPart and list of LinearPart
        The part of all rows, and for each fold one that has not seen it. They whiten the coordinates of the neighbours.
    linear_parts : list of LinearPart
        The linear part of the score, for each fold.
    row_weights : Tensor of shape (n,)
    n_prototypes : int
        The largest number of rows to keep.
    rng : numpy.random.Generator
        Draws them, if there are more.
    grouped : bool
        Whether rows are in groups. New rows are then in new groups: what tells groups apart is no reason to be an outlier, and
        no axis is longer for it.
    """
    whole_units, own_units = units
    kept, seed = _Kept.drawn(folded, whole_units, row_weights, n_prototypes, rng), None if grouped else int(rng.integers(2**31))
    indices: list[slice | Tensor] = [slice(n_prototypes), *(kept.folds != fold for fold in range(len(own_units)))]
    pairs = list(zip([whole_units, *own_units], indices, strict=True))
    whole, *own = (kept.in_coordinates_of(part, index, seed) for part, index in pairs)
    near = _held_out(sample, [found.scores for found in own])
    along = _held_out(sample, [part.squared_distances for part in linear_parts])
    # Where rows are fewer than features, all of them span more directions than those of a fold's complement.
    typical = [_typical_square(part, kept.rows[index]) for part, index in pairs]
    spared = sum(typical[1:]) / len(own) / typical[0] / _denser(sample, whole, own, near)
    usual = row_weights[sample.indices] >= LEAST_ROW_WEIGHT
    counted = [torch.ones_like(usual), *(sample.folds != fold for fold in range(len(own)))]
    shares = [agreement(along[rows & usual], near[rows & usual]) for rows in counted]
    weights = [(2 - share) * _weight(along[rows], near[rows]) for rows, share in zip(counted, shares, strict=True)]
    weights[0] *= spared
    found = [replace(one, weight=weight) for one, weight in zip([whole, *own], weights, strict=True)]
    return from_first_rank(CrossNeighbors(found, shares), folded.device)


def agreement(along: Tensor, near: Tensor) -> float:
    """Return how far squared distances of rows from the mean (n,) say which rows are far from their neighbours (n,).

    It is the correlation of the distances, at least 0.05; 1 where all rows are equally far.

    Examples
    --------
    >>> import torch
    >>> rows = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0)).double()
    >>> agreement(rows.square().sum(dim=1), 0.1 * rows.square().sum(dim=1)), agreement(rows[:, 0] ** 2, rows[:, 1] ** 2)
    (1.0, 0.05)
    """
    pair = torch.stack([_without_extremes(squares.sqrt()) for squares in (along, near)])
    pair = pair - pair.mean(dim=1, keepdim=True)
    lengths = torch.linalg.vector_norm(pair, dim=1)
    if not (lengths > TINY).all():
        return 1.0
    return min(1.0, max(LEAST_AGREEMENT, round(float(pair[0] / lengths[0] @ (pair[1] / lengths[1])), 12)))


def _without_extremes(distances: Tensor) -> Tensor:
    """Return distances (n,) that are at most three robust deviations from their median."""
    median, deviation = robust_deviation(distances)
    reach = MOST_DEVIATIONS * deviation
    return distances.clamp(median - reach, median + reach) if deviation > 0 else distances


@dataclass(frozen=True, eq=False)
class _Kept:
    """Rows that may be neighbours."""

    rows: Tensor  # (p, r)
    folds: Tensor  # (p,)

    @classmethod
    def drawn(
        cls, folded: FoldedRows, units: LinearPart, row_weights: Tensor, n_prototypes: int, rng: np.random.Generator
    ) -> "_Kept":
        """Draw so many rows that some are left when a fold is held out, in random order, without outliers."""
        most = -(-n_prototypes * folded.n_folds // (folded.n_folds - 1))
        indices = rng.permutation(len(row_weights))[:most]
        order = np.argsort(indices)  # files are read from the start to the end
        places = torch.from_numpy(indices).to(folded.device)
        rows = folded.read(indices[order])[torch.from_numpy(np.argsort(order)).to(folded.device)]
        found = cls(rows, folded.folds[places])
        usual = row_weights[places] >= LEAST_ROW_WEIGHT
        if not usual.all() and usual.any():
            usual = _are_many(_whitening(units).transform(found.rows), usual)
        return cls(rows[usual], found.folds[usual])

    def in_coordinates_of(self, part: LinearPart, index: slice | Tensor, seed: int | None) -> Neighbors:
        """Return some of the rows, whitened, and without a seed no more than that; the weight is left open."""
        coordinates, rows = _whitening(part), self.rows[index]
        if seed is not None:
            longer = stretch(coordinates.transform(rows), seed, len(self.rows)).to(coordinates.matrix)
            coordinates = WorkingCoordinates(coordinates.mean, longer @ coordinates.matrix)
        return Neighbors(coordinates, coordinates.transform(rows), weight=1.0)


def _whitening(part: LinearPart) -> WorkingCoordinates:
    """Return the coordinates in which a linear part's variances are 1."""
    return WorkingCoordinates(part.mean, part.axes / part.variances.sqrt()[:, None])


def _are_many(points: Tensor, usual: Tensor) -> Tensor:
    """Return which points (n, r) are usual (n,), or have as many others near them as usual ones: a cluster of their own."""
    k = min(len(points), max(LEAST_MANY, round(MANY * len(points))) + 1)  # the nearest is the point itself
    size = max(1, BLOCK_NUMBERS // len(points))

    def farthest(some: Tensor) -> Tensor:
        return torch.cat([torch.cdist(block, points).topk(k, largest=False).values[:, -1] for block in torch.split(some, size)])

    found = usual.clone()
    found[~usual] = farthest(points[~usual]) <= MANY_WITHIN * farthest(points[usual][:N_TYPICAL]).median()
    return found


def _held_out(sample: Sample, scores: Sequence[Callable[[Tensor], Tensor]]) -> Tensor:
    """Return the score (n,) of each row of a sample by what has not seen it."""
    found = torch.zeros(len(sample.rows), dtype=torch.float64, device=sample.rows.device)
    for fold, score in enumerate(scores):
        chosen = sample.folds == fold
        found[chosen] = score(sample.rows[chosen]).double()
    return found


def _typical_square(units: LinearPart, rows: Tensor) -> float:
    """Return the mean squared distance of new rows from rows (p, d), whitened, by their variances along each axis."""
    floor = FLOOR_NEIGHBORS * float(units.variances.median()) / (1 + FLOOR_NEIGHBORS)
    spreads = _whitening(units).transform(rows).var(dim=0, correction=0)
    return float((1 - floor / units.variances).sum() + spreads.double().sum())


def _denser(sample: Sample, whole: Neighbors, own: list[Neighbors], near: Tensor) -> float:
    """Return how much nearer the neighbours are among all rows that are kept, of which a fold has fewer.

    Squared distances fall with a power of the number of rows, which half of them show.
    """
    halves = [replace(found, prototypes=found.prototypes[::2]) for found in own]
    n_own, n_half = (sum(len(found.prototypes) for found in some) for some in (own, halves))
    farther, nearer = (float(scores.median()) for scores in (_held_out(sample, [half.scores for half in halves]), near))
    if not 0 < nearer < farther:
        return 1.0
    power = math.log(farther / nearer) / math.log(n_own / n_half)
    return float(min(1.0, n_own / len(own) / len(whole.prototypes)) ** power)


def _weight(along: Tensor, near: Tensor) -> float:
    """Return the weight by which the neighbours' scores (n,) are spread as widely as the linear part's (n,)."""
    most = torch.quantile(near, 1 - EXTREMES, interpolation="lower")
    spread = max(robust_deviation(near)[1], LEAST_SHARE * float(near.clamp(max=most).std(correction=0)))
    return robust_deviation(along)[1] / spread if spread > TINY else 0.0
