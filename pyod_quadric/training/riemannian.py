"""The parts of geoopt that training needs, with a replacement if geoopt cannot be imported.

geoopt compiles its helpers by a call that torch has deprecated. The warnings concern geoopt's authors, so users do not see them
here. Training still works if torch removes the call, or if geoopt is missing: it needs only a manifold parameter and stochastic
gradient descent of geoopt, and both are below, step for step the same.
"""

import warnings
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer


def _import_geoopt() -> ModuleType | None:
    # Filters belong to the whole process: another thread that warns meanwhile sees this one too, and if both set filters at a
    # time, one of them may stay. So it is as narrow as can be, and what comes of it is that one deprecation is not shown.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`torch.jit")
        try:
            import geoopt
        except Exception:  # ImportError, and whatever torch may raise in place of what it has taken away
            return None
    module: ModuleType = geoopt
    return module


geoopt = _import_geoopt()
StiefelBase: Any = geoopt.EuclideanStiefel if geoopt else object  # what a manifold has to be for geoopt's optimisers


class RiemannianSGD(Optimizer):
    """Stochastic gradient descent on a manifold, with the steps of geoopt's, bit for bit.

    Parameters
    ----------
    parameters : list of Parameter
        With an attribute ``manifold``, or free.
    lr : float
    momentum : float, default=0.0

    Examples
    --------
    >>> import torch
    >>> from pyod_quadric.training.manifold import CholeskyStiefel
    >>> frame = torch.nn.Parameter(torch.eye(5, 2))
    >>> frame.manifold = CholeskyStiefel()
    >>> optimizer = RiemannianSGD([frame], lr=0.1)
    >>> frame.sum().backward()
    >>> _ = optimizer.step()
    >>> torch.allclose(frame.T @ frame, torch.eye(2), atol=1e-6)
    True
    """

    def __init__(self, parameters: list[Parameter], lr: float, momentum: float = 0.0) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take a step by the gradients as they are, or as a closure makes them, and return the closure's loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for point in group["params"]:
                if point.grad is not None:
                    self._move(point, group["lr"], group["momentum"])
        return loss

    def _move(self, point: Parameter, lr: float, momentum: float) -> None:
        manifold, gradient = getattr(point, "manifold", None), torch.as_tensor(point.grad)
        state = self.state[point]
        if momentum and "momentum_buffer" not in state:
            state["momentum_buffer"] = gradient.clone()  # geoopt starts from the Euclidean gradient
        step = manifold.egrad2rgrad(point, gradient) if manifold else gradient
        if momentum:
            step = state["momentum_buffer"].mul_(momentum).add_(step)
        moved = manifold.retr(point, -lr * step) if manifold else point - lr * step
        if momentum and manifold:
            step.copy_(manifold.proju(moved, step))
        point.copy_(moved)


def on_manifold(point: Tensor, manifold: Any) -> Parameter:
    """Return a point as a parameter that knows its manifold; optimisers are given its gradient, autograd is not used."""
    if geoopt:
        parameter: Parameter = geoopt.ManifoldParameter(point, manifold=manifold, requires_grad=False)
    else:
        parameter = Parameter(point, requires_grad=False)
        parameter.manifold = manifold  # type: ignore[attr-defined]
    return parameter


def riemannian_sgd(parameters: list[Parameter], lr: float, momentum: float) -> Optimizer:
    """Return geoopt's RiemannianSGD, or the one above where there is none."""
    return (geoopt.optim.RiemannianSGD if geoopt else RiemannianSGD)(parameters, lr=lr, momentum=momentum)
