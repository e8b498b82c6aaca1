"""Moments add up, can be taken away, and equal NumPy's."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric.model.moments import Moments, sum_of_moments
from tests.support.strategies import clouds


def weights_of(cloud, seed):
    return torch.tensor(np.random.default_rng(seed).choice([0.0, 0.25, 1.0, 2.0], size=len(cloud)))


@given(cloud=clouds(), size=st.integers(1, 70))
def test_sums_equal_numpy(cloud, size):
    moments = sum_of_moments(Moments.of(block) for block in torch.split(cloud, size))
    np.testing.assert_allclose(moments.mean, cloud.numpy().mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(
        moments.covariance(), np.cov(cloud.numpy().T, bias=True).reshape(moments.scatter.shape), atol=1e-9
    )
    assert moments.weight == len(cloud)


@given(cloud=clouds(), size=st.integers(1, 70), seed=st.integers(0, 99))
def test_weights_are_repetitions(cloud, size, seed):
    weights = weights_of(cloud, seed)
    repeated = cloud.repeat_interleave((4 * weights).long(), dim=0)
    blocks = zip(torch.split(cloud, size), torch.split(weights, size), strict=True)
    moments = sum_of_moments(Moments.of(*block) for block in blocks)
    assert moments.weight == pytest.approx(len(repeated) / 4)
    if len(repeated):
        expected = Moments.of(repeated)
        np.testing.assert_allclose(moments.mean, expected.mean, atol=1e-12)
        np.testing.assert_allclose(moments.covariance(), expected.covariance(), atol=1e-9)


@given(cloud=clouds(), data=st.data())
def test_what_was_added_can_be_taken_away(cloud, data):
    cut = data.draw(st.integers(1, len(cloud) - 1))
    first, second = Moments.of(cloud[:cut]), Moments.of(cloud[cut:])
    left = first + second - second
    assert left.weight == first.weight
    np.testing.assert_allclose(left.mean, first.mean, atol=1e-9)
    np.testing.assert_allclose(left.scatter, first.scatter, atol=1e-7)


@given(cloud=clouds(), data=st.data())
def test_second_moments_about_a_point(cloud, data):
    point = cloud[data.draw(st.integers(0, len(cloud) - 1))]
    expected = np.mean([np.outer(row - point, row - point) for row in cloud], axis=0)
    np.testing.assert_allclose(Moments.of(cloud).about(point), expected, atol=1e-9)


def test_a_large_mean_does_not_hide_a_small_covariance():
    cloud = torch.tensor([[1e8 - 1.0], [1e8], [1e8 + 1.0]], dtype=torch.float64)
    moments = sum_of_moments(Moments.of(row) for row in torch.split(cloud, 1))
    assert moments.covariance().item() == pytest.approx(2 / 3, rel=1e-6)


def test_no_rows_add_nothing():
    some, none = Moments.of(torch.tensor([[1.0], [2.0]])), Moments.none(torch.zeros(1, 1))
    assert (some + none) is some
    assert (none + some) is some
    with pytest.raises(ValueError, match="no rows"):
        sum_of_moments([])
