"""Streams: partial_fit learns what a fit to all rows together learns, keeps what it needs to go on, and forgets if told to."""

import pickle
import warnings
from functools import cache

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from pyod_quadric import QuadricDetector
from pyod_quadric.fitting.fit import fit_model
from tests.support.circle import TEST, TEST_Y, X, cloud
from tests.support.files import assert_same, loaded, saved, state
from tests.support.profiles import n_examples

BOTH = np.concatenate([X, TEST])


def streamed(chunks, **parameters):
    detector = QuadricDetector(**parameters)
    for chunk in chunks:
        assert detector.partial_fit(chunk) is detector
    return detector


@pytest.fixture
def capacity(monkeypatch):
    """Let streams keep few rows."""

    def keep(n_rows):
        monkeypatch.setattr("pyod_quadric.data.stream.Reservoir.__init__.__defaults__", (n_rows, None, 0, 0, None, None))

    return keep


# The same as a fit


def test_a_stream_is_fitted_like_its_rows_together():
    stream = streamed(np.split(BOTH, 4), contamination=0.05)
    together = QuadricDetector(contamination=0.05).fit(BOTH)
    np.testing.assert_array_equal(stream.decision_scores_, together.decision_scores_)
    np.testing.assert_array_equal(stream.predict(TEST), together.predict(TEST))
    assert stream.threshold_ == together.threshold_
    after = QuadricDetector(contamination=0.05).fit(X).partial_fit(TEST)
    np.testing.assert_array_equal(after.decision_scores_, together.decision_scores_)
    after.fit(X)  # begins anew
    np.testing.assert_array_equal(after.partial_fit(TEST).decision_scores_, together.decision_scores_)


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3))
@n_examples(5)
def test_a_stream_may_begin_with_fewer_rows_than_a_fit_needs(sizes):
    chunks = np.split(X[:11], [cut for cut in np.cumsum(np.resize(sizes, 11)) if cut < 11])
    np.testing.assert_array_equal(streamed(chunks).decision_scores_, QuadricDetector().fit(X[:11]).decision_scores_)


def noisy(n, seed):
    """Return rows near a curve in R^5, some of them outliers that are hard to tell, and which ones these are."""
    rng = np.random.default_rng(seed)
    angle, labels = rng.uniform(0, 2 * np.pi, n), rng.random(n) < 0.1
    curve = np.stack([np.cos(angle), np.sin(angle), np.cos(2 * angle), np.sin(2 * angle), np.cos(angle - 1)], axis=1)
    return curve + np.where(labels, 0.35, 0.15)[:, None] * rng.normal(size=curve.shape), labels


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("parameters", [{}, {"window": 1000}], ids=["all", "window"])
def test_a_long_stream_is_as_good_as_a_fit_to_all_its_rows(capacity, parameters, seed):
    """A stream of 8 times what is kept: ROC-AUC to 0.02, and the share of new rows above the threshold to 0.03."""
    capacity(1000)
    rows, _ = noisy(8000, seed)
    test, labels = noisy(4000, seed + 100)
    stream = streamed(np.array_split(rows, 12), **parameters)
    assert len(stream.decision_scores_) == 1000
    together = QuadricDetector().fit(rows)
    expected = roc_auc_score(labels, together.decision_function(test))
    assert 0.8 < expected < 0.99
    assert abs(roc_auc_score(labels, stream.decision_function(test)) - expected) < 0.02
    assert stream.predict(test).mean() == pytest.approx(together.predict(test).mean(), abs=0.03)


# When it learns


@pytest.mark.parametrize("begin", ["fit", "partial_fit"])
def test_streams_are_fitted_anew_when_they_have_grown_by_a_tenth(begin):
    detector = getattr(QuadricDetector(), begin)(X)
    model = detector.model_
    assert detector.partial_fit(TEST[:10]).model_ is model
    assert detector.partial_fit(TEST[10:15]).model_ is model
    assert detector.partial_fit(TEST[15:25]).model_ is not model
    assert len(detector.decision_scores_) == len(detector.labels_) == 225


def test_thresholds_follow_the_stream():
    calm, wild = cloud(seed=3)[0], cloud(seed=4)[0] + 0.3 * np.random.default_rng(0).normal(size=(200, 3))
    detector = QuadricDetector(contamination=0.1).fit(calm)
    alarms = detector.predict(wild).mean()
    detector.partial_fit(wild)
    assert alarms > 0.6
    assert detector.predict(wild).mean() < 0.25
    for _ in range(3):
        assert detector.labels_.mean() == pytest.approx(0.1, abs=0.01)
        assert detector.threshold_ == np.percentile(detector.decision_scores_, 90)
        np.testing.assert_array_equal(detector.labels_, detector.decision_scores_ > detector.threshold_)
        detector.partial_fit(wild + 1)


