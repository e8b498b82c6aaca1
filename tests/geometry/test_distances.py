"""The laws of the approximate distances."""

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric import (
    Quadrics,
    algebraic_distance,
    first_order_distance,
    geometric_distance,
    second_order_distance,
)
from pyod_quadric.geometry.distances import second_order_from
from tests.support import reference
from tests.support.strategies import ISOMETRY_KINDS, cases, features, integers, isometries
from tests.support.tolerances import DTYPES, assert_close, second_order_bounds


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ISOMETRY_KINDS)
@given(data=st.data(), case=cases())
def test_second_order_distance_is_equivariant(case, kind, data, dtype):
    """d₂(θ(p), Z(f)) = d₂(p, Z(f∘θ)) for isometries θ."""
    points, quadrics = case.tensors(dtype)
    matrix, shift = data.draw(isometries(kind, quadrics.n_features)).tensors(dtype)
    moved = second_order_distance(points, quadrics.compose(matrix, shift))
    low, high = second_order_bounds(points @ matrix.T + shift, quadrics, reach=shift.abs())
    assert (low <= moved).all()
    assert (moved <= high).all()


def test_composition_on_the_other_side_is_no_law():
    """d₂(θ(p), Z(f∘θ)) = d₂(p, Z(f)) is false already for a shift: the test above can fail."""
    circle = Quadrics(torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0]))
    shift = torch.tensor([1.0, 0.0])
    point = torch.tensor([[1.0, 0.0]])
    assert second_order_distance(point, circle) == 0
    assert second_order_distance(point + shift, circle.compose(torch.eye(2), shift)) > 0.5


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@given(case=cases(d=st.integers(1, 5)))
def test_distances_equal_the_root_of_the_taylor_polynomial(case, order):
    """For k >= 2 the root does not depend on k, so this is also "order k equals order 2"."""
    points, quadrics = case.tensors(torch.float64)
    actual = (first_order_distance if order == 1 else second_order_distance)(points, quadrics)
    expected = np.array([[reference.approximation_distance(p, *f, order) for f in case] for p in case.points])
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@given(case=cases())
def test_second_order_distance_is_at_most_the_geometric_distance(case, dtype):
    points, quadrics = case.tensors(dtype)
    # Planes and double planes attain the bound, so what rounding adds must be taken off.
    low, _ = second_order_bounds(points, quadrics)
    assert (low <= geometric_distance(points, quadrics)).all()


def test_second_order_distance_is_well_below_the_geometric_distance_at_a_centre():
    """The bound above is no identity: in the centre of the unit ball of R^16 the distances are 1/2 and 1."""
    d = 16
    sphere = Quadrics(torch.eye(d)[None], torch.zeros(1, d), torch.tensor([-1.0]))
    centre = torch.zeros(1, d)
    assert second_order_distance(centre, sphere).item() == pytest.approx(0.5)
    assert geometric_distance(centre, sphere).item() == pytest.approx(1)


