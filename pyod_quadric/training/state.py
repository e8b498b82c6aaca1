"""The state of a run as stored in checkpoints: names, types, shapes and bounds of its values.

Checkpoints are untrusted input. A run takes from them only what is declared here; learning rates, momenta and the like come
from its own options.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from pyod_quadric.allowed import MOST_COUNT, Number, Whole
from pyod_quadric.model.model import HISTORY_NAMES
from pyod_quadric.model.saved import Texts
from pyod_quadric.parameters import TrainingOptions
from pyod_quadric.storage.layout import Array, Layout, as_tensor, check_values, put_together, taken_apart

EXACT = (torch.float64,)
# Bounds of what is finite but absurd: a frame is nearly orthonormal, and the rest is in the unit of working coordinates.
MOST_FRAME, MOST_REST, MOST_GRADIENT = 1e6, 1e30, 1e36
STEPS = Array((), (torch.float64, torch.float32), least=1, most=MOST_COUNT)
OPTIONAL = ("first", "best", "optimizer")  # before the first step or epoch, or without held-out rows


@dataclass(frozen=True, eq=False, kw_only=True)
class Best:
    """The quadrics with the smallest held-out loss so far.

    Parameters
    ----------
    loss : float
    frame : Tensor of shape (m, F)
    rest : Tensor of shape (m, R)
    """

    loss: float
    frame: Tensor
    rest: Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class RunState:
    """The state of a run.

    Parameters
    ----------
    fingerprint : dict of str
        The identity of the run.
    epoch, batch : int
        Of the next step.
    stale : int
        Epochs since the best.
    seconds : float
        The time the run has taken so far.
    sums : Tensor of shape (2,)
        Of losses and of rows, in this epoch.
    first : Tensor of shape (2,), optional
        The loss before the first step, and a size of its kind.
    history : dict of lists
        One entry an epoch.
    frame : Tensor of shape (m, F)
    rest : Tensor of shape (m, R)
    best : Best, optional
    optimizer : dict of Tensor
        What the optimiser knows of its parameters, by their number and its own names.
    """

    fingerprint: dict[str, str]
    epoch: int
    batch: int
    stale: int
    seconds: float
    sums: Tensor
    first: Tensor | None
    history: dict[str, list[float]]
    frame: Tensor
    rest: Tensor
    best: Best | None
    optimizer: dict[str, Tensor]

    def values(self, of_optimizer: Layout) -> dict[str, Any]:
        """Return everything by dotted names, tensors and what JSON knows, for an optimiser with the given values."""
        layout = _layout(MOST_COUNT, of_optimizer, self.frame.dtype)
        found = taken_apart(self, layout)
        tensors = {name: kind for name, kind in layout.items() if isinstance(kind, Array) and name in found}
        return found | {name: as_tensor(found[name], kind) for name, kind in tensors.items()}

    @classmethod
    def checked(cls, values: Mapping[str, Any], options: TrainingOptions, of_optimizer: Layout, like: "RunState") -> Self:
        """Return the state that a checkpoint holds, or raise a ValueError unless it is one of a run like another.

        Parameters
        ----------
        values : dict
            By dotted names.
        options : TrainingOptions
        of_optimizer : dict
            What the optimiser knows after a step.
        like : RunState
            A state of the run, for types and shapes.
        """
        sizes = dict(zip(("m", "F", "R", "two"), (*like.frame.shape, like.rest.shape[1], 2), strict=True))
        layout = _layout(options.epoch_num, of_optimizer, like.frame.dtype)
        sound = check_values(values, layout, OPTIONAL, "a run with these options", sizes)
        found = put_together(cls, {name: _as_list(name, value) for name, value in sound.items()})
        n_epochs = {len(numbers) for numbers in found.history.values()}
        if n_epochs != {found.epoch} or found.stale > found.epoch:
            raise ValueError(f"its history is of {sorted(n_epochs)} epochs, but {found.epoch} are over")
        if (found.epoch or found.batch) and (found.first is None or (of_optimizer and not found.optimizer)):
            raise ValueError("it lacks the loss before the first step, or the state of the optimiser")
        return found


def gradients(dimensions: tuple[str, ...], dtype: torch.dtype) -> Array:
    """Return what an optimiser may know of gradients."""
    return Array(dimensions, (dtype,), least=-MOST_GRADIENT, most=MOST_GRADIENT)


def squares(dimensions: tuple[str, ...], dtype: torch.dtype) -> Array:
    """Return what an optimiser may know of squared gradients."""
    return Array(dimensions, (dtype,), least=0, most=MOST_GRADIENT)


def _layout(most_epochs: int, of_optimizer: Layout, dtype: torch.dtype) -> Layout:
    frame = Array(("m", "F"), (dtype,), least=-MOST_FRAME, most=MOST_FRAME)
    rest = Array(("m", "R"), (dtype,), least=-MOST_REST, most=MOST_REST, empty=True)
    return {
        "fingerprint": Texts(dict),
        "epoch": Whole(0, most_epochs),
        "batch": Whole(0),
        "stale": Whole(0),
        "seconds": Number(least=0),
        "sums": Array(("two",), EXACT, least=0),
        "first": Array(("two",), EXACT, least=0),
        **{f"history.{name}": Array(("epochs",), EXACT, finite=False, empty=True) for name in HISTORY_NAMES},
        "frame": frame,
        "rest": rest,
        "best.loss": Number(least=0),
        "best.frame": frame,
        "best.rest": rest,
        **{f"optimizer.{name}": kind for name, kind in of_optimizer.items()},
    }


def _as_list(name: str, value: Any) -> Any:
    return value.tolist() if name.startswith("history.") else value