def test_streams_keep_a_bounded_sample(capacity):
    capacity(150)
    detector = QuadricDetector(contamination=0.05).partial_fit(X).partial_fit(TEST)
    assert len(detector.decision_scores_) == 150
    assert roc_auc_score(TEST_Y, detector.decision_function(TEST)) > 0.99


def test_trained_streams_keep_no_checkpoints(tmp_path):
    trained = {"epoch_num": 2, "n_quadrics": 1, "batch_size": 64}
    with pytest.warns(UserWarning, match="partial_fit writes no checkpoint"):
        stream = streamed([X, TEST], training_options={"checkpoint": tmp_path / "run.ckpt"}, **trained)
    np.testing.assert_array_equal(stream.decision_scores_, QuadricDetector(**trained).fit(BOTH).decision_scores_)
    assert not list(tmp_path.iterdir())


# What cannot be learnt yet


@pytest.fixture
def n_fits(monkeypatch):
    """Count the fits that streams ask for."""
    calls = []

    def counted(*arguments):
        calls.append(1)
        return fit_model(*arguments)

    monkeypatch.setattr("pyod_quadric.detector.fit_model", counted)
    return lambda: len(calls)


@pytest.mark.parametrize("window", [20, 60, None])
def test_a_stuck_sensor_loses_no_rows_and_stops_no_stream(window, n_fits):
    """Its rows fill the window, and the earlier fit scores on, until a row differs."""
    detector = QuadricDetector(window=window).fit(X[:40])
    for _ in range(50):
        detector.partial_fit(np.repeat(X[39:40], 2, axis=0))
    before, scores = n_fits(), detector.decision_function(TEST)
    detector.partial_fit(np.repeat(X[39:40], 10, axis=0))
    assert detector._stream.n_seen == 150
    if window is not None:
        assert n_fits() == before  # not even tried
        np.testing.assert_array_equal(detector.decision_function(TEST), scores)
        detector.partial_fit(X[:1])
        assert n_fits() == before + 1
    detector.partial_fit(X[:60])
    everything = np.r_[X[:40], np.repeat(X[39:40], 110, axis=0), X[: 1 if window else 0], X[:60]]
    expected = QuadricDetector().fit(everything[-(window or len(everything)) :])
    np.testing.assert_array_equal(detector.decision_scores_, expected.decision_scores_)


@pytest.mark.parametrize("settings", [{}, {"score_function": "quadrics"}, {"normalize": True}, {"window": 8}], ids=str)
def test_a_stream_may_begin_with_rows_that_cannot_be_fitted(settings):
    """Equal ones, then multiples of them, then others."""
    detector = QuadricDetector(**settings)
    chunks = [X[:1], X[:1], X[:1], np.repeat(X[:1], 5, axis=0), 2 * X[:1], X[:2], X[:1], X[:100]]
    for chunk in chunks:
        detector.partial_fit(chunk)
    everything = np.concatenate(chunks)[-settings.get("window", 1000) :]
    expected = QuadricDetector(**settings).fit(everything)
    np.testing.assert_array_equal(detector.decision_scores_, expected.decision_scores_)


def test_a_stream_waits_for_groups():
    detector = QuadricDetector()
    detector.partial_fit(X[:10], groups=["a"] * 10).partial_fit(X[10:20], groups=["b"] * 10)
    assert not hasattr(detector, "model_")
    names = np.array(["a", "b", "c", "d"])[np.arange(40) // 10]
    detector.partial_fit(X[20:21], groups=names[20:21])
    assert len(detector.decision_scores_) == 21
    detector.partial_fit(X[21:40], groups=names[21:])
    expected = QuadricDetector().fit(X[:40], groups=names)
    np.testing.assert_array_equal(detector.decision_scores_, expected.decision_scores_)


@given(seed=st.integers(0, 2**16), window=st.sampled_from([None, 5, 12]))
@n_examples(8)
def test_no_chunk_of_sound_rows_is_refused(seed, window):
    """Rows of few values, stuck now and then."""
    rng = np.random.default_rng(seed)
    detector, n = QuadricDetector(window=window, score_function="linear"), 0
    for _ in range(25):
        chunk = np.repeat(rng.integers(0, 2, size=(1, 2)) * 0.1, rng.integers(1, 7), axis=0)
        chunk = chunk + (rng.random() < 0.2) * rng.normal(size=chunk.shape)
        n += len(chunk)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "all training rows have the same score")
            detector.partial_fit(chunk)
        assert detector._stream.n_seen == n


@pytest.mark.parametrize(("window", "expected"), [(None, 35), (40, 59)])
def test_rows_one_by_one_cost_few_fits(window, expected, n_fits):
    """Of 200 rows: one for each from 3 to 10, then whenever there are a tenth more, or a tenth of the window is new."""
    detector = QuadricDetector(window=window, score_function="linear")
    for row in X:
        detector.partial_fit(row[None])
    assert n_fits() == expected
    assert detector._stream.n_seen == 200


