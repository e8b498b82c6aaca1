"""What scores depend on, and what they do not: the table in docs/guide/detector.md, row by row."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from pyod_quadric import QuadricDetector
from tests.support.dependence import SHAPES, rows_of, scores_of, threads
from tests.support.profiles import n_examples
from tests.support.tolerances import rounding_of_scores

# Relative, of a fit whose sums are in another order: moments and eigenvectors lose about eight digits, as in test_equivariance.
FITTED = 1e-6
# Of a fit of float32 rows: held-out scores in float32 decide weights, which lose half of its seven digits, as there.
FITTED_SINGLE = 5e-3


DTYPES = {np.float64: torch.float64, np.float32: torch.float32}
shapes = pytest.mark.parametrize("shape", SHAPES)
seeds = st.integers(0, 2**16)


@cache
def fitted(shape, **parameters):
    return QuadricDetector(**parameters).fit(rows_of(shape, 1))


def assert_within_rounding(found, expected, detector, rows, dtype):
    allowed = rounding_of_scores(detector.model_, rows.astype(np.float64), DTYPES[dtype])
    assert (np.abs(found - expected) <= allowed).all()


# Scores of a model


@shapes
@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_is_next_to_nothing(shape, dtype):
    """What is allowed below leaves the digits that anybody reads: eleven in float64, three in float32.

    Two on the ellipse: hardly any of the linear part is in its scores, only distances to a thin curve and its points, which are
    small differences of coordinates.
    """
    detector, rows = fitted(shape), rows_of(shape, 2)
    allowed = rounding_of_scores(detector.model_, rows, DTYPES[dtype]) / detector.decision_function(rows)
    assert np.median(allowed) < {np.float64: 1e-11, np.float32: 3e-3 if shape == "ellipse" else 1e-3}[dtype]


@shapes
@pytest.mark.parametrize("dtype", DTYPES)
@given(seed=seeds, data=st.data())
@n_examples(10)
def test_a_row_scores_alike_alone_and_among_others(shape, dtype, seed, data):
    detector, rows = fitted(shape), rows_of(shape, seed, 150).astype(dtype)
    scores = detector.decision_function(rows)
    np.testing.assert_array_equal(detector.decision_function(rows), scores)
    some = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=20)))
    assert_within_rounding(detector.decision_function(rows[some]), scores[some], detector, rows[some], dtype)
    size = data.draw(st.integers(1, len(rows)))
    assert_within_rounding(detector.decision_function(rows, batch_size=size), scores, detector, rows, dtype)


@shapes
def test_a_row_scores_alike_by_any_number_of_threads(shape):
    detector, rows = fitted(shape), rows_of(shape, 2, 4000)
    with threads(1):
        scores = detector.decision_function(rows)
    with threads(2):
        assert_within_rounding(detector.decision_function(rows), scores, detector, rows, np.float64)


@shapes
@given(seed=seeds)
@n_examples(10)
def test_rows_of_float32_score_as_the_same_numbers_in_float64(shape, seed):
    detector, rows = fitted(shape), rows_of(shape, seed).astype(np.float32)
    exact = detector.decision_function(rows.astype(np.float64))
    assert_within_rounding(detector.decision_function(rows), exact, detector, rows, np.float32)


# Fits


def assert_ranks_agree(found, expected, least):
    assert spearmanr(found, expected).statistic > least


@shapes
@given(seed=seeds)
@n_examples(2)
def test_threads_change_roundings_alone(shape, seed):
    rows, new, found = rows_of(shape, seed), rows_of(shape, seed + 1), {}
    for number in (1, 2):
        with threads(number):
            found[number] = scores_of(rows, new)
            np.testing.assert_array_equal(scores_of(rows, new), found[number])
    np.testing.assert_allclose(found[2], found[1], rtol=FITTED)


@shapes
@given(seed=seeds, data=st.data())
@n_examples(3)
def test_the_order_of_columns_changes_roundings_alone(shape, seed, data):
    rows, new = rows_of(shape, seed), rows_of(shape, seed + 1)
    order = np.array(data.draw(st.permutations(range(rows.shape[1]))))
    np.testing.assert_allclose(scores_of(rows[:, order], new[:, order]), scores_of(rows, new), rtol=FITTED)


@shapes
@given(seed=seeds, random_state=st.integers(0, 2**31))
@n_examples(3)
def test_with_groups_chance_is_in_the_neighbours_alone(shape, seed, random_state):
    """Groups decide the folds by their names; which rows stand for the neighbours of others is drawn all the same."""
    rows, new, names = rows_of(shape, seed), rows_of(shape, seed + 1), np.arange(300)
    order = np.random.default_rng(seed).permutation(len(rows))

    def both(**options):
        expected = scores_of(rows, new, groups=names, **options)
        return scores_of(rows[order], new, groups=names[order], random_state=random_state, **options), expected

    np.testing.assert_allclose(*both(score_function="linear+quadrics"), rtol=FITTED)
    assert_ranks_agree(*both(), 0.98)


@shapes
@given(seed=seeds, random_state=st.integers(0, 2**31))
@n_examples(3)
def test_the_order_of_rows_and_the_seed_decide_folds(shape, seed, random_state):
    """Which rows are held out together is chance: weights differ by a few per cent, and ranks hardly."""
    rows, new = rows_of(shape, seed), rows_of(shape, seed + 1)
    expected = scores_of(rows, new)
    order = np.random.default_rng(seed).permutation(len(rows))
    for found in (scores_of(rows[order], new), scores_of(rows, new, random_state=random_state)):
        assert_ranks_agree(found, expected, 0.9)


@shapes
@given(seed=seeds)
@n_examples(3)
def test_fits_of_float32_are_as_close_as_its_rounding_allows(shape, seed):
    rows, new = rows_of(shape, seed).astype(np.float32), rows_of(shape, seed + 1)
    plain = {"robust": False}
    np.testing.assert_allclose(scores_of(rows, new, **plain), scores_of(rows.astype(float), new, **plain), rtol=FITTED_SINGLE)
    assert_ranks_agree(scores_of(rows, new), scores_of(rows.astype(float), new), 0.98)
