"""Unusual norms of normalised rows count, and usual ones do not."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric import QuadricDetector
from pyod_quadric.model.norms import LEAST_SPREAD, Norms

numbers = st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3)


@given(
    rows=st.lists(numbers, min_size=1, max_size=5), middle=st.floats(-5, 5), spread=st.floats(0.01, 2), weight=st.floats(0, 9)
)
def test_scores_equal_their_definition_and_are_shared_out(rows, middle, spread, weight):
    lengths, points = Norms(middle, spread, weight), torch.tensor(rows, dtype=torch.float64)
    found = lengths.scores(points)
    for row, score in zip(rows, found.tolist(), strict=True):
        norm = max(math.sqrt(math.fsum(x * x for x in row)), 2.0**-126)
        beyond = max(0.0, abs(max(math.log(norm) - middle, -7)) / spread - 2)  # what is shorter is as good as empty
        assert score == pytest.approx(weight * beyond**2, rel=1e-9, abs=1e-18)
    shares = lengths.contributions(points)
    assert (shares >= 0).all()
    torch.testing.assert_close(shares.sum(dim=1), found)


def test_a_feature_has_its_share_of_the_squared_length():
    shares = Norms(0.0, 0.1, 1.0).contributions(torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64))
    torch.testing.assert_close(shares[0, 1] / shares[0, 0], torch.tensor(16 / 9, dtype=torch.float64))
    assert shares[1, 0] == shares[1, 1] > 0


def test_a_few_absurd_norms_change_little():
    norms = torch.from_numpy(np.exp(np.random.default_rng(0).normal(1.0, 0.3, size=1000)))
    norms[:20], norms[20:40] = 0, math.inf
    scores = torch.from_numpy(np.random.default_rng(1).normal(100.0, 20.0, size=1000))
    scores[:40] = 1e150
    found = Norms.of(norms, scores)
    assert found.median == pytest.approx(1.0, abs=0.03)
    assert found.spread == pytest.approx(0.3, rel=0.1)
    assert found.weight == pytest.approx(0.25 * 20, rel=0.15)


def test_rounding_of_unit_rows_is_no_spread():
    assert Norms.of(torch.ones(10) + 1e-7 * torch.arange(10), torch.zeros(10)).spread == LEAST_SPREAD


@pytest.mark.parametrize("factor", [1e-3, 1e3, 1e30])
def test_rows_of_absurd_lengths_are_outliers_though_rows_are_normalised(factor):
    rng = np.random.default_rng(0)
    rows = (np.ones(8) + 0.2 * rng.normal(size=(300, 8))) * np.exp(0.2 * rng.normal(size=(300, 1)))
    detector = QuadricDetector(normalize=True).fit(rows[:200].astype(np.float32))
    usual = detector.decision_function(rows[200:].astype(np.float32))
    unusual = detector.decision_function((factor * rows[200:]).astype(np.float32))
    assert unusual.min() > usual.max()
    others = QuadricDetector(normalize=True, score_function="quadrics").fit(rows[:200])
    np.testing.assert_allclose(others.decision_function(rows[200:]), others.decision_function(3 * rows[200:]), rtol=1e-6)
