"""What the laws are tried on. Everything is made of small integers, so that failures shrink to something readable.

Small integers also make arithmetic exact: a point that is put on a quadric is on it to the last bit, in float32 too.
"""

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from pyod_quadric import Quadrics

MAX_FEATURES = 12
features = st.integers(1, MAX_FEATURES)
small = st.integers(-3, 3)
few = st.integers(1, 3)


def integers(*shape: int) -> st.SearchStrategy[np.ndarray]:
    """Draw an array of small whole numbers, as float64."""
    return arrays(np.int64, shape, elements=small).map(lambda a: a.astype(np.float64))


@st.composite
def symmetric(draw: st.DrawFn, d: int) -> np.ndarray:
    """Draw a symmetric matrix: general, zero, rank one, with repeated eigenvalues, or indefinite diagonal."""
    kind = draw(st.sampled_from(["zero", "identity", "rank one", "diagonal", "repeated", "general"]))
    if kind == "zero":
        return np.zeros((d, d))
    if kind == "identity":
        return draw(st.sampled_from([-2.0, 1.0])) * np.eye(d)
    if kind == "rank one":
        vector = draw(integers(d))
        return np.outer(vector, vector)
    if kind == "diagonal":
        return np.diag(draw(integers(d)))
    if kind == "repeated":
        vector = draw(integers(d))
        return draw(small) * np.eye(d) + np.outer(vector, vector)
    half = draw(integers(d, d))
    return half + half.T


@dataclass
class Case:
    """Points and quadrics in one space."""

    points: np.ndarray  # (n, d)
    quadratic: np.ndarray  # (m, d, d)
    linear: np.ndarray  # (m, d)
    constant: np.ndarray  # (m,)

    def tensors(self, dtype: torch.dtype) -> tuple[Tensor, Quadrics]:
        points, *parts = (torch.tensor(a, dtype=dtype) for a in vars(self).values())
        return points, Quadrics(*parts)

    def __iter__(self):
        """Go through (A, b, c)."""
        return zip(self.quadratic, self.linear, self.constant, strict=True)


@st.composite
def cases(
    draw: st.DrawFn,
    d: st.SearchStrategy[int] = features,
    m: st.SearchStrategy[int] = few,
    curved: bool = False,
) -> Case:
    """Draw quadrics and points: one on all quadrics or at all centres, one near it, one anywhere, one far away."""
    n_features = draw(d)
    n_quadrics = draw(m)
    quadratic = np.stack([draw(symmetric(n_features)) for _ in range(n_quadrics)])
    special, anywhere = draw(integers(2, n_features))
    linear, constant = draw(integers(n_quadrics, n_features)), draw(integers(n_quadrics))
    if draw(st.booleans()):  # the gradient vanishes at the special point
        linear = -2 * quadratic @ special
    if draw(st.booleans()):  # the special point is on the quadric
        constant = -np.einsum("kij,i,j->k", quadratic, special, special) - linear @ special
    zero = ~(quadratic.any(axis=(1, 2)) | linear.any(axis=1) | (constant != 0))
    flat = ~quadratic.any(axis=(1, 2)) if curved else zero
    quadratic[flat] = np.eye(n_features)
    points = np.stack([special, special + 2.0**-10, anywhere, 100 * anywhere])
    return Case(points, quadratic, linear, constant)


@dataclass
class Isometry:
    """The map x → Q x + v."""

    matrix: np.ndarray
    shift: np.ndarray

    def tensors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return torch.tensor(self.matrix, dtype=dtype), torch.tensor(self.shift, dtype=dtype)


@st.composite
def reflection_matrices(draw: st.DrawFn, d: int) -> np.ndarray:
    """Draw a Householder reflection (d = 1: x → -x)."""
    normal = draw(integers(d))
    if not normal.any():
        normal[0] = 1
    return np.eye(d) - 2 * np.outer(normal, normal) / (normal @ normal)


@st.composite
def isometries(draw: st.DrawFn, kind: str, d: int) -> Isometry:
    """Draw a "rotation" (a product of two reflections), a "reflection", a "translation" or a "general" isometry."""
    matrix, shift = np.eye(d), np.zeros(d)
    n_reflections = {"rotation": 2, "reflection": 1, "translation": 0, "general": draw(st.integers(0, 4))}[kind]
    for _ in range(n_reflections):
        matrix = matrix @ draw(reflection_matrices(d))
    if kind in ("translation", "general"):
        shift = draw(integers(d))
    return Isometry(matrix, shift)


ISOMETRY_KINDS = ["rotation", "reflection", "translation", "general"]


@st.composite
def clouds(draw: st.DrawFn, max_features: int = 4) -> Tensor:
    """Draw a float64 cloud with enough points in general position to determine a quadric, shape (n, d)."""
    d = draw(st.integers(1, max_features))
    n = draw(st.integers(2, 4)) * (d + 1) * (d + 2) // 2
    # A normal sample, of which hypothesis chooses the seed, bent by drawn numbers: drawn coordinates are often equal.
    sample = np.random.default_rng(draw(st.integers(0, 2**16))).normal(size=(n, d))
    stretch = 2.0 ** draw(integers(d))
    return torch.tensor(sample * stretch + draw(integers(d)))
