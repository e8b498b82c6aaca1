"""Symmetric matrices as vectors, so that Hilbert-Schmidt geometry becomes Euclidean geometry.

A symmetric ``(d, d)`` matrix is stored as its upper triangle, row by row, with the off-diagonal entries times the
square root of two. Every off-diagonal entry stands twice in the matrix and once in the vector, so with that factor the
Euclidean inner product of two vectors is the Hilbert-Schmidt (HS) inner product of their matrices.
"""

import math

import torch
from torch import Tensor


def packed_size(n_features: int) -> int:
    """Return the length ``d (d + 1) / 2`` of the vector that a symmetric ``(d, d)`` matrix packs into."""
    return n_features * (n_features + 1) // 2


def features_of_packed_size(size: int) -> int:
    """Return the ``d`` with ``d (d + 1) / 2 == size``; the inverse of :func:`packed_size`."""
    n_features = (math.isqrt(8 * size + 1) - 1) // 2
    if n_features < 1 or packed_size(n_features) != size:
        raise ValueError(f"a packed symmetric matrix has 1, 3, 6, 10, ... = d (d + 1) / 2 entries, but this vector has {size}")
    return n_features


def pack(matrices: Tensor) -> Tensor:
    """Pack symmetric matrices into vectors; an isometry from the HS norm to the Euclidean norm.

    Parameters
    ----------
    matrices : Tensor of shape (..., d, d)
        Symmetric matrices; only the upper triangle is read.

    Returns
    -------
    Tensor of shape (..., d (d + 1) / 2)

    Examples
    --------
    >>> import torch
    >>> pack(torch.tensor([[1.0, 2.0], [2.0, 3.0]]))
    tensor([1.0000, 2.8284, 3.0000])
    """
    if matrices.ndim < 2 or matrices.shape[-1] != matrices.shape[-2] or matrices.shape[-1] == 0:
        raise ValueError(f"pack needs square matrices of shape (..., d, d) with d >= 1, got {tuple(matrices.shape)}")
    d = matrices.shape[-1]
    return matrices.flatten(-2).index_select(-1, upper_indices(d, matrices.device)) * packing_factors(d, matrices)


def unpack(packed: Tensor) -> Tensor:
    """Return the symmetric matrices that :func:`pack` turned into these vectors.

    Parameters
    ----------
    packed : Tensor of shape (..., d (d + 1) / 2)

    Returns
    -------
    Tensor of shape (..., d, d)

    Examples
    --------
    >>> import torch
    >>> unpack(torch.tensor([1.0, 0.0, 3.0]))
    tensor([[1., 0.],
            [0., 3.]])
    """
    d = features_of_packed_size(packed.shape[-1])
    entries = packed / packing_factors(d, packed)
    return entries.index_select(-1, packed_indices(d, packed.device)).reshape(*packed.shape[:-1], d, d)


def pack_outer(points: Tensor) -> Tensor:
    """Return the packed ``x xᵀ`` of every row ``x``, so that ``xᵀ A x = pack_outer(x) · pack(A)``.

    Parameters
    ----------
    points : Tensor of shape (n, d)

    Returns
    -------
    Tensor of shape (n, d (d + 1) / 2)
    """
    d = points.shape[1]
    row, column = torch.triu_indices(d, d, device=points.device).unbind()
    return points.index_select(1, row) * points.index_select(1, column) * packing_factors(d, points)


def packing_factors(n_features: int, like: Tensor) -> Tensor:
    """Return what each packed entry is times its matrix entry: 1 on the diagonal, sqrt 2 off it; shape (P,)."""
    row, column = torch.triu_indices(n_features, n_features, device=like.device).unbind()
    return torch.full_like(row, 2, dtype=like.dtype).sqrt().masked_fill(row == column, 1)


def upper_indices(n_features: int, device: torch.device) -> Tensor:
    """Return where each packed entry stands in the flattened matrix, shape (P,)."""
    row, column = torch.triu_indices(n_features, n_features, device=device).unbind()
    return row * n_features + column


def packed_indices(n_features: int, device: torch.device) -> Tensor:
    """Return which packed entry stands at each place of the flattened matrix, shape (d²,)."""
    index = torch.arange(n_features, device=device)
    low, high = torch.minimum(index.unsqueeze(1), index), torch.maximum(index.unsqueeze(1), index)
    # Row i of the upper triangle begins after rows of d, d - 1, ..., d - i + 1 entries.
    return (low * n_features - low * (low - 1) // 2 + high - low).flatten()
