"""The parameters of the detector and of training, each declared once.

A declaration has a default, a short description, and the allowed values. Checks, error messages and command-line options follow
from it. Nothing heavy is imported here, so that the command line knows its options before torch is loaded.
"""

import math
import warnings
from dataclasses import Field, dataclass, field, fields
from os import PathLike
from typing import Any, Literal, Self

from pyod_quadric.allowed import (
    Flag,
    Kind,
    Mapping,
    Nothing,
    Number,
    Object,
    PathName,
    Seed,
    Share,
    Text,
    Whole,
    Words,
    checked,
)

Distance = Literal["second_order", "first_order", "algebraic"]
Loss = Literal["second_order", "first_order", "algebraic", "squared_algebraic"]
ConstraintName = Literal["penalty", "stiefel"]
InnerProduct = Literal["hs", "coefficient"]
OptimizerName = Literal["sgd", "adam"]
Schedule = Literal["cosine", "constant"]
# Parts of the score by name, all of them together, or the paper's.
Score = Literal[
    "combined", "linear", "quadrics", "neighbors", "linear+quadrics", "linear+neighbors", "quadrics+neighbors", "mean_distance"
]
Init = Literal["auto", "spectral", "random"]

LEAST_ROWS = 3  # of a fit, and of the window of a stream: one for each fold
# From a closed form there is not far to go, and large steps lead away from it.
LR_FROM_CLOSED_FORM = 0.001
# A file of a stranger holds parameters, too, and none of them may keep a machine busy for ever.
MOST_EPOCHS = 100_000


def declared(default: Any, words: str, *kinds: Kind, compare: bool = True) -> Any:
    """Declare a parameter: its default, what it is in a few words, and the kinds of values it may have."""
    return field(default=default, compare=compare, metadata={"words": words, "kinds": kinds})


def declarations(kind: type) -> dict[str, Field[Any]]:
    """Return the declared parameters of a dataclass by name.

    Examples
    --------
    >>> declarations(TrainingOptions)["lr"].default
    0.01
    """
    return {entry.name: entry for entry in fields(kind) if "kinds" in entry.metadata}


