"""Penalty against manifold: the same start trained on the same batches, with orthonormality held in either way.

One row in ten is held out; coordinates and start are learnt without those rows. Each way has the learning rate that is best for
its own held-out loss. A penalty leaves the quadrics a little off orthonormal, and quadrics that lean towards each other have a
smaller loss, so the loss is also given after they are made orthonormal.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from torch import Tensor

from pyod_quadric.allowed import Nothing, Whole, Words, checked
from pyod_quadric.data.batches import held_out_indices
from pyod_quadric.data.rows import Rows, rows_of
from pyod_quadric.fitting.components import auto_components
from pyod_quadric.geometry.distances import second_order_distance
from pyod_quadric.geometry.frames import orthonormality_error
from pyod_quadric.geometry.packing import packed_size
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.model.coordinates import WorkingCoordinates, fit_working_coordinates
from pyod_quadric.parameters import ConstraintName, Init, OptimizerName, TrainingOptions
from pyod_quadric.training.loop import train
from pyod_quadric.training.starts import starting_quadrics

CONSTRAINTS: tuple[ConstraintName, ...] = get_args(ConstraintName)
ONE_IN = 10  # rows that is held out
BLOCK_ROWS = 4096
AUTO_QUADRICS = 20  # enough to tell the two apart, and soon trained
LEARNING_RATES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


@dataclass(frozen=True, eq=False)
class ConstraintRun:
    """One training run; losses are means over held-out rows and over quadrics of the order-2 distance.

    Parameters
    ----------
    lr : float
    quadrics : Quadrics
        After training.
    losses, errors, seconds : list of float
        The held-out loss, the orthonormality error and the time, at the start and after each epoch.
    orthonormal_loss : float
        The held-out loss of the quadrics after they are made orthonormal.

    Examples
    --------
    >>> import torch
    >>> circle = Quadrics(torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0]))
    >>> ConstraintRun(0.01, circle, [0.5, 0.1], [0.0, 1e-7], [0.0, 2.0], 0.1).figures()["held_out_loss"]
    0.1
    """

    lr: float
    quadrics: Quadrics
    losses: list[float]
    errors: list[float]
    seconds: list[float]
    orthonormal_loss: float

    def figures(self) -> dict[str, float]:
        """Return what is worth a line in a table."""
        return {
            "learning_rate": self.lr,
            "held_out_loss_at_start": self.losses[0],
            "held_out_loss": self.losses[-1],
            "held_out_loss_made_orthonormal": self.orthonormal_loss,
            "orthonormality_error": self.errors[-1],
            "seconds": self.seconds[-1],
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """What :func:`compare_constraints` finds.

    Parameters
    ----------
    runs : dict
        For "penalty" and "stiefel", the :class:`ConstraintRun` at its best learning rate.
    scores : dict of ndarray of shape (n,)
        The mean order-2 distance of all rows, by each.
    roc_auc : dict of float, or None
        Of these scores, if labels were given.
    conditions : str
        In words, what both have in common.

    Examples
    --------
    >>> import numpy as np
    >>> scores = {"penalty": np.array([1.0, 2.0, 3.0]), "stiefel": np.array([1.0, 2.5, 2.6])}
    >>> Comparison({}, scores, None, "").rank_correlation
    1.0
    """

    runs: dict[ConstraintName, ConstraintRun]
    scores: dict[ConstraintName, NDArray[np.float64]]
    roc_auc: dict[ConstraintName, float] | None
    conditions: str

    @property
    def rank_correlation(self) -> float:
        """Spearman's correlation of the two scores."""
        return float(spearmanr(*self.scores.values()).statistic)

    @property
    def common_top_tenth(self) -> float:
        """The share of the top tenth of the rows by one score that is in the top tenth by the other."""
        n_top = math.ceil(len(self.scores["penalty"]) / 10)
        first, second = (set(np.argsort(-scores, kind="stable")[:n_top].tolist()) for scores in self.scores.values())
        return len(first & second) / n_top

    def figures(self) -> dict[str, Any]:
        """Return everything but the scores, in types that JSON knows."""
        by_constraint: dict[str, Any] = {
            str(name): {**run.figures(), "roc_auc": None if self.roc_auc is None else self.roc_auc[name]}
            for name, run in self.runs.items()
        }
        agreement = {"rank_correlation": self.rank_correlation, "common_top_tenth": self.common_top_tenth}
        return {**by_constraint, "agreement": agreement, "conditions": self.conditions}


