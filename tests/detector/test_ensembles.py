"""QuadricDetector among others: combinations, ensembles, thresholders and wrappers of PyOD, with the real packages.

What they compute from its scores is computed again by hand.
"""

import json
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from pyod.models.embedding import EmbeddingOD
from pyod.models.knn import KNN
from pyod.models.lscp import LSCP
from pyod.models.ts_od import TimeSeriesOD
from pyod.utils.utility import standardizer
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from pyod_quadric import QuadricDetector
from tests.support.circle import TEST, TEST_Y, X, Y, shuffled
from tests.support.processes import HANGING


@pytest.fixture(scope="module")
def members():
    """Return four fitted detectors, two of them ours."""
    unfitted = [QuadricDetector(), QuadricDetector(score_function="quadrics", robust=False), KNN(), KNN(n_neighbors=10)]
    return [detector.fit(X) for detector in unfitted]


@pytest.fixture(scope="module")
def scores(members):
    """Return their standardised scores of new rows, (200, 4), after a look that PyOD's standardising is what it says."""
    training = np.stack([detector.decision_scores_ for detector in members], axis=1)
    new = np.stack([detector.decision_function(TEST) for detector in members], axis=1)
    _, standardised = standardizer(training, new)
    np.testing.assert_allclose(standardised, (new - training.mean(axis=0)) / training.std(axis=0), rtol=1e-9, atol=1e-9)
    return standardised


# Combinations of scores


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [
        ("average", lambda scores: scores.mean(axis=1)),
        ("maximization", lambda scores: scores.max(axis=1)),
        ("median", lambda scores: np.median(scores, axis=1)),
    ],
)
def test_combinations(scores, name, by_hand):
    combination = pytest.importorskip("pyod.models.combination", exc_type=ImportError)
    combined = getattr(combination, name)(scores)
    np.testing.assert_allclose(combined, by_hand(scores))
    assert roc_auc_score(TEST_Y, combined) > 0.99


@pytest.mark.parametrize(("name", "inner", "outer"), [("aom", np.max, np.mean), ("moa", np.mean, np.max)])
def test_combinations_in_buckets(scores, name, inner, outer):
    combination = pytest.importorskip("pyod.models.combination", exc_type=ImportError)
    combined = getattr(combination, name)(scores, n_buckets=2, random_state=0)
    # The buckets are drawn at random: it is one of the three ways to make pairs of four.
    by_hand = []
    for other in (1, 2, 3):
        pair = [0, other]
        rest = [number for number in range(4) if number not in pair]
        by_hand.append(outer([inner(scores[:, pair], axis=1), inner(scores[:, rest], axis=1)], axis=0))
    assert any(np.allclose(combined, candidate) for candidate in by_hand)
    assert roc_auc_score(TEST_Y, combined) > 0.99


def test_majority_vote(members):
    combination = pytest.importorskip("pyod.models.combination", exc_type=ImportError)
    votes = np.stack([detector.predict(TEST) for detector in members[:3]], axis=1)
    assert not (votes == votes[:, :1]).all()  # they do not all agree
    combined = combination.majority_vote(votes)
    np.testing.assert_array_equal(combined, votes.sum(axis=1) >= 2)
    assert combined[TEST_Y == 1].all()


# Ensembles


def test_lscp():
    detectors = [QuadricDetector(), QuadricDetector(score_function="quadrics"), KNN()]
    lscp = LSCP(detectors, n_bins=3, random_state=0).fit(X)
    np.testing.assert_array_equal(lscp.train_scores_[:, 0], QuadricDetector().fit(X).decision_scores_)
    scores = lscp.decision_function(TEST)
    assert roc_auc_score(TEST_Y, scores) > 0.99
    # Whichever members it takes for a row, it takes the mean of their standardised scores.
    training = lscp.train_scores_
    each = np.stack([detector.decision_function(TEST) for detector in detectors], axis=1)
    each = (each - training.mean(axis=0)) / training.std(axis=0)
    subsets = [list(subset) for size in (1, 2, 3) for subset in combinations(range(3), size)]
    candidates = np.stack([each[:, subset].mean(axis=1) for subset in subsets], axis=1)
    np.testing.assert_allclose(np.abs(candidates - scores[:, None]).min(axis=1), 0, atol=1e-8)


def test_feature_bagging():
    pytest.importorskip("combo")
    from pyod.models.feature_bagging import FeatureBagging

    rows, new = (np.hstack([part, np.random.default_rng(len(part)).normal(size=(len(part), 2))]) for part in (X, TEST))
    bagging = FeatureBagging(QuadricDetector(), n_estimators=4, random_state=0).fit(rows)
    assert len({len(features) for features in bagging.estimators_features_}) > 1  # of different widths
    assert len({detector.random_state for detector in bagging.estimators_}) == 4
    pairs = zip(bagging.estimators_, bagging.estimators_features_, strict=True)
    by_hand = np.mean([detector.decision_function(new[:, features]) for detector, features in pairs], axis=0)
    np.testing.assert_allclose(bagging.decision_function(new), by_hand)
    assert roc_auc_score(TEST_Y, by_hand) > 0.9


