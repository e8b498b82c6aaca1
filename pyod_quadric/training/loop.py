"""The training loop: minibatches, learning-rate schedule, early stop, history, checkpoints.

All randomness follows from the seed in the options and the number of the epoch. So a killed run resumes from its last
checkpoint, and on a CPU the result is the same, bit for bit, as without the interruption.
"""

import math
import time
import warnings
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyod_quadric.data.batches import Batches, LoaderBatches, PassBatches, RowBatches
from pyod_quadric.data.rows import LoaderRows, Rows, check_shared, digest, is_loader, rows_of
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.model.coordinates import WorkingCoordinates
from pyod_quadric.model.model import HISTORY_NAMES
from pyod_quadric.parallel.devices import moved, on_device
from pyod_quadric.parallel.peers import together
from pyod_quadric.parallel.ranks import from_first_rank, n_ranks, on_first_rank, process_rank, sum_over_ranks
from pyod_quadric.parameters import TrainingOptions
from pyod_quadric.progress import Count, count, is_reported, reported, stage
from pyod_quadric.storage.checkpoints import read_checkpoint, write_checkpoint
from pyod_quadric.training.constraints import Constraint, constraint_for
from pyod_quadric.training.objective import Parts, mean_distance, mean_distance_and_gradient
from pyod_quadric.training.starts import check_n_quadrics
from pyod_quadric.training.state import Best, RunState

CHECKPOINT_MINUTES = 10.0  # between two checkpoints, if nothing else is asked for
# A run has diverged if the orthonormality error exceeds MOST_ERROR times the number of quadrics (it is below 1 for any sensible
# lr), or if the loss exceeds MOST_LOSS times the sum of the loss before the first step and the loss of quadrics as far from the
# rows as the origin is. The second term leaves room for steps from a perfect start.
MOST_ERROR, MOST_LOSS = 10.0, 1000.0
# It has done harm if it ends above HARM times the loss before the first step, and by more than a share LEAST_HARM of the other
# term.
HARM, LEAST_HARM = 2.0, 0.2
DEGREES = {"second_order": 1, "first_order": 1, "algebraic": 2, "squared_algebraic": 4}  # in the size of the rows
Data = NDArray[Any] | Tensor | str | PathLike[str] | Rows | Iterable[Any]


@dataclass(frozen=True)
class Trained:
    """The result of :func:`train`.

    Parameters
    ----------
    quadrics : Quadrics
        The trained quadrics, in working coordinates.
    history : dict of lists
        One entry an epoch: ``loss`` (the mean over the epoch's batches, each before its step, without the penalty),
        ``held_out_loss`` (after the epoch; NaN without held-out rows), ``orthonormality_error`` (the unsquared ‖ṼᵀṼ - I‖) and
        ``seconds`` since the start.

    Examples
    --------
    >>> import torch
    >>> from pyod_quadric import TrainingOptions, random_quadrics, train
    >>> start = random_quadrics(1, 2, torch.Generator().manual_seed(0))
    >>> trained = train(torch.eye(2), start, TrainingOptions(epoch_num=2))
    >>> len(trained.history["loss"])
    2
    """

    quadrics: Quadrics
    history: dict[str, list[float]]


@together("train")
def train(
    data: Data,
    start: Quadrics,
    options: TrainingOptions | None = None,
    coordinates: WorkingCoordinates | None = None,
    weights: NDArray[np.floating] | None = None,
    groups: NDArray[np.int64] | None = None,
) -> Trained:
    """Fit quadrics to rows by minibatch descent.

    Parameters
    ----------
    data : array, list of lists of numbers, Tensor, memory map, path of a ``.npy`` file, Rows, or loader
        Rows of shape (n, d). A list of anything else is a loader of batches. Memory holds a window of batches, whatever n is.
    start : Quadrics
        Where to start, in working coordinates. Training uses their dtype and device.
    options : TrainingOptions, optional
    coordinates : WorkingCoordinates, optional
        The map from rows to working coordinates, if the rows are not in them already.
    weights : array of shape (n,), optional
        The weight of each row, from 0 to 1: the probability that it takes part in an epoch. Not for loaders.
    groups : array of shape (n,), optional
        A number for the group of each row; ``validation_fraction`` then holds out whole groups.

    Examples
    --------
    >>> import torch
    >>> from pyod_quadric import TrainingOptions, random_quadrics, train
    >>> generator = torch.Generator().manual_seed(0)
    >>> sphere = torch.nn.functional.normalize(torch.randn(200, 3, generator=generator))
    >>> start = random_quadrics(1, 3, generator)
    >>> trained = train(sphere, start, TrainingOptions(lr=0.05, batch_size=20))
    >>> trained.history["loss"][-1] < 0.05
    True
    """
    # All processes follow the first one, whatever they were given themselves.
    if not isinstance(start, Quadrics):
        raise TypeError(f"start must be Quadrics, such as random_quadrics(...) gives, got {type(start).__name__}")
    if not isinstance(options, TrainingOptions | None):
        raise TypeError(f"options must be TrainingOptions(...), or None, got {type(options).__name__}")
    start, coordinates = from_first_rank((start, coordinates), start.device)
    options, weights, groups = on_first_rank(lambda: (options, weights, groups))
    options = options or TrainingOptions()
    # A fit around it has a report already, and the stages of its own.
    is_part, name = is_reported(), options.constraint
    report = nullcontext() if is_part else reported(options.verbose == 1 and process_rank() == 0)
    with report, stage(name if is_part else f"training, {name}"):
        return _Run(data, start, options, coordinates, weights, groups).finish()


