"""Rows that occur more than once are held out together."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric import QuadricDetector
from pyod_quadric.data.rows import rows_of
from pyod_quadric.fitting import copies
from pyod_quadric.fitting.copies import copies_of

CPU = torch.device("cpu")


def cloud(n, d=12, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d))


@given(seed=st.integers(0, 2**16), d=st.integers(1, 40), scale=st.sampled_from([1e-6, 1.0, 1e6]), offset=st.floats(-1e3, 1e3))
def test_copies_are_found_and_hardly_anything_else(seed, d, scale, offset):
    rng = np.random.default_rng(seed)
    once = scale * (offset + rng.normal(size=(60, d)))
    chosen = rng.integers(60, size=25)
    rows = np.concatenate([once, once[chosen]])
    order = rng.permutation(len(rows))
    which = np.concatenate([np.arange(60), chosen])[order]
    found = copies_of(rows_of(rows[order]), CPU)
    assert all(len(np.unique(found[which == number])) == 1 for number in range(60))
    assert len(np.unique(found)) >= 57  # a few meet by chance, along a line


@pytest.mark.parametrize("d", [1, 2, 5, 60])
def test_rows_that_are_no_copies_are_none(d):
    assert copies_of(rows_of(cloud(5000, d)), CPU) is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nearly_equal_rows_are_copies(dtype):
    rows = cloud(300, 40).astype(dtype)
    again = rows + (1e-6 * np.random.default_rng(1).normal(size=rows.shape)).astype(dtype)
    found = copies_of(rows_of(np.concatenate([rows, again])), CPU)
    assert (found[:300] == found[300:]).mean() > 0.98
    assert len(np.unique(found)) >= 300


def test_columns_that_hardly_vary_do_not_tell_copies_apart():
    rows = np.column_stack([cloud(300, 40), np.full(300, 3.0)])
    again = rows + 1e-6 * np.random.default_rng(1).normal(size=rows.shape)
    found = copies_of(rows_of(np.concatenate([rows, again])), CPU)
    assert (found[:300] == found[300:]).mean() > 0.98


@pytest.mark.parametrize(
    "rows",
    [
        np.random.default_rng(0).integers(3, size=(500, 4)).astype(float),  # categories
        np.random.default_rng(0).poisson(2.0, size=(500, 3)).astype(float),  # counts
        np.repeat(cloud(20), 100, axis=0)[:300],  # a hundred times each: new rows will be like them, too
    ],
)
def test_rows_that_can_only_be_equal_are_no_copies(rows):
    assert copies_of(rows_of(rows), CPU) is None


def test_what_is_frequent_in_itself_is_no_copy():
    """As an empty text among others: new rows will be like it, too."""
    rows = cloud(300)
    found = copies_of(rows_of(np.concatenate([rows, np.repeat(rows[:1], 9, axis=0), rows[1:3]])), CPU)
    assert len(np.unique(found[[0, *range(300, 309)]])) == 10
    np.testing.assert_array_equal(found[[1, 2]], found[[309, 310]])


def test_rows_of_one_factor_do_not_meet_by_chance():
    """Forty sensors that all show the same: along random directions there is a single dimension."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 1)) + 1e-7 * rng.normal(size=(3000, 40))
    found = copies_of(rows_of(rows), CPU)
    assert found is None or len(np.unique(found)) > 0.9 * len(rows)


def test_blocks_change_nothing(monkeypatch):
    rows = rows_of(np.concatenate([cloud(200), cloud(200)[:50]]))
    expected = copies_of(rows, CPU)
    monkeypatch.setattr(copies, "block_rows", lambda rows: 7)
    np.testing.assert_array_equal(copies_of(rows, CPU), expected)


def again(kind, rows):
    rng = np.random.default_rng(5)
    if kind == "twice":
        return np.concatenate([rows, rows])
    if kind == "half of them twice":
        return np.concatenate([rows, rows[: len(rows) // 2]])
    if kind == "nearly":
        return np.concatenate([rows, rows + 1e-6 * rng.normal(size=rows.shape)])
    return rows[rng.integers(len(rows), size=len(rows))]  # a bootstrap sample


@pytest.mark.parametrize("d", [12, 60])  # groups are looked for from 50 features on
@pytest.mark.parametrize("kind", ["twice", "half of them twice", "nearly", "bootstrap"])
def test_copies_change_neither_decisions_nor_evidence(kind, d):
    rows, new = cloud(4000, d)[:600], cloud(4000, d)[600:]
    once = QuadricDetector(contamination=0.05).fit(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # copies are no groups that nobody has told of
        more = QuadricDetector(contamination=0.05).fit(again(kind, rows))
    assert len(more.model_.coordinates.matrix) <= len(once.model_.coordinates.matrix)
    assert abs(more.predict(new).mean() - 0.05) < 0.03
    share = np.mean(more.decision_function(new) > more.decision_scores_.max())
    assert share < 0.02


def test_training_holds_out_copies_together():
    rows = cloud(200, 4)
    options = {"validation_fraction": 0.3, "patience": 2}
    detector = QuadricDetector(epoch_num=2, training_options=options).fit(again("twice", rows))
    ratio = detector.history_["held_out_loss"][-1] / detector.history_["loss"][-1]
    assert 0.5 < ratio < 2
