"""P-values are ranks among held-out scores; probabilities follow from them; drift is a two-sample test."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.stats import ks_2samp, norm

from pyod_quadric.model import calibration
from pyod_quadric.model.calibration import Calibration, drift_of, far_out, posterior_of

SCORES = arrays(np.float64, st.integers(1, 30), elements=st.integers(0, 8).map(float))  # with ties


def ranks(training, scores):
    """P-values by their definition."""
    return [(1 + sum(other >= score for other in training)) / (len(training) + 1) for score in scores]


@given(training=SCORES, scores=SCORES)
def test_p_values_are_ranks(training, scores):
    found = Calibration.of(training).p_values_of(torch.from_numpy(scores + 0.0))
    np.testing.assert_allclose(found, ranks(training, scores), rtol=1e-12)


@given(n=st.integers(1, 400), seed=st.integers(0, 2**16))
def test_a_short_table_rounds_up_by_little(n, seed):
    rng = np.random.default_rng(seed)
    training, scores = rng.normal(size=n), rng.normal(size=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "EXACT_RANKS", 5)
        patch.setattr(calibration, "STEP", 1.3)
        table = Calibration.of(training)
    found, exact = table.p_values_of(torch.from_numpy(scores)).numpy(), np.array(ranks(training, scores))
    n_above = exact * (n + 1) - 1
    assert (found >= exact - 1e-12).all()
    # The next rank of the table is at most a step away, and ranks are whole.
    assert (found * (n + 1) <= 1.3 * (n_above + 2)).all()
    np.testing.assert_allclose(found[n_above < 4], exact[n_above < 4])


def test_a_table_of_a_million_scores_is_short_and_right():
    training = np.random.default_rng(0).normal(size=1_000_000)
    table = Calibration.of(training)
    assert len(table.knots) == 1000 + math.ceil(math.log(1000) / math.log(1.01))  # the highest, and then one for each per cent
    scores = np.linspace(-3, 5, 50)
    exact = (1 + (training >= scores[:, None]).sum(axis=1)) / 1_000_001
    found = table.p_values_of(torch.from_numpy(scores)).numpy()
    assert (found >= exact).all()
    assert (found <= 1.011 * exact).all()


@given(n=st.integers(5, 60), seed=st.integers(0, 2**16))
def test_p_values_of_exchangeable_scores_are_valid(n, seed):
    """Whatever n + 1 scores are, if each of them may be the new one, p is at most a with probability at most a."""
    scores = np.random.default_rng(seed).integers(0, 10, size=n + 1).astype(float)
    p_values = [
        float(Calibration.of(np.delete(scores, i)).p_values_of(torch.from_numpy(scores[i : i + 1]))[0]) for i in range(n + 1)
    ]
    for level in np.arange(1, n + 2) / (n + 1):
        assert np.mean(np.array(p_values) <= level + 1e-12) <= level + 1e-12


@given(p=st.floats(1e-6, 1), prior=st.floats(0.001, 0.5))
@example(p=0.99985, prior=0.1)
@example(p=0.9999, prior=0.1)
def test_the_posterior_is_that_of_the_mean_density(p, prior):
    density = quad(lambda a: a * p ** (a - 1), 0, 1)[0]
    expected = prior * density / (prior * density + 1 - prior)
    assert posterior_of(np.array([p]), prior)[0] == pytest.approx(expected, rel=4e-5)


@given(prior=st.floats(0.001, 0.5))
def test_the_posterior_falls_with_the_p_value(prior):
    p = np.concatenate([np.geomspace(1e-9, 1, 200), 1 - np.geomspace(1e-9, 1e-3, 50)])
    p.sort()
    assert (np.diff(posterior_of(p, prior)) <= 1e-9).all()


def test_drift_is_the_test_of_kolmogorov_and_smirnov(monkeypatch):
    rng = np.random.default_rng(0)
    batch, training = rng.normal(size=70), rng.normal(size=200) + 0.3
    expected, found = ks_2samp(batch, training, method="asymp"), drift_of(batch, training)
    assert found.statistic == expected.statistic
    assert expected.pvalue < found.pvalue < 3 * expected.pvalue
    monkeypatch.setattr(calibration, "MARGIN", 0.0)
    assert drift_of(batch, training).pvalue == pytest.approx(expected.pvalue, rel=1e-9)


def test_a_single_row_can_hardly_drift():
    """Of one number, the largest difference from a distribution is uniform from 1/2 to 1."""
    training = np.arange(1000.0)
    assert drift_of([2000.0], training).pvalue == pytest.approx(2 * (1 - (1 - 0.02)))
    assert drift_of([700.5], training).pvalue == pytest.approx(2 * (1 - (0.701 - 0.02)))
    assert drift_of([499.5], training).pvalue == 1


def test_large_batches_may_differ_by_a_margin():
    uniform = (np.arange(20_000) + 0.5) / 20_000
    assert drift_of(uniform, 0.98 * uniform).pvalue > 0.99
    assert ks_2samp(uniform, 0.98 * uniform).pvalue < 0.001
    assert drift_of(uniform, 0.95 * uniform).pvalue < 0.001


# Far out


@given(scores=arrays(np.float64, st.integers(3, 40), elements=st.floats(1e-6, 1e6)), factor=st.floats(1e-3, 1e3))
def test_far_out_goes_with_the_unit(scores, factor):
    np.testing.assert_allclose(far_out(factor * scores), factor * far_out(scores), rtol=1e-9)


@given(seed=st.integers(0, 999), n=st.integers(10, 200), factor=st.floats(1, 1e9))
def test_how_far_out_does_not_matter(seed, n, factor):
    scores = np.random.default_rng(seed).chisquare(5, n)
    scores[: n // 5] *= 30
    threshold = far_out(scores)
    assert far_out(np.where(scores > threshold, factor * scores, scores)) == threshold


def test_of_a_bell_in_logarithms_three_deviations_are_far_out():
    """Also where a fifth of the scores are elsewhere; and where most are equal, three of what deviations there are."""
    logarithms = norm.ppf((np.arange(20_001) + 0.5) / 20_001)
    for middle, width in ((0.0, 1.0), (-20.0, 0.1)):
        assert math.log(far_out(np.exp(middle + width * logarithms))) == pytest.approx(middle + 3 * width, rel=1e-3)
    assert math.log(far_out(np.exp([0.0, 0.0, 0.0, 1.0]))) == pytest.approx(3 * np.std([0, 0, 0, 1]))
    assert math.log(far_out(np.exp([0.0, -1.0, 1.0, -0.5, 0.5]))) == pytest.approx(3 * 0.5 / norm.ppf(0.75), rel=1e-4)


def test_far_out_of_odd_scores_is_finite():
    assert far_out(np.array([0.0, 0.0, 0.0, 5.0])) > 0
    assert np.isfinite(far_out(np.array([0.0, 0.0, 1e150, 1e150, 1e150])))
    assert far_out(np.full(5, 2.0)) == pytest.approx(2)
