"""Training scores are out-of-fold, so that thresholds, p-values and probabilities hold for new rows, and for new groups."""

import inspect
import pickle
import warnings

import numpy as np
import pytest
import sklearn
import torch
from scipy.stats import false_discovery_control, kstest
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pyod_quadric import QuadricDetector
from pyod_quadric.fitting.folds import auto_folds
from tests.support import reference
from tests.support.circle import TEST, TEST_Y, X

PEOPLE = np.repeat(np.arange(60), 6)


def in_groups(d=12, people=PEOPLE, seed=0):
    """Return rows of people: near a point of each."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(people.max() + 1, d))[people] + 0.2 * rng.normal(size=(len(people), d))


def curved(n, seed, d=20):
    """Return rows near a curved surface of few dimensions among many."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(n, 4))
    mixed = np.concatenate([hidden, hidden**2], axis=1) @ np.random.default_rng(0).normal(size=(8, d))
    return mixed + 0.5 * rng.normal(size=(n, d))


# Out of fold


def test_the_linear_part_equals_its_reference():
    """The folds are known where there are as many groups."""
    rows, folds = np.random.default_rng(0).normal(size=(60, 4)) * [1, 2, 3, 4], np.arange(60) % 3
    detector = QuadricDetector(score_function="linear", robust=False, n_folds=3).fit(rows, groups=folds)
    parts = [rows[folds == fold] for fold in range(3)]
    for fold in range(3):
        others = rows[folds != fold]
        axes = np.linalg.svd(others - others.mean(axis=0))[2]
        variances = reference.decreasing(reference.held_out_variances(parts, left_out=fold))
        variances = 1 / (0.9 / (variances + 0.1 * np.sort(variances)[1]) + 0.1 / variances)
        expected = (((parts[fold] - others.mean(axis=0)) @ axes.T) ** 2 / variances).sum(axis=1)
        np.testing.assert_allclose(detector.decision_scores_[folds == fold], expected, rtol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"score_function": "mean_distance", "n_components": 3}, {"epoch_num": 2}], ids=str)
def test_no_row_has_a_part_in_the_model_that_scores_it(settings):
    """Of two equal groups of rows that no other row is like, one gives the other away, unless they share a fold."""
    rows = curved(300, 0)
    rows[:20] = rows[20:40] = 30 + np.random.default_rng(1).normal(size=(20, 20))
    apart, together = np.arange(300), np.r_[np.zeros(40, int), np.arange(40, 300)]
    high = {}
    for name, groups in (("apart", apart), ("together", together)):
        detector = QuadricDetector(robust=False, n_folds=3, **settings).fit(rows, groups=groups)
        high[name] = np.median(detector.decision_scores_[:40]) / np.median(detector.decision_scores_[40:])
    assert high["together"] > 2 * high["apart"]


def test_a_row_cannot_hide_by_bending_the_fit():
    """In-sample a squared Mahalanobis distance is below the number of rows, wherever a row may be."""
    rows = np.random.default_rng(0).normal(size=(50, 3))
    rows[0] = 1e6
    detector = QuadricDetector(score_function="linear", robust=False).fit(rows)
    assert detector.decision_function(rows)[0] < 100
    assert detector.decision_scores_[0] > 1e9


def test_in_sample_scores_on_request():
    settings = {"score_function": "mean_distance", "n_quadrics": 2, "init": "random", "epoch_num": 2}
    once = QuadricDetector(n_folds=None, **settings).fit(X)
    np.testing.assert_allclose(once.decision_scores_, once.decision_function(X), rtol=1e-12)
    folded = QuadricDetector(**settings).fit(X)
    np.testing.assert_array_equal(once.decision_function(TEST), folded.decision_function(TEST))
    with pytest.raises(ValueError, match="n_folds=None holds out no rows"):
        QuadricDetector(n_folds=None).fit(X)


def test_folds_are_many_where_rows_are_few():
    assert [auto_folds(n) for n in (3, 30, 300, 3000, 5000, 10**7)] == [3, 10, 10, 7, 5, 5]
    assert [auto_folds(n, are_trained=True) for n in (3, 300, 5000, 10**7)] == [3, 10, 4, 3]


# New rows


