"""A circle with outliers inside, and the ways to fit it, for tests of the detector."""

import numpy as np
import pytest


def cloud(n=190, n_outliers=10, seed=0):
    """Return rows near a circle in R^3 and outliers inside of it, (n + n_outliers, 3), and which ones these are."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n + n_outliers)
    radius = np.where(np.arange(n + n_outliers) < n, 2, 0.5)
    rows = np.stack([radius * np.cos(angle), radius * np.sin(angle), 0 * angle], axis=1)
    return rows + 0.05 * rng.normal(size=rows.shape), (radius < 2).astype(int)


X, Y = cloud()
TEST, TEST_Y = cloud(seed=1)
WAYS = {
    "closed form": {},
    "linear": {"score_function": "linear"},
    "mean distance": {"score_function": "mean_distance", "n_quadrics": 2, "normalize": True},
    "penalty": {"epoch_num": 2, "batch_size": 64},
    "stiefel": {"epoch_num": 2, "batch_size": 64, "constraint": "stiefel", "optimizer_name": "adam"},
}
ways = pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS)


def shuffled(*arrays):
    order = np.random.default_rng(0).permutation(len(arrays[0]))
    return [array[order] for array in arrays]
