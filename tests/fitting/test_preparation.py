"""What is done to rows before anything is learnt from them."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from pyod_quadric import QuadricDetector


def auc(detector, inliers, outliers):
    labels = np.repeat([0, 1], [len(inliers), len(outliers)])
    return roc_auc_score(labels, detector.decision_function(np.concatenate([inliers, outliers])))


def test_a_column_of_a_large_unit_does_not_switch_the_others_off():
    """A time in milliseconds beside four sensors."""
    rng = np.random.default_rng(0)

    def readings(n):
        return np.column_stack([1.7e12 + 3e10 * rng.uniform(size=n), rng.normal(size=(n, 4))])

    detector = QuadricDetector().fit(readings(1000))
    assert detector.model_.scales is not None
    off = readings(200)
    off[:, 1:] += 8
    assert auc(detector, readings(200), off) == 1
    assert QuadricDetector(standardize=False).fit(readings(1000)).model_.scales is None


@pytest.mark.parametrize("scales", [np.ones(6), np.geomspace(1, 1e4, 6)])
def test_units_that_are_alike_stay(scales):
    rows = np.random.default_rng(0).normal(size=(300, 6)) * scales
    assert QuadricDetector().fit(rows).model_.scales is None


def test_one_absurd_entry_makes_no_unit():
    rows = np.random.default_rng(0).normal(size=(300, 6))
    rows[7, 2] = 1e9
    assert QuadricDetector().fit(rows).model_.scales is None


def test_standardised_columns_may_have_any_unit():
    rng = np.random.default_rng(0)
    rows, new, units = rng.normal(size=(300, 4)) @ rng.normal(size=(4, 4)), rng.normal(size=(50, 4)), np.geomspace(1e-3, 1e4, 4)
    scores = [QuadricDetector(standardize=True).fit(rows * unit).decision_function(new * unit) for unit in (np.ones(4), units)]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-6)


@pytest.mark.parametrize(("mean", "spread"), [(0.2, 0.1), (0.0, 0.03)])
def test_short_rows_are_abnormal_where_rows_are_directions(mean, spread):
    """As of a network that makes short embeddings of what it does not know, around the origin."""
    rng = np.random.default_rng(0)

    def embeddings(n, length):
        rows = mean + rng.normal(size=(n, 64)) * np.linspace(0.5, 2, 64)
        return length * rows / np.linalg.norm(rows, axis=1, keepdims=True) * np.exp(spread * rng.normal(size=(n, 1)))

    detector = QuadricDetector().fit(embeddings(1000, 1.0))
    assert detector.model_.normalize
    assert auc(detector, embeddings(300, 1.0), embeddings(300, 0.5)) > 0.9


@pytest.mark.parametrize("unit", [1e-100, 1.0, 1e100])
def test_a_centred_cloud_has_no_origin(unit):
    rows = np.random.default_rng(0).normal(size=(1000, 64)) * np.linspace(0.5, 2, 64)
    assert not QuadricDetector().fit(unit * rows).model_.normalize
    assert QuadricDetector().fit(unit * rows / np.linalg.norm(rows, axis=1, keepdims=True) ** 0.9).model_.normalize


def test_what_happens_along_a_common_offset_counts():
    """Forty sensors in kelvins, which rise together."""
    rng = np.random.default_rng(0)

    def readings(n):
        return 300 + rng.normal(size=(n, 1)) + rng.normal(size=(n, 40))

    detector = QuadricDetector().fit(readings(1000))
    assert not detector.model_.normalize
    assert auc(detector, readings(300), readings(300) + 8) > 0.99


def test_a_tight_relation_that_breaks_is_seen():
    """The last column is the sum of two others, but for a hundredth."""
    rng = np.random.default_rng(0)

    def readings(n):
        rows = rng.normal(size=(n, 4))
        return np.column_stack([rows, rows[:, 0] + rows[:, 1] + 0.01 * rng.normal(size=n)])

    detector = QuadricDetector().fit(readings(1000))
    broken = readings(300)
    broken[:, 4] += 0.3
    assert auc(detector, readings(300), broken) > 0.99


def test_a_direction_that_no_row_has_entered_is_not_forbidden():
    """As a pixel that is black in all rows of the fit."""
    rng = np.random.default_rng(0)
    rows, new = (np.column_stack([rng.normal(size=(n, 10)), np.zeros(n)]) for n in (200, 100))
    new[:5, -1] = 0.5
    detector = QuadricDetector(score_function="linear").fit(rows)
    assert detector.decision_function(new[:5]).max() < 100
    far = np.zeros((1, 11))
    far[0, :-1] = 6
    assert detector.decision_function(far) > detector.decision_function(new[:5]).max()


@pytest.mark.parametrize("spread", [0.1, 0.35])
def test_texts_of_very_different_lengths_are_directions(spread):
    """Norms of up to an eighth of the variance, where the distance from the mean goes with the norm and with nothing else."""
    rng = np.random.default_rng(0)
    rows = (0.3 + rng.normal(size=(600, 64)) * np.geomspace(2, 0.2, 64)) * np.exp(spread * rng.normal(size=(600, 1)))
    assert QuadricDetector().fit(rows).model_.normalize
