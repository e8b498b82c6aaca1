"""The loop fits, stops, remembers, diverges loudly, and goes on after a kill as if nothing had happened."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from pyod_quadric import Quadrics, second_order_distance
from pyod_quadric.data.batches import RowBatches
from pyod_quadric.data.rows import rows_of
from pyod_quadric.model.coordinates import fit_working_coordinates
from pyod_quadric.storage.checkpoints import read_checkpoint
from pyod_quadric.training import loop
from pyod_quadric.training.loop import train
from pyod_quadric.training.starts import random_quadrics, spectral_quadrics
from tests.support.processes import HANGING
from tests.support.runs import assert_same, global_states, interrupted, options, start, torus

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ["penalty", "stiefel"]
OPTIMIZERS = ["sgd", "adam"]


@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_finds_the_quadrics_of_a_torus(constraint, optimizer_name):
    lr = {"sgd": 0.05, "adam": 0.02 if constraint == "penalty" else 0.1}[optimizer_name]
    trained = train(torus(), start(), options(constraint=constraint, optimizer_name=optimizer_name, lr=lr, epoch_num=60))
    fresh = torus(seed=5)
    near = second_order_distance(fresh, trained.quadrics).mean()
    far = second_order_distance(1.3 * fresh, trained.quadrics).mean()
    assert near < 0.04 < 4 * near < far
    np.testing.assert_allclose(trained.quadrics.hs_inner(trained.quadrics), np.eye(2), atol=0.05)


def test_spectral_start_is_already_close():
    cloud = torus()
    quadrics = spectral_quadrics([cloud[:200], cloud[200:]], 2)
    np.testing.assert_allclose(quadrics.hs_inner(quadrics), np.eye(2), atol=1e-10)
    assert second_order_distance(cloud, quadrics).mean() < 0.04


@pytest.mark.parametrize("distance", ["second_order", "first_order", "algebraic", "squared_algebraic"])
@pytest.mark.parametrize("inner_product", ["hs", "coefficient"])
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_every_combination_reduces_its_loss(constraint, inner_product, distance):
    quadrics = spectral_quadrics([torus()], 2)
    shifted = Quadrics(quadrics.quadratic, quadrics.linear + 0.2, quadrics.constant)
    changes = {"constraint": constraint, "inner_product": inner_product, "distance": distance}
    losses = train(torus(), shifted, options(**changes, lr=0.01, epoch_num=8)).history["loss"]
    assert losses[-1] < losses[0]


def test_history_has_an_entry_an_epoch():
    history = train(torus(), start(), options(epoch_num=4, validation_fraction=0.1)).history
    assert {name: len(entries) for name, entries in history.items()} == {
        "loss": 4,
        "held_out_loss": 4,
        "orthonormality_error": 4,
        "seconds": 4,
    }
    assert np.isfinite(list(history.values())).all()
    assert history["seconds"] == sorted(history["seconds"])
    assert np.isnan(train(torus(), start(), options(epoch_num=1)).history["held_out_loss"]).all()


def test_no_epochs_return_the_orthonormal_start():
    trained = train(torus(), start(), options(epoch_num=0))
    assert trained.history["loss"] == []
    np.testing.assert_allclose(trained.quadrics.quadratic, start().quadratic, atol=1e-12)


def test_early_stop_returns_the_best():
    """With far too large steps the loss goes up and down, so the last epoch is not the best."""
    cloud = torus()
    restless = options(lr=0.6, schedule="constant", epoch_num=50, validation_fraction=0.2, patience=3, constraint="stiefel")
    trained = train(cloud, start(), restless)
    losses = trained.history["held_out_loss"]
    assert len(losses) < 50
    assert np.argmin(losses) == len(losses) - 4
    rows = torch.cat(list(RowBatches(rows_of(cloud), 64, 0, 5).validation()))
    held_out = second_order_distance(rows, trained.quadrics).sum(dim=1).mean()
    assert float(held_out) == pytest.approx(min(losses))


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_two_runs_agree_bit_for_bit(constraint):
    runs = [train(torus(), start(), options(constraint=constraint)) for _ in range(2)]
    assert_same(runs[0].quadrics, runs[1].quadrics)
    other = train(torus(), start(), options(constraint=constraint, seed=1))
    assert not torch.equal(other.quadrics.quadratic, runs[0].quadrics.quadratic)


@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: DataLoader(TensorDataset(t), batch_size=64, shuffle=True)])
def test_global_generators_are_left_alone(wrap):
    before = global_states()
    train(wrap(torus()), start(), options())
    assert global_states() == before


def test_all_sources_train_the_same(tmp_path):
    cloud = torus().numpy()
    np.save(tmp_path / "cloud.npy", cloud)
    expected = train(cloud, start(), options()).quadrics
    for source in (torch.tensor(cloud), tmp_path / "cloud.npy", np.load(tmp_path / "cloud.npy", mmap_mode="r")):
        assert_same(train(source, start(), options()).quadrics, expected)


@pytest.mark.parametrize("listed", [torus().tolist(), [tuple(row) for row in torus().numpy()]])
def test_lists_of_numbers_are_rows_and_not_batches(listed, tmp_path):
    changes = {"validation_fraction": 0.1, "checkpoint": tmp_path / "run.ckpt"}
    from_list = train(listed, start(), options(**changes))
    assert_same(from_list.quadrics, train(torus(), start(), options(**changes)).quadrics)  # the list's checkpoint fits
    assert_same(from_list.quadrics, train(torus(), start(), options(validation_fraction=0.1)).quadrics)


@pytest.mark.parametrize("batch", [torus(), (torus(), "labels"), [torus().numpy()]])
def test_lists_of_batches_are_loaders(batch):
    loader = DataLoader(torus(), batch_size=600)
    assert_same(train([batch], start(), options()).quadrics, train(loader, start(), options()).quadrics)


def test_loaders_train():
    loader = DataLoader(TensorDataset(torus()), batch_size=64)
    trained = train(loader, start(), options(epoch_num=20))
    assert trained.history["loss"][-1] < 0.5 * trained.history["loss"][0]


def test_rows_are_brought_to_working_coordinates():
    cloud = 100 * torus() + 7
    working = fit_working_coordinates(lambda: [cloud])
    direct = train(working.transform(cloud), start(), options())
    mapped = train(cloud, start(), options(), working)
    np.testing.assert_allclose(mapped.quadrics.quadratic, direct.quadrics.quadratic, atol=1e-9)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_training_in_working_coordinates_is_equivariant(constraint):
    """Rotate, reflect, shift and scale the cloud: the trained distances are the same."""
    cloud = torus() * torch.tensor([1.0, 1.3, 1.7, 2.1], dtype=torch.float64)
    cloud = cloud + 0.3 * cloud.square()  # so that the axes and their signs are determined
    generator = torch.Generator().manual_seed(2)
    matrix = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64)).Q
    moved = 3 * (cloud @ matrix.T + 5)

    def distances(points):
        working = fit_working_coordinates(lambda: [points])
        trained = train(points, start(), options(constraint=constraint, optimizer_name="adam", lr=0.01), working)
        return second_order_distance(working.transform(points), trained.quadrics)

    np.testing.assert_allclose(distances(moved), distances(cloud), rtol=1e-6, atol=1e-9)


def test_verbosity(capsys):
    train(torus(), start(), options())
    assert capsys.readouterr() == ("", "")
    train(torus(), start(), options(verbose=1))
    out, err = capsys.readouterr()
    assert out == ""
    assert "training, penalty: 100%" in err
    assert "loss=" in err
    train(torus(), start(), options(verbose=2))
    out, err = capsys.readouterr()
    assert err == ""
    assert [line.split(":")[0] for line in out.splitlines()] == ["epoch 1", "epoch 2", "epoch 3"]


@pytest.mark.parametrize("changes", [{"lr": 1e8, "epoch_num": 9}, {"lr": 1e30, "epoch_num": 1, "batch_size": 600}])
@pytest.mark.parametrize("checkpoint_steps", [1, 10**6])
def test_divergence_is_an_error_that_says_what_to_change(changes, checkpoint_steps, tmp_path):
    """Also in the very last step, after which no loss is computed any more; and no bad state is kept."""
    path = tmp_path / "run.ckpt"
    kept = options(**changes, checkpoint=path, checkpoint_steps=checkpoint_steps)
    with pytest.raises(FloatingPointError, match=r"diverged in epoch \d of \d: .* smaller lr than 1e\+"):
        train(torus().float(), start(dtype=torch.float32), kept)
    assert not path.exists() or torch.isfinite(read_checkpoint(path)["frame"]).all()


@pytest.mark.parametrize("optimizer_name", ["sgd", "adam"])
@pytest.mark.parametrize("lr", [10.0, 1e3])
def test_divergence_is_noticed_while_numbers_are_finite(lr, optimizer_name):
    """In float64 a frame can be 1e52 times too large; what it was before, and what to do, is said in the user's terms."""
    message = rf"the mean loss is .* was .* before the first step; .* error is .* below 1. Use a smaller lr than {lr:g}"
    with pytest.raises(FloatingPointError, match=message):
        train(torus(), start(), options(lr=lr, epoch_num=6, optimizer_name=optimizer_name))


