"""A guess of the number of quadrics: Wold's criterion equals its definition, and finds the dimension of a noisy plane."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from pyod_quadric import Spectrum, principal_spectrum
from pyod_quadric.plotting import plot_spectrum
from tests.support import reference
from tests.support.profiles import n_examples
from tests.support.tolerances import rounding_of_wold_ratios


def noisy_plane(dimension, d, n=150, seed=0, noise=0.05):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, dimension)) @ rng.normal(size=(dimension, d)) + noise * rng.normal(size=(n, d))


@given(seed=st.integers(0, 2**16), d=st.integers(2, 5))
@example(seed=10823, d=4)  # of one entry 1 minus the leverage is next to nothing
@n_examples(10)
def test_ratios_equal_their_definition(seed, d):
    rows = np.random.default_rng(seed).normal(size=(21, d)) * np.arange(1, d + 1) + 3
    folds = np.random.default_rng(0).permutation(np.arange(21) % 7)
    found, expected = principal_spectrum(rows).wold_ratios, reference.wold_ratios(rows, folds)
    tolerance = rounding_of_wold_ratios(rows, folds)
    assume((tolerance < 1e-3 * expected).all())  # in 4 of 1000 draws an entry has a leverage of 1, where rounding decides
    assert found.shape == expected.shape
    assert (np.abs(found - expected) <= tolerance).all()


@pytest.mark.parametrize("dimension", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_the_dimension_of_a_noisy_plane_is_found(dimension, seed):
    found = principal_spectrum(noisy_plane(dimension, 8, seed=seed))
    assert found.dimension == dimension
    assert found.n_quadrics == 8 - dimension


def test_variances_are_those_of_the_rows():
    rows = noisy_plane(2, 4)
    expected = np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1]
    found = principal_spectrum(rows)
    np.testing.assert_allclose(found.variances, expected)
    np.testing.assert_allclose(found.decay(), -np.log(expected / expected[0]))


def test_blocks_and_files_change_nothing(tmp_path, monkeypatch):
    rows = noisy_plane(2, 4, n=9000)
    np.save(tmp_path / "rows.npy", rows)
    np.testing.assert_array_equal(principal_spectrum(rows).wold_ratios, principal_spectrum(tmp_path / "rows.npy").wold_ratios)


def test_there_is_always_a_quadric():
    assert Spectrum(np.array([2.0, 1.0]), np.array([0.5])).n_quadrics == 1
    assert Spectrum(np.array([2.0, 1.0]), np.array([1.5])).n_quadrics == 2


def test_a_picture_says_the_number():
    ax = plot_spectrum(principal_spectrum(noisy_plane(2, 6)))
    assert "dimension 2, so 4 quadrics" in ax.get_legend().get_texts()[1].get_text()
    own = plt.figure().add_subplot()
    assert plot_spectrum(principal_spectrum(noisy_plane(2, 6)), ax=own) is own
    plt.close("all")


def test_refuses():
    for rows, message in (
        (np.ones((6, 3)), "at least 7 rows"),
        (np.ones((20, 1)), "at least 7 rows of 2 features"),
        (np.ones((20, 3)), "all rows are equal"),
    ):
        with pytest.raises(ValueError, match=message):
            principal_spectrum(rows)
