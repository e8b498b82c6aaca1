"""Robust similarities: laws, the choice of a cutoff, the half/half protocol and tables of cutoffs."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pyod.models.knn import KNN
from pyod.models.pca import PCA
from scipy.stats import binom
from sklearn.base import clone
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pyod_quadric import (
    QuadricDetector,
    RobustSimilarity,
    half_half_protocol,
    identification_rate,
    outlier_scores,
    robust_similarity,
    threshold_table,
)
from pyod_quadric.similarity.cutoffs import cutoffs_at_shares
from pyod_quadric.similarity.identification import n_genuine_pairs
from pyod_quadric.similarity.protocol import _half_of_identities
from pyod_quadric.similarity.robust import SCORED_ROWS
from tests.support import reference

INF = float("inf")
few_scores = st.integers(0, 3).map(float)


@st.composite
def scored_similarities(draw):
    n, m = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    similarity = draw(arrays(np.int64, (n, m), elements=st.integers(-3, 3))).astype(float)
    return similarity, draw(arrays(float, n, elements=few_scores)), draw(arrays(float, m, elements=few_scores))


@given(
    case=scored_similarities(), cutoff=st.sampled_from([-INF, 0, 1, 1.5, 3, INF]), fill_value=st.sampled_from([0.0, -5.0, -INF])
)
def test_similarities_of_outliers_are_filled(case, cutoff, fill_value):
    similarity, scores_x, scores_y = case
    robust = robust_similarity(similarity, scores_x, scores_y, cutoff, fill_value)
    for (i, j), value in np.ndenumerate(robust):
        assert value == reference.robust(similarity[i, j], scores_x[i], scores_y[j], cutoff, fill_value)
    as_tensor = robust_similarity(torch.from_numpy(similarity), scores_x, torch.from_numpy(scores_y), cutoff, fill_value)
    np.testing.assert_array_equal(as_tensor.numpy(), robust)
    n = min(similarity.shape)
    pairs = robust_similarity(similarity.diagonal().copy(), scores_x[:n], scores_y[:n], cutoff, fill_value)
    np.testing.assert_array_equal(pairs, robust.diagonal())


@given(case=scored_similarities())
def test_infinite_cutoff_changes_nothing(case):
    np.testing.assert_array_equal(robust_similarity(*case, INF), case[0])


@given(case=scored_similarities(), low=st.integers(0, 3), high=st.integers(0, 3))
def test_two_cutoffs_are_the_smaller_one(case, low, high):
    similarity, *scores = case
    twice = robust_similarity(robust_similarity(similarity, *scores, low), *scores, high)
    np.testing.assert_array_equal(twice, robust_similarity(similarity, *scores, min(low, high)))


def test_types_are_kept():
    assert robust_similarity(np.ones((1, 1), np.float32), [0], [0], 1).dtype == np.float32
    assert robust_similarity(torch.ones(1, 1), [0], [0], 1).dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((2, 3)), np.zeros(3), np.zeros(3), 1.0), r"scores_x must have shape \(2,\).* got \(3,\)"),
        ((np.ones((2, 3)), np.zeros(2), np.zeros(2), 1.0), r"scores_y must have shape \(3,\).* got \(2,\)"),
        ((np.ones((2, 3)), np.zeros(2), np.full(3, np.nan), 1.0), "scores_y must be numbers, got 3 NaN"),
        ((np.ones((2, 3)), np.zeros(2), np.zeros(3), np.nan), "cutoff must be a number"),
        ((np.ones((2, 3, 1)), np.zeros(2), np.zeros(3), 1.0), r"shape \(n, m\), or \(n,\) for pairs, got \(2, 3, 1\)"),
    ],
)
def test_robust_similarity_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        robust_similarity(*arguments)


def crowd(seed=0, n_identities=40, n_outliers=12):
    """Return embeddings of identities, three rows each, and of outliers that are all alike; labels, and which are outliers."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_identities), 3)
    centres = rng.normal(size=(n_identities, 10))
    faces = centres[labels] + 0.3 * rng.normal(size=(len(labels), 10))
    noise = 4 + rng.normal(size=(n_outliers, 10))
    labels = np.append(labels, 1000 + np.arange(n_outliers))
    return np.append(faces, noise, axis=0), labels, labels >= 1000


