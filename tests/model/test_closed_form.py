"""The closed forms solve the problems they claim to solve."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric import Quadrics, second_order_distance, spectral_fit
from pyod_quadric.geometry.packing import packed_size
from pyod_quadric.model import closed_form
from pyod_quadric.model.closed_form import (
    add_feature_products,
    feature_moments,
    lowest_eigenvectors,
    nearly_lowest_eigenvectors,
)
from tests.support import reference
from tests.support.strategies import ISOMETRY_KINDS, clouds, isometries

INNER_PRODUCTS = ["coefficient", "hs", "gradient"]


def gram(quadrics, points, inner_product):
    """Return the inner products of all pairs, shape (m, m)."""
    if inner_product == "hs":
        return quadrics.hs_inner(quadrics)
    if inner_product == "coefficient":
        return quadrics.coefficients() @ quadrics.coefficients().T
    gradients = quadrics.gradients(points)
    return torch.einsum("nkd,nld->kl", gradients, gradients) / len(points)


def mean_squares(quadrics, points):
    return quadrics.values(points).square().mean(dim=0)


def largest_number(d, inner_product):
    return {"hs": packed_size(d), "gradient": packed_size(d + 1) - 1, "coefficient": packed_size(d + 1)}[inner_product]


@pytest.mark.parametrize("inner_product", INNER_PRODUCTS)
@given(points=clouds(), data=st.data())
def test_solutions_are_orthonormal(points, data, inner_product):
    m = data.draw(st.integers(1, largest_number(points.shape[1], inner_product)))
    quadrics = spectral_fit(points, m, inner_product=inner_product)
    np.testing.assert_allclose(gram(quadrics, points, inner_product), np.eye(m), atol=1e-8)


@pytest.mark.parametrize("inner_product", INNER_PRODUCTS)
@given(points=clouds(), data=st.data())
def test_values_agree_with_the_generalised_eigensolver(points, data, inner_product):
    m = data.draw(st.integers(1, largest_number(points.shape[1], inner_product)))
    actual = mean_squares(spectral_fit(points, m, inner_product=inner_product), points)
    expected = reference.spectral_values(points.numpy(), m, inner_product)
    # The eigenvalues of the turned pencil are as exact as the moments are well conditioned.
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-9 * float(feature_moments(points.split(7))[0].diag().max()))


@pytest.mark.parametrize("inner_product", INNER_PRODUCTS)
@given(points=clouds(), seed=st.integers(0, 2**16), data=st.data())
def test_no_orthonormal_competitor_does_better(points, seed, data, inner_product):
    d = points.shape[1]
    m = data.draw(st.integers(1, packed_size(d)))
    generator = torch.Generator().manual_seed(seed)
    fitted = spectral_fit(points, m, inner_product=inner_product)
    competitor = torch.randn(m, packed_size(d + 1), generator=generator, dtype=torch.float64)
    if data.draw(st.booleans()):  # nearby rather than anywhere
        competitor = fitted.coefficients() + 1e-2 * competitor
    raw = Quadrics.from_coefficients(competitor)
    factor = torch.linalg.cholesky(gram(raw, points, inner_product))
    competitor = Quadrics.from_coefficients(torch.linalg.solve_triangular(factor, raw.coefficients(), upper=False))
    ours, theirs = (mean_squares(q, points).sum() for q in (fitted, competitor))
    assert ours <= theirs * (1 + 1e-9)


@given(points=clouds(), data=st.data())
def test_squared_values_are_squared_distances_in_feature_space(points, data):
    """The kernel-PCA identity: Σ f_k(p)² = Σ dist(φ(p), orthogonal complement of span v(f_k))²."""
    m = data.draw(st.integers(1, packed_size(points.shape[1])))
    quadrics = spectral_fit(points, m, inner_product="coefficient")
    features = np.stack([reference.monomials(p) for p in points.numpy()])
    # The distance to a subspace by least squares on a basis of it.
    complement = np.linalg.svd(quadrics.coefficients().numpy())[2][m:]
    nearest = np.linalg.lstsq(complement.T, features.T, rcond=None)[0].T @ complement if len(complement) else 0
    expected = ((features - nearest) ** 2).sum()
    np.testing.assert_allclose(quadrics.values(points).square().sum(), expected, rtol=1e-8, atol=1e-9 * (features**2).sum())


@given(points=clouds(max_features=3))
def test_moments_equal_reference(points):
    d = points.shape[1]
    size = packed_size(d)
    features = np.stack([reference.monomials(p) for p in points.numpy()])
    weights = np.array([*reference.pack(np.ones((d, d))), *np.ones(d + 1)])
    expected = (features * weights).T @ (features * weights) / len(points)
    actual = feature_moments(points.split(7))[0]
    assert actual.shape == (size + d + 1, size + d + 1)
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("inner_product", ["hs", "gradient"])
@pytest.mark.parametrize("kind", ISOMETRY_KINDS)
@given(points=clouds(max_features=3), data=st.data())
def test_solutions_move_with_the_cloud(points, data, kind, inner_product):
    """Fitting θ(cloud) and composing with θ gives the same distances as fitting the cloud."""
    matrix, shift = data.draw(isometries(kind, points.shape[1])).tensors(torch.float64)
    # All quadrics at once, so that a change of basis in an eigenspace shows neither here nor in the moved fit.
    m = largest_number(points.shape[1], inner_product)
    here = spectral_fit(points, m, inner_product=inner_product)
    there = spectral_fit(points @ matrix.T + shift, m, inner_product=inner_product).compose(matrix, shift)
    np.testing.assert_allclose(mean_squares(there, points), mean_squares(here, points), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(there.values(points).square().sum(dim=1), here.values(points).square().sum(dim=1), rtol=1e-5)


def test_counterexample_of_the_paper():
    """A shift of the cloud by (10, 0) shifts the HS solution, and not the coefficient solution."""
    generator = torch.Generator().manual_seed(0)
    angle = torch.linspace(0, 3, 60, dtype=torch.float64)
    arc = torch.stack([2 * angle.cos(), angle.sin()], dim=1)
    cloud = arc + 0.1 * torch.randn(arc.shape, generator=generator, dtype=torch.float64)
    shift = torch.tensor([10.0, 0.0], dtype=torch.float64)
    grid = torch.cartesian_prod(*2 * [torch.linspace(-3, 3, 13, dtype=torch.float64)])

    def change(inner_product):
        here = spectral_fit(cloud, 1, inner_product=inner_product)
        there = spectral_fit(cloud + shift, 1, inner_product=inner_product)
        difference = second_order_distance(grid + shift, there) - second_order_distance(grid, here)
        return float(difference.abs().max())

    assert change("hs") < 1e-9
    assert change("gradient") < 1e-9
    assert change("coefficient") > 0.1


def test_float32_is_solved_in_float64():
    generator = torch.Generator().manual_seed(0)
    cloud = torch.randn(100, 3, generator=generator)
    single, double = spectral_fit(cloud, 2), spectral_fit(cloud.double(), 2)
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single.hs_inner(double.to(dtype=torch.float32)).abs(), np.eye(2), atol=1e-6)


@pytest.mark.parametrize("inner_product", INNER_PRODUCTS)
@pytest.mark.parametrize(
    ("n", "rank", "message"), [(14, 4, "14 points are fewer than the 15 coefficients"), (40, 2, "dimension 2 of 4")]
)
def test_undetermined_solutions_warn_and_stay_sound(n, rank, message, inner_product):
    generator = torch.Generator().manual_seed(0)
    cloud = torch.randn(n, rank, generator=generator, dtype=torch.float64)
    cloud = cloud @ torch.randn(rank, 4, generator=generator, dtype=torch.float64)
    with pytest.warns(UserWarning, match=message):
        quadrics = spectral_fit(cloud, 1, inner_product=inner_product)
    np.testing.assert_allclose(mean_squares(quadrics, cloud), 0, atol=1e-12)
    others = torch.randn(50, 4, generator=generator, dtype=torch.float64)
    assert second_order_distance(others, quadrics).isfinite().all()
    if inner_product != "gradient":
        np.testing.assert_allclose(gram(quadrics, cloud, inner_product), [[1]], atol=1e-10)


@pytest.mark.parametrize("inner_product", INNER_PRODUCTS)
def test_determined_solutions_do_not_warn(inner_product):
    cloud = torch.randn(40, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(spectral_fit(cloud, 2, inner_product=inner_product)) == 2


@pytest.fixture
def small_is_wide(monkeypatch):
    """Let matrices of 200 rows count as large, with all proportions as they are."""
    for name, value in {"WIDE": 150, "LEAST_BASIS": 40}.items():
        monkeypatch.setattr(closed_form, name, value)


def matrix_with(values, seed=0):
    """Return a matrix of given eigenvalues, and its eigenvectors."""
    axes = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))[0]
    return torch.tensor(axes * values @ axes.T), torch.tensor(axes)


@pytest.mark.usefixtures("small_is_wide")
@pytest.mark.parametrize("seed", range(5))
def test_few_eigenvectors_of_a_large_matrix_are_exact_where_they_stand_out(seed):
    values = np.concatenate([np.geomspace(1e-5, 1e-3, 5), np.linspace(0.5, 2, 195)])
    matrix, axes = matrix_with(values, seed)
    found = nearly_lowest_eigenvectors(matrix, 20)
    assert found.shape == (200, 20)
    np.testing.assert_allclose(found.T @ found, np.eye(20), atol=1e-5)
    squares = ((matrix @ found) * found).sum(dim=0)
    assert (squares.diff() > -1e-6).all()
    np.testing.assert_allclose((axes[:, :5].T @ found[:, :5]).abs().diagonal(), 1, atol=1e-4)
    assert squares[5:].sum() < 1.1 * values[5:20].sum()  # in the bulk they are nearly as low as can be
    assert torch.equal(found, nearly_lowest_eigenvectors(matrix, 20))


@pytest.mark.usefixtures("small_is_wide")
def test_matrices_with_exact_zeros_and_large_entries_have_eigenvectors_too():
    scales = torch.logspace(0, 6, 200, dtype=torch.float64)
    scales[::7] = 0
    found = nearly_lowest_eigenvectors(torch.diag(scales), 20)
    assert found.isfinite().all()
    assert (found.square() * scales[:, None]).sum(dim=0).max() < 1e-3 * scales.median()


@pytest.mark.usefixtures("small_is_wide")
def test_many_eigenvectors_are_exact():
    matrix, _ = matrix_with(np.linspace(0.5, 2, 200))
    torch.testing.assert_close(nearly_lowest_eigenvectors(matrix, 90), lowest_eigenvectors(matrix, 90), rtol=0, atol=0)


@pytest.mark.usefixtures("small_is_wide")
def test_wide_products_in_float32_agree_with_those_in_float64():
    rows = torch.tensor(np.random.default_rng(0).normal(size=(300, 17)))
    weights = torch.linspace(0, 1, 300, dtype=torch.float64)
    single, double = (torch.zeros(packed_size(18), packed_size(18), dtype=torch.float64) for _ in range(2))
    add_feature_products(single, rows.float(), weights.float())
    add_feature_products(double, rows, weights)
    assert not torch.equal(single, double)
    np.testing.assert_allclose(single / 300, double / 300, atol=1e-5)


@pytest.mark.usefixtures("small_is_wide")
def test_rows_far_away_do_not_overflow_wide_products():
    rows = torch.tensor(np.random.default_rng(0).normal(size=(300, 17)), dtype=torch.float32)
    rows[0] *= 1e12
    total = torch.zeros(packed_size(18), packed_size(18), dtype=torch.float64)
    add_feature_products(total, rows)
    assert total.isfinite().all()


@pytest.mark.usefixtures("small_is_wide")
def test_a_matrix_that_is_not_finite_is_an_error_and_no_endless_search():
    matrix = torch.eye(200, dtype=torch.float64)
    matrix[3, 3] = torch.nan
    with pytest.raises(FloatingPointError, match="not finite"):
        nearly_lowest_eigenvectors(matrix, 5)