def compare_constraints(
    X: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    n_quadrics: int | Literal["auto"] = "auto",
    n_components: int | Literal["auto"] | None = "auto",
    init: Init = "auto",
    epoch_num: int = 20,
    batch_size: int = 256,
    optimizer_name: OptimizerName = "sgd",
    learning_rates: Sequence[float] = LEARNING_RATES,
    random_state: int = 42,
    progress: Callable[[], object] = lambda: None,
) -> Comparison:
    """Train quadrics on rows with the penalty and on the Stiefel manifold, alike but for that.

    Parameters
    ----------
    X : array-like of shape (n, d), or path
        At least 20 rows.
    labels : array-like of shape (n,), optional
        1 for outliers and 0 for others, for the ROC-AUC.
    n_quadrics : int or "auto", default="auto"
        "auto" is 20, or as many as can be orthonormal.
    n_components : int, "auto" or None, default="auto"
        Principal coordinates: how many, as many as :class:`pyod_quadric.QuadricDetector` takes, or all.
    init : {"auto", "spectral", "random"}, default="auto"
        Where both start.
    epoch_num, batch_size, optimizer_name
        As for :class:`pyod_quadric.TrainingOptions`.
    learning_rates : sequence of float
        Those to try.
    random_state : int, default=42
        Decides held-out rows, random starts and the order of rows.
    progress : callable, optional
        Called after each run, of which there are two for each learning rate.

    Examples
    --------
    >>> import numpy as np
    >>> angle = np.linspace(0, 6, 200)
    >>> circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    >>> found = compare_constraints(circle, n_quadrics=1, epoch_num=2, learning_rates=[0.01])
    >>> found.runs["stiefel"].errors[-1] < 1e-5
    True
    """
    rows = rows_of(X)
    truth = None if labels is None else _zeros_and_ones(labels, rows.n_rows)
    seed = int(random_state)
    n_components = checked("n_components", n_components, (Words("auto"), Whole(1), Nothing()))
    held_out = held_out_indices(rows.n_rows, ONE_IN, seed)
    fitted = np.setdiff1d(np.arange(rows.n_rows), held_out)
    if not len(held_out) or len(fitted) < 3:
        raise ValueError(f"{2 * ONE_IN} rows or more are needed, of which some are held out, got {rows.n_rows}")
    k = auto_components(len(fitted)) if n_components == "auto" else n_components
    coordinates = fit_working_coordinates(lambda: _blocks(rows, fitted), k if k is None else min(k, rows.n_features))
    k = len(coordinates.matrix)
    m = min(AUTO_QUADRICS, packed_size(k)) if n_quadrics == "auto" else n_quadrics
    working = (coordinates.transform(block) for block in _blocks(rows, fitted))
    start = starting_quadrics(init, working, m, k, torch.Generator().manual_seed(seed))
    options = TrainingOptions(
        optimizer_name=optimizer_name,
        epoch_num=epoch_num,
        batch_size=batch_size,
        validation_fraction=1 / ONE_IN,
        seed=seed,
    )
    runs = {
        name: best_run(rows, start, replace(options, constraint=name), coordinates, learning_rates, progress)
        for name in CONSTRAINTS
    }
    scores = {name: _mean_distances(rows, np.arange(rows.n_rows), run.quadrics, coordinates) for name, run in runs.items()}
    return Comparison(
        runs,
        scores,
        None if truth is None else {name: float(roc_auc_score(truth, values)) for name, values in scores.items()},
        f"{len(fitted)} rows for training, {len(held_out)} held out; {m} quadrics in {k} principal coordinates; "
        f"{optimizer_name}, {epoch_num} epochs, batches of {batch_size}; losses are mean order-2 distances to a quadric",
    )


def best_run(
    rows: Rows,
    start: Quadrics,
    options: TrainingOptions,
    coordinates: WorkingCoordinates | None,
    learning_rates: Sequence[float],
    progress: Callable[[], object] = lambda: None,
) -> ConstraintRun:
    """Train with each learning rate, and return the run that ends with the smallest held-out loss."""
    runs = []
    for rate in learning_rates:
        with suppress(FloatingPointError), warnings.catch_warnings():  # what diverges, or does harm, is not the best
            warnings.simplefilter("ignore")
            runs.append(constraint_run(rows, start, replace(options, lr=rate), coordinates))
        progress()
    if not runs:
        raise ValueError(f"training diverged with all learning rates {list(learning_rates)}; give smaller ones")
    return min(runs, key=lambda run: run.losses[-1])


def constraint_run(
    rows: Rows, start: Quadrics, options: TrainingOptions, coordinates: WorkingCoordinates | None = None
) -> ConstraintRun:
    """Train once, and measure; one row in ten is held out."""
    options = replace(options, validation_fraction=1 / ONE_IN)
    held_out = held_out_indices(rows.n_rows, ONE_IN, options.seed)
    trained = train(rows, start, options, coordinates)

    def loss(quadrics: Quadrics) -> float:
        return float(_mean_distances(rows, held_out, quadrics, coordinates).mean())

    return ConstraintRun(
        options.lr,
        trained.quadrics,
        [loss(start), *(total / len(start) for total in trained.history["held_out_loss"])],
        [float(orthonormality_error(start.packed().double().T)), *trained.history["orthonormality_error"]],
        [0.0, *trained.history["seconds"]],
        loss(trained.quadrics.orthonormalized()),
    )


def _blocks(rows: Rows, indices: NDArray[np.int64]) -> Iterator[Tensor]:
    return (rows.read(indices[start : start + BLOCK_ROWS]) for start in range(0, len(indices), BLOCK_ROWS))


def _mean_distances(
    rows: Rows, indices: NDArray[np.int64], quadrics: Quadrics, coordinates: WorkingCoordinates | None
) -> NDArray[np.float64]:
    """Return the mean over quadrics of the order-2 distance of some rows, (n,)."""
    working = (block if coordinates is None else coordinates.transform(block) for block in _blocks(rows, indices))
    means = [second_order_distance(block.to(quadrics.dtype), quadrics).mean(dim=1).double() for block in working]
    return torch.cat(means).numpy()


def _zeros_and_ones(labels: ArrayLike, n_rows: int) -> NDArray[np.int64]:
    """Return labels as 0 and 1, both of which must be there, or raise a ValueError."""
    given = np.asarray(labels)
    try:
        numbers = given.astype(np.float64)
    except (ValueError, TypeError):
        numbers = np.full(given.shape, np.nan)
    if numbers.shape != (n_rows,):
        raise ValueError(f"labels must have shape ({n_rows},), one for each row, got {numbers.shape}")
    if set(np.unique(numbers)) != {0.0, 1.0}:
        raise ValueError("labels must be 1 for outliers and 0 for others, and some of each are needed for a ROC-AUC")
    return numbers.astype(np.int64)
