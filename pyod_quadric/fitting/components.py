"""The coordinates of the quadrics: how many, and along which axes."""

import math
from dataclasses import replace
from typing import Literal

from torch import Tensor

from pyod_quadric.fitting.cross_fit import CrossCoordinates, Sample
from pyod_quadric.fitting.folds import FoldedRows
from pyod_quadric.model.coordinates import WorkingCoordinates, centred_coordinates, principal_coordinates
from pyod_quadric.model.linear import HeldOutSpreads, LinearPart, held_out_spreads, with_floor, without_floor
from pyod_quadric.model.moments import Moments, sum_of_moments
from pyod_quadric.parallel.ranks import from_first_rank
from pyod_quadric.progress import stage

# Rows for each coefficient of a matrix: in few coordinates, and in more. Wide quadrics of few rows describe these rows alone.
ROWS_PER_COEFFICIENT = 4
FEW_COMPONENTS, ROWS_PER_COEFFICIENT_BEYOND = 50, 8
MOST_COMPONENTS = 100  # whatever the number of rows: the cost grows with the fourth power
# The least variance of a coordinate of quadrics, as a share of the typical one. Where usual rows have less, as in a column that
# is constant but for a few outliers, these would be a million deviations away, and nothing but them would count.
LEAST_VARIANCE = 1e-6


def auto_components(n_rows: int, most: int = MOST_COMPONENTS) -> int:
    """Return the largest k with at least 4 rows for each of k (k + 1) / 2 coefficients, above 50 with at least 8.

    Examples
    --------
    >>> auto_components(40), auto_components(10_000), auto_components(20_000), auto_components(10**6)
    (4, 50, 70, 100)
    """
    few, many = _most_with(n_rows / ROWS_PER_COEFFICIENT), _most_with(n_rows / ROWS_PER_COEFFICIENT_BEYOND)
    return max(1, min(most, max(min(few, FEW_COMPONENTS), many)))


def _most_with(n_coefficients: float) -> int:
    """Return the largest k with k (k + 1) / 2 at most a number."""
    return int((math.sqrt(8 * n_coefficients + 1) - 1) / 2)


@stage("linear part")
def shared_spreads(folded: FoldedRows, moments: list[Moments]) -> HeldOutSpreads:
    """Return the spread of each fold along the principal axes of the others; equal in all processes."""
    return from_first_rank(held_out_spreads(moments, folded.rows.n_features), folded.device)


def coordinates_for(
    folded: FoldedRows,
    sample: Sample,
    moments: list[Moments],
    linear: LinearPart,
    row_weights: Tensor,
    n_components: int | float | Literal["auto"] | None,
    most: int = MOST_COMPONENTS,
) -> WorkingCoordinates:
    """Return the coordinates of the quadrics: principal axes with unit held-out variance, or (for None) one scale for all."""
    if n_components is None:
        return centred_coordinates(sum_of_moments(moments))
    k = _n_components(n_components, linear, folded, most)
    weighted = [(sample.rows, row_weights[sample.indices])]
    return principal_coordinates(linear.mean, linear.axes[:k], linear.variances[:k].sqrt(), weighted)


def cross_coordinates(
    coordinates: WorkingCoordinates, held_out: list[LinearPart], sample: Sample, row_weights: Tensor
) -> CrossCoordinates:
    """Return coordinates for each fold from the other folds; if those have too few axes, the coordinates of all rows."""
    k = len(coordinates.matrix)
    if any(len(part.axes) < k for part in held_out):
        return CrossCoordinates.shared(coordinates, len(held_out))
    own = []
    for fold, part in enumerate(held_out):
        weighted = [(sample.rows, row_weights[sample.indices] * (sample.folds != fold))]
        own.append(principal_coordinates(part.mean, part.axes[:k], part.variances[:k].sqrt(), weighted))
    return CrossCoordinates(coordinates, own)


def as_of_new_rows(
    coordinates: WorkingCoordinates, linear: LinearPart, moments: list[Moments], floor: float
) -> WorkingCoordinates:
    """Return rescaled coordinates, in which training rows are spread as new rows are in the given ones.

    Principal axes are chosen for the large variance of the training rows, so training rows have a mean variance above 1 there,
    and new rows of 1. Held-out rows took part in the choice, so without the rescaling their scores would be too high.
    """
    k, d = coordinates.matrix.shape
    if k == d:  # nothing was chosen
        return coordinates
    axes, variances = linear.axes[:k], linear.variances[:k]
    spread = ((axes @ sum_of_moments(moments).covariance()) * axes).sum(dim=1)
    spread = with_floor(spread, without_floor(float(linear.variances.median()), floor), floor)
    return replace(coordinates, matrix=coordinates.matrix / (spread / variances).mean().clamp(min=1).sqrt())


def _n_components(n_components: int | float | Literal["auto"], linear: LinearPart, folded: FoldedRows, most: int) -> int:
    rank = int((linear.variances >= LEAST_VARIANCE * linear.variances.median()).sum())
    d = folded.rows.n_features
    if n_components == "auto":
        return min(rank, auto_components(folded.n_distinct, most))
    if isinstance(n_components, int):
        if n_components > d:
            raise ValueError(f"n_components must be from 1 to the number of features, {d}, got {n_components}")
        return min(rank, n_components)
    shares = linear.variances.cumsum(0) / linear.variances.sum()
    return min(rank, int((shares < n_components - 1e-12).sum()) + 1)
