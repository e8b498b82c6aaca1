"""A Stiefel manifold for geoopt whose retraction costs matrix products instead of a QR decomposition, and an Adam for it.

See :mod:`pyod_quadric.geometry.frames` for the products. This module is imported when a Stiefel manifold is asked for, since
importing geoopt takes time.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from pyod_quadric.geometry.frames import gram, inverse_root, orthonormalize_, polar
from pyod_quadric.training.riemannian import StiefelBase

TINY_GRADIENT = 1e-8  # as in torch's Adam: gradients below it count as none
# How far a quadric's matrix moves in a step of FrameAdam, in units of the learning rate. The more entries a unit vector has,
# the smaller they are, while b and c stay as they are; so steps of one size in all of them are too long for a wide frame.
LENGTH_OF_STEP = 10.0


class CholeskyStiefel(StiefelBase):  # type: ignore[misc]  # geoopt has no types
    """The Stiefel manifold with the Euclidean metric, retraction by CholeskyQR and projection by the polar factor.

    It is :class:`geoopt.EuclideanStiefel` with the same geometry and the same retraction (the Q factor with positive
    diagonal), computed faster for tall frames. Use it with any geoopt optimiser. Where geoopt cannot be imported, it provides
    only what this package needs of a manifold.

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
    themselves and allocate their steps each time, so with them this is safe.
    """

    def egrad2rgrad(self, x: Tensor, u: Tensor) -> Tensor:
        """Turn the Euclidean gradient u at x into the Riemannian one."""
        inner = x.mT @ u
        return u.sub_(x @ ((inner + inner.mT) / 2)) if u.ndim > 2 else u.mT.addmm_((inner + inner.mT) / 2, x.mT, alpha=-1).mT

    def retr(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the retraction of the tangent vector u at x."""
        return orthonormalize_(u.add_(x))


class FrameAdam(Optimizer):
    """Adam on a Stiefel manifold, with second moments by quadric and by entry.

    geoopt's Adam divides a whole frame by one number, although axes of the data have different spreads. Torch's Adam keeps a
    second moment for each entry of each quadric. This one keeps two kinds of second moments of Riemannian gradients and
    multiplies them, much as Adafactor does (Shazeer and Stern, 2018): one for each quadric, over all entries, and one for each
    packed entry, over all quadrics in units of the former. That is m + F numbers instead of F m.

    A quadric's packed matrix is a unit vector and moves by at most about ``10 lr`` in a step, whatever its size. Torch's Adam
    moves each of the free coefficients by about ``lr``.

    The momentum is a sum of Riemannian gradients at earlier points, divided, so it is no tangent vector. The nearest frame to
    where it leads is taken, which to first order is a projection to the tangent space, without the products of one. After
    longer steps, where the nearest frame may be anywhere, the step is projected first.

    Parameters
    ----------
    parameters : list of Parameter
        A frame (F, m) as a :class:`geoopt.ManifoldParameter`, and the free coefficients (m, R), if there are any.
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
        """Take a step by the present gradients, or by those that a closure computes; return the closure's loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            frame, *rest = group["params"]
            self._move(frame, group["lr"], *group["betas"])
            for other in rest:
                self._move_freely(other, group["lr"], *group["betas"])
        return loss

    def _move(self, frame: Any, lr: float, decay: float, decay_of_squares: float) -> None:
        manifold = frame.manifold
        gradient = manifold.egrad2rgrad(frame, frame.grad)
        mean = _RunningMean(self.state[frame], decay, decay_of_squares)
        momentum, unbiased = mean.of_gradients(gradient)
        # From here on, the memory of the gradient takes whatever has the size of a frame.
        squares = torch.square(gradient, out=gradient)
        by_quadric = mean.of_squares("squares_by_quadric", squares.mean(dim=0))
        in_units = squares @ by_quadric.clamp(min=TINY_GRADIENT**2).reciprocal()  # a sum over quadrics
        by_entry = mean.of_squares("squares_by_entry", in_units / len(by_quadric))
        length = -lr * LENGTH_OF_STEP / math.sqrt(len(frame)) * unbiased
        step = torch.mul(momentum, (length / by_entry.sqrt().add_(TINY_GRADIENT))[:, None], out=gradient)
        moved = torch.addcdiv(frame, step, by_quadric.sqrt().add_(TINY_GRADIENT), out=gradient)
        root = inverse_root(gram(moved))
        if root is None:
            frame.copy_(manifold.retr(frame, manifold.proju(frame, moved.sub_(frame))))
        else:
            torch.mm(root, moved.mT, out=frame.mT)  # symmetric, and so in memory as the frame

    def _move_freely(self, rest: Parameter, lr: float, decay: float, decay_of_squares: float) -> None:
        gradient = torch.as_tensor(rest.grad)
        mean = _RunningMean(self.state[rest], decay, decay_of_squares)
        sizes = mean.of_squares("squares", gradient.square()).sqrt_().add_(TINY_GRADIENT)
        momentum, unbiased = mean.of_gradients(gradient)
        rest.addcdiv_(momentum, sizes, value=-lr * unbiased)


class _RunningMean:
    """Exponential means of gradients and of squares, in a parameter's state, without the bias of their start at 0."""

    def __init__(self, state: dict[str, Any], decay: float, decay_of_squares: float) -> None:
        state["step"] = state.get("step", 0) + 1
        self.state, self.decay, self.decay_of_squares = state, decay, decay_of_squares

    def of_gradients(self, gradient: Tensor) -> tuple[Tensor, float]:
        """Return the mean, which is not to be changed, and by which number it is unbiased."""
        return self._mean("momentum", gradient, self.decay)

    def of_squares(self, name: str, squares: Tensor) -> Tensor:
        """Return the unbiased mean."""
        mean, unbiased = self._mean(name, squares, self.decay_of_squares)
        return mean * unbiased

    def _mean(self, name: str, new: Tensor, decay: float) -> tuple[Tensor, float]:
        if name not in self.state:
            self.state[name] = torch.zeros_like(new)
        return self.state[name].lerp_(new, 1 - decay), 1 / (1 - decay ** self.state["step"])
