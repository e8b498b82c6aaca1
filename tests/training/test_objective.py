"""The written-out gradient is the gradient."""

from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given

from pyod_quadric import Quadrics, algebraic_distance, first_order_distance, second_order_distance
from pyod_quadric.geometry.packing import unpack
from pyod_quadric.parameters import Loss
from pyod_quadric.training import objective
from pyod_quadric.training.objective import Parts, mean_distance, mean_distance_and_gradient
from tests.support.strategies import cases
from tests.support.tolerances import DTYPES

PUBLIC = {
    "second_order": second_order_distance,
    "first_order": first_order_distance,
    "algebraic": algebraic_distance,
    "squared_algebraic": lambda points, quadrics: algebraic_distance(points, quadrics).square(),
}


def parts(quadrics):
    return quadrics.packed(), quadrics.linear, quadrics.constant


def by_autograd(points, quadrics, distance):
    """Return the objective and its gradient from the public distance functions and autograd."""
    leaves = [part.clone().requires_grad_() for part in parts(quadrics)]
    value = PUBLIC[distance](points, Quadrics(unpack(leaves[0]), *leaves[1:])).sum() / len(points)
    return value.detach(), torch.autograd.grad(value, leaves)


@pytest.mark.parametrize("distance", get_args(Loss))
@given(case=cases(curved=True))
def test_gradient_equals_autograd(case, distance):
    points, quadrics = case.tensors(torch.float64)
    if distance == "first_order":  # it is infinite where the gradient vanishes
        points = points[(quadrics.values_and_gradient_norms(points)[1] > 0).all(dim=1)]
    if len(points) == 0:
        return
    value, gradient = mean_distance_and_gradient(points, *parts(quadrics), distance)
    expected_value, expected = by_autograd(points, quadrics, distance)
    np.testing.assert_allclose(value, expected_value, rtol=1e-10)
    np.testing.assert_allclose(mean_distance(points, *parts(quadrics), distance), value, rtol=1e-12)
    for actual, wanted in zip(gradient, expected, strict=True):
        for one, other in zip(actual, wanted, strict=True):  # quadric by quadric
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-10 * max(1.0, float(other.abs().max())))


@pytest.mark.parametrize("distance", get_args(Loss))
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_at_the_tip_of_a_cone_is_finite(dtype, distance):
    cone = Quadrics(*(t.to(dtype) for t in (torch.diag(torch.tensor([1.0, -1.0]))[None], torch.zeros(1, 2), torch.zeros(1))))
    points = torch.tensor([[1e-20, 1e-20], [0.0, 0.0]], dtype=dtype)
    value, gradient = mean_distance_and_gradient(points, *parts(cone), distance)
    assert value.isfinite()
    assert all(part.isfinite().all() for part in gradient)


@pytest.mark.parametrize("dtype", DTYPES)
@given(case=cases())
def test_gradient_is_finite_at_singular_points(case, dtype):
    """Planes, constants, and points where value and gradient vanish together."""
    points, quadrics = case.tensors(dtype)
    value, gradient = mean_distance_and_gradient(points, *parts(quadrics))
    np.testing.assert_allclose(value, second_order_distance(points, quadrics).sum() / len(points), rtol=1e-5)
    assert all(part.isfinite().all() for part in gradient)


@pytest.mark.parametrize("distance", get_args(Loss))
def test_blocks_and_buffers_change_nothing(monkeypatch, distance):
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(7, 5, 5, generator=generator, dtype=torch.float64)
    quadrics = Quadrics(half + half.mT, half[:, 0], half[:, 0, 0])
    points = torch.randn(23, 5, generator=generator, dtype=torch.float64)
    value, gradient = mean_distance_and_gradient(points, *parts(quadrics), distance)
    monkeypatch.setattr(objective, "BLOCK_NUMBERS", 23 * 5 * 3)
    buffer = Parts(*(torch.full_like(part, torch.nan) for part in gradient))
    blocked, same = mean_distance_and_gradient(points, *parts(quadrics), distance, out=buffer)
    assert same is buffer
    np.testing.assert_allclose(blocked, value, rtol=1e-13)
    for actual, wanted in zip(buffer, gradient, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-10, atol=1e-13)


def test_no_graph_is_built():
    quadrics = Quadrics(torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0]))
    value, gradient = mean_distance_and_gradient(torch.ones(3, 2), *parts(quadrics))
    assert not value.requires_grad
    assert not any(part.requires_grad for part in gradient)
