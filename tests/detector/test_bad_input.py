"""Few, odd or bad rows and parameters: a fit works or says what is wrong, and a fit that fails changes nothing."""

import warnings

import numpy as np
import pandas
import polars
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from pyod_quadric import QuadricDetector
from tests.support.circle import TEST, X
from tests.support.thresholder import Thresholder

NAN, INF = np.nan, np.inf
METHODS = ["decision_function", "predict", "predict_proba", "predict_confidence", "quadric_distances", "explain", "project"]
TRAINED = {"epoch_num": 1, "batch_size": 64}


# Few and degenerate rows


@pytest.mark.parametrize("settings", [{}, TRAINED, {"score_function": "mean_distance"}], ids=str)
@pytest.mark.parametrize("d", [1, 2, 30])
@pytest.mark.parametrize("n", [3, 7])
def test_few_rows_are_enough(n, d, settings):
    rows = np.random.default_rng(n * d).normal(size=(n, d))
    detector = QuadricDetector(**settings).fit(rows)
    assert detector.decision_scores_.shape == (n,)
    assert np.isfinite(detector.decision_scores_).all()
    if "score_function" not in settings:  # without the linear part, a shift beside the few coordinates is not seen
        assert (detector.decision_function(rows + 100) > detector.decision_scores_).all()


@pytest.mark.parametrize("n", [1, 2])
def test_fewer_rows_are_not(n):
    with pytest.raises(ValueError, match=rf"{n} sample\(s\) .* a minimum of 3 is required"):
        QuadricDetector().fit(X[:n])


REPEATED = np.repeat(X[:5], 20, axis=0)
DEGENERATE = {
    "constant column": np.c_[X, np.full(len(X), 7.0)],
    "equal columns": X[:, [0, 1, 1, 2]],
    "duplicated rows": REPEATED,
    "all but one equal": np.r_[REPEATED[:15], X[5:6]],
    "signs": np.sign(X),
    "booleans": X > 0,
    "a line": np.outer(np.arange(30), [1.0, 2.0]),
    "fewer rows than features": np.random.default_rng(0).normal(size=(10, 12)),
}