def distance_to_outliers(rows):
    """An outlier score without any fitting."""
    return -np.linalg.norm(rows - 4, axis=1)


X, LABELS, OUTLIERS = crowd()
DISTRACTORS = np.append(crowd(1)[0], crowd(2)[0][-12:], axis=0)


@pytest.mark.parametrize("similarity", ["cosine", "euclidean", lambda x, y: x @ y.T])
@pytest.mark.parametrize("distractors", [None, DISTRACTORS], ids=["alone", "distractors"])
def test_fit_takes_the_best_cutoff_on_its_grid(similarity, distractors):
    robust = RobustSimilarity(distance_to_outliers, similarity, false_positive_rate=0.001).fit(X, LABELS, distractors)
    rates = [rate.ir if distractors is None else rate.full_ir for rate in robust.rates_]
    assert robust.cutoffs_[0] == INF
    best = np.flatnonzero(np.array(rates) == max(rates))
    assert robust.cutoff_ == robust.cutoffs_[best].max()
    assert robust.rate_ == robust.rates_[list(robust.cutoffs_).index(robust.cutoff_)]
    other_scores = None if distractors is None else distance_to_outliers(distractors)
    again = identification_rate(
        X,
        LABELS,
        distractors,
        scores=distance_to_outliers(X),
        distractor_scores=other_scores,
        cutoff=robust.cutoff_,
        false_positive_rate=0.001,
        similarity=similarity,
    )
    assert again == robust.rate_


def test_outliers_that_are_alike_are_what_a_cutoff_removes():
    robust = RobustSimilarity(distance_to_outliers, false_positive_rate=0.001).fit(X, LABELS)
    assert robust.rate_.ir > robust.rates_[0].ir + 0.2
    assert np.mean((distance_to_outliers(X) >= robust.cutoff_) == OUTLIERS) > 0.98  # one of them alone does no harm


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_pairwise_is_the_robust_similarity_of_all_pairs(batch_size):
    robust = RobustSimilarity(distance_to_outliers, batch_size=batch_size, cutoff=-6.0)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    scores = distance_to_outliers(X)
    np.testing.assert_allclose(robust.pairwise(X), robust_similarity(unit @ unit.T, scores, scores, -6.0), atol=1e-12)
    np.testing.assert_allclose(robust.pairwise(X[:5], X), robust.pairwise(X)[:5], atol=1e-12)
    assert (robust.pairwise(X)[:, OUTLIERS] == 0).all()


def test_outliers_are_infinitely_far_in_euclidean_similarity():
    robust = RobustSimilarity(distance_to_outliers, "euclidean", cutoff=-6.0)
    similarities = robust.pairwise(X)
    assert (similarities[:, OUTLIERS] == -INF).all()
    assert robust.fit(X, LABELS).cutoff_ == -6.0


FOREST = IsolationForest(random_state=0)
DETECTORS = [QuadricDetector(), KNN(), PCA(), FOREST]
PIPELINES = [make_pipeline(StandardScaler(), detector) for detector in (KNN(), FOREST)]


@pytest.mark.parametrize("detector", DETECTORS + PIPELINES, ids=lambda detector: type(detector).__name__)
def test_any_detector_will_do(detector):
    detector = clone(detector).fit(crowd(3)[0][:-12])
    scores = outlier_scores(detector, X)
    assert scores[OUTLIERS].mean() > scores[~OUTLIERS].mean()  # scikit-learn's sign is turned around
    robust = RobustSimilarity(detector, false_positive_rate=0.001).fit(X, LABELS, DISTRACTORS)
    assert robust.rate_.full_ir >= robust.rates_[0].full_ir
    assert robust.pairwise(X[:3]).shape == (3, 3)


