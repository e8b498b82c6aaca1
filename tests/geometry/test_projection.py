"""The nearest point on an intersection is on it, and nothing on it is nearer."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric import Quadrics, geometric_distance
from pyod_quadric.geometry.projection import nearest_on_intersection


def ellipsoids(seed, m, d):
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(m, d, d))
    quadratic = half @ half.transpose(0, 2, 1) + np.eye(d)
    return Quadrics(torch.tensor(quadratic), torch.tensor(0.3 * rng.normal(size=(m, d))), torch.full((m,), -2.0).double())


@given(seed=st.integers(0, 2**16), d=st.integers(1, 4))
def test_one_quadric_is_met_at_the_geometric_distance(seed, d):
    quadric = ellipsoids(seed, 1, d)
    points = torch.tensor(np.random.default_rng(seed + 1).normal(size=(5, d)) * 4)
    nearest = nearest_on_intersection(points, quadric)
    assert quadric.values(nearest).abs().max() < 1e-6
    way = torch.linalg.vector_norm(nearest - points, dim=1)
    outside = quadric.values(points)[:, 0] > 0  # inside there are several places where the way is locally shortest
    np.testing.assert_allclose(way[outside], geometric_distance(points, quadric)[outside, 0], rtol=1e-5)


def test_the_intersection_of_sphere_and_plane_is_met():
    sphere_and_plane = Quadrics(
        torch.stack([torch.eye(3), torch.zeros(3, 3)]).double(),
        torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]).double(),
        torch.tensor([-1.0, -0.6]).double(),
    )
    nearest = nearest_on_intersection(torch.tensor([[3.0, 4.0, 2.0]]), sphere_and_plane)
    np.testing.assert_allclose(nearest, [[0.6 * 0.8, 0.8 * 0.8, 0.6]], atol=1e-6)


def test_quadrics_that_do_not_meet_are_met_halfway():
    spheres = Quadrics(torch.eye(2).expand(2, 2, 2).double(), torch.zeros(2, 2).double(), torch.tensor([-1.0, -2.0]).double())
    nearest = nearest_on_intersection(torch.tensor([[0.0, 5.0]]), spheres)
    np.testing.assert_allclose(nearest, [[0.0, 1.5**0.5]], atol=1e-6)


def test_weights_make_a_compromise():
    """The plane x = 0 of weight 3, from x = 4: the least of (y - 4)² + 3 y² is at y = 1."""
    plane = Quadrics(torch.zeros(1, 1, 1).double(), torch.ones(1, 1).double(), torch.zeros(1).double())
    nearest = nearest_on_intersection(torch.tensor([[4.0]]), plane, torch.tensor([3.0]))
    np.testing.assert_allclose(nearest, [[1.0]], atol=1e-9)


def test_weights_are_of_squared_ways_where_quadrics_are_curved():
    """The slope of x² - 1 is 2 on average, so from x = 3 with weight 4 the least of (y - 3)² + (y² - 1)² is found."""
    quadric = Quadrics(torch.ones(1, 1, 1).double(), torch.zeros(1, 1).double(), torch.tensor([-1.0]).double())
    nearest = nearest_on_intersection(torch.tensor([[3.0]]), quadric, torch.tensor([4.0]))
    expected = next(root.real for root in np.roots([4, 0, -2, -6]) if root.imag == 0)
    np.testing.assert_allclose(nearest, [[expected]], atol=1e-8)


@pytest.mark.parametrize("factors", [[7.0, 0.5], [1e-3, 1e4]])
@pytest.mark.parametrize("weights", [None, torch.tensor([2.0, 3.0], dtype=torch.float64)], ids=["met", "weighed"])
def test_a_multiple_of_a_polynomial_is_the_same_quadric(factors, weights):
    quadrics, points = ellipsoids(0, 2, 3), torch.tensor(np.random.default_rng(1).normal(size=(6, 3)))
    expected = nearest_on_intersection(points, quadrics, weights)
    found = nearest_on_intersection(points, quadrics.scaled(torch.tensor(factors, dtype=torch.float64)), weights)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("weight", [1e12, 1e14, 1e16, 1e20])
def test_heavy_weights_leave_no_compromise(weight):
    """Along the quadric the way is lost to rounding beside such weights; it must not lead off it for that."""
    sphere = Quadrics(torch.eye(3)[None].double(), torch.zeros(1, 3).double(), torch.tensor([-1.0]).double())
    points = 3 * torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    nearest = nearest_on_intersection(points, sphere, torch.tensor([weight]))
    assert torch.linalg.vector_norm(nearest - points / torch.linalg.vector_norm(points, dim=1, keepdim=True), dim=1).max() < 0.3


def test_quadrics_without_weight_do_not_count():
    quadrics, points = ellipsoids(0, 3, 2), torch.tensor([[3.0, 4.0], [-1.0, 0.5]], dtype=torch.float64)
    expected = nearest_on_intersection(points, quadrics[1:2], torch.tensor([2.0]))
    torch.testing.assert_close(nearest_on_intersection(points, quadrics, torch.tensor([0.0, 2.0, 0.0])), expected)
    assert torch.equal(nearest_on_intersection(points.float(), quadrics, torch.zeros(3)), points)


def test_a_point_does_not_depend_on_its_neighbours():
    quadric = ellipsoids(0, 2, 3)
    points = torch.tensor(np.random.default_rng(1).normal(size=(6, 3)))
    alone = torch.cat([nearest_on_intersection(point[None], quadric) for point in points])
    np.testing.assert_allclose(nearest_on_intersection(points, quadric), alone, atol=1e-6)


def test_where_all_gradients_vanish_a_point_stays():
    circle = Quadrics(torch.eye(2)[None].double(), torch.zeros(1, 2).double(), torch.tensor([-1.0]).double())
    nearest = nearest_on_intersection(torch.zeros(1, 2), circle)
    assert torch.isfinite(nearest).all()
