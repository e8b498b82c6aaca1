"""The exact Euclidean distance from points to single quadrics.

Around a point p, with the sign of f chosen so that f(p) > 0, the nearest zero p + Q y solves

    minimise ‖y‖²  subject to  f(p) + Σ β_i y_i + Σ λ_i y_i² = 0,

where A = Q diag(λ) Qᵀ and β = Qᵀ ∇f(p). Its minimiser is global exactly if it is stationary for a multiplier μ >= 0 with
I + μ Λ positive semidefinite (Moré 1993, "Generalizations of the trust region problem"). Let λ_min be the smallest λ.

* λ_min < 0: μ runs over [0, 1 / |λ_min|). With σ = 1 / |λ_min|, ρ = μ / (σ - μ) and e_i = 1 + σ λ_i this is [0, ∞) for ρ.
* λ_min >= 0: μ runs over [0, ∞). With any σ > 0, ρ = μ / σ and e_i = σ λ_i this is [0, ∞) for ρ as well.

With s = 1 in the first case and s = 0 in the second, in both

    y_i(ρ) = -(σ ρ / 2) β_i / (1 + ρ e_i),
    f(p + Q y) = φ(ρ) = f(p) - Σ (σ β_i² / 4) · ρ (2 + ρ (e_i + s)) / (1 + ρ e_i)²,

a decreasing function without cancellation, whose zero is found by bisection of log ρ. If it has none:

* λ_min < 0, the "hard case": the gradient has no part along the eigenspace of λ_min. What is missing is made up by a step
  z in that eigenspace, ``φ(∞) = |λ_min| ‖z‖²``.
* λ_min >= 0: f is bounded below by φ(∞). It is 0 if the quadric is its own singular set (double planes, points, axes of
  cylinders), and then y(∞) is the answer; otherwise the quadric is empty and the distance infinite.
"""

import torch
from torch import Tensor

from pyod_quadric.geometry.quadrics import BLOCK_ROWS, Quadrics

# ρ is sought between 1 / RHO_END and RHO_END; 70 halvings of that range of log ρ reach its last bit.
RHO_END = 1e200
HALVINGS = 70


def geometric_distance(points: Tensor, quadrics: Quadrics) -> Tensor:
    """Return the exact distance from each point to each quadric, shape (n, m); infinite for an empty quadric.

    Computed in float64, whatever the input. A polynomial whose minimum is zero up to rounding, such as a double plane,
    counts as touching zero. The cost is an eigendecomposition for each quadric and some seventy passes over the points, so
    use it for checks and for small data. Scores use :func:`pyod_quadric.second_order_distance`.

    Parameters
    ----------
    points : Tensor of shape (n, d)
    quadrics : Quadrics
        m quadrics in d variables.

    Examples
    --------
    From the centre of the ellipse x² + 4 y² = 4 to its nearest points, (0, 1) and (0, -1):

    >>> import torch
    >>> from pyod_quadric import Quadrics
    >>> matrix = torch.diag(torch.tensor([1.0, 4.0]))
    >>> ellipse = Quadrics(matrix[None], torch.zeros(1, 2), torch.tensor([-4.0]))
    >>> geometric_distance(torch.tensor([[0.0, 0.0]]), ellipse)
    tensor([[1.]])
    """
    quadrics.check_points(points)
    exact = quadrics.to(dtype=torch.float64)
    rows = torch.split(points.to(torch.float64), BLOCK_ROWS)
    columns = [torch.cat([_distance_to_one(block, exact[k]) for block in rows]) for k in range(len(exact))]
    return torch.stack(columns, dim=1).to(points.dtype)


