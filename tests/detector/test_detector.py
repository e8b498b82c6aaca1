"""QuadricDetector is what PyOD's users expect of a detector: its interface, its scores, its training."""

import copy
import inspect
import warnings

import numpy as np
import pytest
from pyod.models.base import BaseDetector
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pyod_quadric import QuadricDetector
from pyod_quadric.model.blocks import BATCH_ROWS
from pyod_quadric.model.model import Model
from tests.support.circle import TEST, TEST_Y, WAYS, X, Y, shuffled, ways


@pytest.fixture(scope="module")
def fitted():
    return QuadricDetector(contamination=0.05).fit(X)


# What a detector is


def test_is_a_detector_of_pyod():
    assert isinstance(QuadricDetector(), BaseDetector)
    assert QuadricDetector().contamination == 0.1
    with pytest.raises(TypeError, match="n_quadric"):
        QuadricDetector(n_quadric=3)


def test_construction_only_stores():
    names = list(inspect.signature(QuadricDetector).parameters)
    values = {name: object() for name in names}
    assert vars(QuadricDetector(**values)) == values
    assert QuadricDetector(**values).get_params(deep=False) == values


def test_defaults_are_immutable():
    for parameter in inspect.signature(QuadricDetector).parameters.values():
        assert isinstance(parameter.default, int | float | str | None), parameter


@ways
def test_fit_returns_self_and_adds_only_learnt_names(settings):
    unfitted = QuadricDetector(**settings)
    before = unfitted.get_params()
    assert unfitted.fit(X) is unfitted
    after = unfitted.get_params()
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    learnt = vars(unfitted).keys() - before.keys()
    assert all(name.endswith("_") or name.startswith("_") for name in learnt), learnt
    assert {"decision_scores_", "labels_", "threshold_", "model_", "history_", "n_features_in_"} <= learnt


# The kinds of assertions in PyOD's own tests


def test_training_results(fitted):
    assert fitted.decision_scores_.shape == fitted.labels_.shape == (200,)
    assert fitted.threshold_ == pytest.approx(np.quantile(fitted.decision_scores_, 0.95))
    np.testing.assert_array_equal(fitted.labels_, fitted.decision_scores_ > fitted.threshold_)
    assert fitted.labels_.sum() == 10
    assert fitted._mu == pytest.approx(fitted.decision_scores_.mean())
    assert fitted._sigma == pytest.approx(fitted.decision_scores_.std())


def test_finds_the_outliers(fitted):
    np.testing.assert_array_equal(fitted.labels_, Y)
    assert fitted.decision_function(TEST).shape == (200,)
    assert roc_auc_score(TEST_Y, fitted.decision_function(TEST)) > 0.99
    linear = QuadricDetector(score_function="linear").fit(X)
    assert roc_auc_score(TEST_Y, linear.decision_function(TEST)) < 0.5  # it takes a manifold to see them


def test_predict(fitted):
    labels = fitted.predict(TEST)
    np.testing.assert_array_equal(labels, fitted.decision_function(TEST) > fitted.threshold_)
    np.testing.assert_array_equal(fitted.predict(X), fitted.labels_)
    assert set(labels) == {0, 1}
    again, confidence = fitted.predict(TEST, return_confidence=True)
    np.testing.assert_array_equal(again, labels)
    assert confidence.shape == (200,)
    assert confidence.min() >= 0
    assert confidence.max() <= 1


