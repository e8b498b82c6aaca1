"""The exact distance: formulas for every degenerate kind, an oracle for generic ones, laws for all."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from pyod_quadric import Quadrics, geometric_distance
from tests.support import reference
from tests.support.profiles import n_examples
from tests.support.strategies import ISOMETRY_KINDS, cases, integers, isometries
from tests.support.tolerances import DTYPES, assert_close

POINTS = np.array([[0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 3], [1, -2, 3], [0.25, 0, 0.5]], dtype=float)


def radius(p):
    return np.hypot(p[:, 0], p[:, 1])


KINDS = {
    "sphere": ((1, 1, 1), (0, 0, 0), -4, lambda p: abs(np.linalg.norm(p, axis=1) - 2)),
    "point": ((1, 1, 1), (0, 0, 0), 0, lambda p: np.linalg.norm(p, axis=1)),
    "shifted point": ((1, 2, 3), (-2, 0, 0), 1, lambda p: np.linalg.norm(p - [1, 0, 0], axis=1)),
    "empty ellipsoid": ((1, 2, 3), (0, 0, 0), 1, lambda p: np.full(len(p), np.inf)),
    "cylinder": ((1, 1, 0), (0, 0, 0), -4, lambda p: abs(radius(p) - 2)),
    "axis": ((1, 1, 0), (0, 0, 0), 0, radius),
    "cone": ((1, 1, -1), (0, 0, 0), 0, lambda p: abs(radius(p) - abs(p[:, 2])) / np.sqrt(2)),
    "plane": ((0, 0, 0), (0, 3, 4), -10, lambda p: abs(p @ [0, 0.6, 0.8] - 2)),
    "double plane": ((0, 1, 0), (0, -2, 0), 1, lambda p: abs(p[:, 1] - 1)),
    "parallel planes": ((0, 1, 0), (0, 0, 0), -1, lambda p: abs(abs(p[:, 1]) - 1)),
    "empty planes": ((0, 1, 0), (0, 0, 0), 1, lambda p: np.full(len(p), np.inf)),
    "crossed planes": ((1, -1, 0), (0, 0, 0), 0, lambda p: abs(abs(p[:, 0]) - abs(p[:, 1])) / np.sqrt(2)),
    "constant": ((0, 0, 0), (0, 0, 0), 5, lambda p: np.full(len(p), np.inf)),
}


def quadric(eigenvalues, linear, constant, dtype=torch.float64):
    parts = (np.diag(eigenvalues), np.array(linear), np.array(constant))
    return Quadrics(*(torch.tensor(a, dtype=dtype)[None] for a in parts))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sign", [1, -1])
def test_every_kind_has_its_formula(kind, sign, dtype):
    *parts, formula = KINDS[kind]
    distances = geometric_distance(torch.tensor(POINTS, dtype=dtype), quadric(*parts, dtype=dtype).scaled(sign))
    np.testing.assert_allclose(distances[:, 0], formula(POINTS), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("unit", [2.0**-20, 2.0**20])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_its_formula_in_any_unit(kind, unit):
    eigenvalues, linear, constant, formula = KINDS[kind]
    parts = np.divide(eigenvalues, unit**2), np.divide(linear, unit), constant
    distances = geometric_distance(torch.tensor(unit * POINTS), quadric(*parts))
    np.testing.assert_allclose(distances[:, 0] / unit, formula(POINTS), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("factor", [2.0**-500, 0.5, -(2.0**500)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_multiple_of_a_polynomial_is_as_far_away_bit_for_bit(kind, factor):
    found = quadric(*KINDS[kind][:3])
    expected = geometric_distance(torch.tensor(POINTS), found)
    assert torch.equal(geometric_distance(torch.tensor(POINTS), found.scaled(factor)), expected)


@pytest.mark.parametrize("kind", KINDS)
@given(isometry=isometries("general", 3))
def test_every_kind_has_its_formula_after_an_isometry(kind, isometry):
    """Where A is singular, rounding of the composed polynomial must not open or close the quadric."""
    *parts, formula = KINDS[kind]
    moved = quadric(*parts).compose(*isometry.tensors(torch.float64))
    distances = geometric_distance(torch.tensor(POINTS), moved)
    # Planes that touch move apart by the root of the rounding error.
    np.testing.assert_allclose(distances[:, 0], formula(POINTS @ isometry.matrix.T + isometry.shift), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ((0, 0, 0), 1.0),  # the centre: both ends of the short axis are nearest
        ((0.75, 0, 0), np.sqrt(1 - 0.75**2 / 3)),  # on the long axis, inside the focal distance of 1.5
        ((1.5, 0, 0), 0.5),  # on the long axis, where the hard case ends
        ((1.75, 0, 0), 0.25),
    ],
)
def test_hard_case_of_the_ellipsoid(point, expected):
    ellipsoid = quadric((0.25, 1, 1), (0, 0, 0), -1)
    distance = geometric_distance(torch.tensor([point], dtype=torch.float64), ellipsoid)
    assert distance.item() == pytest.approx(expected, rel=1e-12)


def test_nearly_hard_cases_are_continuous():
    ellipsoid = quadric((0.25, 1, 1), (0, 0, 0), -1)
    offsets = torch.tensor([0.0, 1e-300, 1e-100, 1e-30, 1e-15, 1e-9])
    points = torch.zeros(6, 3, dtype=torch.float64)
    points[:, 0], points[:, 1] = 0.75, offsets
    np.testing.assert_allclose(geometric_distance(points, ellipsoid)[:, 0], np.sqrt(1 - 0.75**2 / 3), atol=2e-9)


def test_relative_precision_near_the_quadric():
    gaps = 2.0 ** -torch.arange(10, 50, dtype=torch.float64)
    points = torch.stack([1 + gaps, torch.zeros_like(gaps), torch.zeros_like(gaps)], dim=1)
    np.testing.assert_allclose(
        geometric_distance(points, quadric((1, 1, 1), (0, 0, 0), -1))[:, 0], gaps, rtol=1e-12, atol=2e-16
    )


@st.composite
def generic(draw):
    """Draw a point and a quadric with distinct eigenvalues, seen from there with a value and slopes that are not zero."""
    d = draw(st.integers(1, 4))
    nonzero = st.integers(-5, 5).filter(bool)
    eigenvalues = np.array(draw(st.lists(nonzero, min_size=d, max_size=d, unique=True)), dtype=float)
    slopes = np.array(draw(st.lists(nonzero, min_size=d, max_size=d)), dtype=float)
    basis = draw(isometries("general", d)).matrix
    point = draw(integers(d))
    A = basis @ np.diag(eigenvalues) @ basis.T
    b = basis @ slopes - 2 * A @ point
    value = float(draw(nonzero))
    assume(abs(value - (slopes**2 / eigenvalues).sum() / 4) > 0.1)  # the tip of a cone, or a single point
    return point, (A, b, value - point @ A @ point - b @ point)


@given(case=generic())
def test_generic_distances_equal_the_best_stationary_point(case):
    point, parts = case
    quadrics = Quadrics(*(torch.tensor(a)[None] for a in parts))
    actual = geometric_distance(torch.tensor(point)[None], quadrics).item()
    assert actual == pytest.approx(reference.geometric_distance(point, *parts), rel=1e-4)


@pytest.mark.parametrize("kind", ISOMETRY_KINDS)
@given(data=st.data(), case=cases())
@n_examples(30)
def test_geometric_distance_is_equivariant(case, kind, data):
    points, quadrics = case.tensors(torch.float64)
    matrix, shift = data.draw(isometries(kind, quadrics.n_features)).tensors(torch.float64)
    points = points[:3]  # far points add nothing but rounding here
    expected = geometric_distance(points @ matrix.T + shift, quadrics)
    np.testing.assert_allclose(geometric_distance(points, quadrics.compose(matrix, shift)), expected, rtol=1e-6, atol=2e-6)


@given(case=cases(), step=st.integers(0, 10).map(lambda k: 2.0**-k))
def test_distances_are_1_lipschitz(case, step):
    points, quadrics = case.tensors(torch.float64)
    moved = points + step
    difference = geometric_distance(points, quadrics) - geometric_distance(moved, quadrics)
    bound = torch.linalg.vector_norm(moved - points, dim=1)[:, None]
    finite = difference.isfinite()
    assert (difference.abs() <= bound * (1 + 1e-9) + 2e-6)[finite].all()


@given(case=cases(m=st.just(1)), data=st.data())
def test_no_point_of_the_quadric_is_nearer(case, data):
    """Put a drawn point on the quadric by its constant: the distance is at most that to the point."""
    on_it = data.draw(integers(case.points.shape[1]))
    (A, b, _) = next(iter(case))
    case.constant = np.array([-(on_it @ A @ on_it + b @ on_it)])
    assume(A.any() or b.any())
    points, quadrics = case.tensors(torch.float64)
    bound = np.linalg.norm(case.points - on_it, axis=1)
    assert (geometric_distance(points, quadrics)[:, 0].numpy() <= bound * (1 + 1e-9) + 2e-6).all()


@given(case=cases(m=st.just(1)), seed=st.integers(0, 2**16))
def test_the_polynomial_keeps_its_sign_inside_the_ball(case, seed):
    """Nothing within the distance is on the quadric, so the distance is not too large."""
    points, quadrics = case.tensors(torch.float64)
    points = points[:3]
    distances = geometric_distance(points, quadrics)[:, 0].clamp(max=1e3)
    directions = np.random.default_rng(seed).normal(size=(64, *points.shape))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    inside = points + torch.tensor(directions) * (distances * (1 - 1e-6))[:, None]
    values = quadrics.values(inside.flatten(0, 1)).reshape(64, -1)
    rounding = 1e-9 * (1 + values.abs().max())
    assert (values * quadrics.values(points)[:, 0].sign() >= -rounding).all()


def test_float32_is_computed_in_float64():
    points = torch.tensor(POINTS)
    ellipsoid = quadric((0.3, 1.1, -0.7), (0.1, 0.2, 0.3), -1)
    single = ellipsoid.to(dtype=torch.float32)
    assert_close(geometric_distance(points.float(), single), geometric_distance(points, ellipsoid), torch.float32)
