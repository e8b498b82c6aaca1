"""Bad input is refused with an error that says what was needed and what came."""

import pytest
import torch

from pyod_quadric import (
    Quadrics,
    algebraic_distance,
    first_order_distance,
    geometric_distance,
    second_order_distance,
    spectral_fit,
)

A, b, c = torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0])
NAN, INF = torch.nan, torch.inf


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((A[0], b, c), r"quadratic must have shape \(1, 2, 2\).*got \(2, 2\)"),
        ((A, b[0], c), r"linear must have shape \(m, d\).*got \(2,\)"),
        ((A, b, c[0]), r"constant \(1,\), got \(1, 2, 2\) and \(\)"),
        ((A[:0], b[:0], c[:0]), r"both >= 1, got \(0, 2\)"),
        ((A.double(), b, c), r"linear must be torch.float64 on device 'cpu'.*got torch.float32"),
        ((A, b, c.double()), r"constant must be torch.float32 .* got torch.float64"),
        ((A, b.to("meta"), c), r"linear must be .* on device 'cpu'.*got torch.float32 on 'meta'"),
        ((A.long(), b.long(), c.long()), r"float32 or float64, got torch.int64"),
        ((A.half(), b.half(), c.half()), r"float32 or float64, got torch.float16"),
        ((torch.tensor([[[1.0, 2.0], [0.0, 1.0]]]), b, c), r"symmetric matrices, but matrix 0 differs .* by 2"),
        ((A * NAN, b, c), r"quadratic must be finite, got 4 NaN or infinite entries"),
        ((A, b + INF, c), r"linear must be finite, got 2"),
        ((A, b, c * NAN), r"constant must be finite, got 1"),
        ((0 * A, b, 0 * c), r"quadric 0 is the zero polynomial"),
    ],
)
def test_quadrics_refuse(parts, message):
    with pytest.raises(ValueError, match=message):
        Quadrics(*parts)


CIRCLE = Quadrics(A, b, c)


@pytest.mark.parametrize(
    "function",
    [
        algebraic_distance,
        first_order_distance,
        second_order_distance,
        geometric_distance,
        lambda points, quadrics: quadrics.values(points),
        lambda points, quadrics: quadrics.gradients(points),
    ],
)
@pytest.mark.parametrize(
    ("points", "message"),
    [
        (torch.zeros(2), r"points must have shape \(n, 2\), got \(2,\)"),
        (torch.zeros(5, 3), r"points must have shape \(n, 2\), got \(5, 3\)"),
        (torch.zeros(5, 2, dtype=torch.float64), r"points must be torch.float32 .* got torch.float64"),
        (torch.zeros(5, 2, device="meta"), r"points must be .* on device 'cpu' .* got torch.float32 on 'meta'"),
        (torch.tensor([[0.0, NAN], [INF, 0.0]]), r"points must be finite, got 2 NaN or infinite entries"),
    ],
)
def test_functions_of_points_refuse(function, points, message):
    with pytest.raises(ValueError, match=message):
        function(points, CIRCLE)


@pytest.mark.parametrize("factor", [0.0, NAN, INF])
def test_scaling_refuses(factor):
    with pytest.raises(ValueError, match=r"zero polynomial|finite"):
        CIRCLE.scaled(factor)


@pytest.mark.parametrize(
    ("matrix", "shift", "message"),
    [
        (
            torch.eye(3),
            torch.zeros(3),
            r"matrix of shape \(2, e\) and a shift of shape \(2,\), got \(3, 3\) and \(3,\)",
        ),
        (torch.eye(2), torch.zeros(3), r"got \(2, 2\) and \(3,\)"),
        (torch.eye(2).double(), torch.zeros(2), r"the matrix must be torch.float32 .* got torch.float64"),
        (torch.eye(2), torch.zeros(2).double(), r"the shift must be torch.float32 .* got torch.float64"),
        (torch.eye(2) * NAN, torch.zeros(2), r"must be finite"),
    ],
)
def test_composition_refuses(matrix, shift, message):
    with pytest.raises(ValueError, match=message):
        CIRCLE.compose(matrix, shift)


@pytest.mark.parametrize(
    ("coefficients", "message"),
    [
        (torch.ones(6), r"shape \(m, D\), got \(6,\)"),
        (torch.ones(1, 7), r"has 7"),
        (torch.ones(1, 1), r"3 or more columns, got 1"),
    ],
)
def test_coefficients_are_refused(coefficients, message):
    with pytest.raises(ValueError, match=message):
        Quadrics.from_coefficients(coefficients)


def test_inner_products_refuse():
    with pytest.raises(ValueError, match="same space, got 2 and 3 features"):
        CIRCLE.hs_inner(Quadrics(torch.eye(3)[None], torch.zeros(1, 3), c))
    with pytest.raises(ValueError, match=r"the other quadrics must be torch.float32"):
        CIRCLE.hs_inner(CIRCLE.to(dtype=torch.float64))


CLOUD = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("points", "m", "inner_product", "message"),
    [
        (CLOUD[0], 1, "hs", r"shape \(n, d\).* got torch.float32 of shape \(2,\)"),
        (CLOUD[:0], 1, "hs", r"n and d at least 1, got torch.float32 of shape \(0, 2\)"),
        (CLOUD.long(), 1, "hs", r"float32 or float64 .* got torch.int64"),
        (CLOUD * NAN, 1, "hs", r"points must be finite, got 60"),
        (CLOUD, 0, "hs", r"at least 1 is needed, got n_quadrics=0"),
        (CLOUD, 4, "hs", r"at most 3 quadrics .* got n_quadrics=4"),
        (CLOUD, 6, "gradient", r"at most 5 quadrics .* got n_quadrics=6"),
        (CLOUD, 7, "coefficient", r"at most 6 quadrics .* got n_quadrics=7"),
        (CLOUD, 1, "euclid", r"one of \['coefficient', 'gradient', 'hs'\], got 'euclid'"),
        (CLOUD[:1].expand(9, 2), 1, "hs", r"all 9 points are equal"),
    ],
)
def test_spectral_fit_refuses(points, m, inner_product, message):
    with pytest.raises(ValueError, match=message):
        spectral_fit(points, m, inner_product=inner_product)


def test_arrays_are_no_tensors():
    with pytest.raises(TypeError, match=r"points must be a tensor, such as torch.as_tensor\(points\), got ndarray"):
        spectral_fit(CLOUD.numpy(), 1)
    with pytest.raises(TypeError, match="points must be a tensor, such as"):
        spectral_fit(CLOUD, 1).values(CLOUD.numpy())
    with pytest.raises(TypeError, match="quadrics are made of tensors"):
        Quadrics(torch.eye(2)[None].numpy(), torch.zeros(1, 2), torch.zeros(1))