CHUNKS = {
    "NaN": np.where(np.eye(3) > 0, np.nan, X[:3]),
    "infinite": np.where(np.eye(3) > 0, np.inf, X[:3]),
    "other columns": X[:30, :2],
    "other names": pandas.DataFrame(X[:30], columns=list("abd")),
    "no rows": X[:0],
    "text": [["a", "b", "c"]],
    "a row": X[0],
}


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("chunk", CHUNKS.values(), ids=CHUNKS)
@pytest.mark.parametrize("n", [2, 40])
def test_a_chunk_that_is_refused_changes_nothing(chunk, n):
    """Before the first fit and after it: what others learn from is the same, bit for bit."""
    frame = pandas.DataFrame(X, columns=list("abc"))
    detector, other = (QuadricDetector(window=50).partial_fit(frame[:n]) for _ in range(2))
    before = vars(detector).copy()
    with pytest.raises((ValueError, TypeError)):
        detector.partial_fit(chunk)
    assert vars(detector).keys() == before.keys()
    assert all(vars(detector)[name] is before[name] for name in before)
    assert_same(state(detector), state(other))
    assert_same(state(detector.partial_fit(frame[n : n + 30])), state(other.partial_fit(frame[n : n + 30])))


# Windows


@given(cuts=st.lists(st.integers(1, 349), max_size=3, unique=True), window=st.integers(40, 500))
@n_examples(8)
def test_a_window_is_fitted_like_the_latest_rows(cuts, window):
    stream = streamed(np.split(BOTH[:350], sorted(cuts)), window=window)
    stream.partial_fit(BOTH[350:])  # a tenth of the window, at least
    expected = QuadricDetector().fit(BOTH[-window:])
    np.testing.assert_array_equal(stream.decision_scores_, expected.decision_scores_)
    assert stream.threshold_ == expected.threshold_


def test_windows_are_fitted_anew_when_a_tenth_is_new():
    detector = streamed([X, TEST], window=100)
    model = detector.model_
    assert detector.partial_fit(X[:9]).model_ is model
    assert detector.partial_fit(X[9:10]).model_ is not model


def test_a_window_may_change():
    detector = streamed([X, TEST])
    detector.set_params(window=np.int64(100)).partial_fit(X[:50])
    np.testing.assert_array_equal(
        detector.decision_scores_, QuadricDetector().fit(np.concatenate([TEST[150:], X[:50]])).decision_scores_
    )
    detector.set_params(window=None).partial_fit(X[50:])
    np.testing.assert_array_equal(
        detector.decision_scores_, QuadricDetector().fit(np.concatenate([TEST[150:], X])).decision_scores_
    )
    assert loaded(saved(detector)).partial_fit(TEST).decision_scores_.shape == (450,)


# From files and to files


def test_chunks_may_be_files(tmp_path):
    np.save(tmp_path / "a.npy", X[:120])
    (tmp_path / "folder").mkdir()
    for number, part in enumerate(np.split(X[120:], [30, 31])):
        np.save(tmp_path / "folder" / f"{number}.npy", part)
    np.save(tmp_path / "b.npy", TEST)
    chunks = [tmp_path / "a.npy", tmp_path / "folder", np.load(tmp_path / "b.npy", mmap_mode="r")]
    for parameters in ({}, {"window": 250}):
        expected = streamed([X[:120], X[120:], TEST], **parameters)
        np.testing.assert_array_equal(streamed(chunks, **parameters).decision_scores_, expected.decision_scores_)


@cache
def stream_of(window):
    return pickle.dumps(streamed([X, TEST[:5]], window=window))


@pytest.mark.parametrize("way", [lambda stream: pickle.loads(pickle.dumps(stream)), lambda stream: loaded(saved(stream))])
@pytest.mark.parametrize("window", [None, 150])
def test_streams_go_on_after_loading(window, way):
    stream = pickle.loads(stream_of(window))
    again = way(stream)
    for chunk in (TEST[5:10], TEST[10:]):
        assert_same(state(again.partial_fit(chunk)), state(stream.partial_fit(chunk)))
    assert len(again.decision_scores_) == (window or 400)


def test_a_stream_longer_than_its_sample_goes_on_after_loading(capacity):
    capacity(150)
    stream = streamed([X, TEST])
    again = loaded(saved(stream))
    for chunk in (X + 1, TEST - 1):
        again = loaded(saved(again.partial_fit(chunk)))
        assert_same(state(again), state(stream.partial_fit(chunk)))


@pytest.mark.parametrize("window", [None, 150])
def test_a_fit_goes_on_after_loading_if_its_sample_is_saved(window):
    fitted = QuadricDetector(window=window).fit(X)
    again = loaded(saved(fitted, sample=True))
    np.testing.assert_array_equal(again.partial_fit(TEST).decision_scores_, fitted.partial_fit(TEST).decision_scores_)
    with pytest.raises(ValueError, match="do not hold its training rows"):
        pickle.loads(pickle.dumps(QuadricDetector().fit(X))).partial_fit(TEST)