@pytest.mark.parametrize("settings", [{}, TRAINED, {"n_components": None}], ids=str)
@pytest.mark.parametrize("rows", DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_rows_can_be_fitted(rows, settings):
    detector = QuadricDetector(**settings).fit(rows)
    assert np.isfinite(detector.decision_scores_).all()
    away = np.asarray(rows, dtype=float)[:1] + 50 * (1 + np.arange(rows.shape[1]) % 3)  # leaves every subspace above
    assert detector.decision_function(away) > detector.decision_function(rows).max()


def test_folds_without_any_direction_can_be_fitted():
    """Of three rows, two differ by no more than rounding beside the third: where that is held out, nothing varies."""
    detector = QuadricDetector(score_function="linear", robust=False).fit([[-1.0], [3.5e16], [1.0]])
    assert np.isfinite(detector.decision_scores_).all()


@pytest.mark.parametrize("value", [0, 1, 1e300])
@pytest.mark.parametrize("settings", [{}, {"normalize": True}])
def test_equal_rows_are_refused(settings, value):
    with pytest.raises(ValueError, match="rows are equal, so nothing can be learnt"):
        QuadricDetector(**settings).fit(np.full((9, 3), value))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("seed", [3, 76, 335])
@pytest.mark.parametrize("settings", [{}, {"score_function": "linear"}, {"standardize": True}], ids=str)
def test_rows_of_which_hardly_any_differ_can_be_fitted(seed, settings, dtype):
    """Without some fold all are equal, or weights end up on equal ones alone."""
    rng = np.random.default_rng(seed)
    few = 1.28331 + 1e-5 * rng.normal(size=(3, 1 + seed % 3))
    for rows in (
        few[[0, 0, 1]],
        few[[0, 1, 1, 2]],
        few[rng.integers(0, 2, 30)],
        np.r_[rng.normal(size=few.shape), few[[0] * 9]],
    ):
        assert np.isfinite(QuadricDetector(**settings).fit(rows.astype(dtype)).decision_scores_).all()


@pytest.mark.parametrize("power", [-1015, 1010])
def test_rows_at_the_end_of_the_range_are_refused(power):
    with pytest.raises(ValueError, match=r"rows are about .* from each other, .* multiply them by a number"):
        QuadricDetector().fit(np.ldexp(X, power))


def test_normalised_rows_that_are_equal_are_refused():
    with pytest.raises(ValueError, match=r"all normalised rows are equal, .* or set normalize=False"):
        QuadricDetector(normalize=True).fit(np.arange(1.0, 30)[:, None])


@pytest.mark.parametrize("n", [3, 4, 8])
def test_quadrics_alone_need_rows_that_speak_for_one(n):
    rows = np.random.default_rng(0).normal(size=(n, 2))
    with pytest.raises(ValueError, match=rf"nothing to score by: {n} different rows came, .* at least 12 rows"):
        QuadricDetector(score_function="quadrics").fit(rows)


# Bad rows

BAD = {
    "NaN": (np.where(np.arange(3) == 1, NAN, X), ValueError, "row 0 holds NaN or infinite entries; leave such rows out by"),
    "infinity": (np.where(np.arange(3) == 1, INF, X), ValueError, "row 0 holds NaN or infinite entries; .* or impute"),
    "sparse": (scipy.sparse.csr_array(X), TypeError, "sparse: reduce them"),
    "text": (np.full((9, 3), "a"), ValueError, "could not convert|dtype='numeric'"),
    "complex": (X + 1j, ValueError, "Complex data not supported"),
    "1-D": (X[0], ValueError, "Expected 2D array, got 1D array"),
    "3-D": (X[None], ValueError, "dim 3"),
    "no rows": (X[:0], ValueError, r"0 sample\(s\)"),
    "no features": (X[:, :0], ValueError, r"0 feature\(s\)"),
    "None": (None, ValueError, "Expected 2D array, got scalar|NoneType"),
}


@pytest.mark.parametrize(("rows", "error", "message"), BAD.values(), ids=BAD)
def test_bad_rows_are_refused(rows, error, message):
    for method in ("fit", "partial_fit"):
        with pytest.raises(error, match=message):
            getattr(QuadricDetector(), method)(rows)
    detector = QuadricDetector().fit(X)
    for method in METHODS:
        with pytest.raises(error, match=message):
            getattr(detector, method)(rows)


@pytest.mark.parametrize("method", [*METHODS, "partial_fit"])
def test_another_width_is_refused(method):
    detector = QuadricDetector().fit(X)
    with pytest.raises(ValueError, match="X has 2 features, but QuadricDetector is expecting 3 features"):
        getattr(detector, method)(X[:, :2])


@pytest.mark.parametrize("method", METHODS)
def test_unfitted_detectors_do_not_score(method):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(QuadricDetector(), method)(X)


def test_unfitted_detectors_have_nothing_to_show():
    with pytest.raises(NotFittedError):
        QuadricDetector().explain_outlier(0)
    with pytest.raises(NotFittedError):
        _ = QuadricDetector().input_quadrics_
    assert not hasattr(QuadricDetector(), "input_quadrics_")


# Data frames

FRAMES = {"pandas": pandas.DataFrame, "polars": polars.DataFrame}
frames = pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)


def columns(rows, names="abc"):
    return dict(zip(names, rows.T, strict=True))


