"""How much each row counts: 1, and less for rows that are far from the others, so that outliers do not bend the fit.

A first model in few coordinates scores every row by what it looks like to a model that has not seen it. Rows lose weight from
some robust standard deviations of the logarithm of the score on, and the next round is fitted with these weights.
"""

import torch
from torch import Tensor

from pyod_quadric.fitting.components import coordinates_for, cross_validated_linear
from pyod_quadric.fitting.cross_fit import Sample, closed_form, distances, quadric_evidence
from pyod_quadric.fitting.folds import FoldedRows
from pyod_quadric.model.moments import Moments
from pyod_quadric.model.norms import CONSISTENCY
from pyod_quadric.parallel.ranks import sum_over_ranks
from pyod_quadric.parameters import Distance

MOST_COMPONENTS = 20  # in these rounds
# Rows lose weight from this many robust standard deviations on, with this power of the score. A row's pull on the quadrics
# grows with its squared score, so from the power 2 on it is bounded, and above that it vanishes.
CUT = 2.0
POWER = 4.0
# Rounds of weighing rows: at most this many, or until the weights change by less than this on average.
MOST_ROUNDS = 6
SETTLED = 0.003


def settled_row_weights(
    folded: FoldedRows, sample: Sample, moments: list[Moments], floor: float, distance: Distance
) -> tuple[Tensor, list[Moments]]:
    """Return weights (n,) of rows after a few rounds, and the moments of the folds with them."""
    weights = all_ones(folded)
    if _most_are_equal(folded, sample):  # from these, everything else is infinitely far
        return weights, moments
    for _ in range(MOST_ROUNDS):
        earlier, weights = weights, _next_weights(folded, sample, moments, weights, floor, distance)
        moments = folded.moments(weights)
        if float((weights - earlier).abs().mean()) < SETTLED:
            break
    return weights, moments


def all_ones(folded: FoldedRows) -> Tensor:
    """Return the same weight for all rows, (n,)."""
    return torch.ones(folded.rows.n_rows, dtype=torch.float64, device=folded.device)


def _most_are_equal(folded: FoldedRows, sample: Sample) -> bool:
    """Return whether more than half of the rows are the same one."""
    rows = folded.rows.read(sample.indices.cpu().numpy())
    return bool((rows == rows.median(dim=0).values).all(dim=1).double().mean() > 0.5)


def _next_weights(
    folded: FoldedRows, sample: Sample, moments: list[Moments], weights: Tensor, floor: float, distance: Distance
) -> Tensor:
    scores = _held_out_scores(folded, sample, moments, weights, floor, distance)
    logs = scores.clamp(min=torch.finfo(scores.dtype).tiny).log()
    median = logs.median()
    cut = median + CUT * CONSISTENCY * (logs - median).abs().median()
    return (POWER * (cut - logs)).clamp(max=0).exp()


def _held_out_scores(
    folded: FoldedRows, sample: Sample, moments: list[Moments], weights: Tensor, floor: float, distance: Distance
) -> Tensor:
    """Return the score (n,) of each row by a closed form in few coordinates that has not seen it."""
    d = folded.rows.n_features
    whole, held_out = cross_validated_linear(folded, moments, floor)
    coordinates = coordinates_for(folded, sample, moments, whole, weights, "auto", MOST_COMPONENTS)
    quadrics = closed_form(folded, coordinates, weights, "hs", held_out=True)
    evidence = quadric_evidence(sample, coordinates, quadrics, weights, distance, d)
    kept = evidence > 0
    scores = torch.zeros_like(weights)
    for fold, place, chosen, rows in folded.in_folds():
        score = held_out[fold].squared_distances(rows).double()
        if kept.any():
            working = coordinates.transform(rows)
            score += distances(working, quadrics.held_out[fold][kept], distance).double().square() @ evidence[kept]
        scores[place][chosen] = score
    sum_over_ranks(scores)  # each process has filled in its own
    return scores