def test_harm_is_said():
    """Steps that are too large, but do not diverge, end farther from the rows than the start was."""
    with pytest.warns(UserWarning, match="far larger loss than before its first step: use a smaller lr than 1000"):
        train(torus(), circles(), options(lr=1e3, constraint="stiefel", epoch_num=3))
    trained = train(torus(), circles(), options(lr=1e-4, constraint="stiefel", epoch_num=3))  # a perfect start allows for steps
    assert trained.history["loss"][-1] < 0.05


def test_a_resumed_run_knows_its_first_loss(tmp_path):
    kept = {"checkpoint": tmp_path / "run.ckpt", "lr": 1e-4}
    train(torus(), start(), options(epoch_num=3, **kept))
    state = read_checkpoint(tmp_path / "run.ckpt")
    loss = float(state["first"][0])
    assert loss == pytest.approx(float(state["history.loss"][0]), rel=0.3)


def test_first_order_divergence_names_its_cause():
    with pytest.raises(FloatingPointError, match="infinite where a gradient vanishes"):
        train(torch.zeros(5, 4, dtype=torch.float64), circles(), options(distance="first_order"))


def circles():
    """Return the two quadrics of the torus."""
    first, second = torch.diag(torch.tensor([1.0, 1, 0, 0])), torch.diag(torch.tensor([0.0, 0, 1, 1]))
    return Quadrics(torch.stack([first, second]), torch.zeros(2, 4), -torch.ones(2)).to(dtype=torch.float64)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_a_given_start_keeps_its_zero_set(constraint):
    """Whatever its scale, and though its matrices are not orthonormal: what is mixed are whole polynomials."""
    exact = circles().scaled(torch.tensor([5.0, 0.1]))
    mixed = Quadrics(*(torch.stack([part.sum(0), part[0]]) for part in (exact.quadratic, exact.linear, exact.constant)))
    trained = train(torus(), mixed, options(constraint=constraint, epoch_num=0)).quadrics
    assert second_order_distance(torus(noise=0), trained).max() < 1e-7


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_as_many_quadrics_as_fit_descend(constraint):
    """With m = d (d + 1) / 2 the frame is square, so nothing may depend on its shape."""
    cloud = torus()[:, :2] + 0.3
    losses = train(cloud, start(m=3, d=2), options(constraint=constraint, lr=1e-3, momentum=0.0, epoch_num=20)).history["loss"]
    assert losses == sorted(losses, reverse=True)