@pytest.mark.parametrize(
    "settings",
    [{}, {"score_function": "linear"}, {"score_function": "mean_distance"}, {"epoch_num": 3}, {"robust": False}],
    ids=str,
)
@pytest.mark.parametrize("n", [150, 600])
def test_the_flagged_share_of_new_inliers_is_the_contamination(settings, n):
    """On average over splits, to 0.02; in-sample scores would flag a multiple of it."""
    flagged = []
    for seed in range(6):
        detector = QuadricDetector(contamination=0.1, **settings).fit(curved(n, seed, d=60))
        flagged.append(detector.predict(curved(2000, 100 + seed, d=60)).mean())
    assert np.mean(flagged) == pytest.approx(0.1, abs=0.03 if n < 400 else 0.02)


def test_p_values_of_new_inliers_are_uniform():
    p_values = [QuadricDetector().fit(curved(1000, seed)).predict_pvalue(curved(500, 100 + seed)) for seed in range(8)]
    assert kstest(np.concatenate(p_values), "uniform").statistic < 0.03


def test_false_discoveries_are_as_few_as_asked_for():
    false, found = [], []
    for seed in range(8):
        detector = QuadricDetector().fit(curved(1000, seed))
        new = curved(500, 100 + seed)
        new[:50] += 3 * np.random.default_rng(seed).normal(size=(50, 20))
        chosen = detector.predict(new, false_discovery_rate=0.1)
        np.testing.assert_array_equal(chosen, false_discovery_control(detector.predict_pvalue(new)) <= 0.1)
        false.append(chosen[50:].sum() / max(1, chosen.sum()))
        found.append(chosen[:50].mean())
    assert np.mean(false) < 0.13  # .1, and chance
    assert np.mean(found) > 0.8


def test_a_false_positive_rate_is_one_argument():
    detector = QuadricDetector().fit(X)
    p_values = detector.predict_pvalue(TEST)
    np.testing.assert_array_equal(detector.predict(TEST, false_positive_rate=0.07), p_values <= 0.07)
    assert detector.p_values_of(np.array([0.0, 1e9])).tolist() == [1.0, 1 / 201]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"false_positive_rate": 0.0}, "false_positive_rate must be"),
        ({"false_positive_rate": 1.5}, "false_positive_rate must be"),
        ({"false_discovery_rate": "some"}, "false_discovery_rate must be"),
        ({"false_positive_rate": 0.1, "false_discovery_rate": 0.1}, "give one of"),
        ({"false_positive_rate": 0.1, "return_confidence": True}, "give one of"),
    ],
)
def test_rates_that_mean_nothing_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        QuadricDetector().fit(X).predict(TEST, **arguments)


def test_probabilities_are_better_calibrated_than_scores_on_a_scale():
    detector = QuadricDetector(contamination=0.05).fit(X[:190])
    errors = {
        method: abs(detector.predict_proba(TEST, method=method)[:, 1].mean() - TEST_Y.mean())
        for method in ("posterior", "unify", "linear")
    }
    assert errors["posterior"] < 0.03 < min(errors["unify"], errors["linear"])
    both, confidence = detector.predict_proba(TEST, method="posterior", return_confidence=True)
    np.testing.assert_allclose(both.sum(axis=1), 1)
    assert confidence.shape == (200,)


# Groups


def test_groups_make_decisions_right_for_new_groups():
    rows, people = in_groups(d=30), PEOPLE
    others = np.random.default_rng(1).normal(size=(2000, 30)) * np.sqrt(1.04)
    alone, together = (QuadricDetector(contamination=0.1).fit(rows, groups=groups) for groups in (None, people))
    assert alone.predict(others).mean() > 0.3
    assert together.predict(others).mean() == pytest.approx(0.1, abs=0.05)


def test_names_of_groups_do_not_matter():
    rows = in_groups()
    numbers, texts = (QuadricDetector().fit(rows, groups=groups) for groups in (PEOPLE, [str(p) for p in PEOPLE]))
    np.testing.assert_array_equal(numbers.decision_scores_, texts.decision_scores_)


TOO_FEW_GROUPS = [(0 * PEOPLE, {}, "at least 3 groups, .* got 1"), (PEOPLE % 2, {}, "at least 3 groups, .* got 2")]
BAD_GROUPS = [
    (PEOPLE[:-1], {}, r"groups must name the group of each of 360 rows"),
    (PEOPLE % 4, {"n_folds": 5}, "n_folds=5 folds need as many groups, got 4"),
    (np.where(PEOPLE == 3, np.nan, PEOPLE), {}, "that of row 18 is missing"),
]