@pytest.mark.filterwarnings("ignore:y should not be presented in unsupervised learning", r"ignore:(?s).*silent.*are not used")
def test_xgbod():
    pytest.importorskip("xgboost")
    from pyod.models.xgbod import XGBOD

    xgbod = XGBOD([QuadricDetector(), KNN()], random_state=0, n_estimators=20).fit(X, Y)
    alone = QuadricDetector().fit(StandardScaler().fit_transform(X))
    np.testing.assert_allclose(xgbod.X_train_add_[:, 0], alone.decision_scores_)
    assert roc_auc_score(TEST_Y, xgbod.decision_function(TEST)) > 0.9  # trees cut between the ten outliers that they have seen
    importances = xgbod.clf_.feature_importances_
    assert importances[3] > importances[:3].max()  # it learns from our score rather than from the features


@pytest.fixture(scope="module")
def in_workers():
    """Return what the program found that fits in workers, where nobody has asked for a number of threads."""
    pytest.importorskip("suod")
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    root = Path(__file__).parents[2]
    environment["PYTHONPATH"] = os.pathsep.join([str(root), environment.get("PYTHONPATH", "")])
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.in_workers"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=HANGING)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_suod_with_two_jobs_is_the_average_of_its_members(in_workers):
    np.testing.assert_allclose(in_workers["suod"], in_workers["by_hand"], rtol=1e-9, atol=1e-9)
    assert roc_auc_score(TEST_Y, in_workers["suod"]) > 0.99


def test_fits_in_workers_are_the_fits_here(in_workers):
    assert in_workers["same"]


@pytest.mark.parametrize("backend", ["loky", "suod", "threading"])
def test_workers_do_not_have_more_threads_than_cores(in_workers, backend):
    threads = in_workers["threads"][backend]
    assert len(threads) == 2
    assert sum(threads) <= max(2, in_workers["cores"])


def test_fits_alone_have_all_cores_and_change_nothing(in_workers):
    before, during, after = in_workers["threads_alone"]
    assert before == during == after  # torch's own number: how many cores it takes of those there are is its business


# Thresholders


@pytest.mark.parametrize("name", ["AUCP", "CLF", "IQR", "KARCH", "MAD"])
def test_thresholders_of_pythresh(name):
    pytest.importorskip("pythresh")
    from pyod.models import thresholds

    detector = QuadricDetector(contamination=getattr(thresholds, name)()).fit(X)
    by_hand = getattr(thresholds, name)().eval(QuadricDetector().fit(X).decision_scores_)
    np.testing.assert_array_equal(detector.labels_, by_hand)
    assert detector.labels_[Y == 1].all()
    assert detector.labels_[Y == 0].mean() < 0.025
    assert detector.predict(TEST)[TEST_Y == 1].all()
    assert not hasattr(clone(detector), "model_")


# Wrappers


def test_embedding_od():
    def encode(texts):
        return np.array([[float(number) for number in text.split()] for text in texts])

    texts, new = ([" ".join(map(str, row)) for row in rows] for rows in (X, TEST))
    wrapper = EmbeddingOD(encoder=encode, detector=QuadricDetector()).fit(texts)
    scaler = StandardScaler().fit(X)
    alone = QuadricDetector().fit(scaler.transform(X).astype(np.float32))
    np.testing.assert_array_equal(wrapper.decision_scores_, alone.decision_scores_)
    np.testing.assert_array_equal(
        wrapper.decision_function(new), alone.decision_function(scaler.transform(TEST).astype(np.float32))
    )
    assert roc_auc_score(TEST_Y, wrapper.predict_proba(new)[:, 1]) > 0.99


def test_time_series_od():
    rng = np.random.default_rng(0)
    series = np.sin(np.arange(300) / 4) + 0.05 * rng.normal(size=300)
    series[150:155] = 0  # not far from the others, but out of step
    wrapper = TimeSeriesOD(detector=QuadricDetector(), window_size=10).fit(series)
    windows = np.lib.stride_tricks.sliding_window_view(series, 10)
    alone = QuadricDetector().fit(windows)
    # The score of a moment is the largest of the windows that it is in.
    by_hand = [alone.decision_scores_[max(0, t - 9) : t + 1].max() for t in range(300)]
    np.testing.assert_allclose(wrapper.decision_scores_, by_hand)
    assert 140 <= wrapper.decision_scores_.argmax() < 165
    assert wrapper.decision_function(series).shape == (300,)


def test_grid_search_of_a_pipeline_and_its_clone():
    pipeline = Pipeline([("scale", StandardScaler()), ("detect", QuadricDetector())])
    choices = {"detect__score_function": ["linear", "quadrics"], "scale__with_std": [True, False]}
    search = GridSearchCV(pipeline, choices, scoring="roc_auc", cv=2).fit(*shuffled(X, Y))
    assert search.best_params_["detect__score_function"] == "quadrics"
    assert roc_auc_score(TEST_Y, search.decision_function(TEST)) > 0.99
    copy = clone(search.best_estimator_)
    assert not hasattr(copy["detect"], "model_")
    scores = [one.fit(X).decision_function(TEST) for one in (copy, search.best_estimator_)]
    np.testing.assert_array_equal(*scores)
