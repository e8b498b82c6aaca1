"""Quadrics weigh what held-out rows say of them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric import QuadricDetector
from pyod_quadric.fitting.evidence import SHARE, SOFTNESS, evidence_weights, gaussian_references


def squares(seed, n, m):
    return torch.tensor(np.random.default_rng(seed).gamma(1.0, size=(n, m)))


@given(seed=st.integers(0, 2**16), m=st.integers(1, 5), d=st.integers(1, 10))
def test_weights_equal_their_formula(seed, m, d):
    held_out, reference, rows = squares(seed, 20, m) / 5, squares(seed + 1, 30, m), squares(seed + 2, 20, 1)[:, 0]
    weights = evidence_weights(held_out, reference, rows, d).numpy()
    g = reference.numpy().mean(axis=0)
    h = np.average(held_out.numpy(), axis=0, weights=rows.numpy()) + SOFTNESS * g
    expected = np.maximum(1 / h - 1 / g, 0)
    expected *= SHARE * min(1, d / max(1e-300, (expected * h).sum()))
    np.testing.assert_allclose(weights, expected, rtol=1e-9)


def test_a_quadric_no_better_than_chance_weighs_nothing():
    same = squares(0, 50, 1)
    weights = evidence_weights(torch.cat([same, same / 100], dim=1), torch.cat([same, same], dim=1), torch.ones(50), 9)
    assert weights[0] == 0
    assert weights[1] > 1


def test_infinite_distances_weigh_nothing():
    held_out = torch.tensor([[torch.inf, 0.1], [1.0, 0.1]])
    weights = evidence_weights(held_out, torch.ones(4, 2), torch.ones(2), 5)
    assert weights[0] == 0
    assert torch.isfinite(weights).all()


@given(seed=st.integers(0, 2**16), k=st.integers(1, 5))
def test_references_share_mean_and_covariance_with_the_rows(seed, k):
    rng = np.random.default_rng(seed)
    rows = torch.tensor(rng.normal(size=(200, k)) @ rng.normal(size=(k, k)) + rng.normal(size=k))
    references = gaussian_references(rows, torch.ones(200), 20_000).numpy()
    covariance = np.cov(rows.numpy().T, bias=True).reshape(k, k)
    scale = np.trace(covariance)
    np.testing.assert_allclose(references.mean(axis=0), rows.mean(dim=0), atol=0.05 * scale**0.5)
    np.testing.assert_allclose(np.cov(references.T, bias=True).reshape(k, k), covariance, atol=0.1 * scale)


def test_references_do_not_share_the_shape_of_the_rows():
    angle = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    rows = torch.tensor(np.stack([np.cos(angle), np.sin(angle), np.cos(2 * angle)], axis=1))
    references = gaussian_references(rows, torch.ones(400), 1000)
    off = (references[:, 2] - (references[:, 0] ** 2 - references[:, 1] ** 2)).abs()
    assert off.median() > 0.3


def test_rows_without_weight_do_not_count():
    rows = torch.tensor([[0.0], [1.0], [-1.0], [1000.0]])
    references = gaussian_references(rows, torch.tensor([1.0, 1.0, 1.0, 0.0]), 100)
    assert references.abs().max() < 3


@pytest.mark.parametrize("n", [400, 4000])
@pytest.mark.parametrize("seed", range(3))
def test_a_circle_is_found_however_many_rows_it_has(n, seed):
    """References must be able to leave it, or nothing speaks for it."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n)
    rows = np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.05 * rng.normal(size=(n, 2))
    rows[: n // 5] = rng.uniform(-2, 2, size=(n // 5, 2))
    detector = QuadricDetector(score_function="linear+quadrics", random_state=seed).fit(rows)
    centre, on = detector.decision_function([[0.0, 0.0], [1.0, 0.0]])
    assert detector.n_quadrics_ > 0
    assert centre > 3 * on
