"""How orthonormality is held while quadrics are trained: the one place where penalty and manifold differ.

Trained quadrics consist of a *frame*, which has to be orthonormal, and a *rest*, which is free. For the Hilbert-Schmidt inner
product the frame is the packed matrices and the rest is b and c; for the coefficient-wise inner product the frame is all
monomial coefficients and there is no rest.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from pyod_quadric.geometry.frames import gram, nearest_frame, orthonormality_error
from pyod_quadric.geometry.packing import packed_size, packing_factors, unpack
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.parameters import InnerProduct, OptimizerName, TrainingOptions
from pyod_quadric.storage.layout import Array
from pyod_quadric.training.objective import Parts
from pyod_quadric.training.state import STEPS, gradients, squares

REST = ("m", "R")  # dimensions of what is free


class Constraint(ABC):
    """Quadrics in training: parameters for an optimiser on one side, matrices for the objective on the other.

    Parameters
    ----------
    quadrics : Quadrics
        The starting quadrics; their frame is made orthonormal.
    inner_product : {"hs", "coefficient"}
        The inner product in which the frame is orthonormal.
    """

    dimensions = ("m", "F")  # of the frame as the optimiser sees it
    most_error = math.inf  # of a frame that a checkpoint may hold

    def __init__(self, quadrics: Quadrics, inner_product: InnerProduct) -> None:
        if inner_product not in get_args(InnerProduct):
            raise ValueError(f"inner_product must be one of {get_args(InnerProduct)}, got {inner_product!r}")
        self._size = packed_size(quadrics.n_features)
        if inner_product == "hs":
            self._packing = None
            frame, rest = quadrics.packed(), torch.cat([quadrics.linear, quadrics.constant[:, None]], dim=1)
        else:
            self._packing = packing_factors(quadrics.n_features, quadrics.quadratic)  # monomial coefficient over packed entry
            frame, rest = quadrics.coefficients(), quadrics.linear[:, :0]
        self.frame, rest = nearest_frame(frame, rest)  # (m, F), (m, R)
        self.rest = Parameter(rest, requires_grad=False)
        self.gradient_buffer = Parts(*(torch.empty_like(part) for part in self.parts()))  # to write gradients into

    @property
    @abstractmethod
    def frame_parameter(self) -> Parameter:
        """The frame as the optimiser sees it, in the memory of :attr:`frame`."""

    @abstractmethod
    def oriented(self, frame: Tensor) -> Tensor:
        """Turn a tensor like the frame, (m, F), to the shape of the parameter."""

    @abstractmethod
    def optimizer(self, name: OptimizerName, lr: float, momentum: float) -> Optimizer:
        """Return an optimiser of frame and rest."""

    @abstractmethod
    def penalize(self, by_frame: Tensor) -> None:
        """Add the gradient of the penalty to the gradient by the frame (m, F)."""

    def parameters(self) -> list[Parameter]:
        """Return what an optimiser moves: the frame, and the rest if there is any."""
        return [parameter for parameter in (self.frame_parameter, self.rest) if parameter.numel()]

    def parts(self) -> Parts:
        """Return the packed matrices, linear and constant parts of the quadrics as they are now."""
        packed = self.frame[:, : self._size]
        if self._packing is not None:
            packed = packed / self._packing
        free = torch.cat([self.frame[:, self._size :], self.rest], dim=1)  # b and c, whichever holds them
        return Parts(packed, free[:, :-1].contiguous(), free[:, -1].contiguous())

    def quadrics(self) -> Quadrics:
        """Return a copy of the quadrics as they are now."""
        packed, linear, constant = self.parts()
        return Quadrics(unpack(packed), linear, constant)

    def set_gradient(self, gradient: Parts) -> None:
        """Set ``.grad`` of frame and rest from the gradient with respect to (packed, b, c)."""
        free = torch.cat([gradient.linear, gradient.constant[:, None]], dim=1)
        by_frame = gradient.packed
        if self._packing is not None:
            by_frame = torch.cat([by_frame / self._packing, free], dim=1)
        self.penalize(by_frame)
        self.rest.grad = free[:, free.shape[1] - self.rest.shape[1] :]
        self.frame_parameter.grad = self.oriented(by_frame)

    @abstractmethod
    def adam_layout(self, dimensions: tuple[str, ...]) -> dict[str, Array]:
        """Return what Adam knows of the gradients of a parameter with these dimensions after a step."""

    def optimizer_layout(self, options: TrainingOptions) -> dict[str, Array]:
        """Return what the optimiser knows of its parameters after a step, by the number of each and its own names."""
        found: dict[str, Array] = {}
        for number, parameter in enumerate(self.parameters()):
            dimensions = REST if parameter is self.rest else self.dimensions
            if options.optimizer_name == "adam":
                known = {"step": STEPS, **self.adam_layout(dimensions)}
            else:
                known = {"momentum_buffer": gradients(dimensions, self.frame.dtype)} if options.momentum else {}
            found |= {f"{number}.{name}": kind for name, kind in known.items()}
        return found

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return what an optimiser knows of its parameters, by their numbers."""
        return {str(number): optimizer.state[parameter] for number, parameter in enumerate(self.parameters())}

    def load_optimizer(self, optimizer: Optimizer, state: Mapping[str, Tensor]) -> None:
        """Bring an optimiser to a saved state, exactly."""
        for name, saved in state.items():
            number, _, own = name.partition(".")
            parameter = self.parameters()[int(number)]
            if saved.shape == parameter.shape:  # in memory as the parameter, on which the rounding of products depends
                saved = torch.empty_like(parameter).copy_(saved)
            optimizer.state[parameter][own] = saved if saved.ndim == 0 else saved.to(parameter)

    def check_frame(self) -> None:
        """Raise a ValueError if the current frame does not satisfy the constraint."""
        error = float(self.error())
        if not error <= self.most_error:
            raise ValueError(f"its frame is not orthonormal, but off by {error:.3g}")

    def error(self) -> Tensor:
        """Return the orthonormality error, the unsquared ``‖ṼᵀṼ - I‖``."""
        return orthonormality_error(self.frame.T)


