"""Row weights: 1, and less for rows far from the others, so that outliers do not bend the fit.

A first fit in few coordinates gives each row a held-out score. Rows whose log score lies some robust standard deviations above
the median lose weight, and the next round is fitted with these weights.
"""

import torch
from torch import Tensor

from pyod_quadric.fitting.components import coordinates_for, shared_spreads
from pyod_quadric.fitting.cross_fit import CrossCoordinates, Sample, closed_form, held_out_scores, models_of, quadric_evidence
from pyod_quadric.fitting.folds import FoldedRows, in_fewer_folds
from pyod_quadric.model.moments import Moments, sum_of_moments
from pyod_quadric.model.norms import robust_deviation
from pyod_quadric.parameters import Distance
from pyod_quadric.progress import stage

MOST_COMPONENTS = 20  # in these rounds
# Rows lose weight from this many robust standard deviations on, with this power of the score. A row's pull on the quadrics
# grows with its squared score, so from the power 2 on it is bounded, and above that it vanishes.
CUT = 2.0
POWER = 4.0
# Rounds of weighing rows: at most this many, or until the weights change by less than this on average.
MOST_ROUNDS = 6
SETTLED = 0.003
# Rounds end before nothing is left to learn from: beside one fold, or of the variance, most of which absurd rows may hold.
MOST_IN_A_FOLD = 1 - 1e-6
LEAST_LEFT = 1e-24


@stage("row weights")
def settled_row_weights(
    folded: FoldedRows, sample: Sample, moments: list[Moments], floor: float, distance: Distance
) -> tuple[Tensor, list[Moments]]:
    """Return the weights (n,) of rows after a few rounds, and the weighted moments of the folds."""
    weights = all_ones(folded)
    few, few_sample = folded.merged(), sample.merged()  # weights need no more folds, and rounds are cheaper
    if _most_are_equal(folded, sample):  # from these, everything else is infinitely far
        return weights, moments
    least = LEAST_LEFT * float(sum_of_moments(moments).covariance().trace())
    for number in range(1, 1 + MOST_ROUNDS):
        with stage(f"round {number} of at most {MOST_ROUNDS}"):
            earlier, weights = weights, _next_weights(few, few_sample, in_fewer_folds(moments), weights, floor, distance)
            before, moments = moments, folded.moments(weights)
            if _are_one_row(moments, least):
                return earlier, before
        if float((weights - earlier).abs().mean()) < SETTLED:
            break
    return weights, moments


def all_ones(folded: FoldedRows) -> Tensor:
    """Return a weight of 1 for all rows, (n,)."""
    return torch.ones(folded.rows.n_rows, dtype=torch.float64, device=folded.device)


def _most_are_equal(folded: FoldedRows, sample: Sample) -> bool:
    """Return whether more than half of the rows are the same one."""
    rows = folded.rows.read(sample.indices.cpu().numpy())
    return bool((rows == rows.median(dim=0).values).all(dim=1).double().mean() > 0.5)


def _are_one_row(moments: list[Moments], least: float) -> bool:
    """Return whether hardly more than one row counts, or one fold, as of a few rows of which half are the same one."""
    whole = sum_of_moments(moments)
    most = max(fold.weight for fold in moments)
    return not (most < MOST_IN_A_FOLD * whole.weight and float(whole.covariance().trace()) > least)


def _next_weights(
    folded: FoldedRows, sample: Sample, moments: list[Moments], weights: Tensor, floor: float, distance: Distance
) -> Tensor:
    scores = _held_out_scores(folded, sample, moments, weights, floor, distance)
    logs = scores.clamp(min=torch.finfo(scores.dtype).tiny).log()
    median, deviation = robust_deviation(logs)
    cut = median + CUT * deviation
    return (POWER * (cut - logs)).clamp(max=0).exp()


def _held_out_scores(
    folded: FoldedRows, sample: Sample, moments: list[Moments], weights: Tensor, floor: float, distance: Distance
) -> Tensor:
    """Return the score (n,) of each row by a closed form in few coordinates that has not seen it."""
    whole, held_out = shared_spreads(folded, moments).parts(floor)
    working = coordinates_for(folded, sample, moments, whole, weights, "auto", MOST_COMPONENTS)
    coordinates = CrossCoordinates.shared(working, folded.n_folds)
    quadrics = closed_form(folded, coordinates, weights)
    evidence = quadric_evidence(sample, coordinates, quadrics, weights, distance, folded.rows.n_features)
    return held_out_scores(folded, models_of(coordinates.held_out, held_out, quadrics.weighted(evidence)[1:], distance))
