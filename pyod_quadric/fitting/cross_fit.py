"""Quadrics fitted to all rows and to the complement of each fold, so that held-out rows can evaluate them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from pyod_quadric.fitting.evidence import evidence_weights, gaussian_references
from pyod_quadric.fitting.folds import LEAST_FOLDS, FoldedRows
from pyod_quadric.geometry.distances import DISTANCE_FUNCTIONS
from pyod_quadric.geometry.packing import packed_size
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.model.closed_form import SOLUTIONS, add_feature_products, nearly_lowest_eigenvectors
from pyod_quadric.model.coordinates import WorkingCoordinates
from pyod_quadric.model.linear import LinearPart
from pyod_quadric.model.model import Model
from pyod_quadric.model.moments import in_folds
from pyod_quadric.parallel.ranks import from_first_rank, sum_over_ranks
from pyod_quadric.parameters import Distance, InnerProduct
from pyod_quadric.progress import counted, stage

# Rows that decide the weights of quadrics, and references to compare them with.
N_EVIDENCE = 4000
N_REFERENCES = 2000
# Rows whose features are multiplied: 40 for each coefficient in 100 coordinates. More would take much time for little.
MOST_MULTIPLIED = 200_000


WeightedQuadrics = tuple[Quadrics | None, Tensor | None]  # those with a say, if any, and their weights, if they have any


class CrossFitted(NamedTuple):
    """Quadrics fitted to all rows and, for held-out scores, to the complement of each fold, in the same order."""

    whole: Quadrics
    held_out: list[Quadrics]

    def some(self, index: slice | Tensor) -> "CrossFitted":
        """Return some of the quadrics."""
        return CrossFitted(self.whole[index], [quadrics[index] for quadrics in self.held_out])

    def weighted(self, weights: list[Tensor] | None) -> list[WeightedQuadrics]:
        """Return the quadrics of all rows, then those of each fold, all without quadrics of zero weight."""
        everyone = [self.whole, *self.held_out]
        if weights is None:
            return [(quadrics, None) for quadrics in everyone]
        kept = [weight > 0 for weight in weights]
        return [
            (quadrics[some] if some.any() else None, weight[some])
            for quadrics, weight, some in zip(everyone, weights, kept, strict=True)
        ]


class CrossCoordinates(NamedTuple):
    """Coordinates for the quadrics of all rows and for those of the complement of each fold.

    They may be shared, which is cheaper: a fold of independent rows hardly influences the axes of all rows. Groups of rows
    influence them more.
    """

    whole: WorkingCoordinates
    held_out: list[WorkingCoordinates]

    @classmethod
    def shared(cls, coordinates: WorkingCoordinates, n_folds: int) -> "CrossCoordinates":
        """Return the same coordinates for all rows and for each fold."""
        return cls(coordinates, [coordinates] * n_folds)

    def are_shared(self) -> bool:
        """Return whether all are the same."""
        return all(coordinates is self.whole for coordinates in self.held_out)


@dataclass(frozen=True, eq=False)
class Sample:
    """A sample of rows in memory, from which signs of axes and the evidence for quadrics are computed."""

    indices: Tensor  # (n,)
    rows: Tensor  # (n, r)
    folds: Tensor  # (n,)

    @classmethod
    def drawn(cls, folded: FoldedRows, rng: np.random.Generator) -> "Sample":
        """Draw a sample of the rows."""
        indices = np.sort(rng.permutation(folded.rows.n_rows)[:N_EVIDENCE])
        places = torch.from_numpy(indices).to(folded.device)
        return cls(places, folded.read(indices), folded.folds[places])

    def merged(self) -> "Sample":
        """Return the same rows in as few folds as possible; see :meth:`FoldedRows.merged`."""
        return replace(self, folds=self.folds % LEAST_FOLDS)


@stage("closed form")
def closed_form(
    folded: FoldedRows,
    coordinates: CrossCoordinates,
    row_weights: Tensor,
    inner_product: InnerProduct = "hs",
    held_out: bool = True,
    n_quadrics: int | None = None,
) -> CrossFitted:
    """Return the orthonormal quadrics of the closed form, all or the first few, by ascending mean square of all rows.

    Shared coordinates take one pass; otherwise each fold takes one more.
    """
    k = len(coordinates.whole.matrix)
    m = packed_size(k) if n_quadrics is None else n_quadrics
    row_weights = _thinned(row_weights)
    products = _feature_products(folded, coordinates.whole, row_weights)
    total = sum(products[1:], start=products[0])

    def solution(summed: Tensor) -> Quadrics:
        return SOLUTIONS[inner_product](summed / summed[-1, -1], m, nearly_lowest_eigenvectors).to(dtype=folded.dtype)

    def complements() -> Iterator[Tensor]:
        if coordinates.are_shared():
            yield from (total - product for product in products)
            return
        for fold, own in enumerate(coordinates.held_out):
            others = _feature_products(folded, own, row_weights * (folded.folds != fold))
            yield torch.stack(others).sum(dim=0)

    sums = chain([total], complements() if held_out else ())
    whole, *folds = (solution(summed) for summed in counted(sums, 1 + held_out * folded.n_folds, "solutions"))
    if coordinates.are_shared():
        folds = [in_order_of(whole, quadrics) for quadrics in folds]
    return from_first_rank(CrossFitted(whole, folds), folded.device)


def in_order_of(whole: Quadrics, others: Quadrics) -> Quadrics:
    """Return the other quadrics, as many as these, ordered to match these by HS inner products.

    Sorting by mean square is not enough. If the rows of the others have no variance along a coordinate, all their quadrics that
    involve it come first, and quadrics with the same index would not correspond.

    Examples
    --------
    >>> import torch
    >>> both = Quadrics(torch.eye(2)[:, :, None] * torch.eye(2)[:, None], torch.zeros(2, 2), torch.zeros(2))
    >>> in_order_of(both, both[torch.tensor([1, 0])]).quadratic[0]
    tensor([[1., 0.],
            [0., 0.]])
    """
    resemblance = whole.hs_inner(others).square()
    return others[torch.from_numpy(linear_sum_assignment(resemblance.cpu(), maximize=True)[1]).to(others.device)]


def _feature_products(folded: FoldedRows, coordinates: WorkingCoordinates, row_weights: Tensor) -> list[Tensor]:
    """Return the weighted sum of ``φ φᵀ`` over each fold, from one pass; see :func:`add_feature_products`."""
    size = packed_size(len(coordinates.matrix) + 1)
    products = [torch.zeros(size, size, dtype=torch.float64, device=folded.device) for _ in range(folded.n_folds)]
    blocks = ((place, coordinates.transform(block)) for place, block in folded.blocks())
    for fold, place, chosen, working in in_folds(blocks, folded.folds, folded.n_folds):
        weights = row_weights[place][chosen]
        counted = weights > 0
        add_feature_products(products[fold], working[counted], weights[counted])
    sum_over_ranks(*products)
    return products


def _thinned(row_weights: Tensor) -> Tensor:
    """Return the weights (n,) with all but some 200,000 of them, drawn at random, set to 0."""
    n = len(row_weights)
    if n <= MOST_MULTIPLIED:
        return row_weights
    return row_weights * torch.from_numpy(np.random.default_rng(0).random(n) < MOST_MULTIPLIED / n).to(row_weights.device)


@stage("evidence")
def quadric_evidence(
    sample: Sample, coordinates: CrossCoordinates, quadrics: CrossFitted, row_weights: Tensor, distance: Distance, d: int
) -> list[Tensor]:
    """Return the weights (m,) of quadrics of all rows, then those of each fold, from a sample of rows with d features.

    Each row is measured by quadrics that were fitted without it. The first weights use the evidence of all rows. Those of a
    fold use the evidence of its complement, and only for quadrics with a weight for all rows.
    """
    rows, weights = _held_out_rows(sample, coordinates), row_weights[sample.indices]
    held_out = _held_out_distances(sample, rows, quadrics.held_out, distance)
    references = gaussian_references(rows, weights, N_REFERENCES)
    near, typical = held_out.square(), distances(references, quadrics.whole, distance).square()
    counted = [torch.ones_like(sample.folds), *(sample.folds != fold for fold in range(len(quadrics.held_out)))]
    whole, *others = (evidence_weights(near, typical, weights * rows, d) for rows in counted)
    return from_first_rank([whole, *(other * (whole > 0) for other in others)], weights.device)


@stage("evidence")
def as_of_all_rows(
    sample: Sample,
    coordinates: CrossCoordinates,
    quadrics: CrossFitted,
    weights: list[Tensor],
    row_weights: Tensor,
    distance: Distance,
) -> list[Tensor]:
    """Return the weights, with those of the folds reduced because their quadrics were fitted to fewer rows.

    After a fit to n rows, the mean square of other rows is above its limit by ``a / n``, and that of the fitted rows is below
    by as much. With K folds, held-out rows are above fitted rows by ``K / (K - 1) + 1`` times ``a / n``. For new rows and a
    model of all rows this is less by ``1 / (K - 1)`` times ``a / n``.
    """
    rows, shares = _held_out_rows(sample, coordinates), row_weights[sample.indices]
    kept = weights[0] > 0
    held_out = _held_out_distances(sample, rows, quadrics.some(kept).held_out, distance)
    fitted = distances(coordinates.whole.transform(sample.rows), quadrics.whole[kept], distance)
    above, below = (float(shares @ (found.double().square() @ weights[0][kept])) for found in (held_out, fitted))
    spared = max(0.0, above - below) / (2 * len(quadrics.held_out) - 1)
    factor = 1 - spared / above if above > 0 else 1.0
    return from_first_rank([weights[0], *(weight * factor for weight in weights[1:])], rows.device)


def _held_out_rows(sample: Sample, coordinates: CrossCoordinates) -> Tensor:
    """Return a sample's rows (n, k), each in the coordinates of its fold."""
    rows = coordinates.whole.transform(sample.rows)
    if not coordinates.are_shared():
        for fold, own in enumerate(coordinates.held_out):
            chosen = sample.folds == fold
            rows[chosen] = own.transform(sample.rows[chosen])
    return rows


