"""The options of training and of a whole fit."""

import math
from dataclasses import dataclass, field
from numbers import Integral, Real
from os import PathLike
from typing import Literal, get_args

from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.parameters import Distance, Loss
from pyod_quadric.training.constraints import FrameInnerProduct, OptimizerName

ConstraintName = Literal["penalty", "stiefel"]
Schedule = Literal["cosine", "constant"]
Score = Literal["combined", "quadrics", "linear", "mean_distance"]
Init = Literal["auto", "spectral", "random"]


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How to train.

    Parameters
    ----------
    constraint : {"penalty", "stiefel"}, default="penalty"
        How orthonormality is held: by a soft penalty, or by staying on the Stiefel manifold.
    inner_product : {"hs", "coefficient"}, default="hs"
        What is orthonormal: the matrices (equivariant), or all monomial coefficients (the paper's base problem).
    orthonormality_weight : float, default=1.0
        The weight λ of the penalty; the manifold has none.
    distance : {"second_order", "first_order", "algebraic", "squared_algebraic"}, default="second_order"
        What is minimised: the mean over rows of the sum of this over quadrics.
    optimizer_name : {"sgd", "adam"}, default="sgd"
        Torch's with the penalty, geoopt's Riemannian ones on the manifold.
    lr : float, default=0.01
        The learning rate at the start.
    momentum : float, default=0.9
        The momentum of SGD, the first beta of Adam.
    schedule : {"cosine", "constant"}, default="cosine"
        How the learning rate falls from epoch to epoch: along half a cosine to almost 0, or not at all.
    epoch_num : int, default=20
        How many times to go through the rows.
    batch_size : int, default=1024
    validation_fraction : float, default=0.0
        The share of rows to hold out for ``held_out_loss`` in the history: one in two, three, four, and so on, whichever is
        nearest.
    patience : int, optional
        Stop after so many epochs without a smaller held-out loss, and return the best quadrics instead of the last.
    seed : int, default=0
        Decides the order of the rows.
    verbose : {0, 1, 2}, default=0
        Nothing, a progress bar, or a line for each epoch.
    checkpoint : path, optional
        Where to keep the state of the run. If the file is there, the run goes on from it, after a look at options, start,
        coordinates and all rows whether it is the same run. Rows from a loader cannot be compared.
    checkpoint_steps : int, optional
        Write it every so many steps.
    checkpoint_minutes : float, default=10.0
        Otherwise, write it every so many minutes. It is always written at the start and at the end.

    Examples
    --------
    >>> TrainingOptions(constraint="stiefel", epoch_num=10).learning_rate(epoch=5)
    0.005
    """

    constraint: ConstraintName = "penalty"
    inner_product: FrameInnerProduct = "hs"
    orthonormality_weight: float = 1.0
    distance: Loss = "second_order"
    optimizer_name: OptimizerName = "sgd"
    lr: float = 0.01
    momentum: float = 0.9
    schedule: Schedule = "cosine"
    epoch_num: int = 20
    batch_size: int = 1024
    validation_fraction: float = 0.0
    patience: int | None = None
    seed: int = 0
    verbose: int = field(default=0, compare=False)
    checkpoint: str | PathLike[str] | None = field(default=None, compare=False)
    checkpoint_steps: int | None = field(default=None, compare=False)
    checkpoint_minutes: float = field(default=10.0, compare=False)

    def __post_init__(self) -> None:
        for name, names in (
            ("constraint", get_args(ConstraintName)),
            ("inner_product", get_args(FrameInnerProduct)),
            ("distance", get_args(Loss)),
            ("optimizer_name", get_args(OptimizerName)),
            ("schedule", get_args(Schedule)),
        ):
            if getattr(self, name) not in names:
                raise ValueError(f"{name} must be one of {names}, got {getattr(self, name)!r}")
        whole = {"seed": 0, "verbose": 0, "epoch_num": 0, "batch_size": 1, "patience": 1, "checkpoint_steps": 1}
        for name, least in whole.items():
            number = getattr(self, name)
            if number is None and name in ("patience", "checkpoint_steps"):
                continue
            if not isinstance(number, Integral):
                raise ValueError(f"{name} must be a whole number, got {number!r}")
            if not int(number) >= least:
                raise ValueError(f"{name} must be at least {least}, got {number}")
        for name in ("lr", "momentum", "orthonormality_weight", "validation_fraction", "checkpoint_minutes"):
            if not isinstance(getattr(self, name), Real):
                raise ValueError(f"{name} must be a number, got {getattr(self, name)!r}")
        if not self.checkpoint_minutes > 0:
            raise ValueError(f"checkpoint_minutes must be positive, got {self.checkpoint_minutes}")
        if not self.lr > 0:
            raise ValueError(f"lr must be positive, got {self.lr}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be at least 0 and less than 1, got {self.momentum}")
        if not 0 <= self.validation_fraction <= 0.5:
            raise ValueError(f"validation_fraction must be from 0 to 0.5, got {self.validation_fraction}")
        if self.patience is not None and not self.validation_fraction:
            raise ValueError("patience watches the held-out loss: set validation_fraction, to 0.1 say")

    def learning_rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch."""
        if self.schedule == "constant":
            return self.lr
        return self.lr * (1 + math.cos(math.pi * epoch / max(1, self.epoch_num))) / 2


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What to fit. The parameters are those of :class:`pyod_quadric.QuadricDetector`; ``training`` holds how to train."""

    n_quadrics: int | Literal["auto"] = "auto"
    n_components: int | float | Literal["auto"] | None = "auto"
    normalize: bool | Literal["auto"] = "auto"
    score: Score = "combined"
    distance: Distance = "second_order"
    init: Init | Quadrics = "auto"
    robust: bool = True
    seed: int = 0
    training: TrainingOptions = field(default_factory=lambda: TrainingOptions(epoch_num=0))