def test_epoch_loss_is_the_mean_over_rows():
    """Also when the last batch is short."""
    trained = train(torus()[:70], start(), options(lr=1e-12, epoch_num=1))
    expected = second_order_distance(torus()[:70], start()).sum(dim=1).mean()
    assert trained.history["loss"][0] == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("change", [{"schedule": "constant"}, {"momentum": 0.5}, {"lr": 0.04}])
def test_schedule_momentum_and_rate_reach_the_optimizer(constraint, optimizer_name, change):
    base = options(constraint=constraint, optimizer_name=optimizer_name)
    other = options(constraint=constraint, optimizer_name=optimizer_name, **change)
    one, two = (train(torus(), start(), choice).quadrics.quadratic for choice in (base, other))
    assert not torch.equal(one, two)


def test_a_large_mean_is_taken_off_before_the_type_is_narrowed():
    sphere = torch.nn.functional.normalize(torch.randn(300, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    cloud = sphere + 1e6
    working = fit_working_coordinates(lambda: [cloud])
    exact = spectral_quadrics([working.transform(cloud)], 1).to(dtype=torch.float32)
    assert train(cloud, exact, options(epoch_num=1, lr=1e-9), working).history["loss"][0] < 1e-4


@pytest.mark.parametrize("loader", [[], iter([torus()])])
def test_a_loader_that_gives_nothing_is_named(loader):
    with pytest.raises(ValueError, match="there were no rows in epoch"):
        train(loader, start(), options())


@pytest.mark.parametrize("steps", [13, 31])
@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_an_interrupted_run_goes_on_bit_for_bit(constraint, optimizer_name, steps, tmp_path):
    """Stop between two checkpoints in the middle of an epoch, of a restless run that is about to stop early, and go on."""
    restless = {
        "lr": 0.1 if optimizer_name == "sgd" else 0.4,
        "schedule": "constant",
        "validation_fraction": 0.1,
        "patience": 4,
        "epoch_num": 30,
    }
    changes = {"constraint": constraint, "optimizer_name": optimizer_name, **restless}
    expected = train(torus(), start(), options(**changes))
    assert 4 < len(expected.history["loss"]) < 30
    kept = options(**changes, checkpoint=tmp_path / "run.ckpt", checkpoint_steps=3)
    interrupted(torus(), start(), kept, steps)
    resumed = train(torus(), start(), kept)
    assert_same(resumed.quadrics, expected.quadrics)
    assert resumed.history["loss"] == expected.history["loss"]
    assert resumed.history["held_out_loss"] == expected.history["held_out_loss"]
    assert_same(train(torus(), start(), kept).quadrics, expected.quadrics)  # a finished run is not run again


def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(tmp_path):
    kept = options(checkpoint=tmp_path / "run.ckpt", checkpoint_steps=2)
    interrupted(torus(), start(), kept, 9)
    damaged = bytearray((tmp_path / "run.ckpt").read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "run.ckpt").write_bytes(damaged)
    with pytest.warns(UserWarning, match=r"going on from run.ckpt.previous"):
        resumed = train(torus(), start(), kept)
    assert_same(resumed.quadrics, train(torus(), start(), options()).quadrics)


def test_a_shuffling_loader_goes_on_bit_for_bit(tmp_path):
    loader = DataLoader(TensorDataset(torus()), batch_size=64, shuffle=True)
    kept = options(checkpoint=tmp_path / "run.ckpt", checkpoint_steps=2)
    interrupted(loader, start(), kept, 15)
    assert_same(train(loader, start(), kept).quadrics, train(loader, start(), options()).quadrics)


@pytest.mark.parametrize(("minutes", "expected"), [(5, 5), (None, 10)])
def test_checkpoints_are_written_by_the_clock(tmp_path, monkeypatch, minutes, expected):
    clock, now = iter(range(0, 10**6, 40)), [0.0]  # 40 seconds a look

    def look():
        now.append(float(next(clock)))
        return now[-1]

    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=look))  # and nobody else's clock
    written = []
    monkeypatch.setattr(loop, "write_checkpoint", lambda path, state: written.append(now[-1]))
    train(torus(), start(), options(checkpoint=tmp_path / "run.ckpt", checkpoint_minutes=minutes, epoch_num=5))
    gaps = np.diff(written)[:-1]  # the last one is written at the end, whenever that is
    assert len(gaps) >= 3
    assert gaps.min() >= 60 * expected
    assert gaps[1:].max() <= 60 * expected + 4 * 40


