"""Quadrics of folds: what their weights lose for having seen fewer rows, and coordinates that have not seen a fold."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric import QuadricDetector, Quadrics, WorkingCoordinates, second_order_distance
from pyod_quadric.data.rows import rows_of
from pyod_quadric.fitting import cross_fit
from pyod_quadric.fitting.cross_fit import (
    CrossCoordinates,
    CrossFitted,
    Sample,
    as_of_all_rows,
    closed_form,
    in_order_of,
)
from pyod_quadric.fitting.folds import FoldedRows
from pyod_quadric.geometry.packing import packed_size
from pyod_quadric.training.starts import random_quadrics


def test_weights_of_folds_are_those_of_a_model_of_all_rows():
    """By the formula, with loops: held-out means minus fitted means, over 2 K - 1, are what all rows would spare."""
    rng = np.random.default_rng(0)
    rows, folds = torch.tensor(rng.normal(size=(12, 2))), torch.arange(12) % 3
    circles = [
        Quadrics(torch.eye(2).double()[None], torch.zeros(1, 2).double(), torch.tensor([-r]).double())
        for r in (1.0, 2.0, 3.0, 4.0)
    ]
    quadrics = CrossFitted(circles[0], circles[1:])
    identity = WorkingCoordinates(torch.zeros(2).double(), torch.eye(2).double())
    row_weights, weights = torch.tensor(rng.uniform(size=12)), [torch.tensor([w]).double() for w in (2.0, 3.0, 4.0, 5.0)]
    sample = Sample(torch.arange(12), rows, folds)
    found = as_of_all_rows(sample, CrossCoordinates.shared(identity, 3), quadrics, weights, row_weights, "second_order")

    def part(row, circle):
        return 2.0 * float(second_order_distance(row[None], circle)[0, 0]) ** 2

    held_out = sum(float(w) * part(row, circles[1 + int(f)]) for row, f, w in zip(rows, folds, row_weights, strict=True))
    fitted = sum(float(w) * part(row, circles[0]) for row, w in zip(rows, row_weights, strict=True))
    assert held_out > fitted
    factor = 1 - (held_out - fitted) / 5 / held_out
    np.testing.assert_allclose([float(w) for w in found], [2.0, 3.0 * factor, 4.0 * factor, 5.0 * factor])


@pytest.mark.parametrize("score_function", ["quadrics", "mean_distance"])
def test_new_groups_score_like_held_out_ones(score_function):
    """Groups choose the axes of all rows, so that each fold needs its own."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(90, 40))
    rows = centres[:, None] + 0.3 * rng.normal(size=(90, 15, 40))
    people = np.repeat(np.arange(60), 15)
    detector = QuadricDetector(score_function=score_function).fit(rows[:60].reshape(-1, 40), groups=people)
    new, held_out = np.median(detector.decision_function(rows[60:].reshape(-1, 40))), np.median(detector.decision_scores_)
    assert new == pytest.approx(held_out, rel=0.1)


@given(seed=st.integers(0, 2**16), k=st.integers(2, 5))
def test_quadrics_of_folds_are_found_again_in_any_order(seed, k):
    generator = torch.Generator().manual_seed(seed)
    whole = random_quadrics(packed_size(k) - 1, k, generator, torch.float64)
    noise = 0.05 * torch.randn(whole.quadratic.shape, generator=generator, dtype=torch.float64)
    nearly = Quadrics(whole.quadratic + noise + noise.mT, whole.linear, whole.constant)
    signs = 2.0 * torch.randint(2, (len(whole),), generator=generator) - 1
    mixed = nearly[torch.randperm(len(whole), generator=generator)].scaled(signs)
    found = in_order_of(whole, mixed)
    torch.testing.assert_close(found.linear.abs(), nearly.linear.abs())
    np.testing.assert_allclose(found.hs_inner(whole).diagonal().abs(), 1, atol=0.5)


def test_a_column_that_only_one_fold_knows_leaves_the_numbers_of_other_quadrics_alone():
    """Without that fold all products with the column vanish, and would come first among its quadrics."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 5))
    rows[:, 3] = rows[:, 0] * rows[:, 1] + 0.01 * rng.normal(size=600)
    folds = torch.arange(600) % 3
    rows[folds.numpy() != 0, 4] = 0
    identity = WorkingCoordinates(torch.zeros(5).double(), torch.eye(5).double())
    folded = FoldedRows(rows_of(rows), torch.device("cpu"), folds, 3, 600)
    found = closed_form(folded, CrossCoordinates.shared(identity, 3), torch.ones(600).double(), n_quadrics=6)
    assert found.whole.quadratic[0, 0, 1].abs() == pytest.approx(0.5**0.5, abs=0.01)
    for quadrics in found.held_out:
        assert quadrics.quadratic[0, 0, 1].abs() == pytest.approx(0.5**0.5, abs=0.01)
        np.testing.assert_allclose(quadrics.hs_inner(quadrics), np.eye(6), atol=1e-9)


def test_of_very_many_rows_some_are_multiplied(monkeypatch):
    """They give what they would give alone, and nearly what all give."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 3))
    rows[:, 2] = rows[:, 0] * rows[:, 1] + 0.1 * rng.normal(size=3000)
    identity = WorkingCoordinates(torch.zeros(3).double(), torch.eye(3).double())

    def fitted(some):
        folded = FoldedRows(rows_of(some), torch.device("cpu"), torch.arange(len(some)) % 3, 3, len(some))
        return closed_form(folded, CrossCoordinates.shared(identity, 3), torch.ones(len(some)).double(), n_quadrics=1).whole

    everything = fitted(rows)
    monkeypatch.setattr(cross_fit, "MOST_MULTIPLIED", 1000)
    few = fitted(rows)
    monkeypatch.setattr(cross_fit, "MOST_MULTIPLIED", 3000)
    alone = fitted(rows[np.random.default_rng(0).random(3000) < 1000 / 3000])
    assert float(few.hs_inner(alone).abs()) == pytest.approx(1, abs=1e-10)
    assert float(few.hs_inner(everything).abs()) > 0.999
    assert not torch.equal(few.quadratic, everything.quadratic)
