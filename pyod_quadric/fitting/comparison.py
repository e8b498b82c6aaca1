"""A comparison of detectors on given rows: the default, its parts, and training.

The penalty and the manifold train from the same start on the same batches. One row in ten is held out; coordinates and start
are learnt without it. Each constraint uses the learning rate with its lowest held-out loss. The penalty leaves the quadrics
slightly off orthonormal, which lowers their loss, so the loss is also measured after they are made orthonormal.

Then detectors are fitted to all rows: the default, its linear part alone, and the quadrics alone, in closed form and trained
with each constraint. Each row is scored by a model that has not seen it. No fit sees the labels.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from torch import Tensor

from pyod_quadric.allowed import Whole, Words, checked
from pyod_quadric.data.batches import held_out_indices
from pyod_quadric.data.rows import ChosenRows, Rows, rows_of
from pyod_quadric.fitting.fit import fit_model, seed_of
from pyod_quadric.geometry.distances import second_order_distance
from pyod_quadric.geometry.frames import orthonormality_error
from pyod_quadric.geometry.packing import packed_size
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.model.coordinates import WorkingCoordinates
from pyod_quadric.model.model import Model
from pyod_quadric.parallel.devices import device_of
from pyod_quadric.parallel.threads import share_of_cores
from pyod_quadric.parameters import ConstraintName, Init, OptimizerName, Parameters, TrainingOptions
from pyod_quadric.training.loop import train
from pyod_quadric.training.starts import SPECTRAL_FEATURES, check_n_quadrics, random_quadrics

CONSTRAINTS: tuple[ConstraintName, ...] = get_args(ConstraintName)
ONE_IN = 10  # rows that is held out
BLOCK_ROWS = 4096
AUTO_QUADRICS = 20  # enough to tell the two apart, and soon trained
LEARNING_RATES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
TRAINED = {"penalty": "trained with the penalty", "stiefel": "trained on the manifold"}


@dataclass(frozen=True, eq=False)
class ConstraintRun:
    """One training run; losses are mean order-2 distances over held-out rows and quadrics.

    Parameters
    ----------
    lr : float
    quadrics : Quadrics
        After training.
    losses : list of float
        The held-out loss, at the start and after each epoch.
    errors : list of float
        The orthonormality error, likewise.
    seconds : list of float
        The elapsed time, likewise.
    orthonormal_loss : float
        The held-out loss of the quadrics after they are made orthonormal.

    Examples
    --------
    >>> import torch
    >>> circle = Quadrics(torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0]))
    >>> run = ConstraintRun(0.01, circle, [0.5, 0.1], [0.0, 1e-7], [0.0, 2.0], 0.1)
    >>> run.figures()["held_out_loss"]
    0.1
    """

    lr: float
    quadrics: Quadrics
    losses: list[float]
    errors: list[float]
    seconds: list[float]
    orthonormal_loss: float

    def figures(self) -> dict[str, float]:
        """Return the figures for a line of a table."""
        return {
            "learning_rate": self.lr,
            "held_out_loss_at_start": self.losses[0],
            "held_out_loss": self.losses[-1],
            "held_out_loss_made_orthonormal": self.orthonormal_loss,
            "orthonormality_error": self.errors[-1],
            "seconds": self.seconds[-1],
        }


@dataclass(frozen=True, eq=False)
class ComparedDetector:
    """A detector fitted to all rows.

    Parameters
    ----------
    words : str
        A description.
    settings : dict
        The parameters of its :class:`pyod_quadric.QuadricDetector`.
    scores : ndarray of shape (n,)
        Its ``decision_scores_``: each row is scored by a model that has not seen it.
    seconds : float
        The time of the fit.
    roc_auc : float, optional
        The ROC-AUC of the scores, if labels were given.
    """

    words: str
    settings: dict[str, Any]
    scores: NDArray[np.float64]
    seconds: float
    roc_auc: float | None = None


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result of :func:`compare_constraints`.

    Parameters
    ----------
    runs : dict
        For "penalty" and "stiefel", the :class:`ConstraintRun` at its best learning rate.
    detectors : dict
        A :class:`ComparedDetector` for each of "default", "linear" (its linear part alone), "closed_form", "penalty" and
        "stiefel" (quadrics alone), and with ``train_default`` also "default_penalty" and "default_stiefel" (the default with
        trained quadrics). In more than 100 coordinates there is no closed form.
    conditions : str
        What the runs have in common, in words.

    Examples
    --------
    >>> import numpy as np
    >>> penalty = ComparedDetector("penalty", {}, np.array([1.0, 2.0, 3.0]), 0.1)
    >>> stiefel = ComparedDetector("stiefel", {}, np.array([1.0, 2.5, 2.6]), 0.1)
    >>> Comparison({}, {"penalty": penalty, "stiefel": stiefel}, "").rank_correlation
    1.0
    """

    runs: dict[ConstraintName, ConstraintRun]
    detectors: dict[str, ComparedDetector]
    conditions: str

    @property
    def scores(self) -> dict[str, NDArray[np.float64]]:
        """The scores (n,) of all rows by each detector."""
        return {name: detector.scores for name, detector in self.detectors.items()}

    @property
    def roc_auc(self) -> dict[str, float] | None:
        """The ROC-AUC of each detector, if labels were given."""
        found = {name: detector.roc_auc for name, detector in self.detectors.items() if detector.roc_auc is not None}
        return found or None

    @property
    def rank_correlation(self) -> float:
        """Spearman's correlation of the scores by quadrics alone, trained with the penalty and on the manifold."""
        return self.correlation("penalty", "stiefel")

    @property
    def common_top_tenth(self) -> float:
        """The overlap of the two top tenths of the rows, by the same two scores, as a share."""
        n_top = math.ceil(len(self.scores["penalty"]) / 10)
        first, second = (set(np.argsort(-self.scores[name], kind="stable")[:n_top].tolist()) for name in CONSTRAINTS)
        return len(first & second) / n_top

    def correlation(self, one: str, other: str = "default") -> float:
        """Return Spearman's correlation of the scores by two detectors."""
        return float(spearmanr(self.scores[one], self.scores[other]).statistic)

    def figures(self) -> dict[str, Any]:
        """Return everything but the scores, in JSON types."""
        detectors = {
            name: {
                "words": detector.words,
                "settings": detector.settings,
                "roc_auc": detector.roc_auc,
                "rank_correlation_with_default": self.correlation(name),
                "seconds": detector.seconds,
            }
            for name, detector in self.detectors.items()
        }
        training = {str(name): run.figures() for name, run in self.runs.items()}
        agreement = {"rank_correlation": self.rank_correlation, "common_top_tenth": self.common_top_tenth}
        return {"detectors": detectors, "training": training, "agreement": agreement, "conditions": self.conditions}


