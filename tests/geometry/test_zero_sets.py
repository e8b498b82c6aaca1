"""Zero sets in pieces: the pieces lie on the quadric, fit together, and have its length, area and place."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric import Quadrics, second_order_distance
from pyod_quadric.geometry.zero_sets import intersection_curve, zero_set
from tests.support.profiles import n_examples
from tests.support.strategies import integers, symmetric

BOX = {2: torch.tensor([[-2.03, -2.01], [2.02, 2.05]]), 3: torch.tensor([[-2.03, -2.01, -2.07], [2.02, 2.05, 2.04]])}


def quadric(quadratic, linear, constant):
    parts = (torch.as_tensor(np.asarray(part), dtype=torch.float64)[None] for part in (quadratic, linear, constant))
    return Quadrics(*parts)


@st.composite
def single(draw, d):
    polynomial = draw(symmetric(d)), draw(integers(d)), draw(st.integers(-3, 3)) + math.sqrt(2) / 3  # no corner is on it
    return quadric(*polynomial)


spaces = pytest.mark.parametrize("d", [2, 3])


@spaces
@n_examples(20)
@given(data=st.data())
def test_corners_lie_on_the_quadric(d, data):
    f = data.draw(single(d))
    corners = zero_set(f, BOX[d], 6).reshape(-1, d)
    assert (second_order_distance(corners, f) < 1e-7).all()  # near a cone's tip rounding of f counts by its square root
    assert (f.values(corners).abs() < 1e-12).all()
    assert ((corners >= BOX[d][0] - 1e-12) & (corners <= BOX[d][1] + 1e-12)).all()


@spaces
@n_examples(20)
@given(data=st.data())
def test_pieces_fit_together_inside_of_the_box(d, data):
    f = data.draw(single(d))
    pieces = zero_set(f, BOX[d], 6)
    numbers = (1e9 * pieces).round().long()  # of corners, so that equal ones are equal
    sides = torch.cat([numbers[:, list(kept)] for kept in combinations(range(d), d - 1)])
    _, names = torch.unique(sides.reshape(-1, d), dim=0, return_inverse=True)
    unique, times = torch.unique(names.reshape(-1, d - 1).sort(dim=1).values, dim=0, return_counts=True)
    corners = torch.unique(sides.reshape(-1, d), dim=0)[unique] / 1e9
    on_boundary = ((corners[:, :, None] - BOX[d]).abs() < 1e-6).all(dim=1).flatten(1).any(dim=1)
    assert (times == torch.where(on_boundary, 1, 2)).all()


@spaces
@n_examples(20)
@given(data=st.data())
def test_pieces_face_the_side_where_the_polynomial_grows(d, data):
    f = data.draw(single(d))
    pieces = zero_set(f, BOX[d], 6)
    edges = pieces[:, 1:] - pieces[:, :1]
    assert (torch.linalg.det(torch.cat([f.gradients(pieces.mean(dim=1)), edges], dim=1)) >= -1e-12).all()


def test_circle_has_its_length_and_sphere_its_area():
    circle = zero_set(quadric(np.eye(2), [0, 0], -2.25), BOX[2], 60)
    assert (circle[:, 1] - circle[:, 0]).norm(dim=1).sum() == pytest.approx(3 * math.pi, rel=1e-3)
    sphere = zero_set(quadric(np.eye(3), [0, 0, 0], -2.25), BOX[3], 40)
    normals = torch.linalg.cross(sphere[:, 1] - sphere[:, 0], sphere[:, 2] - sphere[:, 0])
    assert normals.norm(dim=1).sum() / 2 == pytest.approx(9 * math.pi, rel=3e-3)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("first", [-1.9, -1.0, 0.05, 0.6])
def test_lines_one_cell_apart_are_both_there(first, sign):
    """Along an edge there is the one within a step, and the other one is a step further."""
    (low, bottom), (high, top) = BOX[2].double().tolist()
    second = first + (high - low) / 6
    pieces = zero_set(quadric(sign * np.diag([1, 0]), [-sign * (first + second), 0], sign * first * second), BOX[2], 6)
    lengths = (pieces[:, 1] - pieces[:, 0]).norm(dim=1)
    for place in (first, second):
        assert lengths[((pieces[:, :, 0] - place).abs() < 1e-9).all(dim=1)].sum() == pytest.approx(top - bottom)
    assert lengths.sum() == pytest.approx(2 * (top - bottom))


def test_zero_set_outside_of_the_box_is_empty():
    assert zero_set(quadric(np.eye(3), [0, 0, 0], -100), BOX[3], 9).shape == (0, 3, 3)
    assert zero_set(quadric(np.eye(2), [0, 0], 1), BOX[2], 9).shape == (0, 2, 2)


def test_cylinders_meet_in_two_ellipses():
    matrices = torch.diag_embed(torch.tensor([[1.0, 1, 0], [1, 0, 1]], dtype=torch.float64))
    cylinders = Quadrics(matrices, torch.zeros(2, 3, dtype=torch.float64), -torch.ones(2, dtype=torch.float64))
    curve = intersection_curve(cylinders, BOX[3], 40)
    points = curve.reshape(-1, 3)
    assert second_order_distance(points, cylinders).max() < 1e-12
    assert torch.allclose(points[:, 1].abs(), points[:, 2].abs())  # on the planes y = ±z
    # Twice the perimeter of an ellipse with half axes 1 and √2, of which Newton drops at most the two crossings.
    perimeter = 2 * 7.6404
    assert (curve[:, 1] - curve[:, 0]).norm(dim=1).sum() == pytest.approx(perimeter, rel=0.03)