@pytest.mark.parametrize(("groups", "settings", "message"), TOO_FEW_GROUPS + BAD_GROUPS)
def test_bad_groups_leave_an_earlier_fit_as_it_was(groups, settings, message):
    rows = in_groups()
    detector = QuadricDetector().fit(rows, groups=PEOPLE).set_params(**settings)
    earlier = dict(vars(detector))
    with pytest.raises(ValueError, match=message):
        detector.fit(rows, groups=groups)
    assert vars(detector).keys() == earlier.keys()
    assert all(value is earlier[name] for name, value in vars(detector).items())


@pytest.mark.parametrize(("groups", "settings", "message"), BAD_GROUPS)
def test_streams_refuse_bad_groups(groups, settings, message):
    with pytest.raises(ValueError, match=message):
        QuadricDetector(**settings).partial_fit(in_groups(), groups=groups)


def test_too_many_folds_are_refused():
    with pytest.raises(ValueError, match="n_folds=9 folds need as many rows, got 5"):
        QuadricDetector(n_folds=9).fit(X[:5])


def test_groups_reach_the_fit_through_pipelines_and_searches():
    assert inspect.signature(QuadricDetector.fit).parameters["groups"].kind is inspect.Parameter.KEYWORD_ONLY
    rows = in_groups()
    with sklearn.config_context(enable_metadata_routing=True):
        detector = QuadricDetector().set_fit_request(groups=True)
        pipeline = make_pipeline(StandardScaler(), detector).fit(rows, groups=PEOPLE)
        expected = QuadricDetector().fit(StandardScaler().fit_transform(rows), groups=PEOPLE)
        np.testing.assert_array_equal(pipeline[-1].decision_scores_, expected.decision_scores_)
        labels = (np.arange(360) % 5 == 0).astype(int)
        choices = {"score_function": ["linear", "combined"]}
        search = GridSearchCV(detector, choices, scoring="roc_auc", cv=GroupKFold(3)).fit(rows, labels, groups=PEOPLE)
        assert search.best_estimator_.groups_ is not None


def test_streams_have_groups():
    rows = in_groups()
    detector = QuadricDetector()
    for part in np.split(np.arange(360), [100, 103, 350]):
        detector.partial_fit(rows[part], groups=PEOPLE[part])
    together = QuadricDetector().fit(rows, groups=PEOPLE)
    detector.fit(rows[:350], groups=PEOPLE[:350])
    detector.partial_fit(np.tile(rows[350:], (5, 1)), groups=np.tile(PEOPLE[350:], 5))
    assert len(detector.groups_) == 400
    np.testing.assert_array_equal(detector.groups_[:360], together.groups_)
    with pytest.raises(ValueError, match="all rows of a stream have groups, or none has: earlier ones have some"):
        detector.partial_fit(rows)
    with pytest.raises(ValueError, match="earlier ones have none, these have some"):
        QuadricDetector().partial_fit(rows).partial_fit(rows, groups=PEOPLE)


def test_a_window_keeps_the_groups_of_its_rows():
    rows = in_groups()
    detector = QuadricDetector(window=120)
    for part in np.split(np.arange(360), 6):
        detector.partial_fit(rows[part], groups=PEOPLE[part])
    expected = QuadricDetector().fit(rows[-120:], groups=PEOPLE[-120:])
    np.testing.assert_array_equal(detector.groups_, expected.groups_)
    np.testing.assert_array_equal(detector.decision_scores_, expected.decision_scores_)


@pytest.mark.parametrize("stream", [False, True])
def test_files_keep_groups_and_decisions(stream, tmp_path):
    rows = in_groups()
    detector = QuadricDetector()
    (detector.partial_fit if stream else detector.fit)(rows, groups=PEOPLE)
    detector.save(tmp_path / "model")
    loaded = QuadricDetector.load(tmp_path / "model")
    new = in_groups(seed=1)
    np.testing.assert_array_equal(loaded.groups_, detector.groups_)
    np.testing.assert_array_equal(loaded.predict_pvalue(new), detector.predict_pvalue(new))
    assert loaded.drift_test(new, groups=PEOPLE) == detector.drift_test(new, groups=PEOPLE)
    if stream:
        after = [each.partial_fit(new, groups=PEOPLE).decision_scores_ for each in (loaded, detector)]
        np.testing.assert_array_equal(*after)


