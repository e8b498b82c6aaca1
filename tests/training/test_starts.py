"""Starts are orthonormal, reproducible, and what was asked for."""

import numpy as np
import pytest
import torch

from pyod_quadric import random_quadrics, spectral_fit, spectral_quadrics, starting_quadrics
from pyod_quadric.training import starts
from tests.support.tolerances import DTYPES, assert_close


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


CLOUD = torch.randn(60, 3, generator=generator(), dtype=torch.float64) ** 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_frames_are_orthonormal_and_follow_the_generator(dtype):
    quadrics = random_quadrics(5, 4, generator(), dtype)
    assert_close(quadrics.hs_inner(quadrics), np.eye(5), dtype)
    assert torch.equal(random_quadrics(5, 4, generator(), dtype).quadratic, quadrics.quadratic)
    assert not torch.equal(random_quadrics(5, 4, generator(1), dtype).quadratic, quadrics.quadratic)


def test_streaming_closed_form_equals_the_one_on_arrays():
    """Up to the sign of each quadric."""
    streamed, whole = spectral_quadrics(CLOUD.split(7), 3), spectral_fit(CLOUD, 3)
    np.testing.assert_allclose(streamed.values(CLOUD).abs(), whole.values(CLOUD).abs(), rtol=1e-6, atol=1e-8)


def test_names_give_what_they_say():
    spectral = spectral_quadrics([CLOUD], 2).to(dtype=torch.float32)
    random = random_quadrics(2, 3, generator())
    assert torch.equal(starting_quadrics("spectral", [CLOUD], 2, 3, generator()).quadratic, spectral.quadratic)
    assert torch.equal(starting_quadrics("auto", [CLOUD], 2, 3, generator()).quadratic, spectral.quadratic)
    assert torch.equal(starting_quadrics("random", [], 2, 3, generator()).quadratic, random.quadratic)
    assert torch.equal(starting_quadrics(random, [], 2, 3, generator()).quadratic, random.quadratic)


def test_too_few_rows_warn():
    with pytest.warns(UserWarning, match="8 points are fewer than the 10 coefficients"):
        starting_quadrics("auto", [CLOUD[:8]], 2, 3, generator())


def test_blocks_of_another_width_are_refused():
    with pytest.raises(ValueError, match="the blocks must have 4 features, got 3"):
        starting_quadrics("spectral", [CLOUD], 2, 4, generator())


def test_auto_is_random_where_the_closed_form_is_too_large(monkeypatch):
    monkeypatch.setattr(starts, "SPECTRAL_FEATURES", 2)
    random = random_quadrics(2, 3, generator())
    assert torch.equal(starting_quadrics("auto", [], 2, 3, generator()).quadratic, random.quadratic)


@pytest.mark.parametrize(
    ("init", "m", "message"),
    [
        ("zero", 2, "init must be 'auto', 'spectral', 'random' or Quadrics, got 'zero'"),
        ("random", 7, r"from 1 to d \(d \+ 1\) / 2 = 6"),
        ("random", 0, r"got 0"),
        (
            random_quadrics(1, 3, generator()),
            2,
            r"must hold 2 quadrics in 3 working coordinates, got Quadrics\(n_quadrics=1",
        ),
    ],
)
def test_refuses(init, m, message):
    with pytest.raises(ValueError, match=message):
        starting_quadrics(init, [CLOUD], m, 3, generator())