@pytest.mark.parametrize("method", ["linear", "unify"])
def test_predict_proba(fitted, method):
    probabilities = fitted.predict_proba(TEST, method=method)
    assert probabilities.shape == (200, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert probabilities.min() >= 0
    assert roc_auc_score(TEST_Y, probabilities[:, 1]) > 0.99
    again, confidence = fitted.predict_proba(TEST, method=method, return_confidence=True)
    np.testing.assert_array_equal(again, probabilities)
    np.testing.assert_array_equal(confidence, fitted.predict_confidence(TEST))


def test_unknown_probabilities_are_refused(fitted):
    with pytest.raises(ValueError, match="method must be 'linear', 'unify' or 'posterior', got 'something'"):
        fitted.predict_proba(TEST, method="something")


def test_rejection(fitted):
    labels, (expected, bound, cost) = copy.deepcopy(fitted).predict_with_rejection(TEST, T=5, c_r=0.1, return_stats=True)
    assert set(labels) <= {-2, 0, 1}
    np.testing.assert_array_equal(labels[labels != -2], fitted.predict(TEST)[labels != -2])
    assert 0 <= expected <= bound
    assert cost > 0
    assert (expected, bound, cost) == fitted.compute_rejection_stats(T=5, c_r=0.1)


@pytest.mark.filterwarnings("ignore:Function fit_predict:FutureWarning")  # PyOD would drop them; its users have them
def test_fit_predict(fitted, capsys):
    detector = QuadricDetector(contamination=0.05)
    np.testing.assert_array_equal(detector.fit_predict(X), fitted.labels_)
    assert detector.fit_predict_score(X, Y) == 1
    assert detector.fit_predict_score(X, Y, scoring="prc_n_score") == 1
    with pytest.raises(NotImplementedError):
        detector.fit_predict_score(X, Y, scoring="something")
    assert capsys.readouterr().out.startswith("roc_auc_score: 1.0")


def test_ranks(fitted):
    scores, ranks = fitted.decision_function(TEST), fitted._predict_rank(TEST)
    order = np.argsort(scores)
    assert (np.diff(ranks[order]) >= 0).all()
    assert ranks.min() >= 0
    assert ranks.max() <= 200
    np.testing.assert_allclose(fitted._predict_rank(TEST, normalized=True), ranks / ranks.max())


def test_pipeline_and_grid_search():
    pipeline = make_pipeline(StandardScaler(), QuadricDetector(contamination=0.05)).fit(X)
    assert roc_auc_score(TEST_Y, pipeline.decision_function(TEST)) > 0.99
    choices = {"score_function": ["linear", "combined"], "contamination": np.array([0.05, 0.1])}
    search = GridSearchCV(QuadricDetector(), choices, scoring="roc_auc", cv=2).fit(*shuffled(X, Y))
    assert search.best_params_["score_function"] == "combined"


# Scores


@pytest.mark.parametrize(
    ("settings", "dtype"), [*((settings, np.float64) for settings in WAYS.values()), ({}, np.float32), ({}, np.int32)]
)
def test_scores_do_not_depend_on_the_batch_size(settings, dtype):
    rows = (100 * X).astype(dtype)
    detector = QuadricDetector(**settings).fit(rows)
    expected = detector.decision_function(rows)
    rounding = 1e-4 if dtype == np.float32 else 1e-10
    for batch_size in (7, np.int64(199), 1000):
        scores = detector.decision_function(rows, batch_size=batch_size)
        np.testing.assert_allclose(scores, expected, rtol=rounding, atol=rounding)


@ways
def test_scores_are_finite_float64(settings):
    for dtype in (np.float32, np.float64):
        detector = QuadricDetector(**settings).fit(X.astype(dtype))
        far = np.outer([0, 1, 1e10, np.finfo(dtype).max / 2], [1, -1, 1]).astype(dtype)
        scores = detector.decision_function(far)
        assert scores.dtype == detector.decision_scores_.dtype == np.float64
        assert scores.shape == (4,)
        assert np.isfinite(scores).all()
        if not settings.get("normalize"):
            assert scores[2] > scores[1]
            assert scores[3] >= scores[2]
        assert np.isfinite(scores.std())  # of which PyOD makes probabilities


def test_divergence_raises():
    with pytest.raises(FloatingPointError, match="diverged"):
        QuadricDetector(epoch_num=5, lr=1e30).fit(X)


def test_equal_scores_warn():
    with pytest.warns(UserWarning, match="all training rows have the same score"):
        QuadricDetector().fit(np.eye(5))  # a regular simplex


@pytest.mark.parametrize("scale", [1e-30, 1e-15, 1e15, 1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_units_do_not_matter(fitted, scale, dtype):
    """Also where squares leave the range of float32."""
    detector = QuadricDetector(contamination=0.05).fit((scale * X).astype(dtype))
    tolerance = 1e-3 if dtype == np.float32 else 1e-8
    np.testing.assert_allclose(detector.decision_scores_, fitted.decision_scores_, rtol=tolerance)


def test_float64_keeps_small_differences(fitted):
    """Far from the origin, where float32 would not see the circle."""
    moved = QuadricDetector(contamination=0.05).fit(X + 1e9)
    assert spearmanr(moved.decision_scores_, fitted.decision_scores_).statistic > 0.99999
    np.testing.assert_array_equal(moved.predict(TEST + 1e9), fitted.predict(TEST))
    assert len(np.unique((X + 1e9).astype(np.float32))) == 1


def test_labels_are_ignored(fitted):
    for y in (Y, np.zeros(200), ["a"] * 200):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            detector = QuadricDetector(contamination=0.05).fit(X, y)
        np.testing.assert_array_equal(detector.decision_scores_, fitted.decision_scores_)
        assert detector.predict_proba(TEST).shape == (200, 2)


def test_scoring_sees_a_block_at_a_time(fitted, monkeypatch):
    sizes = []
    original = Model.score
    monkeypatch.setattr(Model, "score", lambda self, points: sizes.append(len(points)) or original(self, points))
    many = np.tile(X, (50, 1))
    fitted.decision_function(many)
    assert max(sizes) <= BATCH_ROWS < len(many) == sum(sizes)
    sizes.clear()
    fitted.decision_function(X, batch_size=150)
    assert sizes == [150, 50]


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, "all"])
def test_bad_batch_sizes_of_scoring_are_refused(fitted, batch_size):
    with pytest.raises(ValueError, match="batch_size must be a whole number of 1 or more"):
        fitted.decision_function(X, batch_size=batch_size)


# Training


def test_verbosity(capsys):
    def printed(**settings):
        QuadricDetector(**settings).fit(X).decision_function(TEST)
        return capsys.readouterr()

    assert printed() == printed(epoch_num=3) == printed(verbose=2) == ("", "")
    out, err = printed(epoch_num=3, verbose=1)
    assert out == ""
    assert "100%" in err
    out, err = printed(epoch_num=3, verbose=2)
    assert err == ""
    assert [line.split(":")[0] for line in out.splitlines()] == ["epoch 1", "epoch 2", "epoch 3"]


def test_history():
    history = (
        QuadricDetector(epoch_num=3, init="random", lr=0.05, training_options={"validation_fraction": 0.2}).fit(X).history_
    )
    assert {name: len(entries) for name, entries in history.items()} == {
        "loss": 3,
        "held_out_loss": 3,
        "orthonormality_error": 3,
        "seconds": 3,
    }
    assert history["loss"][-1] < history["loss"][0]
    assert QuadricDetector().fit(X).history_["loss"] == []


@pytest.mark.parametrize(
    "change",
    [
        {"constraint": "stiefel"},
        {"training_options": {"orthonormality_weight": 5.0}},
        {"inner_product": "coefficient"},
        {"training_options": {"loss": "algebraic"}},
        {"training_options": {"momentum": 0.5}},
        {"training_options": {"schedule": "constant"}},
        {"optimizer_name": "adam"},
        {"lr": 0.002},
        {"batch_size": 50},
        {"epoch_num": 4},
        {"distance": "first_order"},
        {"n_quadrics": 2},
        {"n_components": 2},
        {"n_components": 0.5},
        {"normalize": True},
        {"robust": False},
        {"score_function": "quadrics"},
        {"init": "random"},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.* quadrics that were asked for count:UserWarning")
def test_every_setting_reaches_the_fit(change):
    assert not np.allclose(trained_scores(), trained_scores(**change), rtol=1e-6)


def trained_scores(**changes):
    return QuadricDetector(**({"epoch_num": 3, "batch_size": 64} | changes)).fit(X).decision_scores_


def test_a_killed_fit_goes_on_from_its_checkpoint(tmp_path):
    settings = {"epoch_num": 3, "score_function": "mean_distance", "n_quadrics": 2}
    settings["training_options"] = {"checkpoint": tmp_path / "run.ckpt"}
    detector = QuadricDetector(**settings).fit(X)
    assert (tmp_path / "run.ckpt").exists()
    again = QuadricDetector(**settings).fit(X)
    assert again.history_["seconds"] == detector.history_["seconds"]  # it was not run again
    np.testing.assert_array_equal(again.decision_scores_, detector.decision_scores_)


def test_patience_stops_training():
    settings = {"epoch_num": 40, "lr": 0.5, "training_options": {"validation_fraction": 0.2, "patience": 2}}
    assert len(QuadricDetector(**settings).fit(X).history_["loss"]) < 40