def _distance_to_one(points: Tensor, quadric: Quadrics) -> Tensor:
    """Return the distances (n,) to a collection of one quadric."""
    value, eigenvalues, slopes, value_error = _in_eigenbasis(points, quadric)
    e, sigma, bounded = _pencil(eigenvalues)
    # A minimum of f that is zero up to rounding is reached at the end, not where rounding has φ change its sign.
    floor = torch.where(bounded, 0.0, -value_error)
    rho = _root(floor, value, e, sigma, bounded, slopes)
    left_over = _phi(rho, value, e, sigma, bounded, slopes)
    steps = -(sigma * rho / 2)[:, None] * slopes / (1 + rho[:, None] * e)
    squared = steps.square().sum(dim=1)
    unreached = rho == RHO_END  # where φ has no zero
    hard = torch.where(unreached & bounded, left_over * sigma, 0.0)  # |λ_min| = 1 / σ
    empty = unreached & ~bounded & (left_over > value_error)
    distance = torch.where(empty, torch.inf, (squared + hard).sqrt())
    return torch.where(value == 0, 0.0, distance)


def _in_eigenbasis(points: Tensor, quadric: Quadrics) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return f(p) > 0 (n,), λ (n, d), β (n, d) with their signs fixed, and the rounding error of f(p) (n,)."""
    size = torch.stack([quadric.quadratic.abs().max(), quadric.linear.abs().max(), quadric.constant.abs().max()]).max()
    quadric = quadric.scaled(2.0 ** -size.log2().floor())  # exact, so that zeros stay zeros
    eps = 16 * points.shape[1] * torch.finfo(points.dtype).eps
    eigenvalues, basis = torch.linalg.eigh(quadric.quadratic[0])
    largest = eigenvalues.abs().max()
    eigenvalues = torch.where(eigenvalues.abs() <= eps * largest, 0.0, eigenvalues)
    slopes = quadric.gradients(points)[:, 0] @ basis  # (n, d)
    norms = torch.linalg.vector_norm(points, dim=1)
    linear_norm = torch.linalg.vector_norm(quadric.linear)
    # A gradient along a direction without curvature opens the quadric (a paraboloid); its rounding error must not.
    slope_error = eps * (2 * largest * norms + linear_norm)
    slopes = torch.where((eigenvalues == 0) & (slopes.abs() <= slope_error[:, None]), 0.0, slopes)
    value = quadric.values(points)[:, 0]
    value_error = eps * (largest * norms.square() + linear_norm * norms + quadric.constant.abs())
    sign = torch.where(value < 0, -1.0, 1.0)[:, None]
    return value.abs(), sign * eigenvalues, sign * slopes, value_error


def _pencil(eigenvalues: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return e (n, d), σ (n,) and whether the range of μ is bounded, s = 1 (n,), of the module's docstring."""
    smallest = eigenvalues.amin(dim=1)
    bounded = smallest < 0
    largest = eigenvalues.abs().amax(dim=1)
    scale = torch.where(bounded, -smallest, torch.where(largest > 0, largest, 1.0))
    e = (eigenvalues - torch.where(bounded, smallest, 0.0)[:, None]) / scale[:, None]
    return e, 1 / scale, bounded


def _phi(rho: Tensor, value: Tensor, e: Tensor, sigma: Tensor, bounded: Tensor, slopes: Tensor) -> Tensor:
    """Return φ(ρ), shape (n,)."""
    rho = rho[:, None]
    stretched = 1 + rho * e
    # In this order of factors a slope of 0 stays 0, however large ρ is.
    gain = (sigma[:, None] / 4 * slopes.square() * (rho / stretched)) * ((1 + stretched + rho * bounded[:, None]) / stretched)
    return value - gain.sum(dim=1)


def _root(floor: Tensor, value: Tensor, e: Tensor, sigma: Tensor, bounded: Tensor, slopes: Tensor) -> Tensor:
    """Return the ρ at which φ reaches zero, or the end of its range where it does not get below the floor."""
    end = torch.full_like(value, RHO_END)
    low, high = -end.log10(), end.log10()
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        positive = _phi(10**middle, value, e, sigma, bounded, slopes) > 0
        low = torch.where(positive, middle, low)
        high = torch.where(positive, high, middle)
    reached = _phi(end, value, e, sigma, bounded, slopes) <= floor
    return torch.where(reached, 10**high, end)
