"""The one table of tolerances, and comparisons that respect how distances amplify rounding."""

import numpy as np
import torch
from torch import Tensor

from pyod_quadric import Quadrics
from pyod_quadric.geometry.distances import second_order_from
from pyod_quadric.model.model import Model

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


def rounding_of_wold_ratios(rows: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Return what rounding may change in Wold's ratios (d - 1,), whichever way they are computed.

    The numerator is a sum of r / q² over entries of held-out rows: r is what is left of the entry's square, q is 1 minus its
    leverage, and r ≤ q s with the sum s of the row's squares. An entry of which q is next to nothing decides the ratio.

    - r is a small rest of s and q of 1, so each loses a unit ε of the larger number: s ε in r, ε in q. In r / q² that makes
      s ε / q² + 2 r ε / q³ ≤ 3 s ε / q². Least squares without the entry have the condition 1 / √q, and lose no more.
    - The axes turn by an angle θ of ε over the gap between the variance of the last one that is taken and the next one, as
      part of the largest variance. That changes r by 2 θ √(r s) and q by 2 θ √q, so r / q² by at most 6 θ s / q^1.5.

    Decompositions in d dimensions lose about d units, and two ways to compute are compared, so ε is 2 d units at the most;
    with factors of 3 and 6 for angles that are hardly ever the worst ones, 8 d units stand before both lines.
    """
    d = rows.shape[1]
    left = np.cumsum(np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)[::-1] ** 2)[:0:-1]
    lost = np.zeros(d - 1)
    for fold in np.unique(folds):
        others = rows[folds != fold]
        _, sizes, axes = np.linalg.svd(others - others.mean(axis=0), full_matrices=False)
        gaps = -np.diff(sizes**2) / sizes[0] ** 2
        q = np.cumsum(axes[::-1] ** 2, axis=0)[-2::-1]  # of 1, 2, ... axes, (d - 1, d)
        lost += np.sum((rows[folds == fold] - others.mean(axis=0)) ** 2) * (q**-2 + q**-1.5 / gaps[:, None]).sum(axis=1)
    return 8 * d * np.finfo(np.float64).eps * lost / left


def rounding_of_scores(model: Model, rows: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Return what rounding may change in scores (n,) of rows (n, d), whichever way they are computed in a type.

    Every part is a sum of squares of differences, so what counts is the size of the numbers before they cancel. With ε for the
    units that sums of d and of k terms lose:

    - A coordinate ``y = M (x - mean)`` is off by δ = ε |M| (|x| + |mean|), and a sum of squares S of them by 2 √S ‖δ‖ + ‖δ‖².
    - A polynomial is off by δf = ‖∇f‖ ‖δ‖ + ε (‖A‖ ‖y‖² + ‖b‖ ‖y‖ + |c|), its slope by δg = 2 ‖A‖ ‖δ‖ + ε (2 ‖A‖ ‖y‖ + ‖b‖).
      Since ``‖A‖ d² + g d = |f|``, d² is off by 2 d (δf + d δg) / (2 ‖A‖ d + g), which is at most (δf + d δg) / ‖A‖.
    - Which neighbours are nearest is seen by products, which lose ε (‖y‖ + ‖r‖)².
    - The logarithm of a norm is off by ε.
    """
    points = torch.from_numpy(rows).double()
    norms = torch.zeros(len(points), dtype=torch.float64)
    if model.norms is not None:
        found, off = model.norms.scores(points), model.norms.weight**0.5 * _units(points.shape[1], dtype) / model.norms.spread
        norms = 2 * found.sqrt() * off + off**2
    points = model.prepared(points)

    def mapped(mean: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """Return coordinates (n, k), and how long what rounding makes of them is, (n,)."""
        mean, matrix = mean.double(), matrix.double()
        off = _units(points.shape[1], dtype) * (points.abs() + mean.abs()) @ matrix.abs().T
        return (points - mean) @ matrix.T, torch.linalg.vector_norm(off, dim=1)

    def of_squares(total: Tensor, off: Tensor) -> Tensor:
        return 2 * total.sqrt() * off + off.square()

    total = norms
    if (part := model.linear_part) is not None:
        along, off = mapped(part.mean, part.axes / part.variances.sqrt()[:, None])
        total = total + of_squares(along.square().sum(dim=1), off)
        if len(part.axes) < part.axes.shape[1]:
            beside, off = mapped(part.mean, torch.eye(len(part.mean)) / part.complement**0.5)
            total = total + of_squares(beside.square().sum(dim=1), off)
    if (kept := model.neighbors) is not None:
        found, off = mapped(kept.coordinates.mean, kept.coordinates.matrix)
        sizes = torch.linalg.vector_norm(found, dim=1) + torch.linalg.vector_norm(kept.prototypes.double(), dim=1).max()
        seen = _units(found.shape[1], dtype) * sizes.square()
        total = total + of_squares(kept.scores(points), kept.weight**0.5 * off) + kept.weight * seen
    if (quadrics := model.quadrics) is not None and model.quadric_weights is not None:
        quadrics, units = quadrics.to(dtype=torch.float64), _units(points.shape[1] + quadrics.n_features, dtype)
        working, off = mapped(model.coordinates.mean, model.coordinates.matrix)
        _, gradients = quadrics.values_and_gradient_norms(working)
        y, norms_of_a, b = torch.linalg.vector_norm(working, dim=1)[:, None], quadrics.hs_norm(), quadrics.linear.norm(dim=1)
        value = gradients * off[:, None] + units * (norms_of_a * y**2 + b * y + quadrics.constant.abs())
        slope = 2 * norms_of_a * off[:, None] + units * (2 * norms_of_a * y + b)
        distances = model.quadric_distances(torch.from_numpy(rows).double())
        total = total + ((value + distances * slope) / norms_of_a * model.quadric_weights).sum(dim=1)
    scores = model.score(torch.from_numpy(rows).double())
    return (total + _units(1, dtype) * scores).numpy()


def _units(n_terms: int, dtype: torch.dtype) -> float:
    """Return what sums of so many terms may lose, and a few steps before and after, in the worst case."""
    return (n_terms + 4) * torch.finfo(dtype).eps
