"""The training objective and its gradient, written out so that no autograd graph is built.

The objective is the mean over points of the sum over quadrics of a distance. Every quadric contributes on its own, so the
work is done for a few quadrics at a time: one matrix product for the half gradients ``h = A x + b / 2``, one more for the
gradient by A. Matrices come and go packed; their unpacked form exists for one block at a time, as h does.

With ``η = ‖h‖``, ``N = ‖A‖`` and ``r = √(η² + N |f|)`` the order-2 distance is ``d = |f| / (η + r)``, and

    ∂d/∂|f| = 1 / (2 r),    ∂d/∂η = -d / r,    ∂d/∂N = -d² / (2 r).

Let ``α`` be the derivative by f and ``γ`` the derivative by η divided by η, for each point and quadric. Then

    ∂/∂A = sym Σ (α x + γ h) xᵀ + (∂/∂N) A / N,    ∂/∂b = Σ (α x + γ h / 2),    ∂/∂c = Σ α.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from pyod_quadric.geometry.packing import packed_indices, packing_factors, upper_indices
from pyod_quadric.geometry.quadrics import BLOCK_NUMBERS, evaluate, half_gradient_buffer
from pyod_quadric.parameters import Loss


class Derivatives(NamedTuple):
    """A distance, and its derivatives, for each point and quadric."""

    distance: Tensor  # (n, m)
    alpha: Tensor  # (n, m), by f
    gamma: Tensor | None  # (n, m), by η, over η; None where η does not matter
    by_norm: Tensor | None  # (n, m), by N; None where N does not matter


class Parts(NamedTuple):
    """The parts of m quadrics, or the gradient by each of them, which has the same shapes."""

    packed: Tensor  # (m, P)
    linear: Tensor  # (m, d)
    constant: Tensor  # (m,)


def mean_distance(points: Tensor, packed: Tensor, linear: Tensor, constant: Tensor, distance: Loss = "second_order") -> Tensor:
    """Return the mean over points (n, d) of the sum over quadrics of their distance: a scalar tensor.

    Examples
    --------
    >>> import torch
    >>> from pyod_quadric.geometry.packing import pack
    >>> circle = pack(torch.eye(2)[None]), torch.zeros(1, 2), torch.tensor([-1.0])
    >>> mean_distance(torch.tensor([[1.0, 0.0], [2.0, 0.0]]), *circle, distance="algebraic")
    tensor(1.5000)
    """
    total, blocks = points.new_zeros(()), _Blocks(points, linear)
    for block, matrices in blocks.unpacked(packed, linear, constant):
        _, values, norms = evaluate(points, matrices, *block[1:], blocks.buffer)
        total += _derivatives(values, norms, _row_norms(block[0]), distance).distance.sum()
    return total / len(points)


def mean_distance_and_gradient(
    points: Tensor,
    packed: Tensor,
    linear: Tensor,
    constant: Tensor,
    distance: Loss = "second_order",
    out: Parts | None = None,
) -> tuple[Tensor, Parts]:
    """Return the objective of :func:`mean_distance` and its gradient, at the cost of two matrix products.

    Parameters
    ----------
    points : Tensor of shape (n, d)
    packed, linear, constant : Tensor of shape (m, d (d + 1) / 2), (m, d), (m,)
        The quadrics, their matrices packed.
    distance : {"second_order", "first_order", "algebraic", "squared_algebraic"}
    out : Parts, optional
        Where to write the gradient, so that a loop need not allocate it again.
    """
    out = out or Parts(torch.empty_like(packed), torch.empty_like(linear), torch.empty_like(constant))
    total, blocks = points.new_zeros(()), _Blocks(points, linear)
    gradients = blocks.split(*out)
    for (block, matrices), gradient in zip(blocks.unpacked(packed, linear, constant), gradients, strict=True):
        halves, values, norms = evaluate(points, matrices, *block[1:], blocks.buffer)
        hs_norms = _row_norms(block[0])
        derivatives = _derivatives(values, norms, hs_norms, distance)
        rows = _weighted_rows(points, halves, derivatives, gradient)
        blocks.pack_products(rows, points, gradient.packed)
        if derivatives.by_norm is not None:
            by_norm = torch.where(hs_norms > 0, derivatives.by_norm.sum(dim=0) / (len(points) * hs_norms), 0)
            gradient.packed.addcmul_(block[0], by_norm.unsqueeze(1))
        total += derivatives.distance.sum()
    return total / len(points), out


def _weighted_rows(points: Tensor, halves: Tensor, derivatives: Derivatives, out: Parts) -> Tensor:
    """Write the gradient by b and c, and return ``α x + γ h``, shape (n, m, d), in the memory of h."""
    n = len(points)
    alpha = derivatives.alpha / n
    torch.sum(alpha, dim=0, out=out.constant)
    torch.mm(alpha.T, points, out=out.linear)  # Σ α x
    if derivatives.gamma is None:
        return torch.mul(alpha.unsqueeze(2), points.unsqueeze(1), out=halves)
    halves.mul_((derivatives.gamma / n).unsqueeze(2))
    out.linear.add_(halves.sum(dim=0), alpha=0.5)
    return halves.addcmul_(alpha.unsqueeze(2), points.unsqueeze(1))


class _Blocks:
    """A few quadrics at a time, so many that one block of half gradients stays in the cache."""

    def __init__(self, points: Tensor, linear: Tensor) -> None:
        m, d = linear.shape
        self.width = min(m, max(1, BLOCK_NUMBERS // max(1, points.numel())))
        self.buffer = half_gradient_buffer(len(points) * self.width, points)
        self._matrices = points.new_empty(self.width, d, d)
        # 32-bit numbers, since what the gather reads competes with the matrices for the cache.
        self._upper, self._places = upper_indices(d, points.device).int(), packed_indices(d, points.device).int()
        self._weights = packing_factors(d, points)

    def split(self, packed: Tensor, linear: Tensor, constant: Tensor) -> Iterator[Parts]:
        """Cut tensors of the shapes of a gradient into blocks."""
        return map(Parts, *(torch.split(part, self.width) for part in (packed, linear, constant)))

    def unpacked(self, packed: Tensor, linear: Tensor, constant: Tensor) -> Iterator[tuple[Parts, Tensor]]:
        """Go through blocks of quadrics, each with its matrices, in memory that the next block uses again."""
        for block in self.split(packed, linear, constant):
            # One matrix at a time stays in the cache, which makes this several times faster than all at once.
            for matrix, row in zip(self._matrices, block.packed, strict=False):
                torch.index_select(row / self._weights, 0, self._places, out=matrix.view(-1))
            yield block, self._matrices.narrow(0, 0, len(block.packed))

    def pack_products(self, rows: Tensor, points: Tensor, out: Tensor) -> None:
        """Write the packed symmetric parts of ``Σ row xᵀ`` for rows (n, m, d) and points (n, d)."""
        m, d = rows.shape[1:]
        products = self._matrices.narrow(0, 0, m)  # the matrices of the block are no longer needed
        torch.mm(rows.flatten(1).T, points, out=products.view(m * d, d))
        for product, packed in zip(products, out, strict=True):
            torch.index_select((product + product.T).flatten(), 0, self._upper, out=packed)
        out.mul_(self._weights / 2)


def _derivatives(values: Tensor, norms: Tensor, hs_norms: Tensor, distance: Loss) -> Derivatives:
    """Return a distance and its derivatives from f (n, m), η (n, m) and N (m,)."""
    absolute, sign = values.abs(), values.sign()
    if distance == "second_order":
        root = torch.hypot(norms, (hs_norms * absolute).sqrt())
        inverse = _inverse(root)
        distances = absolute * _inverse(norms + root)
        per_root = distances * inverse
        reported = distances.masked_fill((root == 0) & (absolute > 0), torch.inf)  # a constant vanishes nowhere
        return Derivatives(reported, sign * inverse / 2, -per_root * _inverse(norms), -distances * per_root / 2)
    if distance == "first_order":
        distances = torch.where(absolute > 0, absolute / (2 * norms), 0)
        inverse = _inverse(norms)
        return Derivatives(distances, sign * inverse / 2, -(distances * inverse) * inverse, None)
    if distance == "algebraic":
        return Derivatives(absolute, sign, None, None)
    return Derivatives(values.square(), 2 * values, None, None)


def _inverse(numbers: Tensor) -> Tensor:
    """Return 1 / x for positive numbers and 0 at 0, where every derivative above is set to 0."""
    return torch.where(numbers > 0, 1 / numbers, 0)


def _row_norms(packed: Tensor) -> Tensor:
    """Return the HS norms of packed matrices, shape (m,)."""
    norms: Tensor = torch.linalg.vector_norm(packed, dim=1)
    return norms
