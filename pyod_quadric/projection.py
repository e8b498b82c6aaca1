"""The nearest point on an intersection of quadrics.

Each point x goes to the y that minimises ``‖y - x‖² + Σₖ wₖ fₖ(y)² / sₖ²``, where sₖ is the typical slope of fₖ, so that values
compare with distances. With weights that is a compromise, which many quadrics can enter that have no point in common. Without
weights the quadrics are to be met, so their weight grows until they are.

The iteration is Gauss-Newton's: with quadrics replaced by their tangent planes at y, the minimum is a linear problem, and where
it leads to nothing better, half the way is tried, and so on.
"""

import torch
from torch import Tensor

from pyod_quadric.quadrics import BLOCK_NUMBERS, Quadrics

N_STEPS = 30
N_HALVINGS = 30
TOLERANCE = 1e-10  # of a step, relative to the size of the points
GROWING_WEIGHTS = [10.0**power for power in range(0, 13, 2)]


def nearest_on_intersection(points: Tensor, quadrics: Quadrics, weights: Tensor | None = None) -> Tensor:
    """Return the nearest point for each point, shape (n, d), in float64.

    Parameters
    ----------
    points : Tensor of shape (n, d)
        In coordinates of unit scale.
    quadrics : Quadrics
        m of them. Where they do not meet, the result without weights has a locally least sum of squared values.
    weights : Tensor of shape (m,), optional
        Of each quadric against the way to it; by default the point has to be on all of them.

    Examples
    --------
    >>> import torch
    >>> from pyod_quadric import Quadrics
    >>> circle = Quadrics(torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0]))
    >>> nearest_on_intersection(torch.tensor([[3.0, 4.0]]), circle)
    tensor([[0.6000, 0.8000]], dtype=torch.float64)
    """
    exact = quadrics.to(dtype=torch.float64)
    # The root mean square of ‖2 A x + b‖ for x of mean 0 and unit variance.
    slopes = (4 * exact.hs_norm().square() + exact.linear.square().sum(dim=1)).sqrt()
    exact = exact.scaled(1 / slopes)
    rounds = GROWING_WEIGHTS if weights is None else [1.0]
    roots = torch.ones_like(slopes) if weights is None else weights.to(slopes).sqrt()
    size = max(1, BLOCK_NUMBERS // (len(quadrics) * quadrics.n_features))
    results = []
    for block in torch.split(points.double(), size):
        nearest = block
        for weight in rounds:
            nearest = _minimized(block, nearest, exact.scaled(weight**0.5 * roots))
        results.append(nearest)
    return torch.cat(results)


def _minimized(points: Tensor, current: Tensor, quadrics: Quadrics) -> Tensor:
    """Minimise the squared distance to the points plus the sum of squared values, from the current places on."""
    for _ in range(N_STEPS):
        jacobian = quadrics.gradients(current)  # (n, m, d)
        way = (points - current).unsqueeze(2)
        misses = quadrics.values(current).unsqueeze(2) + jacobian @ way  # at the points, by the tangent planes
        target = points - _damped_solution(jacobian, misses).squeeze(2)
        following = _better(points, current, target, quadrics)
        step = torch.linalg.vector_norm(following - current, dim=1)
        current = following
        if (step <= TOLERANCE * (1 + torch.linalg.vector_norm(current, dim=1))).all():
            break
    return current


def _damped_solution(jacobian: Tensor, misses: Tensor) -> Tensor:
    """Return ``(JᵀJ + I)⁻¹ Jᵀ r``, shape (n, d, 1), from the smaller of the two systems that give it."""
    m, d = jacobian.shape[1:]
    identity = torch.eye(min(m, d)).to(jacobian)
    solution: Tensor
    if m < d:
        solution = jacobian.mT @ torch.linalg.solve(jacobian @ jacobian.mT + identity, misses)
    else:
        solution = torch.linalg.solve(jacobian.mT @ jacobian + identity, jacobian.mT @ misses)
    return solution


def _better(points: Tensor, current: Tensor, target: Tensor, quadrics: Quadrics) -> Tensor:
    """Return the farthest of current + (target - current) / 2^i that is better than the current point, or that itself."""

    def objective(places: Tensor) -> Tensor:
        return (places - points).square().sum(dim=1) + quadrics.values(places).square().sum(dim=1)

    before, step, result = objective(current), target - current, current
    waiting = torch.ones(len(points), dtype=torch.bool, device=points.device)
    for _ in range(N_HALVINGS):
        good = waiting & (objective(current + step) < before)
        result = torch.where(good[:, None], current + step, result)
        waiting = waiting & ~good
        if not waiting.any():
            break
        step = step / 2
    return result
