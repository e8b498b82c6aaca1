"""QuadricDetector is what PyOD's users expect of a detector: its interface, seeds, round trips, streams, explanations."""

import copy
import inspect
import io
import pickle
import random
import warnings
from functools import cache

import joblib
import matplotlib.pyplot as plt
import numpy as np
import pandas
import pytest
import torch
from joblib.externals import loky
from matplotlib.axes import Axes
from pyod.models.base import BaseDetector
from scipy.stats import spearmanr
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pyod_quadric import QuadricDetector, Quadrics, detector, random_quadrics
from pyod_quadric._version import __version__
from pyod_quadric.model import Model
from tests.test_training import global_states


def cloud(n=190, n_outliers=10, seed=0):
    """Return rows near a circle in R^3 and outliers inside of it, (n + n_outliers, 3), and which ones these are."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n + n_outliers)
    radius = np.where(np.arange(n + n_outliers) < n, 2, 0.5)
    rows = np.stack([radius * np.cos(angle), radius * np.sin(angle), 0 * angle], axis=1)
    return rows + 0.05 * rng.normal(size=rows.shape), (radius < 2).astype(int)


X, Y = cloud()
TEST, TEST_Y = cloud(seed=1)
WAYS = {
    "closed form": {},
    "linear": {"score_function": "linear"},
    "mean distance": {"score_function": "mean_distance", "n_quadrics": 2, "normalize": True},
    "penalty": {"epoch_num": 2, "batch_size": 64},
    "stiefel": {"epoch_num": 2, "batch_size": 64, "constraint": "stiefel", "optimizer_name": "adam"},
}
ways = pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS)


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
    with pytest.raises(ValueError, match="not a valid probability conversion"):
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


def shuffled(*arrays):
    order = np.random.default_rng(0).permutation(len(arrays[0]))
    return [array[order] for array in arrays]


# Scores


@pytest.mark.parametrize(
    ("settings", "dtype"), [*((settings, np.float64) for settings in WAYS.values()), ({}, np.float32), ({}, np.int32)]
)
def test_training_scores_are_those_of_the_decision_function(settings, dtype):
    rows = (100 * X).astype(dtype)
    detector = QuadricDetector(**settings).fit(rows)
    np.testing.assert_array_equal(detector.decision_scores_, detector.decision_function(rows))
    rounding = 1e-4 if dtype == np.float32 else 1e-10
    for batch_size in (7, np.int64(199), 1000):
        scores = detector.decision_function(rows, batch_size=batch_size)
        np.testing.assert_allclose(scores, detector.decision_scores_, rtol=rounding, atol=rounding)


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
    assert max(sizes) <= detector.BATCH_ROWS < len(many) == sum(sizes)
    sizes.clear()
    fitted.decision_function(X, batch_size=150)
    assert sizes == [150, 50]


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, "all"])
def test_bad_batch_sizes_of_scoring_are_refused(fitted, batch_size):
    with pytest.raises(ValueError, match="batch_size must be a whole number from 1 on"):
        fitted.decision_function(X, batch_size=batch_size)


# Seeds


@ways
def test_fits_with_one_seed_agree_bit_for_bit(settings):
    detector = QuadricDetector(**settings, random_state=7).fit(X)
    expected = detector.decision_function(TEST)
    others = [
        detector.fit(X),
        clone(detector).fit(X),
        QuadricDetector(**settings, random_state=7).fit(X),
        QuadricDetector(**settings, random_state=1).fit(X).set_params(random_state=7).fit(X),
    ]
    for other in others:
        np.testing.assert_array_equal(other.decision_function(TEST), expected)


@pytest.mark.parametrize("settings", [WAYS["closed form"], WAYS["penalty"]])
def test_the_seed_matters(settings):
    one, two = (QuadricDetector(**settings, random_state=seed).fit(X).decision_scores_ for seed in (1, 2))
    assert not np.array_equal(one, two)


def test_random_state_may_be_a_generator_or_none():
    same = [QuadricDetector(random_state=np.random.RandomState(3)).fit(X).decision_scores_ for _ in range(2)]
    np.testing.assert_array_equal(*same)
    free = QuadricDetector(random_state=None)
    assert not np.array_equal(free.fit(X).decision_scores_, free.fit(X).decision_scores_)


@pytest.mark.parametrize(
    ("settings", "random_state"),
    [(WAYS["closed form"], None), (WAYS["penalty"], 0), (WAYS["stiefel"], None), (WAYS["stiefel"], 0)],
)
def test_global_generators_are_left_alone(settings, random_state, monkeypatch):
    before = global_states()
    seeded = []
    for module, name in ((np.random, "seed"), (torch, "manual_seed"), (random, "seed")):
        monkeypatch.setattr(module, name, lambda *args, **kwargs: seeded.append(args))
    detector = QuadricDetector(**settings, random_state=random_state).fit(X)
    detector.decision_function(TEST)
    detector.partial_fit(TEST)
    detector.explain(TEST)
    detector.project(TEST[:3])
    plt.close(detector.explain_outlier(0).figure)
    assert global_states() == before
    assert not seeded


# Round trips


def through_joblib(detector):
    file = io.BytesIO()
    joblib.dump(detector, file)
    file.seek(0)
    return joblib.load(file)


ROUND_TRIPS = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda detector: pickle.loads(pickle.dumps(detector)),
    "joblib": through_joblib,
}


@pytest.mark.parametrize("round_trip", ROUND_TRIPS.values(), ids=ROUND_TRIPS)
@pytest.mark.parametrize("settings", [WAYS["closed form"], WAYS["stiefel"]], ids=["closed form", "stiefel"])
def test_round_trips_keep_everything(settings, round_trip):
    detector = QuadricDetector(**settings).fit(X)
    other = round_trip(detector)
    np.testing.assert_array_equal(other.decision_function(TEST), detector.decision_function(TEST))
    np.testing.assert_array_equal(other.predict(TEST), detector.predict(TEST))
    np.testing.assert_array_equal(other.explain(TEST), detector.explain(TEST))
    np.testing.assert_array_equal(other.project(TEST[:3]), detector.project(TEST[:3]))
    assert other.get_params() == detector.get_params()


def test_other_processes_score_the_same(fitted):
    with loky.ProcessPoolExecutor(max_workers=1) as executor:  # as joblib.Parallel has them
        scores = executor.submit(fitted.decision_function, TEST).result()
    np.testing.assert_allclose(scores, fitted.decision_function(TEST), rtol=1e-12)


def test_clones_are_unfitted_and_keep_given_quadrics():
    start = random_quadrics(2, 3, torch.Generator().manual_seed(0), torch.float64)
    detector = QuadricDetector(init=start, n_components=None).fit(X)
    other = clone(detector)
    assert not hasattr(other, "model_")
    assert other.init is not start
    np.testing.assert_array_equal(other.fit(X).decision_scores_, detector.decision_scores_)


def tensors_in(thing):
    """Find all tensors in attributes, dictionaries and sequences."""
    if isinstance(thing, torch.Tensor):
        return [thing]
    parts = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list | tuple) else []
    if type(thing).__module__.startswith("pyod_quadric"):
        parts = vars(thing).values()
    return [tensor for part in parts for tensor in tensors_in(part)]


@ways
def test_files_hold_what_was_learnt_and_no_more(settings, monkeypatch):
    detector = QuadricDetector(**settings).fit(X)
    found = set()

    class Recorder(pickle.Unpickler):
        def find_class(self, module, name):
            found.add(f"{module}.{name}")
            return super().find_class(module, name)

    content = pickle.dumps(detector)
    loaded = Recorder(io.BytesIO(content)).load()
    assert not [name for name in found if "optim" in name or "oader" in name or "batches" in name], found
    assert X[50:100].tobytes() not in content  # the training rows
    tensors = tensors_in(loaded)
    assert len(tensors) > 3
    for tensor in tensors:
        assert tensor.device.type == "cpu"
        assert not tensor.requires_grad
        assert tensor.untyped_storage().nbytes() == tensor.nbytes  # no part of something larger


def test_pyod_saves_and_loads(fitted, tmp_path):
    persistence = pytest.importorskip("pyod.utils.persistence", reason="PyOD has it from 3.5 on")
    persistence.save(fitted, tmp_path / "detector.joblib", metadata=fitted.versions_)
    loaded, envelope = persistence.load(tmp_path / "detector.joblib", trusted=True, strict=True, return_metadata=True)
    np.testing.assert_array_equal(loaded.decision_function(TEST), fitted.decision_function(TEST))
    assert envelope["metadata"] == {"torch_version": torch.__version__, "pyod_quadric_version": __version__}
    assert {type(version) for version in envelope["metadata"].values()} == {str}


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
    history = QuadricDetector(epoch_num=3, init="random", lr=0.05, validation_fraction=0.2).fit(X).history_
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
        {"orthonormality_weight": 5.0},
        {"inner_product": "coefficient"},
        {"loss": "algebraic"},
        {"optimizer_name": "adam"},
        {"lr": 0.002},
        {"batch_size": 50},
        {"epoch_num": 4},
        {"distance": "first_order"},
        {"n_quadrics": 1},
        {"n_components": 2},
        {"n_components": 0.5},
        {"normalize": True},
        {"robust": False},
        {"score_function": "quadrics"},
        {"init": "random"},
    ],
    ids=str,
)
def test_every_setting_reaches_the_fit(change):
    assert not np.allclose(trained_scores(), trained_scores(**change), rtol=1e-6)


@cache
def trained_scores(**changes):
    return QuadricDetector(**({"epoch_num": 3, "batch_size": 64} | changes)).fit(X).decision_scores_


def test_a_killed_fit_goes_on_from_its_checkpoint(tmp_path):
    settings = {"epoch_num": 3, "score_function": "mean_distance", "n_quadrics": 2, "checkpoint": tmp_path / "run.ckpt"}
    detector = QuadricDetector(**settings).fit(X)
    assert (tmp_path / "run.ckpt").exists()
    again = QuadricDetector(**settings).fit(X)
    assert again.history_["seconds"] == detector.history_["seconds"]  # it was not run again
    np.testing.assert_array_equal(again.decision_scores_, detector.decision_scores_)


def test_patience_stops_training():
    settings = {"epoch_num": 40, "lr": 0.5, "validation_fraction": 0.2, "patience": 2}
    assert len(QuadricDetector(**settings).fit(X).history_["loss"]) < 40


# The paper


@pytest.mark.parametrize(("variant", "m"), [("full", 100), ("base", 100), ("sub", 30)])
def test_the_paper_has_three_variants(variant, m):
    detector = QuadricDetector.from_paper(variant, epoch_num=1, contamination=0.2)
    assert (detector.epoch_num, detector.contamination) == (1, 0.2)
    rows = np.random.default_rng(0).normal(size=(300, 16)) + 1
    detector.fit(rows)
    assert detector.n_quadrics_ == len(detector.quadrics_) == m
    assert detector.quadric_weights_ is None
    np.testing.assert_allclose(detector.row_weights_, 1)
    np.testing.assert_allclose(detector.decision_scores_, detector.quadric_distances(rows).mean(axis=1))
    np.testing.assert_allclose(detector.decision_function(3 * rows), detector.decision_scores_)  # rows are normalised


def test_variants_of_the_paper_differ():
    full, base = (QuadricDetector.from_paper(variant).get_params() for variant in ("full", "base"))
    assert {name for name in full if full[name] != base[name]} == {"inner_product", "loss"}
    assert (base["inner_product"], base["loss"]) == ("coefficient", "squared_algebraic")
    with pytest.raises(ValueError, match=r"variant must be one of \['full', 'base', 'sub'\], got 'best'"):
        QuadricDetector.from_paper("best")


# What is inside


@ways
def test_scores_are_made_of_quadric_distances(settings):
    detector = QuadricDetector(**settings).fit(X)
    distances = detector.quadric_distances(TEST)
    assert distances.shape == (200, detector.n_quadrics_)
    assert distances.dtype == np.float64
    if detector.quadric_weights_ is None:
        part = distances.mean(axis=1) if detector.n_quadrics_ else 0
    else:
        part = distances**2 @ detector.quadric_weights_
    linear = detector.model_.linear
    rest = 0 if linear is None else linear.squared_distances(torch.tensor(TEST)).numpy()
    np.testing.assert_allclose(detector.decision_function(TEST), part + rest)


@ways
def test_input_quadrics_are_those_of_the_input(settings):
    detector = QuadricDetector(**settings).fit(X)
    if detector.quadrics_ is None:
        assert detector.input_quadrics_ is None
        return
    rows = torch.tensor(TEST)
    working = detector.model_.coordinates.transform(rows)
    values = detector.input_quadrics_.values(detector.model_.normalized(rows))
    assert isinstance(detector.quadrics_, Quadrics)
    np.testing.assert_allclose(values, detector.quadrics_.values(working), atol=1e-9)


def test_the_circle_is_among_the_input_quadrics(fitted):
    values = fitted.input_quadrics_.values(torch.tensor([[2.0, 0, 0], [0, -2, 0], [0, 0, 0]], dtype=torch.float64)).abs()
    assert (values[:2].amax(dim=0) < 0.1 * values[2]).any()


def test_rows_weigh_less_the_farther_they_are(fitted):
    assert fitted.row_weights_.shape == (200,)
    assert fitted.row_weights_.min() >= 0
    assert fitted.row_weights_.max() == 1
    assert fitted.row_weights_[Y == 1].max() < 0.2 < np.median(fitted.row_weights_)


def test_projection_removes_noise(fitted):
    projected = fitted.project(TEST[:190])
    assert projected.shape == (190, 3)
    assert projected.dtype == np.float64
    before, after = (np.abs(np.hypot(rows[:, 0], rows[:, 1]) - 2) for rows in (TEST[:190], projected))
    assert after.mean() < 0.5 * before.mean()


def test_projections_of_unweighted_quadrics_are_on_them():
    detector = QuadricDetector(score_function="mean_distance", n_quadrics=1).fit(X)
    assert detector.quadric_distances(TEST).max() > 0.1
    assert detector.quadric_distances(detector.project(TEST)).max() < 1e-5


@ways
def test_explanations_sum_to_the_score(settings):
    detector = QuadricDetector(**settings).fit(X)
    added = detector.explain(TEST)
    assert added.shape == TEST.shape
    assert added.dtype == np.float64
    assert added.min() >= 0
    np.testing.assert_allclose(added.sum(axis=1), detector.decision_function(TEST))


def test_explanations_find_the_feature(fitted):
    height = np.array([[2.0, 0.0, 1.0], [0.0, -2.0, 1.0]])  # above the circle
    assert (fitted.explain(height).argmax(axis=1) == 2).all()


# Pictures


@pytest.fixture
def closing():
    yield
    plt.close("all")


@pytest.mark.usefixtures("closing")
def test_explain_outlier_draws_the_contributions(fitted):
    number = int(np.argmax(fitted.decision_scores_))
    axes = fitted.explain_outlier(number)
    assert isinstance(axes, Axes)
    np.testing.assert_allclose([bar.get_height() for bar in axes.patches], fitted.explain(X[[number]])[0])
    bands = [line.get_ydata() for line in axes.lines]
    np.testing.assert_allclose(bands, np.quantile(fitted.explain(X), [0.95, 0.99], axis=0))
    assert "outlier" in axes.get_title()
    assert "inlier" in fitted.explain_outlier(0).get_title()


@pytest.mark.usefixtures("closing")
def test_explain_outlier_shows_what_is_asked_for(fitted):
    axes = fitted.explain_outlier(3, columns=[2, 0], cutoffs=[0.5], feature_names=["height", "width"])
    np.testing.assert_allclose([bar.get_height() for bar in axes.patches], fitted.explain(X[[3]])[0, [2, 0]])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["height", "width"]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), np.median(fitted.explain(X)[:, [2, 0]], axis=0))
    with pytest.raises(ValueError, match="feature_names must hold one name for each of the 3 features shown, got 1"):
        fitted.explain_outlier(3, feature_names=["height"])


@pytest.mark.usefixtures("closing")
def test_explain_outlier_saves_files(fitted, tmp_path):
    fitted.explain_outlier(0, file_name=str(tmp_path / "row"))
    assert (tmp_path / "row.png").read_bytes().startswith(b"\x89PNG")
    fitted.explain_outlier(0, file_name=str(tmp_path / "row"), file_type="svg")
    assert "<svg" in (tmp_path / "row.svg").read_text()


@pytest.mark.usefixtures("closing")
def test_explain_outlier_knows_the_names_of_a_frame():
    detector = QuadricDetector().fit(pandas.DataFrame(X, columns=["x", "y", "z"]))
    assert [label.get_text() for label in detector.explain_outlier(0).get_xticklabels()] == ["x", "y", "z"]
    assert [label.get_text() for label in detector.explain_outlier(0, columns=[1]).get_xticklabels()] == ["y"]


@pytest.mark.usefixtures("closing")
def test_explain_outlier_after_loading_needs_the_rows(fitted):
    loaded = pickle.loads(pickle.dumps(fitted))
    with pytest.raises(ValueError, match="give them as X"):
        loaded.explain_outlier(5)
    heights = [
        [bar.get_height() for bar in axes.patches] for axes in (fitted.explain_outlier(5), loaded.explain_outlier(5, X=X))
    ]
    np.testing.assert_array_equal(*heights)