def compare_constraints(
    X: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    n_quadrics: int | Literal["auto"] = "auto",
    n_components: int | float | Literal["auto"] | None = "auto",
    init: Init = "auto",
    epoch_num: int = 20,
    batch_size: int = 256,
    optimizer_name: OptimizerName = "sgd",
    learning_rates: Sequence[float] = LEARNING_RATES,
    train_default: bool = False,
    random_state: int = 42,
    progress: Callable[[], object] | None = None,
) -> Comparison:
    """Train quadrics with the penalty and on the Stiefel manifold, and compare the detectors that a user would get.

    Parameters
    ----------
    X : array-like of shape (n, d), or path
        At least 20 rows.
    labels : array-like of shape (n,), optional
        1 for outliers and 0 for others, for the ROC-AUC of the detectors' ``decision_scores_``. No fit sees them.
    n_quadrics : int or "auto", default="auto"
        The number of quadrics of the detectors with quadrics alone. "auto" is 20, but at most half of the quadrics that can be
        orthonormal.
    n_components, init
        As for :class:`pyod_quadric.QuadricDetector`, for the quadrics alone.
    epoch_num, batch_size, optimizer_name
        As for :class:`pyod_quadric.TrainingOptions`.
    learning_rates : sequence of float
        The learning rates to try.
    train_default : bool, default=False
        Whether to train the quadrics of the default detector, too. This may take many times as long as everything else.
    random_state : int, default=42
        The seed of held-out rows, random starts and the order of rows.
    progress : callable, optional
        Called after each run and each fit; :func:`n_steps` counts them.

    Examples
    --------
    >>> import numpy as np
    >>> angle = np.linspace(0, 6, 200)
    >>> circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    >>> found = compare_constraints(circle, n_quadrics=1, epoch_num=2, learning_rates=[0.01])
    >>> found.runs["stiefel"].errors[-1] < 1e-5
    True
    >>> found.detectors["stiefel"].settings["lr"]  # QuadricDetector(**settings) has these scores
    0.01
    """
    advance = progress or (lambda: None)
    rows = rows_of(X)
    truth = None if labels is None else _zeros_and_ones(labels, rows.n_rows)
    n_quadrics = checked("n_quadrics", n_quadrics, (Words("auto"), Whole(1)))
    seed = int(random_state)
    options = TrainingOptions(
        optimizer_name=optimizer_name,
        epoch_num=epoch_num,
        batch_size=batch_size,
        validation_fraction=1 / ONE_IN,
        seed=seed,
    )
    held_out = held_out_indices(rows.n_rows, ONE_IN, seed)
    fitted = np.setdiff1d(np.arange(rows.n_rows), held_out)
    if not len(held_out) or len(fitted) < 3:
        raise ValueError(f"{2 * ONE_IN} rows or more are needed, of which some are held out, got {rows.n_rows}")
    with share_of_cores():
        prepared, start, coordinates = _start(rows, fitted, n_quadrics, n_components, init, seed)
        runs = {
            name: best_run(prepared, start, replace(options, constraint=name), coordinates, learning_rates, advance)
            for name in CONSTRAINTS
        }
        few = {"score_function": "mean_distance", "n_quadrics": len(start), "n_components": n_components, "random_state": seed}
        detectors = {}
        for name, (words, settings) in _ways(runs, options, few, init, train_default).items():
            if name != "closed_form" or start.n_features <= SPECTRAL_FEATURES:
                with _warnings_of(name):
                    detectors[name] = _compared(rows, words, settings, truth)
            advance()
    return Comparison(
        runs,
        detectors,
        f"{len(fitted)} rows for training, {len(held_out)} held out; {len(start)} quadrics in {start.n_features} coordinates; "
        f"{optimizer_name}, {epoch_num} epochs, batches of {batch_size}; losses are mean order-2 distances to a quadric",
    )