class _Run:
    """The state of one training run."""

    def __init__(
        self,
        data: Data,
        start: Quadrics,
        options: TrainingOptions,
        coordinates: WorkingCoordinates | None,
        weights: NDArray[np.floating] | None,
        groups: NDArray[np.int64] | None,
    ) -> None:
        check_n_quadrics(start.n_quadrics, start.n_features)
        self.options, self.coordinates, self.device = options, coordinates, start.device
        self.n_features = start.n_features
        if coordinates and len(coordinates.matrix) != start.n_features:
            raise ValueError(f"the start has {start.n_features} features, but there are {len(coordinates.matrix)} coordinates")
        self.constraint: Constraint = constraint_for(options, start)
        self.dtype = start.dtype
        self.optimizer = self.constraint.optimizer(options.optimizer_name, options.lr, options.momentum)
        self.batches = _batches(data, options, weights, groups)
        self.fingerprint = (
            on_first_rank(lambda: _fingerprint(options, data, start, coordinates, weights, groups))
            if options.checkpoint
            else {}
        )
        self.history: dict[str, list[float]] = {name: [] for name in HISTORY_NAMES}
        self.epoch, self.batch = 0, 0
        self.sums = torch.zeros(2, dtype=torch.float64, device=self.device)  # of losses and of rows, in this epoch
        # Before the first step: the loss, and a size of the same kind that is not 0 for a perfect start.
        self.first: Tensor | None = None
        self.best: Best | None = None
        self.stale = 0  # epochs since the best
        self.seconds = 0.0  # in earlier sittings
        self.path = Path(options.checkpoint) if options.checkpoint else None
        if self.path:
            if not self.path.parent.is_dir():
                raise ValueError(f"the checkpoint {self.path} cannot be written: there is no folder {self.path.parent}")
            self._resume(self.path)

    def finish(self) -> Trained:
        """Train to the end."""
        if self._is_unfinished():
            # So that a full disk, or a folder that cannot be written to, is noticed by all processes before hours are lost.
            on_first_rank(self._save)
        started, saved, steps = time.monotonic() - self.seconds, time.monotonic(), 0
        with self._steps() as done:
            while self._is_unfinished():
                for points in moved(self.batches.epoch(self.epoch, self.batch), self.device):
                    self._step(points)
                    done.advance()
                    steps += 1
                    self.seconds = time.monotonic() - started
                    if self._is_due(steps, time.monotonic() - saved):
                        self._save()
                        saved, steps = time.monotonic(), 0
                self._end_epoch(done)
        on_first_rank(self._save)
        if self.options.patience is not None and self.best:
            self._put(self.best.frame, self.best.rest)
        else:
            self._warn_of_harm()
        return Trained(self.constraint.quadrics(), self.history)

    def _steps(self) -> AbstractContextManager[Count]:
        """Count the steps, of all that there are if nothing can end the training early."""
        an_epoch = self.batches.n_batches()
        total = None if an_epoch is None or self.options.patience is not None else self.options.epoch_num * an_epoch
        return count(total, "steps", self.epoch * (an_epoch or 0) + self.batch)

    def _step(self, points: Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.learning_rate(self.epoch)
        points = self._working(points)
        loss, gradient = mean_distance_and_gradient(
            points, *self.constraint.parts(), self.options.distance, out=self.constraint.gradient_buffer
        )
        # On the device, so that it need not be waited for.
        sums = torch.stack([loss.double() * len(points), loss.new_full((), len(points), dtype=torch.float64)])
        if n_ranks() > 1:
            _average_over_ranks(gradient, sums, len(points))
        if self.first is None:
            squares = torch.stack([points.double().square().sum(), torch.full_like(sums[1], len(points))])
            sum_over_ranks(squares)
            size = len(self.constraint.frame) * (squares[0] / squares[1]) ** (DEGREES[self.options.distance] / 2)
            self.first = torch.stack([sums[0] / sums[1], size]).nan_to_num(nan=math.inf)
        self.constraint.set_gradient(gradient)
        self.optimizer.step()
        self.batch += 1
        self.sums += sums

    def _working(self, points: Tensor) -> Tensor:
        needed = len(self.coordinates.mean) if self.coordinates else self.n_features
        if points.shape[1] != needed:
            raise ValueError(f"rows must have {needed} features, as the start and its coordinates do, got {points.shape[1]}")
        # Only after centring is there nothing to lose in a smaller type.
        return (self.coordinates.transform(points) if self.coordinates else points).to(self.dtype)

    def _end_epoch(self, done: Count) -> None:
        if self.sums[1] == 0:
            raise ValueError(
                f"there were no rows in epoch {self.epoch + 1}; give a loader that can be gone through again, or larger weights"
            )
        loss = float(self.sums[0] / self.sums[1])
        self._check_divergence()
        held_out = self._held_out_loss()
        error = float(self.constraint.error())
        for name, number in zip(HISTORY_NAMES, (loss, held_out, error, self.seconds), strict=True):
            self.history[name].append(number)
        self.stale += 1
        if held_out < (self.best.loss if self.best else math.inf):
            frame, rest = self.constraint.frame.clone(), self.constraint.rest.detach().clone()
            self.best = Best(loss=held_out, frame=frame, rest=rest)
            self.stale = 0
        self.epoch, self.batch = self.epoch + 1, 0
        self.sums.zero_()
        done.note(epoch=f"{self.epoch}/{self.options.epoch_num}", loss=f"{loss:.4g}")
        if self.options.verbose >= 2 and process_rank() == 0:
            print(f"epoch {self.epoch}: loss {loss:.5g}, held-out loss {held_out:.5g}, orthonormality error {error:.2g}")

    def _held_out_loss(self) -> float:
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        for points in moved(self.batches.validation(), self.device):
            points = self._working(points)
            if len(points):
                loss = mean_distance(points, *self.constraint.parts(), self.options.distance)
                total += torch.stack([loss.double() * len(points), loss.new_full((), len(points), dtype=torch.float64)])
        sum_over_ranks(total)
        return float(total[0] / total[1]) if total[1] else math.nan

    def _check_divergence(self) -> None:
        error = float(self.constraint.error())
        loss = float(self.sums[0] / self.sums[1]) if self.sums[1] else 0.0  # of this epoch, if it has begun
        before, size = (0.0, math.inf) if self.first is None else map(float, self.first)
        is_finite = math.isfinite(loss) and math.isfinite(error) and bool(self.constraint.rest.isfinite().all())
        if is_finite and error <= MOST_ERROR * len(self.constraint.frame) and loss <= MOST_LOSS * (before + size):
            return
        infinite = (
            ""
            if self.options.distance != "first_order"
            else (" The first-order distance is infinite where a gradient vanishes; the second-order one is not.")
        )
        unscaled = "" if self.coordinates else ", or bring the data to working coordinates (centred, of unit scale) first"
        raise FloatingPointError(
            f"training diverged in epoch {self.epoch + 1} of {self.options.epoch_num}: the mean loss is {loss:.4g}, and was "
            f"{before:.4g} before the first step; the orthonormality error is {error:.4g}, and should be below 1. "
            f"Use a smaller lr than {self.options.lr:g}{unscaled}.{infinite}"
        )

    def _warn_of_harm(self) -> None:
        """Warn if the quadrics are farther from the rows than before the first step, which too large steps do."""
        if self.first is None or not self.history["loss"]:
            return
        before, size = map(float, self.first)
        if self.history["loss"][-1] > HARM * before + LEAST_HARM * size:
            warnings.warn(  # without the figures, so that the trainings of folds say it once
                f"training has ended with a far larger loss than before its first step: use a smaller lr than "
                f"{self.options.lr:g}, or more epochs; history['loss'] has the losses",
                stacklevel=4,
            )

    def _is_unfinished(self) -> bool:
        out_of_patience = self.options.patience is not None and self.stale >= self.options.patience
        return self.epoch < self.options.epoch_num and not out_of_patience

    def _is_due(self, steps: int, seconds: float) -> bool:
        if self.path is None:
            return False
        if self.options.checkpoint_steps is not None:
            return steps >= self.options.checkpoint_steps
        return seconds >= 60 * (self.options.checkpoint_minutes or CHECKPOINT_MINUTES)

    def _save(self) -> None:
        if self.path is None:
            return
        self._check_divergence()
        if process_rank() > 0:  # the first process writes for all
            return
        write_checkpoint(self.path, self._state().values(self.constraint.optimizer_layout(self.options)))

    def _state(self) -> RunState:
        names = ("fingerprint", "history", "epoch", "batch", "sums", "first", "best", "stale", "seconds")
        state = {name: getattr(self, name) for name in names}
        state |= {"frame": self.constraint.frame, "rest": self.constraint.rest.detach()}
        return RunState(**state, optimizer=self.constraint.optimizer_state(self.optimizer))

    def _resume(self, path: Path) -> None:
        values = on_first_rank(lambda: read_checkpoint(path))
        if values is None:
            return
        anew = "use another file, or remove this one to start anew"
        theirs = values.get("fingerprint")
        if isinstance(theirs, dict) and theirs != self.fingerprint:
            other = [name for name in self.fingerprint if theirs.get(name) != self.fingerprint[name]]
            raise ValueError(f"the checkpoint {path} belongs to another run, which differs in {', '.join(other)}; {anew}")
        try:
            of_optimizer = self.constraint.optimizer_layout(self.options)
            self._go_on_from(RunState.checked(values, self.options, of_optimizer, self._state()))
        except ValueError as error:
            raise ValueError(f"the checkpoint {path} is none that such a run has written: {error}; {anew}") from error

    def _go_on_from(self, state: RunState) -> None:
        self._put(state.frame, state.rest)
        self.constraint.check_frame()
        self.constraint.load_optimizer(self.optimizer, state.optimizer)
        self.sums.copy_(state.sums)
        self.epoch, self.batch, self.stale, self.seconds = state.epoch, state.batch, state.stale, state.seconds
        self.history = state.history
        self.first, self.best = on_device(state.first, self.device), on_device(state.best, self.device)

    def _put(self, frame: Tensor, rest: Tensor) -> None:
        self.constraint.frame.copy_(frame)
        self.constraint.rest.copy_(rest)


def _average_over_ranks(gradient: Parts, sums: Tensor, n_points: int) -> None:
    """Turn the mean gradient of this process's points and their sums into those of all processes' points, in place."""
    for part in gradient:
        part.mul_(n_points) if n_points else part.zero_()
    if not n_points:
        sums.zero_()  # the mean loss of no points is NaN
    sum_over_ranks(*gradient, sums)
    for part in gradient:
        part.div_(sums[1].to(part))


def _is_loader(data: Data) -> bool:
    return not _are_rows(data) if isinstance(data, list | tuple) else is_loader(data)


def _are_rows(data: object) -> bool:
    """Say whether these are rows in a list, instead of batches in a list."""
    first = data[0] if isinstance(data, list | tuple) and data else None
    if isinstance(first, Tensor | np.ndarray):
        return first.ndim == 1
    return isinstance(first[0] if isinstance(first, list | tuple) and first else first, Real)


def _rows(data: Data) -> Rows:
    return rows_of(data)


def _batches(
    data: Data, options: TrainingOptions, weights: NDArray[np.floating] | None, groups: NDArray[np.int64] | None
) -> Batches:
    check_shared(None if _is_loader(data) else _rows(data))
    if isinstance(data, LoaderRows):
        _check_nothing_held_out(options)
        return PassBatches(data, options.batch_size, options.seed, weights)
    if not _is_loader(data):
        one_in = round(1 / options.validation_fraction) if options.validation_fraction else 0
        rows = _rows(data)
        return RowBatches(rows, options.batch_size, options.seed, one_in, weights, groups)
    if weights is not None:
        raise ValueError("rows of a loader have no numbers to find their weights by; give an array or a file, or no weights")
    _check_nothing_held_out(options)
    return LoaderBatches(data, options.seed)  # type: ignore[arg-type]  # neither array nor path


def _check_nothing_held_out(options: TrainingOptions) -> None:
    if options.validation_fraction:
        raise ValueError("rows cannot be held out of a loader; set validation_fraction=0, or give an array or a file")


def _fingerprint(
    options: TrainingOptions,
    data: Data,
    start: Quadrics,
    coordinates: WorkingCoordinates | None,
    weights: NDArray[np.floating] | None,
    groups: NDArray[np.int64] | None,
) -> dict[str, str]:
    """Return what tells this run from another one."""
    numbers = {f.name: getattr(options, f.name) for f in fields(options) if f.compare}
    named = {name: str(float(n) if isinstance(n, int | float) else n) for name, n in numbers.items()}
    named["the number of processes"] = str(n_ranks())  # by which sums are rounded, and so everything below
    named["n_quadrics and n_features"] = f"{start.n_quadrics}, {start.n_features}"
    named["the start"] = digest([start.quadratic, start.linear, start.constant])
    named["the coordinates"] = digest([coordinates.mean, coordinates.matrix]) if coordinates else "none"
    named["the groups"] = "none" if groups is None else digest([torch.from_numpy(groups)])
    named["the weights"] = "none" if weights is None else digest([torch.from_numpy(weights)])
    if _is_loader(data):
        return named | {"the data": "a loader"}
    return named | {"the data": digest(_rows(data).blocks(options.batch_size))}
