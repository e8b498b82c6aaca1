"""Ways to learn, compared: the same start, the same batches, the detectors that a user gets, and honest figures."""

import json
import warnings
from dataclasses import FrozenInstanceError
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from pyod_quadric import QuadricDetector, Quadrics, TrainingOptions, compare_constraints, random_quadrics, second_order_distance
from pyod_quadric.data.batches import RowBatches, held_out_indices
from pyod_quadric.data.rows import rows_of
from pyod_quadric.fitting.comparison import constraint_run, n_steps
from pyod_quadric.geometry.frames import gram, orthonormality_error, polar
from pyod_quadric.geometry.packing import unpack
from tests.support.runs import torus

LABELS = np.arange(600) % 10 == 0


def compared(**changes):
    return compare_constraints(torus(), **({"n_quadrics": 2, "epoch_num": 3, "learning_rates": [0.01, 0.05]} | changes))


@cache
def with_labels():
    return compared(labels=LABELS)


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


def test_few_coordinates_start_from_the_closed_form():
    first = {init: compared(init=init).runs["stiefel"].losses[0] for init in ("auto", "spectral", "random")}
    assert first["auto"] == first["spectral"] < first["random"]


def test_what_was_compared_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        with_labels().runs = {}


def test_the_best_learning_rate_is_chosen_and_divergence_is_no_end():
    found = compared(init="random", learning_rates=[1e-6, 0.05])
    assert {run.lr for run in found.runs.values()} == {0.05}
    with pytest.raises(ValueError, match="diverged with all learning rates"):
        compared(learning_rates=[1e30])


def test_agreement_and_rates_are_those_of_the_scores():
    found = with_labels()
    assert 0 <= found.common_top_tenth <= 1
    penalty = found.detectors["penalty"]
    same = type(found)(found.runs, found.detectors | {"stiefel": penalty}, "")
    assert (same.rank_correlation, same.common_top_tenth) == (pytest.approx(1), 1)
    for name, rate in found.roc_auc.items():
        assert rate == roc_auc_score(LABELS, found.scores[name])
    assert found.correlation("default") == pytest.approx(1)


def test_detectors_are_those_that_a_user_gets():
    """Each is a detector with the given settings, fitted without labels; its scores are of rows that it has not seen."""
    found = with_labels()
    assert list(found.detectors) == ["default", "linear", "closed_form", "penalty", "stiefel"]
    assert found.detectors["default"].settings == {"random_state": 42}  # which is the default
    for name, detector in found.detectors.items():
        fitted = QuadricDetector(**detector.settings).fit(torus())
        np.testing.assert_array_equal(fitted.decision_scores_, detector.scores, err_msg=name)
    settings = found.detectors["stiefel"].settings
    assert (settings["constraint"], settings["lr"]) == ("stiefel", found.runs["stiefel"].lr)
    assert [name for name, detector in found.detectors.items() if "2 quadrics alone" in detector.words] == [
        *("closed_form", "penalty", "stiefel"),
    ]


def test_the_default_detector_can_be_trained_as_well():
    n_calls = []
    found = compared(train_default=True, epoch_num=1, learning_rates=[0.01], progress=lambda: n_calls.append(1))
    assert len(n_calls) == n_steps([0.01], train_default=True) == 9
    for name in ("penalty", "stiefel"):
        detector = found.detectors[f"default_{name}"]
        assert "n_quadrics" not in detector.settings
        np.testing.assert_array_equal(QuadricDetector(**detector.settings).fit(torus()).decision_scores_, detector.scores)


def test_runs_and_detectors_see_rows_alike():
    """Rows that the detector divides by their norms or units are trained so."""
    cloud = torus() * torch.tensor([1.0, 1.0, 1e-9, 1e9], dtype=torch.float64)  # units that call for a scale
    found, expected = compare_constraints(cloud, epoch_num=1, learning_rates=[0.01]), compared(n_quadrics=5, epoch_num=1)
    assert found.runs["stiefel"].losses[0] == pytest.approx(expected.runs["stiefel"].losses[0], rel=0.2)


def test_rows_are_normalised_where_the_detector_does_so():
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(400, 32)) + 1
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    some, others = (directions * np.exp(0.2 * rng.normal(size=(400, 1))) for _ in range(2))  # of other lengths
    assert QuadricDetector(score_function="linear").fit(some).model_.normalize
    options = {"n_quadrics": 2, "epoch_num": 1, "learning_rates": [0.01]}
    found, expected = (compare_constraints(rows, **options).runs["stiefel"] for rows in (some, others))
    assert found.losses == pytest.approx(expected.losses, rel=1e-6)


def test_what_is_odd_about_rows_is_said_once():
    rng = np.random.default_rng(0)
    people = rng.normal(size=(100, 50)).repeat(4, axis=0) + 0.2 * rng.normal(size=(400, 50))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        compare_constraints(people, n_quadrics=2, epoch_num=1, learning_rates=[0.01])
    assert len([warning for warning in said if "nearer to each other" in str(warning.message)]) == 1


def test_there_is_no_closed_form_in_many_coordinates():
    rows = torch.randn(150, 101, generator=torch.Generator().manual_seed(0))
    found = compare_constraints(rows, n_components=None, n_quadrics=2, epoch_num=1, learning_rates=[0.01])
    assert list(found.detectors) == ["default", "linear", "penalty", "stiefel"]


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