def test_runs_killed_at_50_random_moments_end_bit_identical(tmp_path):
    """Real processes and real SIGKILLs; each run is killed once, goes on, and has lost nothing that it had said was written."""
    command = [sys.executable, "-m", "tests.support.killed_training", str(tmp_path), "50"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANGING)
    assert finished.returncode == 0, finished.stderr
    runs = json.loads(finished.stdout)
    assert len(runs) == 50
    assert len({run["found"] for run in runs}) >= 5  # at different steps
    for run in runs:
        assert run["ended"] == 0
        assert run["same"]
        assert run["found"] >= min(run["told"] - 1, 20), run  # the first checkpoint is that of step 0, the last two of step 20
        assert run["written"] <= run["all"] - run["found"], run  # only the steps that were left were made
        assert run["files"] == ["result", "run.ckpt", "run.ckpt.previous"]


def test_a_checkpoint_of_another_run_is_refused_and_kept(tmp_path):
    path = tmp_path / "run.ckpt"
    train(torus(), start(), options(checkpoint=path))
    content = path.read_bytes()
    for data, quadrics, changes, message in (
        (torus(seed=1), start(), {}, "differs in the data"),
        (torus()[:500], start(), {}, "differs in the data"),
        (torus(), start(m=3), {}, "differs in n_quadrics and n_features"),
        (torus() + torch.eye(600, 4)[torch.randperm(600, generator=torch.Generator().manual_seed(3))], start(), {}, "the data"),
        (torus(), start(seed=2), {}, "differs in the start"),
        (torus(), start(dtype=torch.float32), {}, "differs in the start"),
        (torus(), start(), {"lr": 0.01}, "differs in lr"),
        (torus(), start(), {"constraint": "stiefel"}, "differs in constraint"),
    ):
        with pytest.raises(ValueError, match=message):
            train(data, quadrics, options(checkpoint=path, **changes))
        assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"constraint": "soft"}, "constraint must be 'penalty' or 'stiefel'; got 'soft'"),
        ({"distance": "third"}, "distance must be 'second_order' or"),
        ({"inner_product": "l2"}, "inner_product must be 'hs' or"),
        ({"optimizer_name": "lbfgs"}, "optimizer_name must be 'sgd' or"),
        ({"schedule": "linear"}, "schedule must be 'cosine' or"),
        ({"seed": -1}, "seed must be a whole number of 0 or more; got -1"),
        ({"epoch_num": -1}, "epoch_num must be a whole number from 0 to 100000; got -1"),
        ({"epoch_num": None}, "epoch_num must be a whole number from 0 to 100000; got None"),
        ({"batch_size": 2.5}, "batch_size must be a whole number of 1 or more; got 2.5"),
        ({"verbose": "loud"}, "verbose must be a whole number of 0 or more, or True or False; got 'loud'"),
        ({"lr": "fast"}, "lr must be a number above 0; got 'fast'"),
        ({"momentum": None}, "momentum must be a number of at least 0 and below 1; got None"),
        ({"batch_size": 0}, "batch_size must be a whole number of 1 or more; got 0"),
        ({"lr": 0.0}, "lr must be a number above 0; got 0"),
        ({"lr": float("nan")}, "lr must be a number above 0; got nan"),
        ({"momentum": 1.0}, "momentum must be a number of at least 0 and below 1; got 1.0"),
        ({"validation_fraction": 0.7}, "validation_fraction must be a number of at least 0 and of at most 0.5"),
        ({"patience": 3}, "set validation_fraction"),
        ({"patience": 0, "validation_fraction": 0.1}, "patience must be a whole number of 1 or more, or None"),
        ({"checkpoint_minutes": 0}, "checkpoint_minutes must be a number above 0, or None; got 0"),
        ({"checkpoint_steps": 0}, "checkpoint_steps must be a whole number of 1 or more"),
        ({"checkpoint_steps": 5}, "checkpoint_steps=5 has no effect: there is no checkpoint to write"),
        ({"checkpoint_minutes": 5}, "checkpoint_minutes=5.0 has no effect: there is no checkpoint to write"),
        ({"checkpoint": "a", "checkpoint_minutes": 5, "checkpoint_steps": 5}, "checkpoint_steps decides when it is written"),
        ({"constraint": "stiefel", "orthonormality_weight": 2.0}, "the Stiefel manifold has no penalty to weigh"),
    ],
)
def test_options_refuse(changes, message):
    with pytest.raises(ValueError, match=message):
        options(**changes)


