"""Rows however far out: every method has a finite answer, and the other rows of a batch have theirs."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pyod_quadric import QuadricDetector
from tests.support.circle import TEST, WAYS, X
from tests.support.profiles import n_examples

METHODS = ("decision_function", "explain", "project", "quadric_distances")
LARGEST = {np.float32: 38, np.float64: 308}  # powers of ten
choices = st.sampled_from([(way, dtype) for way in WAYS for dtype in LARGEST])


@cache
def fitted(way, dtype):
    return QuadricDetector(**WAYS[way]).fit(X.astype(dtype))


def answers(detector, rows):
    return {name: getattr(detector, name)(rows) for name in METHODS}


@st.composite
def far_rows(draw, dtype):
    """Draw directions of up to unit length, and powers of ten that they are multiplied by: (3, 3)."""
    directions = draw(arrays(np.float64, (3, 3), elements=st.floats(-1, 1, width=16)))
    powers = draw(arrays(np.int64, (3, 1), elements=st.integers(0, LARGEST[dtype] - 1)))
    return (directions * 10.0**powers).astype(dtype)


@given(choice=choices, data=st.data())
@n_examples(60)
def test_every_method_is_finite_everywhere(choice, data):
    detector = fitted(*choice)
    ordinary = TEST[:3].astype(choice[1])
    together = answers(detector, np.concatenate([ordinary, data.draw(far_rows(choice[1]))]))
    for name, alone in answers(detector, ordinary).items():
        assert np.isfinite(together[name]).all(), name
        np.testing.assert_allclose(together[name][:3], alone, rtol=1e-4, atol=1e-4, err_msg=name)
    np.testing.assert_allclose(together["explain"].sum(axis=1), together["decision_function"], rtol=1e-12)
    assert together["explain"].min() >= 0


@given(way=st.sampled_from(sorted(WAYS)), data=st.data())
@n_examples(40)
def test_modules_say_the_same_everywhere(way, data):
    rows = data.draw(far_rows(np.float64))
    detector = fitted(way, np.float64)
    scores = detector.to_module()(torch.tensor(rows)).detach().numpy()
    np.testing.assert_allclose(scores, detector.decision_function(rows), rtol=1e-8, atol=1e-10)


@given(choice=choices, direction=arrays(np.float64, 3, elements=st.sampled_from([-1.0, -0.25, 0.0, 1.0])))
@n_examples(40)
def test_scores_do_not_fall_on_the_way_out(choice, direction):
    """From where the quadrics are left behind on, where rows are not normalised."""
    detector = fitted(*choice)
    if detector.model_.normalize or not direction.any():
        return
    scores = detector.decision_function(np.outer(10.0 ** np.arange(3, LARGEST[choice[1]]), direction).astype(choice[1]))
    assert (np.diff(scores) >= -1e-6 * scores[1:]).all()


def on_a_circle(rows):
    return np.abs(np.hypot(rows[:, 0], rows[:, 1]) - 2)


@pytest.mark.parametrize("power", [1, 4, 8, 30, 300])
def test_the_nearest_point_of_a_bounded_manifold_is_on_it_from_everywhere(power):
    """From far out the way is a direction, as good as that of a point that is nearer."""
    angle = np.linspace(0, 6, 200)
    circle = np.stack([2 * np.cos(angle), 2 * np.sin(angle)], axis=1)
    detector = QuadricDetector(score_function="mean_distance", n_quadrics=1).fit(circle)
    rows = 10.0**power * np.array([[1.0, 0.0], [0.6, -0.8], [-1.0, 1.0]])
    projected = detector.project(rows)
    assert on_a_circle(projected).max() < 1e-6
    np.testing.assert_allclose(projected, 2 * rows / np.hypot(*rows.T)[:, None], atol=1e-3)


def test_gradients_of_modules_are_finite_far_out():
    rows = torch.tensor([[1e100, 0.0, 0.0], [0.0, -1e300, 1e300], [2.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    fitted("closed form", np.float64).to_module()(rows).sum().backward()
    assert torch.isfinite(rows.grad).all()
    assert rows.grad[2].abs().max() > 0
