"""Penalty against manifold: the same start, the same batches, and figures that mean what they say."""

import json

import numpy as np
import pytest
import torch

from pyod_quadric import Quadrics, TrainingOptions, compare_constraints, random_quadrics, second_order_distance
from pyod_quadric.data.batches import RowBatches, held_out_indices
from pyod_quadric.data.rows import rows_of
from pyod_quadric.fitting.comparison import constraint_run
from pyod_quadric.geometry.frames import gram, orthonormality_error, polar
from pyod_quadric.geometry.packing import unpack
from tests.support.runs import torus

LABELS = np.arange(600) % 10 == 0


def compared(**changes):
    return compare_constraints(torus(), **({"n_quadrics": 2, "epoch_num": 3, "learning_rates": [0.01, 0.05]} | changes))


def test_both_ways_have_the_same_start_and_the_manifold_stays_orthonormal():
    found = compared(init="random")
    penalty, stiefel = found.runs.values()
    assert penalty.losses[0] == stiefel.losses[0]
    assert len(penalty.losses) == len(penalty.errors) == len(penalty.seconds) == 4
    assert stiefel.errors[-1] < 1e-5 < penalty.errors[-1]
    assert stiefel.orthonormal_loss == pytest.approx(stiefel.losses[-1], rel=1e-4)  # nothing is left to do
    assert penalty.losses[-1] < penalty.losses[0]
    assert found.roc_auc is None
    json.dumps(found.figures(), allow_nan=False)


def test_the_best_learning_rate_is_chosen_and_divergence_is_no_end():
    found = compared(init="random", learning_rates=[1e-6, 0.05])
    assert {run.lr for run in found.runs.values()} == {0.05}
    with pytest.raises(ValueError, match="diverged with all learning rates"):
        compared(learning_rates=[1e30])


def test_agreement_and_rates_are_those_of_the_scores():
    found = compared(labels=LABELS)
    assert found.rank_correlation == pytest.approx(compared(labels=LABELS).rank_correlation)
    assert 0 <= found.common_top_tenth <= 1
    same = type(found)(found.runs, dict.fromkeys(found.scores, found.scores["penalty"]), None, "")
    assert (same.rank_correlation, same.common_top_tenth) == (pytest.approx(1), 1)
    assert set(found.roc_auc) == {"penalty", "stiefel"}


def test_a_run_measures_held_out_rows():
    cloud, start = torus(), random_quadrics(2, 4, torch.Generator().manual_seed(1), torch.float64)
    run = constraint_run(rows_of(cloud), start, TrainingOptions(epoch_num=2, batch_size=64, seed=7))
    held_out = cloud[held_out_indices(600, 10, 7)]
    assert run.losses[0] == pytest.approx(float(second_order_distance(held_out, start).mean()))
    assert run.losses[-1] == pytest.approx(float(second_order_distance(held_out, run.quadrics).mean()))
    assert run.errors[-1] == pytest.approx(float(orthonormality_error(run.quadrics.packed().T)))


@pytest.mark.parametrize(("n_rows", "one_in"), [(600, 10), (7, 3), (20, 7), (3, 2)])
@pytest.mark.parametrize("seed", [0, 1, 42])
def test_held_out_indices_are_those_of_the_batches(n_rows, one_in, seed):
    rows = rows_of(np.arange(float(n_rows))[:, None])
    expected = torch.cat([torch.empty(0, 1), *RowBatches(rows, 4, seed, one_in).validation()])[:, 0]
    np.testing.assert_array_equal(held_out_indices(n_rows, one_in, seed), expected)


def test_orthonormalized_quadrics_span_the_same_and_are_the_nearest():
    leaning = random_quadrics(3, 4, torch.Generator().manual_seed(0), torch.float64)
    mixing = torch.tensor([[1.0, 0.1, 0.0], [0.0, 1.0, 0.2], [0.1, 0.0, 0.9]], dtype=torch.float64)
    mixed = Quadrics.from_coefficients(
        mixing @ Quadrics(leaning.quadratic, leaning.linear + 1, leaning.constant - 1).coefficients()
    )
    found = mixed.orthonormalized()
    assert orthonormality_error(found.packed().T) < 1e-12
    both = torch.cat([mixed.coefficients(), found.coefficients()])
    assert torch.linalg.matrix_rank(both) == 3
    # The nearest frame is the polar factor of the packed matrices; whole polynomials follow it.
    columns = mixed.packed().T
    frame = polar(columns)
    rest = torch.linalg.solve(gram(columns), columns.T @ frame).T @ torch.cat([mixed.linear, mixed.constant[:, None]], dim=1)
    np.testing.assert_allclose(found.quadratic, unpack(frame.T), atol=1e-12)
    np.testing.assert_allclose(torch.cat([found.linear, found.constant[:, None]], dim=1), rest, atol=1e-12)


@pytest.mark.parametrize(
    ("rows", "changes", "message"),
    [
        (torus()[:5], {}, "20 rows or more are needed"),
        (torus(), {"labels": np.zeros(600)}, "some of each are needed"),
        (torus(), {"labels": ["a"] * 600}, "labels must be 1 for outliers"),
        (torus(), {"labels": LABELS[:5]}, r"labels must have shape \(600,\)"),
        (torus(), {"n_quadrics": 11}, "n_quadrics must be from 1 to"),
        (torus(), {"epoch_num": -1}, "epoch_num must be"),
    ],
)
def test_refuses(rows, changes, message):
    with pytest.raises(ValueError, match=message):
        compare_constraints(rows, **{"epoch_num": 1, "learning_rates": [0.01]} | changes)