def test_training_refuses():
    with pytest.raises(TypeError, match="start must be Quadrics, such as random_quadrics"):
        train(torus(), torus())
    with pytest.raises(TypeError, match=r"options must be TrainingOptions\(...\), or None, got dict"):
        train(torus(), start(), {"lr": 0.1})
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator, such as .* got 0"):
        random_quadrics(1, 2, 0)
    with pytest.raises(ValueError, match=r"from 1 to d \(d \+ 1\) / 2 = 3 for d = 2 features"):
        random_quadrics(4, 2, torch.Generator())
    with pytest.raises(ValueError, match="has no rows; at least 1 is needed"):
        train(np.zeros((0, 4)), start(), options())
    for listed, shape in (([1.0, 2.0], r"\(2,\)"), ([[]], r"\(0,\)")):
        with pytest.raises(ValueError, match=rf"must hold rows of shape \(n, d\) .*got {shape}"):
            train(listed, start(), options())
    with pytest.raises(ValueError, match="as many numbers as the first one, 4, but row 1 has 1"):
        train([[1.0, 2.0, 3.0, 4.0], [5.0]], start(), options())
    with pytest.raises(ValueError, match="rows cannot be held out of a loader"):
        train([torus()], start(), options(validation_fraction=0.1))
    with pytest.raises(ValueError, match="rows must have 4 features, as the start and its coordinates do, got 3"):
        train(torus()[:, :3], start(), options())
    with pytest.raises(ValueError, match="the start has 4 features, but there are 2 coordinates"):
        train(torus(), start(), options(), fit_working_coordinates(lambda: [torus()], 2))
    with pytest.raises(ValueError, match="there is no folder nowhere"):
        train(torus(), start(), options(checkpoint="nowhere/run.ckpt"))
    bad = torus()
    bad[123, 2] = torch.nan
    with pytest.raises(ValueError, match="row 123 holds NaN"):
        train(bad, start(), options())