@frames
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_frames_give_the_scores_of_their_numbers(frame, dtype):
    rows = (100 * X).astype(dtype)
    expected = QuadricDetector().fit(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = QuadricDetector().fit(frame(columns(rows)))
        np.testing.assert_array_equal(detector.decision_scores_, expected.decision_scores_)
        for method in METHODS:
            given = getattr(detector, method)(frame(columns(rows[:5])))
            np.testing.assert_array_equal(given, getattr(expected, method)(rows[:5]))
        assert detector.explain_outlier(0, X=frame(columns(rows))) is not None
        detector.partial_fit(frame(columns(rows[:50])))
    assert detector.n_features_in_ == 3
    assert list(detector.feature_names_in_) == ["a", "b", "c"]


@frames
def test_other_names_are_refused(frame):
    detector = QuadricDetector().fit(frame(columns(X)))
    for names, message in (("abd", "unseen at fit time:\n- d"), ("acb", "must be in the same order")):
        for method in ("decision_function", "explain", "partial_fit"):
            with pytest.raises(ValueError, match=message):
                getattr(detector, method)(frame(columns(X, names)))
    with pytest.raises(ValueError, match="missing:\n- c"):
        detector.predict(frame(columns(X[:, :2], "ab")))


def test_names_are_forgotten_with_the_fit():
    detector = QuadricDetector().fit(pandas.DataFrame(columns(X))).fit(X)
    assert not hasattr(detector, "feature_names_in_")


def test_mixed_frames():
    frame = pandas.DataFrame(columns(X)).assign(b=lambda rows: rows["b"].round().astype("int8"))
    expected = QuadricDetector().fit(frame.to_numpy()).decision_scores_
    np.testing.assert_array_equal(QuadricDetector().fit(frame).decision_scores_, expected)
    with pytest.raises(ValueError, match=r"must hold numbers, but not so c \(text\)"):
        QuadricDetector().fit(frame.assign(c="text"))
    with pytest.raises(ValueError, match="row 1 holds NaN"):
        QuadricDetector().fit(frame.assign(c=frame["c"].where(frame["c"] > 0)))


# Contamination


def test_a_thresholder_decides():
    detector = QuadricDetector(contamination=Thresholder()).fit(X)
    assert detector.labels_.sum() == 6
    assert detector.threshold_ == detector.contamination.thresh_
    scores, labels = detector.decision_function(X), detector.predict(X)
    # Up to 3.6.0, PyOD asks the thresholder anew for new rows.
    assert any(np.array_equal(labels, expected) for expected in (scores > detector.threshold_, Thresholder().eval(scores)))
    assert clone(detector).fit(X).labels_.sum() == 6
    axes = detector.explain_outlier(0)
    band = [segment[0, 1] for segment in axes.collections[0].get_segments()]
    np.testing.assert_allclose(band, np.quantile(detector.explain(X), 0.97, axis=0))


@pytest.mark.parametrize("contamination", [0.5, 0.01, np.float64(0.2)])
def test_good_contamination(contamination):
    detector = QuadricDetector().set_params(contamination=contamination).fit(X)
    assert detector.labels_.sum() == pytest.approx(200 * contamination, abs=1)
    assert detector.predict(TEST).sum() > 0


@pytest.mark.parametrize("share", [0, 0.01, 0.05, 0.2])
def test_what_is_far_out_is_found_without_a_share(share):
    """Outliers do not move the threshold much, and without any hardly a row is above it."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 8))
    far = np.arange(1000) < 1000 * share
    rows[far] += 8 * rng.normal(size=(far.sum(), 8))
    detector = QuadricDetector(contamination="auto").fit(rows)
    assert detector.get_params()["contamination"] == "auto"
    assert np.mean(detector.labels_ != far) < 0.01
    assert detector.predict(rng.normal(size=(1000, 8))).mean() < 0.01
    np.testing.assert_array_equal(detector.labels_, detector.decision_scores_ > detector.threshold_)


def test_methods_of_pyod_calculate_with_the_share_that_was_found():
    detector = QuadricDetector(contamination="auto").fit(X)
    number = QuadricDetector(contamination=detector.labels_.mean()).fit(X)
    number.threshold_ = detector.threshold_
    for found, expected in (
        (detector.predict(TEST, return_confidence=True), number.predict(TEST, return_confidence=True)),
        (detector.predict_proba(TEST), number.predict_proba(TEST)),
        (detector.predict_proba(TEST, "unify", return_confidence=True)[1], number.predict_confidence(TEST)),
        (detector.predict_proba(TEST, "posterior"), number.predict_proba(TEST, "posterior")),
        (detector.predict_with_rejection(TEST, c_r=0.1), number.predict_with_rejection(TEST, c_r=0.1)),
        (detector.compute_rejection_stats(T=5), number.compute_rejection_stats(T=5)),
    ):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    assert detector.rejection_threshold_ == number.rejection_threshold_
    assert detector.explain_outlier(0) is not None
    assert detector.contamination == "auto"


def test_nothing_need_be_far_out():
    grid = np.stack(np.meshgrid(np.arange(12.0), np.arange(12.0)), axis=-1).reshape(-1, 2)
    detector = QuadricDetector(contamination="auto").fit(grid)
    assert detector.labels_.sum() == 0
    assert np.isfinite(detector.predict_proba(grid, "posterior")).all()
    assert (detector.predict_proba(grid, "posterior")[:, 1] > 0).all()


# A fit that fails

BAD_PARAMETERS = {
    "contamination": [0, 0.0, -0.1, 0.51, 1, NAN, True, "automatic", None, np.float32(0.1)],
    "n_quadrics": [0, 7, 2.5, "all", None],
    "n_components": [0, -1, 4, 1.5, NAN, "all"],
    "normalize": ["yes", None],
    "standardize": ["yes", None],
    "score_function": ["mean", "linear+linear", None],
    "n_prototypes": [0, -1, 2.5, "all", None],
    "n_folds": [2, 0, 2.5, "all"],
    "robust": ["yes", None],
    "distance": ["third_order", "squared_algebraic", None],
    "init": ["zeros", None, [1]],
    "epoch_num": [-1, 1.5, "many"],
    "constraint": ["soft", 1],
    "inner_product": ["l2", None],
    "optimizer_name": ["lbfgs", 1],
    "lr": [0, -1, NAN, "fast"],
    "batch_size": [0, 2.5],
    "training_options": [{"lr": 0.1}, {"losses": 1}, 3, "fast"],
    "device": ["cuba", 1.5],
    "window": [2, 10.0, "all"],
    "random_state": [-1, "seed", np.random.default_rng(0)],
    "verbose": ["loud", None],
}


@pytest.fixture(scope="module")
def earlier():
    return QuadricDetector(**TRAINED).fit(X)


def assert_same(detector, earlier):
    """Assert that everything learnt is what was learnt earlier, and in use."""
    assert vars(detector).keys() == vars(earlier).keys()
    for name, value in vars(earlier).items():
        assert vars(detector)[name] is value, name
    np.testing.assert_array_equal(detector.decision_function(TEST), earlier.model_.score(torch.from_numpy(TEST)).numpy())
    np.testing.assert_array_equal(detector.predict(X), earlier.decision_function(X) > earlier.threshold_)


def copied(earlier):
    detector = clone(earlier)
    vars(detector).update(vars(earlier))
    return detector


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in BAD_PARAMETERS for value in BAD_PARAMETERS[name]])
def test_bad_parameters_are_refused_in_fit(earlier, name, value):
    detector = QuadricDetector(**TRAINED).set_params(**{name: value})
    message = f"^{name} must be"
    with pytest.raises(ValueError, match=message):
        detector.fit(X)
    assert vars(detector).keys() == detector.get_params().keys()  # not half fitted
    again = copied(earlier).set_params(**{name: value})
    with pytest.raises(ValueError, match=message):
        again.fit(TEST)
    assert_same(again.set_params(**{name: getattr(earlier, name)}), earlier)


def test_every_parameter_is_tried():
    assert BAD_PARAMETERS.keys() == QuadricDetector().get_params().keys()


def test_cuda_has_to_be_there(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match="there is no CUDA device here, but device is 'cuda:0'"):
        QuadricDetector(device="cuda:0").fit(X)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(("rows", "error", "message"), BAD.values(), ids=BAD)
def test_bad_rows_leave_an_earlier_fit_as_it_was(earlier, method, rows, error, message):
    detector = copied(earlier)
    with pytest.raises(error, match=message):
        getattr(detector, method)(rows)
    assert_same(detector, earlier)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    ("place", "error"),
    [("settled_row_weights", MemoryError), ("_QuadricFit._trained", KeyboardInterrupt), ("Model.score", KeyboardInterrupt)],
)
def test_interruptions_leave_an_earlier_fit_as_it_was(earlier, method, error, place, monkeypatch):
    detector = copied(earlier)

    def fail(*args):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(f"pyod_quadric.fitting.fit.{place}", fail)
        with pytest.raises(error):
            getattr(detector, method)(np.c_[TEST, TEST] if method == "fit" else TEST)
    assert_same(detector, earlier)
    assert len(detector.partial_fit(TEST).decision_scores_) == 400  # and streams go on


def test_a_failed_thresholder_leaves_an_earlier_fit_as_it_was(earlier):
    class Failing(Thresholder):
        def fit(self, scores):
            raise RuntimeError("no threshold")

    detector = copied(earlier).set_params(contamination=Failing())
    with pytest.raises(RuntimeError, match="no threshold"):
        detector.fit(TEST)
    assert_same(detector.set_params(contamination=earlier.contamination), earlier)


def test_a_stream_forgets_rows_of_a_failed_fit(monkeypatch):
    detector = QuadricDetector().partial_fit(X)
    with monkeypatch.context() as patch:
        patch.setattr("pyod_quadric.detector.fit_model", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            detector.partial_fit(TEST)
    expected = QuadricDetector().fit(np.concatenate([X, TEST[:50]]))
    np.testing.assert_array_equal(detector.partial_fit(TEST[:50]).decision_scores_, expected.decision_scores_)
