"""Training runs for the tests: a cloud, a start, options, and a run that is interrupted."""

import random

import numpy as np
import pytest
import torch

from pyod_quadric import Quadrics, TrainingOptions, random_quadrics, train
from pyod_quadric.training import loop


def torus(n=600, noise=0.02, seed=0):
    """Points near the product of two circles in R^4, an intersection of two quadrics; (n, 4) float64."""
    generator = torch.Generator().manual_seed(seed)
    angles = 6.3 * torch.rand(n, 2, generator=generator, dtype=torch.float64)
    points = torch.stack([angles[:, 0].cos(), angles[:, 0].sin(), angles[:, 1].cos(), angles[:, 1].sin()], dim=1)
    return points + noise * torch.randn(n, 4, generator=generator, dtype=torch.float64)


def start(m=2, d=4, seed=1, dtype=torch.float64):
    return random_quadrics(m, d, torch.Generator().manual_seed(seed), dtype)


def options(**changes):
    return TrainingOptions(**({"epoch_num": 3, "batch_size": 64, "lr": 0.05} | changes))


def assert_same(one: Quadrics, other: Quadrics):
    for name in ("quadratic", "linear", "constant"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name


def global_states():
    _, key, *place = np.random.get_state()  # noqa: NPY002, to leave alone
    return torch.get_rng_state().tolist(), random.getstate(), key.tolist(), place


def interrupted(data, quadrics, kept, steps):
    """Train until a number of steps is made, and stop as Ctrl-C does."""
    original, left = loop.mean_distance_and_gradient, iter(range(steps))

    def failing(*args, **kwargs):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "mean_distance_and_gradient", failing)
        with pytest.raises(KeyboardInterrupt):
            train(data, quadrics, kept)
