import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric import QuadricDetector
from pyod_quadric.data.sources import Block
from pyod_quadric.report.findings import Lowest, calibration, findings
from tests.support.circle import TEST, WAYS, X


@pytest.fixture(scope="module")
def detector():
    return QuadricDetector().fit(X)


def in_blocks(rows, size=64):
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        yield Block(np.arange(start, start + len(part)), part, np.isfinite(part).all(axis=1))


@given(st.lists(st.lists(st.integers(-9, 9), max_size=7), min_size=1, max_size=9), st.integers(1, 6))
def test_lowest_is_a_stable_sort(parts, most):
    lowest, keys = Lowest(most), np.array([key for part in parts for key in part], dtype=int)
    place = 0
    for part in parts:
        lowest.add(np.array(part, dtype=int), place=np.arange(place, place + len(part)))
        place += len(part)
    np.testing.assert_array_equal(lowest.found()["place"], np.argsort(keys, kind="stable")[:most])


@pytest.mark.parametrize("way", ["closed form", "linear", "mean distance"])
def test_all_is_what_the_detector_says(way):
    detector = QuadricDetector(**WAYS[way]).fit(X)
    found = findings(detector, in_blocks(TEST), top=7)
    scores = detector.decision_function(TEST)
    np.testing.assert_allclose(found.scores, scores)
    np.testing.assert_array_equal(found.p_values, detector.p_values_of(found.scores))
    order = np.argsort(-found.scores)[:7]
    np.testing.assert_array_equal(found.top["row"], order)
    np.testing.assert_allclose(found.top["contributions"], detector.explain(TEST[order]))
    np.testing.assert_allclose(found.top["contributions"].sum(axis=1), found.top["score"])
    assert found.drift.pvalue == pytest.approx(detector.drift_test(TEST).pvalue)
    np.testing.assert_allclose(sum(found.parts.values()), 1)
    np.testing.assert_allclose(found.quadrics.sum(axis=1), found.parts.get("quadrics", 0))
    assert found.quadrics.shape[1] == detector.n_quadrics_
    assert len(found.drawn["row"]) == len(TEST)
    assert (np.diff(found.drawn["score"]) >= 0).all()


def test_the_map_is_a_rotation_of_the_plane_of_a_circle(detector):
    found = findings(detector, in_blocks(TEST))
    lengths = np.hypot(found.drawn["x"], found.drawn["y"])
    centred = TEST[found.drawn["row"]] - X.mean(axis=0)
    np.testing.assert_allclose(lengths, np.hypot(*centred[:, :2].T), rtol=0.05)


def test_one_feature_is_drawn_over_the_score():
    rows = np.random.default_rng(0).normal(size=(100, 1))
    found = findings(QuadricDetector().fit(rows), in_blocks(rows))
    assert found.axes[1] == "outlier score"
    np.testing.assert_array_equal(found.drawn["y"], found.drawn["score"])


@pytest.mark.parametrize("points", [20, 300])
def test_of_many_rows_the_outliers_are_drawn_and_a_sample_of_the_others(detector, points):
    rows = np.concatenate([X[:190]] * 20 + [TEST[190:] * 0])
    found = findings(detector, in_blocks(rows), points=points)
    above = np.flatnonzero(found.scores > detector.threshold_)
    assert 10 < len(above) < 150  # too many, or not, for half of the points
    certain = np.argsort(-found.scores, kind="stable")[: points // 2]
    certain = certain[np.isin(certain, above)]
    drawn = found.drawn["row"]
    assert len(drawn) == len(set(drawn)) == points
    assert set(certain) <= set(drawn)
    others = np.setdiff1d(drawn, certain)
    assert abs(others.mean() - 1900) < 4 * 1100 / len(others) ** 0.5  # from everywhere


def test_the_size_of_blocks_changes_nothing(detector):
    one, other = (findings(detector, in_blocks(TEST, size), points=60) for size in (7, 1000))
    for name, column in one.drawn.items():
        np.testing.assert_allclose(column, other.drawn[name], rtol=1e-9)


def test_rows_that_are_not_finite_are_counted(detector):
    rows = np.insert(TEST, [0, 70], np.nan, axis=0)
    found = findings(detector, in_blocks(rows))
    assert (found.n_dropped, len(found.scores)) == (2, len(TEST))
    assert 0 not in found.drawn["row"]
    with pytest.raises(ValueError, match="nothing to report"):
        findings(detector, in_blocks(rows[:1]))


def test_drift_of_groups():
    people = np.repeat(np.arange(40), 5)
    detector = QuadricDetector().fit(X, groups=people)
    assert findings(detector, in_blocks(TEST)).drift is None
    found = findings(detector, in_blocks(TEST), groups=lambda indices: people[indices])
    assert found.drift == detector.drift_test(TEST, groups=people)


@given(st.integers(1, 3000), st.integers(0, 2**32 - 1))
def test_cutoffs_are_where_p_values_are_small_enough(n, seed):
    detector, rng = QuadricDetector(), np.random.default_rng(seed)
    detector.decision_scores_ = scores = rng.exponential(size=n)
    detector.model_ = None  # of which p-values know nothing
    found = calibration(scores)
    assert [rate for rate, *_ in found] == [rate for rate in (0.001, 0.01, 0.05, 0.1) if rate * (n + 1) > 1 - 1e-9]
    for rate, cutoff, k, low, high in found:
        at, above = detector.p_values_of(np.array([cutoff, np.nextafter(cutoff, np.inf)]))
        assert above <= 1.01 * rate < 1.02 * at
        assert (scores >= cutoff).sum() == k
        assert 0 <= low < k / (n + 1) < high <= 1


@pytest.mark.parametrize("options", [{"top": 0}, {"points": 1}])
def test_numbers_that_show_nothing_are_refused(detector, options):
    with pytest.raises(ValueError, match="top must be 1 or more and points 2 or more"):
        findings(detector, in_blocks(TEST), **options)