class PenaltyConstraint(Constraint):
    """Orthonormality by a soft penalty ``λ ‖ṼᵀṼ - I‖²``, with torch's optimisers.

    Parameters
    ----------
    quadrics, inner_product
        As for :class:`Constraint`.
    weight : float, default=1.0
        The λ.
    """

    def __init__(self, quadrics: Quadrics, inner_product: InnerProduct = "hs", weight: float = 1.0) -> None:
        super().__init__(quadrics, inner_product)
        if not weight >= 0:
            raise ValueError(f"orthonormality_weight must be a number >= 0, got {weight}")
        self.weight = weight
        self._parameter = Parameter(self.frame, requires_grad=False)

    @property
    def frame_parameter(self) -> Parameter:
        """The frame, (m, F)."""
        return self._parameter

    def oriented(self, frame: Tensor) -> Tensor:
        """Leave it as it is."""
        return frame

    def optimizer(self, name: OptimizerName, lr: float, momentum: float) -> Optimizer:
        """Return torch's SGD or Adam."""
        parameters = self.parameters()
        if name == "adam":
            return torch.optim.Adam(parameters, lr=lr, betas=(momentum, 0.999))
        return torch.optim.SGD(parameters, lr=lr, momentum=momentum)

    def adam_layout(self, dimensions: tuple[str, ...]) -> dict[str, Array]:
        """Return what torch's Adam knows."""
        dtype = self.frame.dtype
        return {"exp_avg": gradients(dimensions, dtype), "exp_avg_sq": squares(dimensions, dtype)}

    def penalize(self, by_frame: Tensor) -> None:
        """Add ``4 λ (Ṽ ᵀṼ - I)`` times the frame to the gradient."""
        difference = gram(self.frame.T)
        difference.diagonal().sub_(1)
        by_frame.addmm_(difference, self.frame, alpha=4 * self.weight)


class StiefelConstraint(Constraint):
    """Orthonormality by staying on the Stiefel manifold, with geoopt's RiemannianSGD or an Adam for frames.

    The linear and constant parts are Euclidean parameters.

    Parameters
    ----------
    quadrics, inner_product
        As for :class:`Constraint`.
    manifold : geoopt.Manifold, optional
        A Stiefel manifold with the Euclidean metric: :class:`pyod_quadric.CholeskyStiefel`, in place, by default;
        ``geoopt.EuclideanStiefel()`` for geoopt's own, slower one.
    """

    dimensions = ("F", "m")
    most_error = 1e-2  # it is about 1e-5 in float32

    def __init__(self, quadrics: Quadrics, inner_product: InnerProduct = "hs", manifold: Any = None) -> None:
        # Here and not above, since geoopt takes time and most fits need no manifold.
        from pyod_quadric.training.manifold import InPlaceStiefel
        from pyod_quadric.training.riemannian import on_manifold

        super().__init__(quadrics, inner_product)
        # geoopt's frames have orthonormal columns: the transposed view of the same memory.
        self._parameter = on_manifold(self.frame.T, manifold or InPlaceStiefel())

    @property
    def frame_parameter(self) -> Parameter:
        """The frame as a point of the manifold, (F, m)."""
        return self._parameter

    def oriented(self, frame: Tensor) -> Tensor:
        """Transpose it."""
        return frame.T

    def optimizer(self, name: OptimizerName, lr: float, momentum: float) -> Optimizer:
        """Return geoopt's RiemannianSGD, or an Adam for frames; see :class:`pyod_quadric.training.manifold.FrameAdam`."""
        from pyod_quadric.training.manifold import FrameAdam
        from pyod_quadric.training.riemannian import riemannian_sgd

        if name == "adam":
            return FrameAdam(self.parameters(), lr=lr, betas=(momentum, 0.999))
        return riemannian_sgd(self.parameters(), lr, momentum)

    def adam_layout(self, dimensions: tuple[str, ...]) -> dict[str, Array]:
        """Return what FrameAdam knows."""
        of_squares = {"squares": REST} if dimensions == REST else {"squares_by_quadric": ("m",), "squares_by_entry": ("F",)}
        found = {name: squares(of_each, self.frame.dtype) for name, of_each in of_squares.items()}
        return {"momentum": gradients(dimensions, self.frame.dtype), **found}

    def penalize(self, by_frame: Tensor) -> None:
        """Add nothing: the manifold holds the constraint."""

    def load_optimizer(self, optimizer: Optimizer, state: Mapping[str, Tensor]) -> None:
        """Bring an optimiser to a saved state, exactly."""
        super().load_optimizer(optimizer, state)
        for saved in optimizer.state.values():
            if "step" in saved:  # FrameAdam counts in an int
                saved["step"] = int(saved["step"])


def constraint_for(options: TrainingOptions, start: Quadrics) -> Constraint:
    """Return the constraint that the options ask for. Only this function chooses between penalty and manifold."""
    if options.constraint == "penalty":
        weight = 1.0 if options.orthonormality_weight is None else options.orthonormality_weight
        return PenaltyConstraint(start, options.inner_product, weight)
    return StiefelConstraint(start, options.inner_product)
