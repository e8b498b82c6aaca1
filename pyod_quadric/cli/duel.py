"""Penalty and manifold, trained alike on the same rows: what ``pyod-quadric compare`` measures and draws."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyod_quadric.cli.errors import CommandError
from pyod_quadric.data.batches import RowBatches
from pyod_quadric.data.rows import rows_of
from pyod_quadric.data.sources import RowSource
from pyod_quadric.fitting.fit import MOST_COMPONENTS, ROWS_PER_COEFFICIENT
from pyod_quadric.geometry.distances import second_order_distance
from pyod_quadric.geometry.packing import packed_size, unpack
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.model.coordinates import fit_working_coordinates
from pyod_quadric.training.loop import Trained, train
from pyod_quadric.training.manifold import gram, polar
from pyod_quadric.training.options import ConstraintName, TrainingOptions
from pyod_quadric.training.starts import starting_quadrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONSTRAINTS: dict[ConstraintName, str] = {"penalty": "penalty", "stiefel": "manifold"}
COLOURS = {"penalty": "tab:orange", "stiefel": "tab:blue"}
ONE_IN = 10  # rows that is held out
BLOCK = 4096
AUTO_QUADRICS = 20  # enough to tell the two apart, and soon trained


@dataclass(frozen=True, eq=False)
class Outcome:
    """One way to train, at its best learning rate; losses are means over rows and quadrics of the order-2 distance."""

    lr: float
    losses: list[float]  # held-out, at the start and after each epoch
    errors: list[float]  # of orthonormality, likewise
    seconds: list[float]  # likewise
    orthonormal_loss: float
    scores: NDArray[np.float64]  # (n,)


class Duel:
    """Rows, coordinates and a start that both ways have in common.

    Parameters
    ----------
    source : RowSource
    settings : dict
        ``n_quadrics``, ``n_components``, ``epoch_num``, ``batch_size``, and parameters of the training.
    """

    def __init__(self, source: RowSource, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._seed = int(settings.get("random_state", 42))
        self._rows = rows_of(source)
        self._held_out = self._held_out_rows()
        self._fitted = np.setdiff1d(np.arange(self._rows.n_rows), self._held_out)
        if not len(self._held_out) or len(self._fitted) < 3:
            raise CommandError(f"{2 * ONE_IN} rows or more are needed, of which some are held out, got {self._rows.n_rows}")
        self._coordinates = fit_working_coordinates(lambda: self._read(self._fitted), self._n_components())
        k = len(self._coordinates.matrix)
        wanted = settings["n_quadrics"]
        self._m = min(AUTO_QUADRICS, packed_size(k)) if wanted == "auto" else wanted
        generator = torch.Generator().manual_seed(self._seed)
        blocks = (self._coordinates.transform(block) for block in self._read(self._fitted))
        self._start = starting_quadrics(settings.get("init", "auto"), blocks, self._m, k, generator)

    def best(self, constraint: ConstraintName, rates: list[float], done: Callable[[], object]) -> Outcome:
        """Train with each learning rate, calling ``done`` after each, and return what ends with the smallest held-out loss."""
        trained: dict[float, Trained] = {}
        for rate in rates:
            with suppress(FloatingPointError):  # what diverges is not the best
                trained[rate] = self._trained(constraint, rate)
            done()
        if not trained:
            raise CommandError(f"training diverged with all learning rates {rates}; give smaller ones as --lr")
        lr = min(trained, key=lambda rate: trained[rate].history["held_out_loss"][-1])
        quadrics, history = trained[lr].quadrics, trained[lr].history
        return Outcome(
            lr,
            [self._loss(self._start), *(loss / self._m for loss in history["held_out_loss"])],
            [_error(self._start), *history["orthonormality_error"]],
            [0.0, *history["seconds"]],
            self._loss(orthonormal(quadrics)),
            np.concatenate([part.numpy() for part in self._mean_distances(np.arange(self._rows.n_rows), quadrics)]),
        )

    def conditions(self) -> str:
        """Return in words what both have in common."""
        options = self._options("penalty", 1.0)
        return (
            f"{len(self._fitted)} rows for training, {len(self._held_out)} held out; {self._m} quadrics in "
            f"{len(self._coordinates.matrix)} principal coordinates; {options.optimizer_name}, {options.epoch_num} epochs, "
            f"batches of {options.batch_size}; losses are mean order-2 distances to a quadric"
        )

    def _held_out_rows(self) -> NDArray[np.int64]:
        """Return the numbers of the rows that training holds out: it does so by number, so here rows are their numbers."""
        numbers = rows_of(np.arange(self._rows.n_rows, dtype=np.float64)[:, None])
        batches = RowBatches(numbers, BLOCK, self._seed, ONE_IN).validation()
        return np.concatenate([np.empty(0), *(batch[:, 0].numpy() for batch in batches)]).astype(np.int64)

    def _n_components(self) -> int:
        given, n, d = self._settings["n_components"], len(self._fitted), self._rows.n_features
        if given is None:
            return d
        if given != "auto":
            if not isinstance(given, int):
                raise CommandError(f"--n-components must be a whole number, auto or none here, got {given}")
            return given
        k = max(k for k in range(1, MOST_COMPONENTS + 1) if k == 1 or packed_size(k) <= n / ROWS_PER_COEFFICIENT)
        return min(k, d)

    def _options(self, constraint: ConstraintName, rate: float) -> TrainingOptions:
        given = self._settings
        return TrainingOptions(
            constraint=constraint,
            lr=rate,
            optimizer_name=given.get("optimizer_name", "sgd"),
            epoch_num=given["epoch_num"],
            batch_size=given["batch_size"],
            validation_fraction=1 / ONE_IN,
            seed=self._seed,
        )

    def _trained(self, constraint: ConstraintName, rate: float) -> Trained:
        return train(self._rows, self._start, self._options(constraint, rate), self._coordinates)

    def _read(self, numbers: NDArray[np.int64]) -> Iterator[Tensor]:
        return (self._rows.read(numbers[start : start + BLOCK]) for start in range(0, len(numbers), BLOCK))

    def _mean_distances(self, numbers: NDArray[np.int64], quadrics: Quadrics) -> Iterator[Tensor]:
        for block in self._read(numbers):
            points = self._coordinates.transform(block).to(quadrics.dtype)
            yield second_order_distance(points, quadrics).mean(dim=1).double()

    def _loss(self, quadrics: Quadrics) -> float:
        return float(torch.cat(list(self._mean_distances(self._held_out, quadrics))).mean())


def orthonormal(quadrics: Quadrics) -> Quadrics:
    """Return the combinations of the polynomials whose frame is the orthonormal one nearest to theirs."""
    columns = quadrics.packed().double().T  # (P, m)
    frame = polar(columns)
    mixing = torch.linalg.solve(gram(columns), columns.T @ frame).T  # (m, m), new polynomials from old ones
    rest = mixing @ torch.cat([quadrics.linear, quadrics.constant[:, None]], dim=1).double()
    return Quadrics(unpack(frame.T), rest[:, :-1], rest[:, -1]).to(dtype=quadrics.dtype)


def _error(quadrics: Quadrics) -> float:
    inner = quadrics.packed().double()
    return float(torch.linalg.matrix_norm(inner @ inner.T - torch.eye(len(inner), dtype=torch.float64)))


def draw(outcomes: dict[ConstraintName, Outcome], rank_correlation: float) -> "Figure":
    """Draw held-out losses and orthonormality errors over time, and the scores of one over those of the other."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise CommandError("pictures need matplotlib: pip install 'pyod-quadric[plot]'") from error
    figure = Figure(figsize=(13, 4), layout="constrained")
    losses, errors, scores = figure.subplots(1, 3)
    for name, outcome in outcomes.items():
        label = f"{CONSTRAINTS[name]}, learning rate {outcome.lr:g}"
        losses.plot(outcome.seconds, outcome.losses, ".-", color=COLOURS[name], label=label)
        errors.semilogy(outcome.seconds[1:], outcome.errors[1:], ".-", color=COLOURS[name], label=label)
    losses.set(xlabel="seconds", ylabel="mean order-2 distance", title="Held-out loss")
    errors.set(xlabel="seconds", ylabel="‖ṼᵀṼ − I‖", title="Orthonormality error")
    penalty, manifold = (outcomes[name].scores for name in CONSTRAINTS)
    shown = slice(None, None, max(1, len(penalty) // 5000))
    scores.loglog(penalty[shown], manifold[shown], ".", markersize=3, alpha=0.5, color="tab:gray")
    scores.set(
        xlabel="score by the penalty",
        ylabel="score by the manifold",
        title=f"Scores of {len(penalty)} rows, ρ = {rank_correlation:.3f}",
    )
    for axes in (losses, errors, scores):
        axes.grid(alpha=0.3)
    losses.legend()
    return figure
