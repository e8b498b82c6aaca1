"""Values, gradients, inner products and composition of quadratic polynomials."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric import Quadrics
from pyod_quadric.geometry import quadrics as module
from tests.support import reference
from tests.support.strategies import ISOMETRY_KINDS, cases, integers, isometries
from tests.support.tolerances import DTYPES, assert_close


def evaluate(function, case):
    return np.array([[function(p, *f) for f in case] for p in case.points])


def largest_sum_of_terms(case):
    """Terms may cancel; rounding is relative to their sizes."""
    features = np.stack([reference.monomials(p) for p in case.points])
    return np.max(np.abs(features) @ np.abs(np.stack([reference.coefficients(*f) for f in case])).T)


@pytest.mark.parametrize("dtype", DTYPES)
@given(case=cases())
def test_values_equal_reference(case, dtype):
    points, quadrics = case.tensors(dtype)
    assert_close(quadrics.values(points), evaluate(reference.value, case), dtype, max(1, largest_sum_of_terms(case)))


@given(case=cases())
def test_gradients_equal_reference(case):
    points, quadrics = case.tensors(torch.float64)
    expected = evaluate(reference.gradient, case)
    # Differences of values near 1e6 with a step of 1e-3 lose some seven digits.
    np.testing.assert_allclose(quadrics.gradients(points), expected, rtol=0, atol=1e-6 * max(1, np.abs(expected).max()))


@given(case=cases())
def test_gradients_equal_autograd(case):
    points, quadrics = case.tensors(torch.float64)
    points.requires_grad_()
    for k in range(len(quadrics)):
        (expected,) = torch.autograd.grad(quadrics.values(points)[:, k].sum(), points)
        assert_close(quadrics.gradients(points)[:, k].detach(), expected, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES)
@given(case=cases())
def test_gradient_norms_are_norms_of_gradients(case, dtype):
    points, quadrics = case.tensors(dtype)
    expected = torch.linalg.vector_norm(quadrics.gradients(points), dim=2)
    assert_close(quadrics.values_and_gradient_norms(points)[1], expected, dtype)


def test_blocks_change_nothing(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(7, 5, 5, generator=generator, dtype=torch.float64)
    quadrics = Quadrics(half + half.mT, half[:, 0], half[:, 0, 0])
    points = torch.randn(23, 5, generator=generator, dtype=torch.float64)
    whole = quadrics.values_and_gradient_norms(points)
    monkeypatch.setattr(module, "BLOCK_ROWS", 4)
    monkeypatch.setattr(module, "BLOCK_NUMBERS", 4 * 5 * 3)
    for blocked, expected in zip(quadrics.values_and_gradient_norms(points), whole, strict=True):
        assert_close(blocked, expected, torch.float64)


def test_no_points_give_no_values():
    quadrics = Quadrics(torch.eye(2)[None], torch.zeros(1, 2), torch.zeros(1))
    assert quadrics.values(torch.zeros(0, 2)).shape == (0, 1)
    assert quadrics.gradients(torch.zeros(0, 2)).shape == (0, 1, 2)


@pytest.mark.parametrize("dtype", DTYPES)
@given(case=cases())
def test_coefficients_are_those_of_the_monomials(case, dtype):
    points, quadrics = case.tensors(dtype)
    coefficients = quadrics.coefficients()
    assert_close(coefficients, np.stack([reference.coefficients(*f) for f in case]), dtype)
    features = np.stack([reference.monomials(p) for p in case.points])
    expected = features @ coefficients.double().numpy().T
    assert_close(quadrics.values(points), expected, dtype, max(1, largest_sum_of_terms(case)))


@pytest.mark.parametrize("dtype", DTYPES)
@given(case=cases())
def test_from_coefficients_inverts_coefficients(case, dtype):
    _, quadrics = case.tensors(dtype)
    again = Quadrics.from_coefficients(quadrics.coefficients())
    for name in ("quadratic", "linear", "constant"):
        assert_close(getattr(again, name), getattr(quadrics, name), dtype)


@st.composite
def composed(draw):
    """Draw a case, an affine map into its space from one of another dimension, and points there."""
    case = draw(cases())
    d, e = case.points.shape[1], draw(st.integers(1, 4))
    matrix = draw(integers(d, e))
    shift = draw(integers(d))
    parts = [reference.compose(*f, matrix, shift) for f in case]
    if any(not (A.any() or b.any() or c) for A, b, c in parts):
        matrix, shift = np.eye(d), np.zeros(d)
    return case, matrix, shift


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=composed())
def test_composition_equals_reference(data, dtype):
    case, matrix, shift = data
    _, quadrics = case.tensors(dtype)
    result = quadrics.compose(torch.tensor(matrix, dtype=dtype), torch.tensor(shift, dtype=dtype))
    expected = [reference.compose(*f, matrix, shift) for f in case]
    for name, arrays in zip(("quadratic", "linear", "constant"), zip(*expected, strict=True), strict=True):
        assert_close(getattr(result, name), np.stack(arrays), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ISOMETRY_KINDS)
@given(data=st.data(), case=cases())
def test_composition_is_evaluation_at_the_image(case, kind, data, dtype):
    points, quadrics = case.tensors(dtype)
    matrix, shift = data.draw(isometries(kind, quadrics.n_features)).tensors(dtype)
    expected = quadrics.values(points @ matrix.T + shift)
    size = float(expected.abs().max()) + 1e3 * float(quadrics.hs_norm().max() + quadrics.linear.abs().max())
    assert_close(quadrics.compose(matrix, shift).values(points), expected, dtype, scale=size)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ISOMETRY_KINDS)
@given(data=st.data(), case=cases())
def test_hs_inner_product_is_equivariant(case, kind, data, dtype):
    """⟨f∘θ, g∘θ⟩ = ⟨f, g⟩ for isometries θ."""
    _, quadrics = case.tensors(dtype)
    matrix, shift = data.draw(isometries(kind, quadrics.n_features)).tensors(dtype)
    moved = quadrics.compose(matrix, shift)
    assert_close(moved.hs_inner(moved), quadrics.hs_inner(quadrics), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@given(case=cases())
def test_hs_inner_product_equals_reference(case, dtype):
    _, quadrics = case.tensors(dtype)
    gram = np.array([[reference.hs_inner(A, B) for B in case.quadratic] for A in case.quadratic])
    assert_close(quadrics.hs_inner(quadrics), gram, dtype)
    assert_close(quadrics.hs_norm(), np.sqrt(np.diag(gram)), dtype)


@given(case=cases())
def test_hs_product_is_degenerate_exactly_on_degree_one(case):
    _, quadrics = case.tensors(torch.float64)
    degree_at_most_one = ~case.quadratic.any(axis=(1, 2))
    np.testing.assert_array_equal(quadrics.hs_norm() == 0, degree_at_most_one)
    gram = quadrics.hs_inner(quadrics)
    assert (gram[degree_at_most_one] == 0).all()


@given(case=cases(), factor=st.sampled_from([-3.0, 0.5, 8.0]))
def test_scaling_multiplies_values(case, factor):
    points, quadrics = case.tensors(torch.float64)
    assert_close(quadrics.scaled(factor).values(points), factor * quadrics.values(points), torch.float64)


def test_collections_can_be_indexed():
    quadrics = Quadrics(torch.eye(2).expand(3, 2, 2), torch.arange(6.0).reshape(3, 2), torch.arange(3.0))
    assert len(quadrics) == 3
    assert quadrics[-1].constant.tolist() == [2.0]
    assert quadrics[1:].constant.tolist() == [1.0, 2.0]
    assert quadrics[torch.tensor([2, 0])].constant.tolist() == [2.0, 0.0]
    assert [q.constant.item() for q in quadrics] == [0.0, 1.0, 2.0]
    with pytest.raises(IndexError, match="there are 3 quadrics, so none has the number 3"):
        quadrics[3]
    assert repr(quadrics) == "Quadrics(n_quadrics=3, n_features=2, dtype=torch.float32, device='cpu')"
    assert quadrics.to(dtype=torch.float64).dtype == torch.float64


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_the_unit_does_not_decide_what_is_symmetric(unit):
    quadratic, linear, constant = unit * torch.eye(2)[None], torch.zeros(1, 2), torch.zeros(1)
    quadratic[0, 0, 1] = 1e-7 * unit
    assert torch.equal(Quadrics(quadratic, linear, constant).quadratic, (quadratic + quadratic.mT) / 2)
    quadratic[0, 0, 1] = 1e-4 * unit
    with pytest.raises(ValueError, match="quadratic must hold symmetric matrices"):
        Quadrics(quadratic, linear, constant)


def test_rounding_level_asymmetry_is_averaged_away():
    matrix = torch.tensor([[[1.0, 2.0], [2.0 + 4e-16, 1.0]]], dtype=torch.float64)
    quadratic = Quadrics(matrix, torch.zeros(1, 2, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)).quadratic
    assert torch.equal(quadratic, quadratic.mT)


@pytest.mark.parametrize("leaf", ["points", "quadratic", "linear", "constant"])
def test_gradients_flow_to_any_single_part(leaf):
    generator = torch.Generator().manual_seed(0)
    tensors = {"points": torch.randn(5, 2, generator=generator), "quadratic": torch.eye(2)[None]}
    tensors |= {"linear": torch.ones(1, 2), "constant": torch.ones(1)}
    tensors[leaf].requires_grad_()
    points, *parts = tensors.values()
    values, norms = Quadrics(*parts).values_and_gradient_norms(points)
    (values + norms).sum().backward()
    assert tensors[leaf].grad.abs().sum() > 0


def test_quadrics_stay_as_they_are_and_are_keys():
    """They are checked once, when they are made; tensors have no equality that a dictionary could use."""
    circle = Quadrics(torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0]))
    with pytest.raises(dataclasses.FrozenInstanceError):
        circle.constant = torch.tensor([1.0])
    again = Quadrics(circle.quadratic, circle.linear, circle.constant)
    assert {circle: "one", again: "other"}[circle] == "one"