# Groups that nobody has told of


def test_rows_that_seem_to_be_in_groups_are_warned_of():
    rows = in_groups(d=60, people=np.repeat(np.arange(100), 5))
    with pytest.warns(UserWarning, match=r"groups=\.\.\. of the rows") as caught:
        QuadricDetector().fit(rows)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize("kind", ["told", "one row each", "few features", "in-sample"])
def test_others_are_not(kind):
    people = np.repeat(np.arange(100), 5)
    rows = in_groups(d=20 if kind == "few features" else 60, people=np.arange(500) if kind == "one row each" else people)
    settings = {"n_folds": None, "score_function": "mean_distance"} if kind == "in-sample" else {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        QuadricDetector(**settings).fit(rows, groups=people if kind == "told" else None)
    assert not caught


def test_p_values_follow_the_latest_fit():
    detector = QuadricDetector().fit(X)
    earlier = detector.predict_pvalue(TEST)
    later = detector.fit(3 * TEST).predict_pvalue(TEST)
    np.testing.assert_array_equal(later, QuadricDetector().fit(3 * TEST).predict_pvalue(TEST))
    assert (later != earlier).any()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(detector)).predict_pvalue(TEST), later)


# Batches


@pytest.mark.parametrize("size", [50, 1000])
def test_drift_is_found_where_it_is(size):
    detector = QuadricDetector().fit(curved(1500, 0))
    same = [detector.drift_test(curved(size, seed)).pvalue for seed in range(1, 31)]
    assert np.mean(np.array(same) < 0.05) <= 0.2  # 1.5 of 30 expected
    shifted = detector.drift_test(curved(size, 50) * 1.3)
    assert shifted.pvalue < 0.01
    assert 0 < shifted.statistic <= 1


def test_batches_have_groups_where_the_fit_has_them():
    rows = in_groups()
    with_groups, without = QuadricDetector().fit(rows, groups=PEOPLE), QuadricDetector().fit(rows)
    with pytest.raises(ValueError, match="the fit has groups, so the batch needs them"):
        with_groups.drift_test(rows)
    with pytest.raises(ValueError, match="the batch has groups, but the fit has none"):
        without.drift_test(rows, groups=PEOPLE)
    assert with_groups.drift_test(in_groups(seed=5), groups=PEOPLE).pvalue > 0.001
    assert with_groups.drift_test(3 * in_groups(seed=5), groups=PEOPLE).pvalue < 1e-6


# Elsewhere


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_module_has_the_same_p_values(dtype):
    detector = QuadricDetector().fit(X)
    scores, p_values = detector.to_module(p_values=True)(torch.tensor(TEST, dtype=dtype))
    np.testing.assert_allclose(scores, detector.decision_function(TEST), rtol=1e-3)
    expected = detector.predict_pvalue(TEST.astype(np.float32) if dtype == torch.float32 else TEST)
    assert np.mean(p_values.numpy() == expected) > (0.97 if dtype == torch.float32 else 0.999)


@pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning")
def test_onnx_has_the_same_p_values(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    detector = QuadricDetector().fit(X)
    detector.to_onnx(tmp_path / "model.onnx", dtype=torch.float64)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (p_values,) = session.run(["p_values"], {"rows": TEST})
    np.testing.assert_allclose(p_values, detector.predict_pvalue(TEST), atol=1.01 / 201)  # one rank, by rounding


@pytest.mark.parametrize("n", [60, 100])
def test_new_rows_are_flagged_as_often_where_rows_are_fewer_than_features(n):
    """All rows span more directions than those of a fold's complement, so that new rows are farther from their neighbours."""
    scales, flagged = np.geomspace(1, 0.2, 200), []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        detector = QuadricDetector().fit(rng.normal(size=(n, 200)) * scales)
        flagged.append(np.mean(detector.predict_pvalue(rng.normal(size=(1000, 200)) * scales) < 0.2))
    assert abs(np.mean(flagged) - 0.2) < 0.1
