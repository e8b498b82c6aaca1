"""Numbers of any size, and rows absurdly far out among others: the rest is fitted as if they were not there."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from torch.utils.data import DataLoader

from pyod_quadric import QuadricDetector
from pyod_quadric.fitting.preparation import ABSURD
from tests.support.circle import TEST, TEST_Y, X
from tests.support.files import assert_same, loaded, saved, state
from tests.support.profiles import n_examples

EXPONENTS = {np.float32: (-90, 110), np.float64: (-900, 990)}  # in which no digit of the rows is lost
LARGEST = {np.float32: 38, np.float64: 308}  # powers of ten
METHODS = ("decision_function", "explain", "project", "quadric_distances", "predict", "predict_proba")
SETTINGS = [{}, {"score_function": "linear"}, {"score_function": "mean_distance"}, {"standardize": True}, {"robust": False}]


# Any unit


@given(
    settings=st.sampled_from(SETTINGS),
    dtype=st.sampled_from(list(EXPONENTS)),
    shift=st.sampled_from([0.0, -50.0]),
    data=st.data(),
)
@n_examples(15)
def test_a_power_of_two_changes_no_bit_of_a_score(settings, dtype, shift, data):
    rows, new = (X + shift).astype(dtype), (TEST + shift).astype(dtype)
    power = data.draw(st.integers(*EXPONENTS[dtype]))
    expected = QuadricDetector(**settings).fit(rows)
    detector = QuadricDetector(**settings).fit(np.ldexp(rows, power))
    np.testing.assert_array_equal(detector.decision_scores_, expected.decision_scores_)
    np.testing.assert_array_equal(detector.row_weights_, expected.row_weights_)
    np.testing.assert_array_equal(detector.decision_function(np.ldexp(new, power)), expected.decision_function(new))


@pytest.mark.parametrize(
    ("dtype", "unit"), [(np.float64, 1e-300), (np.float64, 1e300), (np.float32, 1e-30), (np.float32, 1e37)]
)
@pytest.mark.parametrize("settings", [{}, {"normalize": True}, {"standardize": True}], ids=str)
def test_any_unit_gives_the_same_ranking(dtype, unit, settings):
    def scores(rows):
        return QuadricDetector(**settings).fit(rows.astype(dtype)).decision_scores_

    assert spearmanr(scores(unit * X), scores(X)).statistic > (0.9999 if dtype is np.float64 else 0.99)


@pytest.mark.parametrize("power", [-145, -130])
def test_what_is_left_of_numbers_that_float32_hardly_holds_is_used(power):
    rows = np.ldexp(X, power).astype(np.float32)
    assert len(np.unique(rows)) > 2
    expected = QuadricDetector().fit(np.ldexp(rows, -power)).decision_scores_
    np.testing.assert_array_equal(QuadricDetector().fit(rows).decision_scores_, expected)


@pytest.mark.parametrize("unit", [1e-290, 1e290])
@pytest.mark.parametrize("settings", [{}, {"normalize": True}, {"standardize": True}], ids=str)
def test_all_methods_work_in_an_extreme_unit(unit, settings):
    detector = QuadricDetector(**settings).fit(unit * X)
    rows = np.concatenate([unit * TEST[:5], [[1e308, -1e308, 0.0]], [[-1e-308, 0.0, 0.0]]])
    for method in METHODS:
        assert np.isfinite(getattr(detector, method)(rows)).all(), method
    scores = detector.to_module()(torch.tensor(rows)).detach().numpy()
    np.testing.assert_allclose(scores, detector.decision_function(rows), rtol=1e-6)
    assert scores[5] == scores.max()
    assert_same(state(loaded(saved(detector))), state(detector))
    if not settings.get("normalize"):
        with pytest.raises(ValueError, match=r"coefficients of quadrics in a unit of .* are out of the range"):
            _ = detector.input_quadrics_


@pytest.mark.parametrize(("dtype", "constant"), [(np.float32, -3.4028235e38), (np.float64, 1e200), (np.float64, 1e17)])
def test_a_column_of_a_code_for_missing_numbers_switches_nothing_off(dtype, constant):
    rows, new = (np.c_[some, np.full(len(some), constant)].astype(dtype) for some in (X, TEST))
    assert roc_auc_score(TEST_Y, QuadricDetector().fit(rows).decision_function(new)) > 0.99


# Absurd rows


AWAY = {"one entry": [1.0, np.nan, np.nan], "all entries": [-1.0, -1.0, -1.0], "a direction": [0.1, -1.0, 0.3]}


@given(
    dtype=st.sampled_from(list(LARGEST)),
    away=st.sampled_from(sorted(AWAY)),
    where=st.lists(st.integers(0, len(X) - 1), min_size=1, max_size=4, unique=True),
    data=st.data(),
)
@n_examples(25)
def test_absurd_rows_come_last_and_spoil_nothing(dtype, away, where, data):
    powers = st.integers(9, LARGEST[dtype])
    sizes = 10.0 ** np.resize(data.draw(st.lists(powers, min_size=1, max_size=len(where))), len(where))[:, None]
    rows = X.copy()
    rows[where] = np.where(np.isnan(AWAY[away]), rows[where], sizes * np.nan_to_num(AWAY[away]))
    detector = QuadricDetector().fit(rows.astype(dtype))
    for scores in (detector.decision_scores_, detector.decision_function(rows.astype(dtype))):
        assert np.isfinite(scores).all()
        assert scores[where].min() > np.delete(scores, where).max()
    assert roc_auc_score(TEST_Y, detector.decision_function(TEST)) > 0.99


@pytest.mark.parametrize("d", [1, 2, 5, 40])
@pytest.mark.parametrize("power", [8, 20, 60, 300])
def test_one_row_in_a_hundred_with_a_code_for_missing_numbers(d, power):
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(600, d)) + 10
    rows[::100, d // 2] = -(10.0**power)
    detector = QuadricDetector().fit(rows)
    for scores in (detector.decision_scores_, detector.decision_function(rows)):
        assert scores[::100].min() > np.delete(scores, np.s_[::100]).max()


def test_a_code_makes_no_unit():
    """One row in fifty has it in a column, of which the others would be rounding."""
    rows = np.random.default_rng(0).normal(size=(600, 6))
    rows[::50, 2] = 1e60
    assert QuadricDetector().fit(rows).model_.scales is None


@pytest.mark.parametrize("n", [20, 40])
@pytest.mark.parametrize("dtype", LARGEST)
def test_an_absurd_row_among_fewer_rows_than_features(n, dtype):
    rows = np.random.default_rng(n).normal(size=(n, 64)).astype(dtype)
    rows[3, 5] = 1e37
    scores = QuadricDetector().fit(rows).decision_scores_
    assert scores.argmax() == 3
    assert len(np.unique(scores)) == n


NORMALISED = {
    "equal entries": np.repeat(np.random.default_rng(0).normal(size=(200, 1)), 3, axis=1),
    "rows of zeros": np.where(np.random.default_rng(0).random((200, 1)) < 0.2, 0, X),
    "mostly zeros": np.where(np.random.default_rng(0).random((200, 1)) < 0.7, 0, X),
    "a grid": np.random.default_rng(0).integers(-2, 3, size=(200, 3)).astype(float),
    "a lattice": np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0)), axis=-1).reshape(-1, 2),
    "one feature": np.random.default_rng(0).normal(size=(200, 1)),
}


@pytest.mark.parametrize("rows", NORMALISED.values(), ids=NORMALISED)
@pytest.mark.parametrize("power", [8, 60, 300])
def test_an_absurd_row_is_seen_where_rows_are_normalised(rows, power):
    rows = rows.copy()
    rows[7] = 10.0**power * np.linspace(1, 0.5, rows.shape[1])
    detector = QuadricDetector(normalize=True).fit(rows)
    for scores in (detector.decision_scores_, detector.decision_function(rows)):
        assert scores[7] > np.delete(scores, 7).max()


def test_nothing_is_done_within_reach():
    """Long tails are no errors: up to ten million times the typical distance rows are fitted as they are."""
    rows = X.copy()
    rows[0, 0] = 0.1 * ABSURD
    detector = QuadricDetector(robust=False, score_function="linear").fit(rows)
    assert detector.model_.scales is None
    assert float(detector.model_.linear_part.variances.max()) == pytest.approx(np.var(rows[:, 0]), rel=0.2)
    rows[0, 0] = 1e3 * ABSURD
    clipped = QuadricDetector(robust=False, score_function="linear").fit(rows)
    assert float(clipped.model_.linear_part.variances.max()) < np.var(rows[:, 0]) / 100


def test_files_and_loaders_give_the_scores_of_their_numbers(tmp_path):
    rows = 1e200 * X
    rows[[3, 150]] = [[1e300, 0, 0], [-1e300, 1e299, 0]]
    expected = QuadricDetector().fit(rows)
    np.save(tmp_path / "rows.npy", rows)
    for given_rows in (
        tmp_path / "rows.npy",
        DataLoader(torch.tensor(rows), batch_size=30, collate_fn=torch.stack),
        torch.tensor(rows),
    ):
        np.testing.assert_array_equal(QuadricDetector().fit(given_rows).decision_scores_, expected.decision_scores_)
