"""A Stiefel manifold for geoopt whose retraction costs matrix products instead of a QR decomposition, and an Adam for it.

See :mod:`pyod_quadric.geometry.frames` for the products. This module is imported when a Stiefel manifold is asked for, since
importing geoopt takes time.
"""

from collections.abc import Callable, Iterable
from typing import Any

import geoopt
import torch
from geoopt.optim.mixin import OptimMixin
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from pyod_quadric.geometry.frames import orthonormalize_, polar

TINY_GRADIENT = 1e-8  # as in torch's Adam: gradients below it count as none


class CholeskyStiefel(geoopt.EuclideanStiefel):  # type: ignore[misc]  # geoopt has no types
    """The Stiefel manifold with the Euclidean metric, retraction by CholeskyQR and projection by the polar factor.

    It is :class:`geoopt.EuclideanStiefel` with the same geometry and the same retraction (the Q factor with positive
    diagonal), computed faster for tall frames; use it with any geoopt optimiser.

    Examples
    --------
    >>> import geoopt, torch
    >>> manifold = CholeskyStiefel()
    >>> frame = geoopt.ManifoldParameter(torch.eye(5, 2), manifold=manifold)
    >>> optimizer = geoopt.optim.RiemannianSGD([frame], lr=0.1)
    >>> frame.sum().backward()
    >>> _ = optimizer.step()
    >>> bool(manifold.check_point_on_manifold(frame))
    True
    """

    name = "Stiefel(euclidean, cholesky)"
    reversible = False

    def proju(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the projection of u to the tangent space at x."""
        inner = x.mT @ u
        symmetric = (inner + inner.mT) / 2
        if x.ndim == 2 and x.mT.is_contiguous():
            # Column by column in memory, and it stays so: turning a tall frame around costs more than the product.
            return torch.addmm(u.mT, symmetric, x.mT, alpha=-1).mT
        return u - x @ symmetric

    egrad2rgrad = proju

    def retr(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the retraction of the tangent vector u at x."""
        return orthonormalize_(x + u)

    def projx(self, x: Tensor) -> Tensor:
        """Return the frame nearest to x."""
        return polar(x)


class InPlaceStiefel(CholeskyStiefel):
    """The same manifold for callers that have no further use for the gradients and steps they pass: these are overwritten.

    Every fresh tensor of the size of a frame costs as much as a product with it. geoopt's optimisers write into gradients
    themselves and make their steps anew, so with them this is safe.
    """

    def egrad2rgrad(self, x: Tensor, u: Tensor) -> Tensor:
        """Turn the Euclidean gradient u at x into the Riemannian one."""
        inner = x.mT @ u
        return u.sub_(x @ ((inner + inner.mT) / 2)) if u.ndim > 2 else u.mT.addmm_((inner + inner.mT) / 2, x.mT, alpha=-1).mT

    def retr(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the retraction of the tangent vector u at x."""
        return orthonormalize_(u.add_(x))


class FrameAdam(OptimMixin, Optimizer):  # type: ignore[misc]  # geoopt has no types
    """Adam on a Stiefel manifold with one second moment for each quadric, in step with the quadrics' free coefficients.

    Torch's Adam divides each entry by its own size, which depends on the axes of the data; geoopt's divides a whole frame by
    one number, so that a quadric with small gradients hardly moves. Here a column of the frame and its row of the rest, which
    are one polynomial, are divided by one number, the root mean square of the column's Riemannian gradients: rotations of the
    data rotate the trajectory. As with torch's Adam, entries of the frame move by about ``lr`` in a step.

    The momentum is a sum of Riemannian gradients at earlier points, which is projected to the tangent space where it is used.

    Parameters
    ----------
    parameters : list of Parameter
        A frame (F, m), a :class:`geoopt.ManifoldParameter`, and, if there is any, the rest (m, R), in the same order.
    lr : float
    betas : tuple of float, default=(0.9, 0.999)
        Decay of the momentum and of the second moments.

    Examples
    --------
    >>> import geoopt, torch
    >>> frame = geoopt.ManifoldParameter(torch.eye(5, 2), manifold=CholeskyStiefel())
    >>> optimizer = FrameAdam([frame], lr=0.1)
    >>> frame.sum().backward()
    >>> _ = optimizer.step()
    >>> bool(frame.manifold.check_point_on_manifold(frame))
    True
    """

    def __init__(self, parameters: Iterable[Parameter], lr: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        super().__init__(list(parameters), {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take a step by the gradients as they are, or as a closure makes them, and return the closure's loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            frame, *rest = group["params"]
            self._step(frame, rest, group["lr"], *group["betas"])
        return loss

    def _step(self, frame: Any, rest: list[Any], lr: float, decay: float, decay_of_squares: float) -> None:
        gradient, state = frame.manifold.egrad2rgrad(frame, frame.grad), self.state[frame]
        if not state:
            state |= {"step": 0, "momentum": torch.zeros_like(gradient), "squares": gradient.new_zeros(gradient.shape[1])}
            for other in rest:
                self.state[other]["momentum"] = torch.zeros_like(other)
        state["step"] += 1
        # lerp with the weight 1 - decay is decay * old + (1 - decay) * new.
        state["squares"].lerp_(gradient.square().mean(dim=0), 1 - decay_of_squares)
        sizes = (state["squares"] / (1 - decay_of_squares ** state["step"])).sqrt()
        rate = lr / (1 - decay ** state["step"]) / (sizes + TINY_GRADIENT)
        momentum = state["momentum"].lerp_(gradient, 1 - decay)
        frame.copy_(frame.manifold.retr(frame, frame.manifold.proju(frame, -rate * momentum)))
        for other in rest:
            other.sub_(rate[:, None] * self.state[other]["momentum"].lerp_(other.grad, 1 - decay))