def test_frozen_detectors_stay_fitted():
    robust = clone(RobustSimilarity(FrozenEstimator(clone(FOREST).fit(X[~OUTLIERS]))))
    scores = outlier_scores(robust.detector, X)
    assert scores[OUTLIERS].min() > np.median(scores[~OUTLIERS])
    with pytest.raises(NotFittedError):
        clone(RobustSimilarity(clone(FOREST).fit(X))).fit(X, LABELS)


def test_scores_are_made_in_blocks(tmp_path):
    rows = np.arange(2.0 * SCORED_ROWS + 10).reshape(-1, 2)
    np.save(tmp_path / "rows.npy", rows)
    sizes = []

    def score(block):
        sizes.append(len(block))
        return block[:, 0]

    np.testing.assert_array_equal(outlier_scores(score, tmp_path / "rows.npy"), rows[:, 0])
    assert sizes == [SCORED_ROWS, 5]


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda detector: type(detector).__name__)
def test_detectors_that_are_not_fitted_are_refused(detector):
    with pytest.raises(NotFittedError):
        RobustSimilarity(clone(detector)).fit(X, LABELS)


@pytest.mark.parametrize(
    ("robust", "action", "error", "message"),
    [
        (RobustSimilarity("knn"), lambda r: r.fit(X, LABELS), TypeError, "needs a decision_function, .* got str"),
        (RobustSimilarity(distance_to_outliers), lambda r: r.pairwise(X), NotFittedError, "not fitted"),
        (RobustSimilarity(lambda rows: rows), lambda r: r.fit(X, LABELS), ValueError, r"detector's scores must have shape"),
        (RobustSimilarity(distance_to_outliers), lambda r: r.fit(X, LABELS[1:]), ValueError, r"labels must have shape"),
        (RobustSimilarity(distance_to_outliers), lambda r: r.fit(X, np.arange(len(X))), ValueError, "no genuine pair"),
        (RobustSimilarity(distance_to_outliers, shares=[]), lambda r: r.fit(X, LABELS), ValueError, "shares must be one or"),
        (RobustSimilarity(distance_to_outliers, shares=[2]), lambda r: r.fit(X, LABELS), ValueError, "from 0 to 1"),
        (RobustSimilarity(np.sum, cutoff=1), lambda r: r.pairwise(X), ValueError, "detector's scores must have shape"),
        (
            RobustSimilarity(lambda rows: rows[:, 0], cutoff=1),
            lambda r: r.pairwise(X, X[:, :4]),
            ValueError,
            "as many features, got 10 and 4",
        ),
    ],
)
def test_bad_input_is_refused(robust, action, error, message):
    with pytest.raises(error, match=message):
        action(robust)


def test_parameters_are_kept_and_cloned():
    robust = RobustSimilarity(distance_to_outliers, "euclidean", shares=(0.0, 0.1), false_positive_rate=0.01)
    before = robust.get_params()
    assert clone(robust.fit(X, LABELS)).get_params() == before == robust.get_params()
    assert robust.cutoffs_.shape == (2,)


@given(scores=arrays(float, st.integers(1, 30), elements=few_scores), share=st.floats(0.01, 1))
def test_cutoffs_are_the_lowest_for_their_share(scores, share):
    (cutoff,) = cutoffs_at_shares(scores, [share])
    assert np.mean(scores >= cutoff) <= share
    lower = scores[scores < cutoff]
    if len(lower):
        assert np.mean(scores >= lower.max()) > share


@given(codes=arrays(np.int64, st.integers(4, 30), elements=st.integers(0, 12)), seed=st.integers(0, 2**16))
def test_halves_share_no_identity_and_both_have_genuine_pairs(codes, seed):
    codes[:4] = [0, 0, 1, 1]
    codes = np.unique(codes, return_inverse=True)[1]
    half = _half_of_identities(codes, np.random.default_rng(seed))
    assert not set(codes[half]) & set(codes[~half])
    assert abs(len(set(codes[half])) - len(set(codes[~half]))) <= 2
    assert min(n_genuine_pairs(codes[half]), n_genuine_pairs(codes[~half])) > 0


