"""Rows that are kept as neighbours of new ones: which, in which coordinates, and how much they weigh.

They weigh so much that the scores of held-out rows by their neighbours are spread half as widely as those by the linear part:
then both are in one unit, whether rows are dense or not, and where neighbours are a matter of chance they say little.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pyod_quadric.fitting.cross_fit import Sample
from pyod_quadric.fitting.folds import FoldedRows
from pyod_quadric.model.coordinates import WorkingCoordinates
from pyod_quadric.model.linear import LinearPart
from pyod_quadric.model.neighbors import Neighbors
from pyod_quadric.parallel.ranks import from_first_rank

MOST_COORDINATES = 200  # what is farther down is noise to neighbours, and the linear part sees it
LEAST_ROW_WEIGHT = 0.5  # of a row that is kept: outliers among the rows should not be neighbours of others
SHARE = 0.5  # of the spread of the linear part; as much as it serves clean rows as well, and contaminated ones less so
MOST_WEIGHT = 100.0  # where rows are copies of each other, and no distance apart
TINY = torch.finfo(torch.float64).tiny


def cross_neighbors(
    folded: FoldedRows,
    sample: Sample,
    parts: tuple[LinearPart, list[LinearPart]],
    row_weights: Tensor,
    n_prototypes: int,
    rng: np.random.Generator,
) -> tuple[Neighbors, list[Neighbors]]:
    """Return the neighbours among all rows, and for each fold those among the others, for the folded rows.

    Parameters
    ----------
    folded : FoldedRows
    sample : Sample
        The rows that decide the weights.
    parts : LinearPart and list of LinearPart
        Of all rows, and for each fold one that has not seen it.
    row_weights : Tensor of shape (n,)
    n_prototypes : int
        The most rows to keep.
    rng : numpy.random.Generator
        Chooses them, if there are more.
    """
    whole_part, held_out = parts
    kept = _Kept.drawn(folded, row_weights, n_prototypes, rng)
    whole = kept.in_coordinates_of(whole_part, slice(n_prototypes))
    own = [kept.in_coordinates_of(part, kept.folds != fold) for fold, part in enumerate(held_out)]
    shares = row_weights[sample.indices]
    near = _sums(sample, shares, [found.scores for found in own])
    along = _sums(sample, shares, [part.squared_distances for part in held_out])
    others = [_weight(along.sum(0) - along[fold], near.sum(0) - near[fold]) for fold in range(len(own))]
    weight = _weight(along.sum(0), near.sum(0)) / _denser(sample, shares, whole, own, near)
    found = replace(whole, weight=weight), [replace(one, weight=other) for one, other in zip(own, others, strict=True)]
    return from_first_rank(found, folded.device)


@dataclass(frozen=True, eq=False)
class _Kept:
    """Rows that may be neighbours."""

    rows: Tensor  # (p, r)
    folds: Tensor  # (p,)

    @classmethod
    def drawn(cls, folded: FoldedRows, row_weights: Tensor, n_prototypes: int, rng: np.random.Generator) -> "_Kept":
        """Draw so many rows that some are left when a fold is held out, in random order."""
        candidates = torch.nonzero(row_weights >= LEAST_ROW_WEIGHT)[:, 0].cpu().numpy()
        most = -(-n_prototypes * folded.n_folds // (folded.n_folds - 1))
        indices = rng.permutation(candidates)[:most]
        order = np.argsort(indices)  # files are read from the start to the end
        rows = folded.read(indices[order])[torch.from_numpy(np.argsort(order)).to(folded.device)]
        return cls(rows, folded.folds[torch.from_numpy(indices).to(folded.device)])

    def in_coordinates_of(self, part: LinearPart, index: slice | Tensor) -> Neighbors:
        """Return some of the rows, in which the linear part's variances are 1; the weight is left open."""
        axes, deviations = part.axes[:MOST_COORDINATES], part.variances[:MOST_COORDINATES].sqrt()
        coordinates = WorkingCoordinates(part.mean, axes / deviations[:, None])
        return Neighbors(coordinates, coordinates.transform(self.rows[index]), weight=1.0)


def _sums(sample: Sample, shares: Tensor, scores: Sequence[Callable[[Tensor], Tensor]]) -> Tensor:
    """Return the weighted sums of 1, scores and squared scores (n_folds, 3) of each fold's rows, by what has not seen them."""
    sums = []
    for fold, score in enumerate(scores):
        chosen = sample.folds == fold
        found = score(sample.rows[chosen]).double()
        sums.append(shares[chosen] @ torch.stack([torch.ones_like(found), found, found.square()], dim=1))
    return torch.stack(sums)


def _denser(sample: Sample, shares: Tensor, whole: Neighbors, own: list[Neighbors], near: Tensor) -> float:
    """Return how much nearer the neighbours are among all rows that are kept, of which a fold has fewer.

    Squared distances fall with a power of the number of rows, which half of them show.
    """
    halves = [replace(found, prototypes=found.prototypes[::2]) for found in own]
    n_own, n_half = (sum(len(found.prototypes) for found in some) for some in (own, halves))
    farther, nearer = (float(sums[:, 1].sum()) for sums in (_sums(sample, shares, [half.scores for half in halves]), near))
    if not 0 < nearer < farther:
        return 1.0
    power = math.log(farther / nearer) / math.log(n_own / n_half)
    return float(min(1.0, n_own / len(own) / len(whole.prototypes)) ** power)


def _weight(along: Tensor, near: Tensor) -> float:
    """Return the weight by which the neighbours' scores have their share of the linear part's spread, from sums over rows."""
    return min(MOST_WEIGHT, SHARE * _spread(along) / max(_spread(near), TINY))


def _spread(sums: Tensor) -> float:
    mean, mean_square = (float(total / sums[0].clamp(min=TINY)) for total in (sums[1], sums[2]))
    return math.sqrt(max(0.0, mean_square - mean**2))
