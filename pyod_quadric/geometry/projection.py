"""The nearest point on an intersection of quadrics, by Gauss-Newton steps with step halving.

Without weights the result lies on all quadrics. Steps lead to the intersection of the tangent planes, and then along the
intersection as long as the distance to the point decreases. With weights there may be more quadrics than can intersect; the
result then minimises ``‖y - x‖² + Σₖ wₖ fₖ(y)² / sₖ²``, where sₖ is the typical slope of fₖ.

For points far out, the iteration starts nearer to the origin, on the way to it: each step at best halves the distance, and
squares of values far out would lose all precision. The target point x stays unchanged.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pyod_quadric.geometry.quadrics import BLOCK_NUMBERS, Quadrics

N_STEPS = 50
N_RESTORING = 20
N_HALVINGS = 20
TOLERANCE = 1e-9  # of a step, relative to the size of the points
FAR = 1e3  # in the unit of the points


def nearest_on_intersection(points: Tensor, quadrics: Quadrics, weights: Tensor | None = None) -> Tensor:
    """Return the nearest point for each point, shape (n, d), in float64.

    Parameters
    ----------
    points : Tensor of shape (n, d)
        In coordinates of unit scale, at most 1e140.
    quadrics : Quadrics
        The m quadrics. If they do not intersect, the result without weights has a locally smallest sum of squared values.
    weights : Tensor of shape (m,), optional
        The weight of each quadric against the distance to it; 0 ignores it. By default the result lies on all quadrics.

    Examples
    --------
    >>> import torch
    >>> from pyod_quadric import Quadrics
    >>> circle = Quadrics(torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0]))
    >>> nearest_on_intersection(torch.tensor([[3.0, 4.0]]), circle)
    tensor([[0.6000, 0.8000]], dtype=torch.float64)
    """
    if weights is not None and (weights == 0).any():
        if not weights.any():
            return points.double()
        quadrics, weights = quadrics[weights > 0], weights[weights > 0]
    exact = quadrics.to(dtype=torch.float64)
    # The root mean square of ‖2 A x + b‖ for x of mean 0 and unit variance.
    slopes = (4 * exact.hs_norm().square() + exact.linear.square().sum(dim=1)).sqrt()
    scaled = exact.scaled((1 if weights is None else weights.to(slopes).sqrt()) / slopes)
    nearest = _on_intersection if weights is None else _compromise
    size = max(1, BLOCK_NUMBERS // (len(quadrics) * quadrics.n_features))
    return torch.cat([nearest(block, scaled) for block in torch.split(points.double(), size)])


def _compromise(points: Tensor, quadrics: Quadrics) -> Tensor:
    """Minimise the squared way from the points plus the sum of squared values."""
    identity = torch.eye(points.shape[1]).to(points)

    def target(places: Tensor) -> Tensor:
        jacobian = quadrics.gradients(places)  # (n, m, d)
        downhill = (points - places).unsqueeze(2) - jacobian.mT @ quadrics.values(places).unsqueeze(2)
        curvature = jacobian.mT @ jacobian
        # Beside a large curvature the identity would be lost to rounding, and with it the solution.
        least = 1 + 8 * len(identity) * torch.finfo(points.dtype).eps * curvature.diagonal(dim1=1, dim2=2).amax(dim=1)
        step: Tensor = torch.linalg.solve_ex(curvature + least[:, None, None] * identity, downhill).result
        return places + step.squeeze(2)

    def objective(places: Tensor) -> Tensor:
        return (places - points).square().sum(dim=1) + quadrics.values(places).square().sum(dim=1)

    return _descended(_nearby(points), target, objective, N_STEPS)


def _on_intersection(points: Tensor, quadrics: Quadrics) -> Tensor:
    """Go to the intersection, and along it while that shortens the way from the points."""
    identity = torch.eye(points.shape[1]).to(points)

    def onto(places: Tensor) -> Tensor:
        def target(places: Tensor) -> Tensor:
            inverse: Tensor = torch.linalg.pinv(quadrics.gradients(places))
            return places - (inverse @ quadrics.values(places).unsqueeze(2)).squeeze(2)

        return _descended(places, target, lambda places: quadrics.values(places).square().sum(dim=1), N_RESTORING)

    def along(places: Tensor) -> Tensor:
        """Take Newton's step along the intersection; where that does not lead nearer, the tangent part of the way."""
        way, jacobian = (points - places).unsqueeze(2), quadrics.gradients(places)
        inverse = torch.linalg.pinv(jacobian)
        normal = inverse @ jacobian  # (n, d, d)
        tangent = identity - normal
        bending = torch.einsum("nm,mij->nij", (way.mT @ inverse).squeeze(1), quadrics.quadratic)  # by Lagrange multipliers
        hessian = tangent @ (identity + 2 * bending) @ tangent + normal
        direct = tangent @ way
        newton = tangent @ torch.linalg.pinv(hessian, hermitian=True) @ direct
        return places + torch.where((newton.mT @ direct) > 0, newton, direct).squeeze(2)

    start = onto(_nearby(points))
    if len(quadrics) >= quadrics.n_features:  # there is nothing to go along
        return start
    return _descended(start, along, lambda places: (places - points).square().sum(dim=1), N_STEPS, onto)


def _nearby(points: Tensor) -> Tensor:
    """Return points (n, d), with those far out moved towards the origin."""
    sizes = points.abs().amax(dim=1, keepdim=True)
    return torch.where(sizes > FAR, points * (FAR / sizes.clamp(min=FAR)), points)


def _descended(
    current: Tensor,
    target: Callable[[Tensor], Tensor],
    objective: Callable[[Tensor], Tensor],
    n_steps: int,
    corrected: Callable[[Tensor], Tensor] = lambda places: places,
) -> Tensor:
    """Go from places to their targets, or only a part of the way, as long as it lowers the objective.

    ``corrected`` is applied to each candidate before it is looked at.
    """
    for _ in range(n_steps):
        before, step, following = objective(current), target(current) - current, current
        waiting = torch.linalg.vector_norm(step, dim=1) > TOLERANCE * (1 + torch.linalg.vector_norm(current, dim=1))
        for _ in range(N_HALVINGS):
            if not waiting.any():
                break
            candidates = corrected(current + step)
            good = waiting & (objective(candidates) < before)
            following = torch.where(good[:, None], candidates, following)
            waiting = waiting & ~good
            step = step / 2
        if torch.equal(following, current):
            break
        current = following
    return current
