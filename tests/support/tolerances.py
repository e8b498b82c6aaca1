"""The one table of tolerances, and comparisons that respect how distances amplify rounding."""

import numpy as np
import torch
from torch import Tensor

from pyod_quadric import Quadrics
from pyod_quadric.geometry.distances import second_order_from

# Relative errors that a chain of a few products in up to twelve dimensions may show: some hundred units in the last place.
TOLERANCE = {torch.float32: 5e-5, torch.float64: 1e-13}
DTYPES = list(TOLERANCE)


def assert_close(actual: Tensor | np.ndarray, expected: Tensor | np.ndarray, dtype: torch.dtype, scale: float = 1.0) -> None:
    """Assert equality up to the dtype's tolerance times the largest number involved; NaN is never close."""
    actual, expected = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    assert actual.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    size = max([scale, *np.abs(expected[finite])])
    np.testing.assert_allclose(actual[finite], expected[finite], rtol=0, atol=TOLERANCE[dtype] * size)


def rounding(points: Tensor, quadrics: Quadrics, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return what rounding may change in values and gradient norms, both (n, m)."""
    norms = torch.linalg.vector_norm(points, dim=1)[:, None] + 1
    linear = torch.linalg.vector_norm(quadrics.linear, dim=1)
    gradient = 2 * quadrics.hs_norm() * norms + linear
    value = gradient * norms + quadrics.constant.abs()
    return TOLERANCE[dtype] * value, TOLERANCE[dtype] * gradient


def second_order_bounds(points: Tensor, quadrics: Quadrics, reach: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest d₂ that rounding can make of the exact one, both (n, m).

    Where the gradient vanishes d₂ behaves like a square root, so a plain tolerance is either too tight there or too
    loose everywhere else. ``reach``: how far the points or the polynomial were moved on the way, which adds to the size
    of intermediate numbers.
    """
    values, gradient_norms = quadrics.values_and_gradient_norms(points)
    value_error, gradient_error = rounding(2 * points.abs() + reach, quadrics, points.dtype)
    norms = quadrics.hs_norm()
    low = second_order_from((values.abs() - value_error).clamp(min=0), gradient_norms + gradient_error, norms)
    high = second_order_from(values.abs() + value_error, (gradient_norms - gradient_error).clamp(min=0), norms)
    slack = 1 + TOLERANCE[points.dtype]
    return low / slack, high * slack