def n_steps(learning_rates: Sequence[float], train_default: bool = False) -> int:
    """Return the number of runs and fits of :func:`compare_constraints`.

    Examples
    --------
    >>> n_steps([0.1, 0.01])
    9
    """
    return len(CONSTRAINTS) * (len(learning_rates) + 1 + train_default) + 3


def _start(
    rows: Rows,
    fitted: NDArray[np.int64],
    n_quadrics: int | Literal["auto"],
    n_components: int | float | Literal["auto"] | None,
    init: Init,
    seed: int,
) -> tuple[Rows, Quadrics, WorkingCoordinates]:
    """Return the rows as the detector prepares them, and the start and coordinates that it learns from some of them."""

    def model(**settings: Any) -> Model:
        parameters = Parameters.silent(n_components=n_components, **settings)
        with _warnings_of("start"):
            return fit_model(ChosenRows(rows, fitted), parameters, device_of(None), seed_of(seed)).model

    linear = model(score_function="linear")
    prepared = rows if linear.scales is None else rows.scaled(linear.scales)
    prepared = prepared.normalized() if linear.normalize else prepared
    k = len(linear.coordinates.matrix)
    m = min(AUTO_QUADRICS, max(1, packed_size(k) // 2)) if n_quadrics == "auto" else n_quadrics
    check_n_quadrics(m, k)
    if init == "random" or (init == "auto" and k > SPECTRAL_FEATURES):
        return prepared, random_quadrics(m, k, torch.Generator().manual_seed(seed), rows.dtype), linear.coordinates
    closed = model(score_function="mean_distance", n_quadrics=m, n_folds=None)
    assert closed.quadrics is not None
    return prepared, closed.quadrics, closed.coordinates


def _ways(
    runs: dict[ConstraintName, ConstraintRun], options: TrainingOptions, few: dict[str, Any], init: Init, train_default: bool
) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return what each detector is in words, and its settings."""
    default = {"random_state": few["random_state"]}
    same = {name: getattr(options, name) for name in ("epoch_num", "batch_size", "optimizer_name")}
    trained = {str(name): {"constraint": name, "lr": run.lr, **same} for name, run in runs.items()}
    alone = f"{few['n_quadrics']} quadrics alone, "
    ways = {"default": ("the default detector: linear part, quadrics in closed form, neighbours", default)}
    if train_default:
        ways |= {f"default_{name}": (f"the same, its quadrics {TRAINED[name]}", default | trained[name]) for name in trained}
    ways |= {
        "linear": ("its linear part alone", default | {"score_function": "linear"}),
        "closed_form": (f"{alone}in closed form", few),
    }
    return ways | {name: (alone + TRAINED[name], few | {"init": init} | trained[name]) for name in trained}


def _compared(rows: Rows, words: str, settings: dict[str, Any], truth: NDArray[np.int64] | None) -> ComparedDetector:
    """Fit a detector to all rows."""
    began = time.monotonic()
    scores = fit_model(rows, Parameters(**settings), device_of(None), seed_of(settings["random_state"])).scores
    roc_auc = None if truth is None else float(roc_auc_score(truth, scores))
    return ComparedDetector(words, settings, scores, time.monotonic() - began, roc_auc)


@contextmanager
def _warnings_of(name: str) -> Iterator[None]:
    """Let the default detector alone say what is odd about the rows."""
    with warnings.catch_warnings():
        if name != "default":
            warnings.simplefilter("ignore")
        yield


def best_run(
    rows: Rows,
    start: Quadrics,
    options: TrainingOptions,
    coordinates: WorkingCoordinates | None,
    learning_rates: Sequence[float],
    progress: Callable[[], object] = lambda: None,
) -> ConstraintRun:
    """Train with each learning rate, and return the run with the smallest held-out loss at its end."""
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
    """Train once, and measure on the one row in ten that is held out."""
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
