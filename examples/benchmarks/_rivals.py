"""Other ways to keep a frame orthonormal in training, as rivals of the penalty and of the manifold.

Each is a :class:`pyod_quadric.training.constraints.Constraint` for the Hilbert-Schmidt inner product: X is the frame with
orthonormal rows (m, F), and G the gradient by it. The formulas are those of the papers, written for rows.
"""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from pyod_quadric.geometry.frames import gram
from pyod_quadric.training.constraints import PenaltyConstraint, StiefelConstraint
from pyod_quadric.training.manifold import FrameAdam
from pyod_quadric.training.objective import Parts
from pyod_quadric.training.riemannian import geoopt

SECOND_DECAY = 0.999


class GeooptStiefel(StiefelConstraint):
    """geoopt's own manifold, with QR, and its own optimisers."""

    def __init__(self, quadrics: Any) -> None:
        super().__init__(quadrics, manifold=geoopt.EuclideanStiefel())

    def optimizer(self, name: str, lr: float, momentum: float) -> Optimizer:
        """Return geoopt's RiemannianSGD or RiemannianAdam."""
        if name == "adam":
            return geoopt.optim.RiemannianAdam(self.parameters(), lr=lr, betas=(momentum, SECOND_DECAY))
        return super().optimizer("sgd", lr, momentum)


class Landing(PenaltyConstraint):
    """The landing field ``(X Xᵀ) G - (X Gᵀ) X + λ (X Xᵀ - I) X``: no retraction, and frames that come back by themselves.

    After Ablin and Peyré (2022), with momentum and without their bound of the step.
    """

    def penalize(self, by_frame: Tensor) -> None:
        """Turn the gradient into the landing field."""
        products, inner = gram(self.frame.T), self.frame @ by_frame.T
        by_frame.copy_(products @ by_frame - inner @ self.frame)
        products.diagonal().sub_(1)
        by_frame.addmm_(products, self.frame, alpha=self.weight)


class ExactPenalty(PenaltyConstraint):
    """The objective at ``Y = (3 I - X Xᵀ) X / 2``, with a penalty: near the manifold its stationary points are the true ones.

    After Xiao, Liu and Yuan (2022). The derivative of Y turns G to ``S G - sym(G Xᵀ) X`` with ``S = (3 I - X Xᵀ) / 2``.
    """

    def _shrinking(self) -> Tensor:
        shrinking = gram(self.frame.T) / -2
        shrinking.diagonal().add_(1.5)
        return shrinking

    def parts(self) -> Parts:
        """Return the quadrics of Y."""
        packed, linear, constant = super().parts()
        return Parts(self._shrinking() @ packed, linear, constant)

    def penalize(self, by_frame: Tensor) -> None:
        """Turn the gradient by Y into that by X, and add that of the penalty."""
        inner = by_frame @ self.frame.T
        by_frame.copy_(self._shrinking() @ by_frame).addmm_((inner + inner.T) / 2, self.frame, alpha=-1)
        super().penalize(by_frame)


class Pogo(PenaltyConstraint):
    """POGO (``pogo-torch``): a step along the relative gradient, and one towards the manifold."""

    def penalize(self, by_frame: Tensor) -> None:
        """Add nothing."""

    def optimizer(self, name: str, lr: float, momentum: float) -> Any:
        """Return POGO for the frame, with its own base optimiser, and torch's for the rest."""
        from pogo import POGO
        from pogo.base import SGD, VectorAdam

        base = VectorAdam(betas=(momentum, SECOND_DECAY)) if name == "adam" else SGD(momentum=momentum)
        of_frame = POGO([self.frame_parameter], base, lr, flatten_fn=lambda frame: frame[None])
        if name == "adam":
            return _Both(of_frame, torch.optim.Adam([self.rest], lr=lr, betas=(momentum, SECOND_DECAY)))
        return _Both(of_frame, torch.optim.SGD([self.rest], lr=lr, momentum=momentum))


class _Both:
    """Two optimisers that step together."""

    def __init__(self, *optimizers: Optimizer) -> None:
        self.optimizers = optimizers
        self.param_groups = [group for optimizer in optimizers for group in optimizer.param_groups]

    def step(self) -> None:
        """Take a step with both."""
        for optimizer in self.optimizers:
            optimizer.step()


class Muon(StiefelConstraint):
    """Steps that are orthonormal frames themselves, as in Muon (Jordan et al., 2024), made tangent and retracted."""

    def optimizer(self, name: str, lr: float, momentum: float) -> Optimizer:
        """Return the optimiser; the rest has torch's Adam, as is usual with Muon."""
        return _Muon(self.parameters(), lr=lr, betas=(momentum, SECOND_DECAY))


class _Muon(FrameAdam):
    def _move(self, frame: Any, lr: float, decay: float, decay_of_squares: float) -> None:
        gradient = frame.manifold.egrad2rgrad(frame, frame.grad)
        momentum = self.state[frame].setdefault("momentum", torch.zeros_like(gradient)).mul_(decay).add_(gradient)
        eigenvalues, vectors = torch.linalg.eigh(gram(momentum.double()))
        floor = torch.finfo(frame.dtype).eps * eigenvalues[-1].clamp(min=torch.finfo(torch.float64).tiny)
        root = (vectors / eigenvalues.clamp(min=floor).sqrt()) @ vectors.T
        step = frame.manifold.proju(frame, momentum @ root.to(frame)).mul_(-lr)
        frame.copy_(frame.manifold.retr(frame, step))
