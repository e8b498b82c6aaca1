"""Distances from points to single quadrics: approximations that cost one matrix product.

All take points of shape (n, d) and m quadrics, and return (n, m). With ``g = ‖∇f(p)‖`` and ``N = ‖A‖_HS``:

=========================  =================================  ====================================================
distance                   formula                            character
=========================  =================================  ====================================================
algebraic                  ``|f|``                            depends on the scale of f
first order                ``|f| / g``                        exact for planes; infinite where the gradient vanishes
second order               ``2|f| / (g + √(g² + 4N|f|))``     exact for planes; at most the geometric distance
geometric                  see :mod:`pyod_quadric.geometry.exact`  exact
=========================  =================================  ====================================================

The order-k distance (Taubin 1993) is the root of a polynomial made from the Taylor coefficients of f at p. A quadratic has none
beyond the second, so all orders from 2 on give the same distance. A nonzero constant vanishes nowhere, so all its distances are
infinite, like the geometric one.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pyod_quadric.geometry.quadrics import Quadrics


def algebraic_distance(points: Tensor, quadrics: Quadrics) -> Tensor:
    """Return ``|f_k(p_i)|``, shape (n, m).

    Examples
    --------
    >>> import torch
    >>> from pyod_quadric import Quadrics
    >>> circle = Quadrics(torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0]))
    >>> algebraic_distance(torch.tensor([[3.0, 0.0]]), circle)
    tensor([[8.]])
    """
    return quadrics.values(points).abs()


def first_order_distance(points: Tensor, quadrics: Quadrics) -> Tensor:
    """Return ``|f| / ‖∇f‖``, shape (n, m); infinite where the gradient vanishes off the quadric.

    Examples
    --------
    >>> import torch
    >>> from pyod_quadric import Quadrics
    >>> circle = Quadrics(torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0]))
    >>> first_order_distance(torch.tensor([[4.0, 0.0], [0.0, 0.0]]), circle)
    tensor([[1.8750],
            [   inf]])
    """
    values, gradient_norms = quadrics.values_and_gradient_norms(points)
    return ratio(values.abs(), gradient_norms)


def second_order_distance(points: Tensor, quadrics: Quadrics) -> Tensor:
    """Return the order-2 distance d₂, shape (n, m): the outlier score of a point against each single quadric.

    It is equivariant under isometries, unchanged when f is multiplied by a number, exact for planes, and never above
    the geometric distance. Gradients flow through it; they are 0 (not NaN) where f and ∇f vanish together.

    Examples
    --------
    >>> import torch
    >>> from pyod_quadric import Quadrics
    >>> circle = Quadrics(torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0]))
    >>> second_order_distance(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), circle)
    tensor([[0.0000],
            [0.8409]])
    """
    values, gradient_norms = quadrics.values_and_gradient_norms(points)
    return second_order_from(values, gradient_norms, quadrics.hs_norm())


def second_order_from(
    values: Tensor, gradient_norms: Tensor, hs_norms: Tensor, hypot: Callable[[Tensor, Tensor], Tensor] = torch.hypot
) -> Tensor:
    """Return d₂ from ``f`` (n, m), ``‖∇f‖`` (n, m) and ``‖A‖`` (m,).

    The positive root of ``N t² + g t = |f|``, in the form without cancellation and without division by N. ``hypot`` keeps
    it from overflowing, so that multiplying f by any number changes nothing.
    """
    absolute = values.abs()
    # d₂ has a kink where f = 0 or N = 0. Roots are taken of other numbers there, so that their infinite derivatives do
    # not meet a zero.
    curved = (absolute > 0) & (hs_norms > 0)
    root = 2 * torch.where(curved, absolute, 1).sqrt() * torch.where(hs_norms > 0, hs_norms, 1).sqrt()
    hypotenuse = torch.where(curved, hypot(gradient_norms, root), gradient_norms)
    return ratio(2 * absolute, gradient_norms + hypotenuse)


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Divide non-negative numbers with 0 / 0 = 0 and, off zero, x / 0 = inf, both without NaN in the gradient."""
    positive = denominator > 0
    quotient = numerator / torch.where(positive, denominator, 1)
    return torch.where(positive | (numerator == 0), quotient, torch.inf)


# By the names that parameters have for them.
DISTANCE_FUNCTIONS: dict[str, Callable[[Tensor, Quadrics], Tensor]] = {
    "second_order": second_order_distance,
    "first_order": first_order_distance,
    "algebraic": algebraic_distance,
}