class _Declared:
    """A frozen dataclass whose values are checked, and brought to Python's own types, when it is made."""

    def __post_init__(self) -> None:
        for name, entry in declarations(type(self)).items():
            object.__setattr__(self, name, checked(name, getattr(self, name), entry.metadata["kinds"]))


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(_Declared):
    """Options of training.

    Parameters
    ----------
    constraint : {"penalty", "stiefel"}, default="penalty"
        How quadrics are held orthonormal: by a soft penalty, or by descent on the Stiefel manifold.
    inner_product : {"hs", "coefficient"}, default="hs"
        What is orthonormal: the matrices (equivariant), or all monomial coefficients (the paper's base problem).
    orthonormality_weight : float, optional
        The weight λ of the penalty, 1 by default; the manifold has none.
    distance : {"second_order", "first_order", "algebraic", "squared_algebraic"}, default="second_order"
        The distance to minimise: its sum over quadrics, averaged over rows.
    optimizer_name : {"sgd", "adam"}, default="sgd"
        With the penalty, torch's optimisers. On the manifold, geoopt's RiemannianSGD, or an Adam made for frames.
    lr : float, default=0.01
        The learning rate at the start.
    momentum : float, default=0.9
        The momentum of SGD, the first beta of Adam.
    schedule : {"cosine", "constant"}, default="cosine"
        How the learning rate falls from epoch to epoch: along half a cosine to almost 0, or not at all.
    epoch_num : int, default=20
        The number of passes over the rows.
    batch_size : int, default=1024
    validation_fraction : float, default=0.0
        The share of rows to hold out for ``held_out_loss`` in the history: one in two, three, four, and so on, whichever is
        nearest.
    patience : int, optional
        Stop after this many epochs without a smaller held-out loss, and return the best quadrics instead of the last.
    seed : int, default=0
        Seed of the order of the rows.
    verbose : {0, 1, 2}, default=0
        What to print: nothing, a progress bar, or a line for each epoch.
    checkpoint : path, optional
        The file that keeps the state of the run. If it exists, the run resumes from it, after a check that options, start,
        coordinates and all rows are the same. Rows from a loader cannot be compared.
    checkpoint_steps : int, optional
        The number of steps after which to write it.
    checkpoint_minutes : float, optional
        Otherwise, the number of minutes after which to write it, 10 by default. It is always written at the start and the end.

    Raises
    ------
    ValueError
        If a value is not allowed or would have no effect: a weight of the penalty on the manifold, or times of a checkpoint
        without a file.

    Examples
    --------
    >>> TrainingOptions(constraint="stiefel", epoch_num=10).learning_rate(epoch=5)
    0.005
    """

    constraint: ConstraintName = declared("penalty", "how training holds orthonormality", Words(ConstraintName))
    inner_product: InnerProduct = declared("hs", "what is orthonormal: matrices or coefficients", Words(InnerProduct))
    orthonormality_weight: float | None = declared(None, "the weight of the penalty, else 1", Number(least=0), Nothing())
    distance: Loss = declared("second_order", "what training minimises", Words(Loss))
    optimizer_name: OptimizerName = declared("sgd", "the optimiser", Words(OptimizerName))
    lr: float = declared(0.01, "the learning rate", Number(above=0))
    momentum: float = declared(0.9, "the momentum of SGD, the first beta of Adam", Number(least=0, below=1))
    schedule: Schedule = declared("cosine", "how the learning rate falls", Words(Schedule))
    epoch_num: int = declared(20, "epochs of training", Whole(0, MOST_EPOCHS))
    batch_size: int = declared(1024, "rows of a training step", Whole(1))
    validation_fraction: float = declared(0.0, "the share of rows that training holds out", Number(least=0, most=0.5))
    patience: int | None = declared(None, "stop after this many epochs without a smaller held-out loss", Whole(1), Nothing())
    seed: int = declared(0, "decides the order of the rows", Whole(0))
    verbose: int = declared(0, "0: nothing, 1: a progress bar, 2: a line for each epoch", Whole(0), Flag(), compare=False)
    checkpoint: str | PathLike[str] | None = declared(
        None, "the file from which a killed training resumes", PathName(), Nothing(), compare=False
    )
    checkpoint_steps: int | None = declared(None, "write the checkpoint every N steps", Whole(1), Nothing(), compare=False)
    checkpoint_minutes: float | None = declared(
        None, "write the checkpoint every N minutes, else 10", Number(above=0), Nothing(), compare=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patience is not None and not self.validation_fraction:
            raise ValueError("patience watches the held-out loss: set validation_fraction, to 0.1 say")
        without_file = self.checkpoint is None
        for name, has_none, why in (
            ("orthonormality_weight", self.constraint == "stiefel", "the Stiefel manifold has no penalty to weigh"),
            ("checkpoint_steps", without_file, "there is no checkpoint to write"),
            ("checkpoint_minutes", without_file, "there is no checkpoint to write"),
            ("checkpoint_minutes", self.checkpoint_steps is not None, "checkpoint_steps decides when it is written"),
        ):
            if has_none and getattr(self, name) is not None:
                raise ValueError(f"{name}={getattr(self, name)!r} has no effect: {why}; leave it out")

    def learning_rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch."""
        if self.schedule == "constant":
            return self.lr
        return self.lr * (1 + math.cos(math.pi * epoch / max(1, self.epoch_num))) / 2


# What the detector takes in ``training_options``; ``loss`` is the ``distance`` that training minimises.
RARELY_USED = (
    *("orthonormality_weight", "loss", "momentum", "schedule", "validation_fraction", "patience"),
    *("checkpoint", "checkpoint_steps", "checkpoint_minutes"),
)


def training_declaration(name: str) -> Field[Any]:
    """Return the declaration of one of the detector's ``training_options``."""
    return declarations(TrainingOptions)["distance" if name == "loss" else name]


def _optional(name: str) -> Any:
    """Declare a word of training as the detector has it: None leaves it open, and asks for no training."""
    entry = declarations(TrainingOptions)[name]
    return declared(None, f"{entry.metadata['words']}, else {entry.default}", *entry.metadata["kinds"], Nothing())


@dataclass(frozen=True, kw_only=True)
class Parameters(_Declared):
    """The parameters of :class:`pyod_quadric.QuadricDetector`, which describes them.

    Examples
    --------
    >>> Parameters().training(), Parameters(constraint="stiefel").training().epoch_num
    (None, 20)
    """

    contamination: Any = declared(
        0.1, "the share of outliers among the rows, which decides the threshold; or auto", Share(), Words("auto")
    )
    n_quadrics: int | Literal["auto"] = declared("auto", "how many quadrics", Words("auto"), Whole(1))
    n_components: int | float | Literal["auto"] | None = declared(
        "auto",
        "coordinates of the quadrics: how many, a share of the variance, auto or none",
        *(Words("auto"), Whole(1), Number(above=0, most=1), Nothing()),
    )
    normalize: bool | Literal["auto"] = declared("auto", "whether to divide rows by their norm", Flag(), Words("auto"))
    standardize: bool | Literal["auto"] = declared("auto", "whether to divide columns by their spread", Flag(), Words("auto"))
    score_function: Score = declared("combined", "what the score is made of", Words(Score))
    n_prototypes: int = declared(10_000, "the largest number of training rows to keep as neighbours", Whole(1))
    n_folds: int | Literal["auto"] | None = declared(
        "auto", "folds by which training rows are held out", Words("auto"), Whole(LEAST_ROWS), Nothing()
    )
    robust: bool = declared(True, "whether rows far from the others count less", Flag())
    distance: Distance = declared("second_order", "how far a point is from a quadric", Words(Distance))
    inner_product: InnerProduct = declared("hs", "what is orthonormal: matrices or coefficients", Words(InnerProduct))
    init: Any = declared("auto", "where the quadrics start", Words(Init), Object("Quadrics"))
    constraint: ConstraintName | None = _optional("constraint")
    epoch_num: int | None = declared(None, "epochs of training; 0 is the closed form alone", Whole(0, MOST_EPOCHS), Nothing())
    lr: float | None = _optional("lr")
    batch_size: int | None = _optional("batch_size")
    optimizer_name: OptimizerName | None = _optional("optimizer_name")
    training_options: dict[str, Any] | None = declared(None, "rarely used options of training", Mapping(RARELY_USED), Nothing())
    device: str | None = declared(None, "where to compute, such as cuda:0; else CUDA if there is any", Text(), Nothing())
    window: int | None = declared(None, "how many rows a stream remembers", Whole(LEAST_ROWS), Nothing())
    random_state: Any = declared(42, "the seed of everything random", Seed(), Nothing())
    verbose: int = declared(0, "0: nothing, 1: a progress bar, 2: a line for each epoch", Whole(0), Flag())

    def __post_init__(self) -> None:
        super().__post_init__()
        rare = self.training_options or {}
        for name, value in rare.items():
            rare[name] = checked(name, value, training_declaration(name).metadata["kinds"])
        if self.n_folds is None and self.score_function != "mean_distance":
            raise ValueError(
                f"n_folds=None holds out no rows, which score_function={self.score_function!r} needs to weigh its parts; leave "
                "it out, or set score_function='mean_distance'"
            )
        training = self.training()  # raises if it cannot be as it was asked for
        for name, has_none, why in self._without_effect(training):
            if has_none and getattr(self, name) != declarations(Parameters)[name].default:
                warnings.warn(f"{name}={getattr(self, name)!r} has no effect: {why}", stacklevel=4)

    @classmethod
    def silent(cls, **values: Any) -> Self:
        """Return parameters that were checked before, without warnings."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return cls(**values)

    def training(self, seed: int = 0) -> TrainingOptions | None:
        """Return the options of training, or None if no parameter asks for training.

        A constraint, an optimiser, a learning rate, a batch size, any of the ``training_options`` or a random start asks for
        training. Together with ``epoch_num=0`` it raises a ValueError.
        """
        flat = {name: getattr(self, name) for name in ("constraint", "lr", "batch_size", "optimizer_name")}
        given = {name: value for name, value in flat.items() if value is not None}
        rare = dict(self.training_options or {})
        asked = [f"{name}={value!r}" for name, value in {**given, **rare}.items()]
        asked += ["init='random'"] if self.init == "random" else []
        if self.epoch_num:
            asked.append(f"epoch_num={self.epoch_num}")
        if not asked:
            return None
        if self.epoch_num == 0:
            raise ValueError(f"{asked[0]} asks for training, but epoch_num=0 forbids it; leave out one of the two")
        if not self.has_quadrics():
            raise ValueError(
                f"{asked[0]} asks for training, but score_function={self.score_function!r} has no quadrics; leave out one of "
                "the two"
            )
        if self.epoch_num is not None:
            given["epoch_num"] = self.epoch_num
        if self.init != "random":
            given.setdefault("lr", LR_FROM_CLOSED_FORM)
        distance = rare.pop("loss", self.distance)
        return TrainingOptions(
            distance=distance, inner_product=self.inner_product, seed=seed, verbose=self.verbose, **given, **rare
        )

    def has_linear_part(self) -> bool:
        """Return whether the score has a linear part."""
        return self.score_function == "combined" or "linear" in self.score_function

    def has_quadrics(self) -> bool:
        """Return whether the score has quadrics."""
        return self.score_function in ("combined", "mean_distance") or "quadrics" in self.score_function

    def has_neighbors(self) -> bool:
        """Return whether the score has neighbours."""
        return self.score_function == "combined" or "neighbors" in self.score_function

    def _without_effect(self, training: TrainingOptions | None) -> list[tuple[str, bool, str]]:
        """Return which parameters would change nothing, and why."""
        no_quadrics = f"score_function={self.score_function!r} has no quadrics"
        is_given = not isinstance(self.init, str)
        return [
            *((name, not self.has_quadrics(), no_quadrics) for name in ("n_quadrics", "distance", "inner_product", "init")),
            ("n_prototypes", not self.has_neighbors(), f"score_function={self.score_function!r} has no neighbours"),
            ("inner_product", is_given and training is None, "the quadrics are given and not trained"),
        ]
