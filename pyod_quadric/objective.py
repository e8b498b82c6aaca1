"""The training objective and its gradient, written out so that no autograd graph is built.

The objective is the mean over points of the sum over quadrics of a distance. Every quadric contributes on its own, so the
work is done for a few quadrics at a time: one matrix product for the half gradients ``h = A x + b / 2``, one more for the
gradient by A, and nothing larger than one block of h is ever held.

With ``η = ‖h‖``, ``N = ‖A‖`` and ``r = √(η² + N |f|)`` the order-2 distance is ``d = |f| / (η + r)``, and

    ∂d/∂|f| = 1 / (2 r),    ∂d/∂η = -d / r,    ∂d/∂N = -d² / (2 r).

Let ``α`` be the derivative by f and ``γ`` the derivative by η divided by η, for each point and quadric. Then

    ∂/∂A = sym Σ (α x + γ h) xᵀ + (∂/∂N) A / N,    ∂/∂b = Σ (α x + γ h / 2),    ∂/∂c = Σ α.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from pyod_quadric._packing import packed_size, packing_weights, upper_places
from pyod_quadric.quadrics import BLOCK_NUMBERS, evaluate, half_gradient_buffer, hs_norm

Distance = Literal["second_order", "first_order", "algebraic", "squared_algebraic"]
DISTANCES: tuple[Distance, ...] = get_args(Distance)


class Derivatives(NamedTuple):
    """A distance, and its derivatives, for each point and quadric."""

    distance: Tensor  # (n, m)
    alpha: Tensor  # (n, m), by f
    gamma: Tensor | None  # (n, m), by η, over η; None where η does not matter
    by_norm: Tensor | None  # (n, m), by N; None where N does not matter


class Gradient(NamedTuple):
    """The gradient of the objective by each part of the quadrics."""

    packed: Tensor  # (m, P), by the packed matrices
    linear: Tensor  # (m, d)
    constant: Tensor  # (m,)


def mean_distance(
    points: Tensor, quadratic: Tensor, linear: Tensor, constant: Tensor, distance: Distance = "second_order"
) -> Tensor:
    """Return the mean over points (n, d) of the sum over quadrics of their distance: a scalar tensor.

    Examples
    --------
    >>> import torch
    >>> circle = torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0])
    >>> mean_distance(torch.tensor([[1.0, 0.0], [2.0, 0.0]]), *circle, distance="algebraic")
    tensor(1.5000)
    """
    total, buffer = points.new_zeros(()), _buffer(points, quadratic, linear)
    for parts in _blocks(points, quadratic, linear, constant):
        _, values, norms = evaluate(points, *parts, buffer)
        total += _derivatives(values, norms, hs_norm(parts[0]), distance).distance.sum()
    return total / len(points)


def mean_distance_and_gradient(
    points: Tensor,
    quadratic: Tensor,
    linear: Tensor,
    constant: Tensor,
    distance: Distance = "second_order",
    out: Gradient | None = None,
) -> tuple[Tensor, Gradient]:
    """Return the objective of :func:`mean_distance` and its gradient, at the cost of two matrix products.

    Parameters
    ----------
    points : Tensor of shape (n, d)
    quadratic, linear, constant : Tensor of shape (m, d, d), (m, d), (m,)
        The quadrics; the matrices must be symmetric.
    distance : {"second_order", "first_order", "algebraic", "squared_algebraic"}
    out : Gradient, optional
        Where to write the gradient, so that a loop need not allocate it anew.
    """
    m, d = linear.shape
    out = out or Gradient(linear.new_empty(m, packed_size(d)), torch.empty_like(linear), torch.empty_like(constant))
    total, buffer = points.new_zeros(()), _buffer(points, quadratic, linear)
    upper, weights = upper_places(d, points.device), packing_weights(d, points)
    for parts, gradient in zip(_blocks(points, quadratic, linear, constant), _blocks(points, *out), strict=True):
        distances, products = _block_gradient(points, *parts, distance, Gradient(*gradient), buffer)
        # Symmetrised and packed one at a time, while they are in the cache.
        for product, packed in zip(products, gradient[0], strict=True):
            torch.index_select((product + product.T).flatten(), 0, upper, out=packed)
            packed.mul_(weights)
        total += distances
    return total / len(points), out


def _block_gradient(
    points: Tensor,
    quadratic: Tensor,
    linear: Tensor,
    constant: Tensor,
    distance: Distance,
    out: Gradient,
    buffer: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Write the gradient by b and c, and return the sum of distances and matrices whose sums with their transposes are ∂/∂A."""
    n = len(points)
    halves, values, norms = evaluate(points, quadratic, linear, constant, buffer)
    hs_norms = hs_norm(quadratic)
    derivatives = _derivatives(values, norms, hs_norms, distance)
    alpha = derivatives.alpha / n
    torch.sum(alpha, dim=0, out=out.constant)
    torch.mm(alpha.T, points, out=out.linear)  # Σ α x
    if derivatives.gamma is None:
        rows = alpha.unsqueeze(2) * points.unsqueeze(1)
    else:
        rows = halves.mul_((derivatives.gamma / n).unsqueeze(2))
        out.linear.add_(rows.sum(dim=0), alpha=0.5)
        rows.addcmul_(alpha.unsqueeze(2), points.unsqueeze(1))  # (n, m, d), α x + γ h
    products = torch.mm(rows.flatten(1).T, points / 2).reshape(quadratic.shape)
    if derivatives.by_norm is not None:
        by_norm = torch.where(hs_norms > 0, derivatives.by_norm.sum(dim=0) / (2 * n * hs_norms), 0)
        products.addcmul_(quadratic, by_norm.reshape(-1, 1, 1))
    return derivatives.distance.sum(), products


def _derivatives(values: Tensor, norms: Tensor, hs_norms: Tensor, distance: Distance) -> Derivatives:
    """Return a distance and its derivatives from f (n, m), η (n, m) and N (m,)."""
    absolute, sign = values.abs(), values.sign()
    if distance == "second_order":
        root = torch.hypot(norms, (hs_norms * absolute).sqrt())
        inverse = _inverse(root)
        distances = absolute * _inverse(norms + root)
        per_root = distances * inverse
        return Derivatives(distances, sign * inverse / 2, -per_root * _inverse(norms), -distances * per_root / 2)
    if distance == "first_order":
        distances = torch.where(absolute > 0, absolute / (2 * norms), 0)
        inverse = _inverse(norms)
        return Derivatives(distances, sign * inverse / 2, -distances * inverse.square(), None)
    if distance == "algebraic":
        return Derivatives(absolute, sign, None, None)
    return Derivatives(values.square(), 2 * values, None, None)


def _inverse(numbers: Tensor) -> Tensor:
    """Return 1 / x for positive numbers and 0 at 0, where every derivative above is set to 0."""
    return torch.where(numbers > 0, 1 / numbers, 0)


def _blocks(points: Tensor, quadratic: Tensor, linear: Tensor, constant: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Cut tensors along the quadrics so that one block of half gradients stays in the cache."""
    width = _width(points)
    return zip(torch.split(quadratic, width), torch.split(linear, width), torch.split(constant, width), strict=True)


def _width(points: Tensor) -> int:
    """Return how many quadrics a block has."""
    return max(1, BLOCK_NUMBERS // max(1, points.numel()))


def _buffer(points: Tensor, quadratic: Tensor, linear: Tensor) -> Tensor | None:
    return half_gradient_buffer(len(points) * min(_width(points), len(linear)), points, quadratic, linear)