@pytest.mark.parametrize("dtype", DTYPES)
@given(case=cases(), exponent=st.integers(-30, 30), sign=st.sampled_from([-1, 1]))
def test_second_order_distance_ignores_the_scale_of_f(case, dtype, exponent, sign):
    """Multiplying by a power of two is exact, so here nothing but the last bits may change."""
    points, quadrics = case.tensors(dtype)
    scaled = second_order_distance(points, quadrics.scaled(sign * 2.0**exponent))
    np.testing.assert_allclose(scaled, second_order_distance(points, quadrics), rtol=8 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("distance", [first_order_distance, second_order_distance, geometric_distance])
@given(data=st.data())
def test_distance_to_planes_is_exact(data, distance, dtype):
    d = data.draw(features)
    normal, (point, offset) = data.draw(integers(d)), data.draw(integers(2, d))
    normal[0] = normal[0] or 1
    plane = Quadrics(*(torch.tensor(a, dtype=dtype)[None] for a in (np.zeros((d, d)), normal, -normal @ offset)))
    expected = abs(normal @ (point - offset)) / np.linalg.norm(normal)
    assert_close(distance(torch.tensor(point, dtype=dtype)[None], plane), np.array([[expected]]), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@given(gradient=st.floats(0, 1e6, width=32), norm=st.floats(0, 1e6, width=32), values=st.lists(st.floats(0, 1e6, width=32)))
def test_second_order_distance_is_monotone_in_the_value(gradient, norm, values, dtype):
    column = torch.tensor(sorted(values), dtype=dtype)[:, None]
    distances = second_order_from(column, torch.full_like(column, gradient), torch.tensor([norm], dtype=dtype))
    ratios = distances[:-1] * (1 - 8 * torch.finfo(dtype).eps)
    assert (distances[1:] >= ratios).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("distance", [algebraic_distance, first_order_distance, second_order_distance, geometric_distance])
@given(case=cases())
def test_distances_vanish_exactly_on_the_zero_set(case, distance, dtype):
    points, quadrics = case.tensors(dtype)
    distances = distance(points[:1], quadrics)
    on_quadric = np.array([[reference.value(case.points[0], *f) == 0 for f in case]])
    np.testing.assert_array_equal(distances == 0, on_quadric)


@pytest.mark.parametrize("dtype", DTYPES)
@given(case=cases())
def test_second_order_distance_is_finite(case, dtype):
    points, quadrics = case.tensors(dtype)
    constant = torch.tensor(~case.quadratic.any(axis=(1, 2)) & ~case.linear.any(axis=1))
    distances = second_order_distance(points, quadrics)
    assert distances[:, ~constant].isfinite().all()
    assert (distances[:, constant] == torch.inf).all()


@pytest.mark.parametrize("dtype", DTYPES)
@given(case=cases())
def test_first_order_distance_is_infinite_exactly_where_the_gradient_vanishes_off_the_quadric(case, dtype):
    points, quadrics = case.tensors(dtype)
    values, gradient_norms = quadrics.values_and_gradient_norms(points)
    singular = (gradient_norms == 0) & (values != 0)
    assert torch.equal(first_order_distance(points, quadrics).isinf(), singular)
    assert not first_order_distance(points, quadrics).isnan().any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", [1e-12, 1.0, 1e6])
def test_second_order_distance_is_stable_near_the_quadric(dtype, norm):
    """Small values give small distances to full relative precision: the textbook root would cancel to 0."""
    values = torch.tensor([10.0**-k for k in range(20)], dtype=dtype)[:, None]
    gradient_norms = torch.full_like(values, 3.0)
    computed = second_order_from(values, gradient_norms, torch.tensor([norm], dtype=dtype))[:, 0]
    with mpmath.workdps(60):
        n, g = mpmath.mpf(torch.tensor(norm, dtype=dtype).item()), mpmath.mpf(3)
        exact = [float((mpmath.sqrt(g * g + 4 * n * mpmath.mpf(f)) - g) / (2 * n)) for f in values[:, 0].tolist()]
    np.testing.assert_allclose(computed, exact, rtol=8 * torch.finfo(dtype).eps)


@given(case=cases())
def test_autograd_through_second_order_distance_is_never_nan(case):
    """At points where f and ∇f vanish together the gradient is 0."""
    points, quadrics = case.tensors(torch.float64)
    leaves = [t.requires_grad_() for t in (points, quadrics.quadratic, quadrics.linear, quadrics.constant)]
    distances = second_order_distance(points, Quadrics(*leaves[1:]))
    gradients = torch.autograd.grad(distances[distances.isfinite()].sum(), leaves)
    assert not any(g.isnan().any() for g in gradients)
    values, gradient_norms = quadrics.values_and_gradient_norms(points)
    singular = ((values == 0) & (gradient_norms == 0)).all(dim=1)
    assert (gradients[0][singular] == 0).all()


@given(case=cases(d=st.integers(1, 4), m=st.just(1), curved=True))
def test_autograd_through_second_order_distance_equals_differences(case):
    points, quadrics = case.tensors(torch.float64)
    values, gradient_norms = quadrics.values_and_gradient_norms(points)
    smooth = (values.abs() > 0.1).all(dim=1) & (gradient_norms > 0.1).all(dim=1)
    point = points[smooth][:1].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda p: second_order_distance(p, quadrics), point)