def test_halves_have_half_of_the_identities_and_distractors():
    result = half_half_protocol(X, LABELS, distance_to_outliers(X), n_repeats=20, false_positive_rate=0.001)
    for before in result.before:
        assert before.n_genuine == 20 * 3
        assert before.n_genuine + before.n_different == 66 * 65 // 2  # 20 identities of three rows, six of one
    scores = distance_to_outliers(DISTRACTORS)
    with_distractors = half_half_protocol(X, LABELS, distance_to_outliers(X), DISTRACTORS, scores, n_repeats=2)
    assert {rate.n_distractors for rate in with_distractors.after} == {len(DISTRACTORS) - len(DISTRACTORS) // 2}


def test_half_half_finds_what_robustness_is_worth():
    result = half_half_protocol(X, LABELS, distance_to_outliers(X), n_repeats=4, false_positive_rate=0.001)
    summary = result.summary()
    assert summary["ir_after"][0] > summary["ir_before"][0] + 0.2
    assert summary["ir_after"] == (np.mean([rate.ir for rate in result.after]), np.std([rate.ir for rate in result.after]))
    same = half_half_protocol(X, LABELS, distance_to_outliers(X), n_repeats=4, false_positive_rate=0.001)
    np.testing.assert_array_equal(same.cutoffs, result.cutoffs)
    other = half_half_protocol(X, LABELS, distance_to_outliers(X), n_repeats=4, false_positive_rate=0.001, seed=1)
    assert other.before != result.before


def test_scores_that_know_nothing_change_nothing_if_none_is_allowed_to_be_an_outlier():
    result = half_half_protocol(X, LABELS, np.zeros(len(X)), n_repeats=2, false_positive_rate=0.001)
    assert result.after == result.before
    assert (result.cutoffs == INF).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.append([0, 0], np.arange(1, len(X) - 1))}, "two identities .* got 1"),
        ({"n_repeats": 0}, "n_repeats must be 1 or more, got 0"),
        ({"distractors": DISTRACTORS}, "distractor_scores are needed"),
    ],
)
def test_half_half_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        half_half_protocol(**({"X": X, "labels": LABELS, "scores": np.zeros(len(X))} | changes))


@given(scores=arrays(float, st.integers(1, 40), elements=few_scores), rate=st.floats(0, 1), share=st.floats(0, 0.9))
def test_tables_keep_their_rates(scores, rate, share):
    outliers = np.arange(len(scores)) < share * len(scores)
    assume(not outliers.all())
    for known in (None, outliers):
        (row,) = threshold_table(scores, [rate], outliers=known)
        inliers = scores if known is None else scores[~known]
        assert row.rate == np.mean(inliers >= row.cutoff) <= rate
        assert row.target == rate
        assert (row.recall is None) == (known is None or not known.any())
        if row.rate < 1:  # so few would hardly ever reach the cutoff, were the rate at its bound
            assert binom.cdf(round(row.rate * len(inliers)), len(inliers), row.upper_bound) == pytest.approx(0.05)


def test_rates_below_one_row_say_what_they_are_worth():
    (row,) = threshold_table(np.arange(100.0), [0.001])
    assert row.cutoff == np.nextafter(99.0, INF)
    assert row.rate == 0
    assert row.upper_bound == pytest.approx(1 - 0.05 ** (1 / 100))


@pytest.mark.parametrize(
    ("scores", "changes", "message"),
    [
        ([[1.0]], {}, r"scores must have shape \(1,\)"),
        ([np.nan, 1], {}, "got 1 NaN"),
        ([1.0], {"rates": [2]}, r"rates must be from 0 to 1, got \[2.0\]"),
        ([], {}, "but there are none"),
        ([1.0], {"outliers": [1]}, "all rows are outliers"),
        ([1.0], {"outliers": [0, 1]}, "1 zeros and ones"),
        ([1.0], {"outliers": [3]}, "1 zeros and ones"),
    ],
)
def test_tables_refuse(scores, changes, message):
    with pytest.raises(ValueError, match=message):
        threshold_table(scores, **changes)
