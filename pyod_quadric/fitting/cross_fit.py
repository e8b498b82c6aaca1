"""Quadrics fitted to all rows, and to the complement of each fold, so that held-out rows can judge them."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyod_quadric.fitting.evidence import elliptical_references, evidence_weights
from pyod_quadric.fitting.folds import N_FOLDS, FoldedRows
from pyod_quadric.geometry.distances import DISTANCE_FUNCTIONS
from pyod_quadric.geometry.packing import packed_size
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.model.closed_form import SOLUTIONS, add_feature_products
from pyod_quadric.model.coordinates import WorkingCoordinates
from pyod_quadric.model.moments import in_folds
from pyod_quadric.parallel.ranks import from_first_rank, sum_over_ranks
from pyod_quadric.parameters import Distance, InnerProduct

# Rows that decide the weights of quadrics, and references to compare them with.
N_EVIDENCE = 4000
N_REFERENCES = 1000


class CrossFitted(NamedTuple):
    """Quadrics fitted to all rows and, if they are needed for evidence, to the complement of each fold."""

    whole: Quadrics
    held_out: list[Quadrics]

    def some(self, index: slice | Tensor) -> "CrossFitted":
        """Return some of the quadrics."""
        return CrossFitted(self.whole[index], [quadrics[index] for quadrics in self.held_out])


@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows in memory, which decide signs of axes and the evidence for quadrics."""

    indices: Tensor  # (n,)
    rows: Tensor  # (n, r)
    folds: Tensor  # (n,)
    rng: np.random.Generator  # of the references

    @classmethod
    def drawn(cls, folded: FoldedRows, rng: np.random.Generator) -> "Sample":
        """Draw some of the rows."""
        indices = np.sort(rng.permutation(folded.rows.n_rows)[:N_EVIDENCE])
        places = torch.from_numpy(indices).to(folded.device)
        return cls(places, folded.read(indices), folded.folds[places], rng)


def closed_form(
    folded: FoldedRows, coordinates: WorkingCoordinates, row_weights: Tensor, inner_product: InnerProduct, held_out: bool
) -> CrossFitted:
    """Return all orthonormal solutions of the closed form, in ascending order of mean squared value, from one pass."""
    k = len(coordinates.matrix)
    size = packed_size(k + 1)
    products = [torch.zeros(size, size, dtype=torch.float64, device=folded.device) for _ in range(N_FOLDS)]
    blocks = ((place, coordinates.transform(block)) for place, block in folded.blocks())
    for fold, place, chosen, working in in_folds(blocks, folded.folds, N_FOLDS):
        add_feature_products(products[fold], working, row_weights[place][chosen])
    sum_over_ranks(*products)
    total = torch.stack(products).sum(dim=0)

    def solution(summed: Tensor) -> Quadrics:
        return SOLUTIONS[inner_product](summed / summed[-1, -1], packed_size(k)).to(dtype=folded.dtype)

    folds = [solution(total - product) for product in products] if held_out else []
    return from_first_rank(CrossFitted(solution(total), folds), folded.device)


def quadric_evidence(
    sample: Sample, coordinates: WorkingCoordinates, quadrics: CrossFitted, row_weights: Tensor, distance: Distance, d: int
) -> Tensor:
    """Return the weights (m,) of quadrics, from a sample of rows of d features, each seen by quadrics that have not seen it."""
    rows, weights = coordinates.transform(sample.rows), row_weights[sample.indices]
    held_out = rows.new_empty(len(rows), len(quadrics.whole), dtype=quadrics.whole.dtype)
    for fold in range(N_FOLDS):
        chosen = sample.folds == fold
        held_out[chosen] = distances(rows[chosen], quadrics.held_out[fold], distance)
    references = elliptical_references(rows, weights, N_REFERENCES, sample.rng)
    reference = distances(references, quadrics.whole, distance)
    evidence = evidence_weights(held_out.square(), reference.square(), weights, d)
    return from_first_rank(evidence, rows.device)


def distances(points: Tensor, quadrics: Quadrics, distance: Distance) -> Tensor:
    """Return the distances (n, m) of points in working coordinates, in the type of the quadrics."""
    return DISTANCE_FUNCTIONS[distance](points.to(quadrics.dtype), quadrics)
