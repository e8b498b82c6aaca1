"""Working coordinates forget isometries and scale, and compose to one affine map."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric import Quadrics
from pyod_quadric.data.rows import LoaderRows, normalized, rows_of
from pyod_quadric.model.coordinates import fit_working_coordinates
from pyod_quadric.model.moments import Moments
from tests.support.strategies import ISOMETRY_KINDS, integers, isometries


@st.composite
def skew_clouds(draw):
    """Draw a float64 cloud whose principal axes and their signs are determined, shape (n, d)."""
    d = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    cloud = rng.exponential(size=(60, d)) * 1.5 ** np.arange(d)
    return torch.tensor(cloud + draw(integers(d)))


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("kind", ISOMETRY_KINDS)
@given(cloud=skew_clouds(), data=st.data(), scale=st.sampled_from([1.0, 0.01, 1000.0]))
def test_coordinates_forget_isometries_and_scale(cloud, kind, data, scale, whiten):
    matrix, shift = data.draw(isometries(kind, cloud.shape[1])).tensors(torch.float64)
    moved = scale * (cloud @ matrix.T + shift)
    here = fit_working_coordinates(lambda: [cloud], whiten=whiten).transform(cloud)
    there = fit_working_coordinates(lambda: [moved], whiten=whiten).transform(moved)
    np.testing.assert_allclose(there, here, atol=1e-8)


@given(cloud=skew_clouds(), size=st.integers(1, 70), principal=st.booleans())
def test_blocks_change_nothing(cloud, size, principal):
    whole = fit_working_coordinates(lambda: [cloud], principal=principal)
    blocks = fit_working_coordinates(lambda: [*torch.split(cloud, size), cloud[:0]], principal=principal)
    np.testing.assert_allclose(blocks.transform(cloud), whole.transform(cloud), atol=1e-9)


@given(cloud=skew_clouds(), whiten=st.booleans(), principal=st.booleans(), data=st.data())
def test_quadrics_in_input_space_have_the_same_values(cloud, whiten, principal, data):
    choice = {"n_components": data.draw(st.integers(1, cloud.shape[1])), "whiten": whiten} if principal else {}
    working = fit_working_coordinates(lambda: [cloud], principal=principal, **choice)
    k = len(working.matrix)
    half = torch.tensor(data.draw(integers(k, k)))
    quadrics = Quadrics((half + half.T)[None], half[:1] + 1, torch.ones(1, dtype=torch.float64))
    expected = quadrics.values(working.transform(cloud))
    np.testing.assert_allclose(working.in_input_space(quadrics).values(cloud), expected, rtol=1e-6, atol=1e-7)


@given(cloud=skew_clouds())
def test_coordinates_are_centred_uncorrelated_and_of_unit_scale(cloud):
    working = fit_working_coordinates(lambda: [cloud])
    covariance = Moments.of(working.transform(cloud)).covariance()
    np.testing.assert_allclose(covariance - covariance.diag().diag(), np.zeros(covariance.shape), atol=1e-9)
    assert covariance.diag().mean().item() == pytest.approx(1)
    assert (covariance.diag().diff() <= 1e-12).all()
    expected = np.linalg.eigvalsh(np.cov(cloud.numpy().T, bias=True).reshape(2 * cloud.shape[1:]))
    found = torch.linalg.vector_norm(working.matrix, dim=1).square().reciprocal() * covariance.diag()  # in input units
    np.testing.assert_allclose(found, expected[::-1][: len(found)], atol=1e-9)


def test_axes_without_variance_are_left_out():
    line = torch.tensor([[0.0, 0.0, 1.0], [1.0, 2.0, 1.0], [4.0, 8.0, 1.0]])
    assert fit_working_coordinates(lambda: [line]).transform(line).shape == (3, 1)


def test_normalization_divides_rows_by_their_norms():
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    assert normalized(rows).tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0, 0]]
    cloud = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(rows_of(cloud).normalized().read(slice(None)), normalized(cloud))
    np.testing.assert_array_equal(
        torch.cat(list(LoaderRows([cloud[:20], cloud[20:]]).normalized().blocks(7))), normalized(cloud)
    )


def test_rounded_rows_do_not_look_like_more_axes():
    """Rank 3 in float32 beside a mean of 1000: what is below the rounding of the rows is no axis."""
    generator = torch.Generator().manual_seed(0)
    cloud = 1000 + torch.randn(500, 3, generator=generator) @ torch.randn(3, 20, generator=generator)
    assert len(fit_working_coordinates(lambda: [cloud]).matrix) == 3


def test_plain_coordinates_are_centred_and_of_unit_scale():
    cloud = 5 + torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * torch.arange(1, 4)
    moments = Moments.of(fit_working_coordinates(lambda: [cloud], principal=False).transform(cloud))
    np.testing.assert_allclose(moments.mean, np.zeros(3), atol=1e-12)
    assert moments.covariance().diag().mean().item() == pytest.approx(1)


def test_only_so_many_components_are_kept():
    cloud = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    assert fit_working_coordinates(lambda: [cloud], 2).transform(cloud).shape == (50, 2)


def test_refuses():
    cloud = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    for n_components in (0, -1, 5):
        with pytest.raises(ValueError, match=f"from 1 to the number of features, 4, got {n_components}"):
            fit_working_coordinates(lambda: [cloud], n_components)
    for wrong in ({"n_components": 2}, {"whiten": True}):
        with pytest.raises(ValueError, match="do not go with principal=False"):
            fit_working_coordinates(lambda: [cloud], principal=False, **wrong)
    with pytest.raises(ValueError, match="rows must be finite, got 200"):
        fit_working_coordinates(lambda: [cloud * torch.nan])
    with pytest.raises(ValueError, match="all rows are equal"):
        fit_working_coordinates(lambda: [torch.ones(5, 2)])
    with pytest.raises(ValueError, match="no rows"):
        fit_working_coordinates(list)
