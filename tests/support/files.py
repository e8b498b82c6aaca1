"""Files of fitted detectors for the tests."""

import dataclasses
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pandas
import torch

from pyod_quadric import QuadricDetector, random_quadrics
from tests.support.circle import X


def saved(fitted, **options):
    with tempfile.TemporaryDirectory() as directory:
        fitted.save(Path(directory) / "model", **options)
        return (Path(directory) / "model").read_bytes()


def loaded(content):
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "model").write_bytes(content)
        return QuadricDetector.load(Path(directory) / "model")


def assert_same(found, expected):
    """Compare two values and all that is in them, bit for bit."""
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert (found.dtype, found.device, found.stride()) == (expected.dtype, expected.device, expected.stride())
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    elif isinstance(expected, np.ndarray | np.generic):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, float):
        np.testing.assert_equal(found, expected)
    elif isinstance(expected, dict | list):
        assert len(found) == len(expected)
        for place in expected if isinstance(expected, dict) else range(len(expected)):
            assert_same(found[place], expected[place])
    elif dataclasses.is_dataclass(expected):  # what follows from the fields may be known of one alone
        for field in dataclasses.fields(expected):
            assert_same(getattr(found, field.name), getattr(expected, field.name))
    elif hasattr(expected, "__dict__"):
        assert_same(vars(found), vars(expected))
    else:
        assert found == expected


def state(fitted):
    """Return all that two detectors have in common if they are the same: not the rows, nor the seconds that a fit took."""
    return {name: value for name, value in vars(fitted).items() if name not in ("_rows", "timings_")}


@cache
def content():
    """Return a small file with everything that a file can have."""
    rows = pandas.DataFrame(X[:60], columns=["x", "y", "z"])
    start = random_quadrics(1, 3, torch.Generator().manual_seed(0), torch.float64)
    return saved(
        QuadricDetector(epoch_num=1, normalize=True, training_options={"momentum": 0.5})
        .partial_fit(rows)
        .set_params(init=start)
    )
