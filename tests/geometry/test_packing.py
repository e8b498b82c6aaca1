"""Packing is a linear isometry from symmetric matrices with the HS norm onto vectors with the Euclidean norm."""

import numpy as np
import pytest
import torch
from hypothesis import given

from pyod_quadric.geometry.packing import features_of_packed_size, pack, pack_outer, packed_size, unpack
from tests.support import reference
from tests.support.strategies import cases
from tests.support.tolerances import DTYPES, assert_close


@pytest.mark.parametrize("dtype", DTYPES)
@given(case=cases())
def test_pack_equals_reference(case, dtype):
    _, quadrics = case.tensors(dtype)
    assert_close(pack(quadrics.quadratic), np.stack([reference.pack(A) for A in case.quadratic]), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@given(case=cases())
def test_unpack_inverts_pack(case, dtype):
    _, quadrics = case.tensors(dtype)
    packed = pack(quadrics.quadratic)
    assert_close(unpack(packed), quadrics.quadratic, dtype)
    assert_close(unpack(packed)[0], reference.unpack(packed[0].double().numpy(), case.linear.shape[1]), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@given(case=cases())
def test_pack_is_an_isometry(case, dtype):
    _, quadrics = case.tensors(dtype)
    packed = pack(quadrics.quadratic)
    expected = [[reference.hs_inner(A, B) for B in case.quadratic] for A in case.quadratic]
    assert_close(packed @ packed.T, np.array(expected), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@given(case=cases())
def test_packed_outer_products_evaluate_quadratic_forms(case, dtype):
    points, quadrics = case.tensors(dtype)
    expected = np.einsum("ni,kij,nj->nk", case.points, case.quadratic, case.points)
    terms = np.einsum("ni,kij,nj->nk", *(np.abs(a) for a in (case.points, case.quadratic, case.points)))
    assert_close(pack_outer(points) @ pack(quadrics.quadratic).T, expected, dtype, scale=terms.max())


@pytest.mark.parametrize("n_features", [1, 2, 3, 512, 1000])
def test_sizes_invert(n_features):
    assert features_of_packed_size(packed_size(n_features)) == n_features


def test_gradients_flow_through_packing():
    matrix = torch.eye(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: unpack(pack(a + a.T)), matrix)


@pytest.mark.parametrize("size", [0, 2, 4, 5])
def test_other_sizes_are_refused(size):
    with pytest.raises(ValueError, match="d \\(d \\+ 1\\) / 2"):
        unpack(torch.zeros(size))


@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 2, 3), (0, 0)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="square"):
        pack(torch.zeros(shape))
