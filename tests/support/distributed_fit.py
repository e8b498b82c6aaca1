"""Run by torchrun in test_distributed.py: fit in a process group, and write what came of it."""

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from pyod_quadric import QuadricDetector, TrainingOptions, random_quadrics, train
from pyod_quadric.data.stream import Reservoir
from pyod_quadric.parallel.group import process_group
from pyod_quadric.training import loop as module


def rows(n=301, d=6):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(n, d))
    points[:, 0] = points[:, 1] ** 2 + 0.05 * points[:, 0]
    return points + 3


SETTINGS = {
    "default": {},
    "few rows": {"n_components": 3},
    "normalised": {"normalize": True},
    "a small unit": {},
    "penalty": {"epoch_num": 3, "batch_size": 32, "n_quadrics": 4, "lr": 0.001},
    "stiefel": {"epoch_num": 3, "batch_size": 32, "n_quadrics": 4, "lr": 0.001, "constraint": "stiefel"},
    "paper": {
        "score_function": "mean_distance",
        "epoch_num": 2,
        "batch_size": 7,
        "n_quadrics": 3,
        "training_options": {"validation_fraction": 0.2},
    },
}


def data_of(name):
    if name == "absurd rows":
        found = rows()
        found[[7, 250], [2, 0]] = 1e60
        return found
    return 1e-200 * rows() if name == "a small unit" else rows(20, 30) if name == "few rows" else rows()


def fits(folder):
    """Fit with all settings, and let every process write its numbers."""
    np.save(folder + f"/rows-{dist.get_rank()}.npy", rows())
    found = {}
    for name, settings in SETTINGS.items():
        data = data_of(name) if name != "default" else folder + f"/rows-{dist.get_rank()}.npy"
        detector = QuadricDetector(**settings).fit(data)
        frame = None if detector.quadrics_ is None else detector.quadrics_.quadratic.double().numpy().tobytes().hex()
        found[name] = {"scores": detector.decision_scores_.tolist(), "frame": frame, "threshold": float(detector.threshold_)}
        found[name]["held_out_loss"] = detector.history_["held_out_loss"]
    found["absurd rows"] = QuadricDetector().fit(data_of("absurd rows")).decision_scores_.tolist()
    found["stream"] = stream()
    found["unseeded stream"] = unseeded_stream()
    spoilt = np.tile(rows(), (100, 1))
    spoilt[3] = np.nan  # in the share of the first process
    np.save(folder + f"/spoilt-{dist.get_rank()}.npy", spoilt)
    found["NaN in one share"] = refusal(QuadricDetector().fit, folder + f"/spoilt-{dist.get_rank()}.npy")
    found["unseeded"] = QuadricDetector(random_state=None, epoch_num=1).fit(rows()).decision_scores_.tolist()
    found["own start"] = own_start()
    for fit in (QuadricDetector().fit, trained):
        found |= {
            f"{fit.__name__}: other rows": refusal(fit, rows(301 - dist.get_rank())),
            f"{fit.__name__}: other values": refusal(fit, rows() + dist.get_rank()),
            f"{fit.__name__}: loader": refusal(fit, DataLoader(rows(), batch_size=50)),
        }
    found["full disk"] = full_disk(folder)
    try:
        QuadricDetector().fit([float("nan")] * 3 if dist.get_rank() else [[1.0, float("nan")]] * 3)
    except ValueError:
        found["refused"] = True
    return found


def stream():
    """Learn from a stream whose chunks all processes see."""
    detector = QuadricDetector(window=200)
    for chunk in np.split(rows(), [100, 150, 260]):
        detector.partial_fit(chunk)
    return detector.decision_scores_.tolist()


def unseeded_stream():
    """Learn from a stream that is longer than what is kept of it, by samples that no seed decides."""
    detector = QuadricDetector(random_state=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyod_quadric.detector.Reservoir", partial(Reservoir, capacity=100))
        for chunk in np.split(rows(), 7):
            detector.partial_fit(chunk)
    return detector.decision_scores_.tolist()


def trained(data, seed=0):
    start = random_quadrics(3, 6, torch.Generator().manual_seed(seed), dtype=torch.float64)
    return train(data, start, TrainingOptions(epoch_num=2, batch_size=32, seed=seed))


def own_start():
    """Train from what is another start and another order in each process."""
    return trained(rows() - 3, seed=dist.get_rank()).quadrics.quadratic.tolist()


def full_disk(folder):
    """Return what each process hears when the first one cannot write a checkpoint."""
    write = module.write_checkpoint
    module.write_checkpoint = lambda path, state: os.write(os.open("/dev/full", os.O_WRONLY), b"0")
    try:
        QuadricDetector(epoch_num=1, training_options={"checkpoint": folder + "/never.ckpt"}).fit(rows())
    except OSError as error:
        return error.strerror
    finally:
        module.write_checkpoint = write


def refusal(function, data):
    """Return the message of the ValueError that a function raises."""
    try:
        function(data)
    except ValueError as error:
        return str(error)
    return "nothing was raised"


def killed(folder):
    """Train with checkpoints; where a file says so, the second process kills itself in the middle, once."""
    once = Path(folder, "kill")
    step = module._Run._step
    n_steps = 0

    def dying(run, points):
        nonlocal n_steps
        n_steps += 1
        if n_steps == 13 and dist.get_rank() == 1 and once.exists():
            once.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        step(run, points)

    module._Run._step = dying
    trained = trained_with_checkpoints(folder + "/run.ckpt")
    return {"frame": trained.quadrics.quadratic.numpy().tobytes().hex(), "n_steps": n_steps}


def trained_with_checkpoints(path):
    start = random_quadrics(3, 6, torch.Generator().manual_seed(0), dtype=torch.float64)
    return train(rows() - 3, start, TrainingOptions(epoch_num=3, batch_size=32, lr=0.01, checkpoint=path, checkpoint_steps=5))


if __name__ == "__main__":
    what, folder = sys.argv[1:]
    with process_group():
        results = {"fits": fits, "killed": killed}[what](folder)
        Path(folder, f"{what}-{dist.get_rank()}.json").write_text(json.dumps(results))
        dist.barrier()  # the first process holds the store, which the other may still need
    os._exit(0)  # a thread of gloo that still holds a tensor would make Python abort now and then (pytorch/pytorch#179291)
