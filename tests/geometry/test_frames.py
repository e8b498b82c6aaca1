"""Frames are orthonormal, span what was given, and are the nearest ones, or those of QR."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric.geometry.frames import (
    gram,
    inverse_root,
    nearest_frame,
    orthonormality_error,
    orthonormalize_,
    orthonormalized,
    polar,
)
from tests.support.tolerances import DTYPES, assert_close


@st.composite
def tall(draw, dtype):
    """Draw columns (n, m) that are independent, of condition up to a hundred."""
    m = draw(st.integers(1, 5))
    n = m + draw(st.integers(0, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    left, right = (np.linalg.qr(rng.normal(size=(size, m)))[0] for size in (n, m))
    sizes = 10.0 ** rng.uniform(-1, 1, m)
    return torch.tensor(left * sizes @ right.T, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_columns_are_orthonormalised_as_by_qr(dtype, data):
    columns = data.draw(tall(dtype))
    found = orthonormalized(columns)
    q, r = np.linalg.qr(columns.double().numpy())
    condition = np.linalg.cond(columns.double().numpy())
    assert_close(found, q * np.sign(np.diag(r)), dtype, scale=condition)
    assert float(orthonormality_error(found.double())) < 20 * torch.finfo(dtype).eps


def test_columns_are_replaced_in_place_unless_gradients_are_kept():
    columns = torch.tensor([[3.0], [4.0]])
    orthonormalize_(columns)
    torch.testing.assert_close(columns, torch.tensor([[0.6], [0.8]]))
    kept = torch.tensor([[3.0], [4.0]], requires_grad=True)
    assert orthonormalize_(kept).requires_grad
    assert kept.tolist() == [[3], [4]]


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_polar_is_the_nearest_frame(dtype, data):
    columns = data.draw(tall(dtype))
    left, _, right = np.linalg.svd(columns.double().numpy(), full_matrices=False)
    assert_close(polar(columns), left @ right, dtype, scale=np.linalg.cond(columns.double().numpy()))


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), distance=st.sampled_from([0.0, 1e-7, 1e-3, 0.1, 0.5, 0.9]))
def test_the_inverse_root_makes_a_frame_of_what_nearly_is_one(dtype, data, distance):
    """Eigenvalues as far from 1 as they may be, on both sides of it."""
    x = polar(data.draw(tall(torch.float64)))
    m = x.shape[1]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    sides = rng.normal(size=m)
    rotation = np.linalg.qr(rng.normal(size=(m, m)))[0]
    factor = rotation * np.sqrt(1 + distance * sides / np.linalg.norm(sides)) @ rotation.T
    columns = (x @ torch.tensor(factor)).to(dtype)
    root = inverse_root(gram(columns))
    assert root is not None
    assert_close(columns @ root, polar(columns), dtype, scale=10)


@pytest.mark.parametrize("far", [0.0, 2.0, 30.0, float("nan"), float("inf")])
def test_far_from_the_identity_no_inverse_root_is_looked_for(far):
    products = torch.eye(3)
    products[1, 1] = far
    assert inverse_root(products) is None


@given(data=st.data())
def test_polynomials_are_mixed_whole(data):
    columns = data.draw(tall(torch.float64))
    n = columns.shape[0]
    frame, rest = nearest_frame(columns.T.contiguous(), columns.T[:, : n // 2].contiguous())
    assert_close(frame, polar(columns).T, torch.float64, scale=100)
    assert_close(rest, frame[:, : n // 2], torch.float64, scale=100)


@given(data=st.data())
def test_the_error_is_that_of_the_gram_matrix(data):
    columns = data.draw(tall(torch.float64))
    expected = np.linalg.norm(columns.numpy().T @ columns.numpy() - np.eye(columns.shape[1]))
    assert_close(orthonormality_error(columns), expected, torch.float64, scale=100)
    several = torch.stack([columns, 2 * columns])
    assert_close(orthonormality_error(several)[0], expected, torch.float64, scale=100)


@pytest.mark.parametrize("columns", [torch.ones(5, 2), torch.zeros(3, 1), torch.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 1.0]])])
def test_dependent_columns_have_no_nearest_frame(columns):
    with pytest.raises(ValueError, match="linearly dependent"):
        polar(columns)


def test_dependent_columns_are_orthonormalised_by_qr():
    """Where Cholesky fails there still is an orthonormal frame."""
    found = orthonormalized(torch.ones(4, 2, dtype=torch.float64))
    assert float(orthonormality_error(found)) < 1e-14
    assert_close(found[:, 0], torch.full((4,), 0.5), torch.float64)


@pytest.mark.parametrize("n", [50, 5000])
def test_columns_that_differ_by_rounding_alone_have_no_nearest_frame(n):
    columns = torch.randn(n, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    columns[:, 2] = 0.7 * columns[:, 0] - 0.3 * columns[:, 1]
    with pytest.raises(ValueError, match="linearly dependent"):
        polar(columns.float())
    columns[:, 2] += 1e-4 * torch.randn(n, generator=torch.Generator().manual_seed(1))
    assert orthonormality_error(polar(columns.float())) < 1e-5
