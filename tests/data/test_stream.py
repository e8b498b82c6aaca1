"""A sample of a stream: bounded, uniform, and independent of how the stream is cut."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric.data.rows import rows_of
from pyod_quadric.data.stream import Reservoir


def streamed(n, sizes, capacity, seed=0, window=None):
    reservoir, rows = Reservoir(seed, capacity, window=window), np.arange(float(n))[:, None]
    place = 0
    while place < n:
        size = sizes[place % len(sizes)]
        reservoir = reservoir.with_rows(rows_of(rows[place : place + size]))
        place += size
    return reservoir


@given(n=st.integers(1, 60), sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4), capacity=st.integers(1, 30))
def test_it_holds_different_rows_of_the_stream(n, sizes, capacity):
    reservoir = streamed(n, sizes, capacity)
    sample = reservoir.sample()[:, 0]
    assert len(sample) == min(n, capacity)
    assert len(set(sample)) == len(sample)
    assert set(sample) <= set(range(n))
    assert reservoir.n_seen == n
    if n <= capacity:
        np.testing.assert_array_equal(sample, np.arange(n))


@pytest.mark.parametrize("window", [None, 12])
@given(n=st.integers(1, 60), sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4))
def test_groups_stay_with_their_rows(n, sizes, window):
    reservoir, rows, place = Reservoir(0, 9, window=window), np.arange(float(n))[:, None], 0
    while place < n:
        part = slice(place, place + sizes[place % len(sizes)])
        reservoir = reservoir.with_rows(rows_of(rows[part]), 7 * np.arange(n)[part])
        place = part.stop
    np.testing.assert_array_equal(reservoir.groups, 7 * reservoir.sample()[:, 0])


def test_it_is_uniform():
    counts = sum(np.bincount(streamed(60, [7], 15, seed).sample()[:, 0].astype(int), minlength=60) for seed in range(800))
    expected = 800 * 15 / 60
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)
    assert counts[:15].mean() == pytest.approx(expected, rel=0.05)
    assert counts[-15:].mean() == pytest.approx(expected, rel=0.05)


def test_it_tells_when_a_tenth_is_new():
    reservoir = streamed(100, [10], 50).used()
    assert not reservoir.with_rows(rows_of(np.zeros((9, 1)))).has_grown()
    assert reservoir.with_rows(rows_of(np.zeros((10, 1)))).has_grown()


def test_nothing_is_lost_in_a_wider_type():
    reservoir = Reservoir(0).with_rows(rows_of(np.ones((2, 1), np.float32))).with_rows(rows_of(np.full((1, 1), 0.1)))
    assert reservoir.sample()[-1, 0] == 0.1
    with pytest.raises(ValueError, match="no rows"):
        Reservoir(0).sample()


@given(n=st.integers(1, 60), sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4), window=st.integers(1, 30))
def test_a_window_holds_the_latest_rows(n, sizes, window):
    reservoir = streamed(n, sizes, 5, window=window)
    np.testing.assert_array_equal(reservoir.sample()[:, 0], np.arange(n)[-window:])


def test_a_window_tells_when_a_tenth_of_it_is_new():
    reservoir = streamed(1000, [10], 5, window=100).used()
    assert not reservoir.with_rows(rows_of(np.zeros((9, 1)))).has_grown()
    assert reservoir.with_rows(rows_of(np.zeros((10, 1)))).has_grown()
