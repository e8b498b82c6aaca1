"""Outlier detection by intersections of quadrics, for PyOD.

The data manifold is learnt as an intersection of quadrics, the zero sets of ``f(x) = xᵀ A x + b·x + c``, and a point is the
more abnormal the farther it is from them (Pavutnitskiy et al., AISTATS 2022).

The modules, from the ground up; each imports only from those above it:

``_packing``
    symmetric matrices as vectors, Hilbert-Schmidt geometry as Euclidean geometry
``quadrics``
    :class:`Quadrics`: values, gradients, inner products, composition with maps
``distances``
    algebraic, first-order and second-order distance from points to quadrics
``geometric``
    the exact distance to a single quadric
``spectral``
    quadrics in closed form: kernel PCA, its Hilbert-Schmidt version, Taubin's version
"""

from pyod_quadric.distances import (
    algebraic_distance,
    approximation_distance,
    first_order_distance,
    second_order_distance,
)
from pyod_quadric.geometric import geometric_distance
from pyod_quadric.quadrics import Quadrics
from pyod_quadric.spectral import spectral_fit

__version__ = "0.1.0"

__all__ = [
    "Quadrics",
    "algebraic_distance",
    "approximation_distance",
    "first_order_distance",
    "geometric_distance",
    "second_order_distance",
    "spectral_fit",
]