def _held_out_distances(sample: Sample, rows: Tensor, held_out: list[Quadrics], distance: Distance) -> Tensor:
    """Return the distances (n, m) of rows in the coordinates of their folds to quadrics that have not seen them."""
    found = rows.new_empty(len(rows), len(held_out[0]), dtype=held_out[0].dtype)
    for fold, fitted in enumerate(held_out):
        chosen = sample.folds == fold
        found[chosen] = distances(rows[chosen], fitted, distance)
    return found


def models_of(
    coordinates: Iterable[WorkingCoordinates],
    linear_parts: Iterable[LinearPart | None],
    quadrics: Iterable[WeightedQuadrics],
    distance: Distance,
) -> list[Model]:
    """Return a model from each linear part, with the coordinates and quadrics at the same position, for the folded rows."""
    return [
        Model(own, *weighted, linear_part=part, distance=distance)
        for own, part, weighted in zip(coordinates, linear_parts, quadrics, strict=True)
    ]


@stage("held-out scores")
def held_out_scores(folded: FoldedRows, models: Sequence[Model]) -> Tensor:
    """Return the score (n,) of each row by the model of its fold, in one pass.

    Parameters
    ----------
    folded : FoldedRows
    models : sequence of Model
        For each fold, a model that has not seen its rows.
    """
    scores = torch.zeros(folded.rows.n_rows, dtype=torch.float64, device=folded.device)
    for fold, place, chosen, rows in folded.in_folds():
        scores[place][chosen] = models[fold].score(rows)
    sum_over_ranks(scores)  # each process has filled in its own
    return scores


def distances(points: Tensor, quadrics: Quadrics, distance: Distance) -> Tensor:
    """Return the distances (n, m) of points in working coordinates, in the type of the quadrics."""
    return DISTANCE_FUNCTIONS[distance](points.to(quadrics.dtype), quadrics)
