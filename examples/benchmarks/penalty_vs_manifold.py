"""Soft penalty or Stiefel manifold: which way to hold orthonormality learns faster, ends lower and scores better.

Both start from the same quadrics and see the same batches, with SGD and with Adam, from a random and from a spectral start, for
few and for many quadrics, in principal coordinates of real data. One training row in ten is held out; coordinates and the
spectral start are learnt without those rows. Runs are those of ``pyod_quadric.compare_constraints``. The learning rate is
chosen for each method from one grid by the held-out loss with the first seed: powers of ten first, then the two half powers
beside the best. All figures are then means over the seeds, which decide held-out rows, the random start and the batches.
Times are numbers of steps times the shortest time of a step, measured in turns.

A penalty leaves the frame a little off orthonormal, and quadrics that lean towards each other have a smaller loss. So its
loss is also given after polar projection, which combines the polynomials (their linear and constant parts, too) to an
orthonormal frame: that one compares like with like.

Run it with ``python -m examples.benchmarks.penalty_vs_manifold --data DIR --output DIR``, in about a quarter of an hour.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from examples.benchmarks._common import (
    DataSet,
    argument_parser,
    best_seconds,
    load_adbench,
    load_sentences,
    markdown_table,
    synthetic,
    training_step,
    write_results,
)
from pyod_quadric import Quadrics, second_order_distance
from pyod_quadric.data.batches import held_out_indices
from pyod_quadric.data.rows import rows_of
from pyod_quadric.fitting.comparison import ONE_IN, constraint_run
from pyod_quadric.model.coordinates import WorkingCoordinates, fit_working_coordinates
from pyod_quadric.parameters import ConstraintName, OptimizerName, TrainingOptions
from pyod_quadric.training.constraints import PenaltyConstraint, StiefelConstraint
from pyod_quadric.training.starts import random_quadrics, spectral_quadrics

BATCH_SIZE = 256
MOMENTUM = 0.9
CONSTRAINTS = {"penalty": PenaltyConstraint, "stiefel": StiefelConstraint}
OPTIMIZERS = ("sgd", "adam")
METHODS = list(product(OPTIMIZERS, CONSTRAINTS))
STARTS = ("random", "spectral")
COLOURS = {"penalty": "tab:orange", "stiefel": "tab:blue"}
NAMES = {"penalty": "penalty", "stiefel": "manifold"}


class Size(NamedTuple):
    """How much is done."""

    n_components: int
    n_quadrics: tuple[int, ...]
    n_steps: int  # about so many; whole epochs
    n_seeds: int
    exponents: tuple[int, ...]  # of the powers of ten among the learning rates


FULL = Size(n_components=40, n_quadrics=(5, 100), n_steps=250, n_seeds=3, exponents=(-4, -3, -2, -1, 0))
FAST = Size(n_components=6, n_quadrics=(2, 5), n_steps=4, n_seeds=2, exponents=(-2,))


class Points(NamedTuple):
    """Data in principal coordinates of the rows that are trained on, which the seed decides."""

    coordinates: WorkingCoordinates
    fitted: Tensor  # the rows that are trained on
    test: DataSet
    spectral: Quadrics  # the closed form for them


class Case(NamedTuple):
    """A data set, the number of quadrics, and where they start."""

    data_name: str
    data: DataSet
    points: Callable[[int], Points]  # by seed
    n_quadrics: int
    start_name: str

    def start(self, seed: int) -> Quadrics:
        """Return where training starts."""
        points = self.points(seed)
        if self.start_name == "spectral":
            return points.spectral[: self.n_quadrics]
        return random_quadrics(self.n_quadrics, points.spectral.n_features, torch.Generator().manual_seed(seed))


class Run(NamedTuple):
    """One training run, with losses for each quadric."""

    steps: list[int]  # made before each of the measurements below: at the start and after each epoch
    held_out: list[float]
    training: float
    projected: float  # held-out, of the polar-projected frame
    error: float
    start_roc_auc: float
    roc_auc: float


def load_all(data: Path, fast: bool) -> dict[str, DataSet]:
    """Return the data sets by name."""
    if fast:
        return {"synthetic": synthetic(n_features=8)}
    return {
        "CIFAR10_0": load_adbench(data / "adbench/CV_by_ResNet18/CIFAR10_0.npz"),
        "sentences": load_sentences(data / "sentences/minilm.npz"),
        "mnist": load_adbench(data / "adbench/Classical/24_mnist.npz"),
    }


def in_working_coordinates(data: DataSet, size: Size, seed: int) -> Points:
    """Return the data in principal coordinates of the rows that are trained on, and the closed form for these."""
    held_out = held_out_indices(len(data.training), ONE_IN, seed)
    fitted = data.training[np.setdiff1d(np.arange(len(data.training)), held_out)]
    coordinates = fit_working_coordinates(lambda: [fitted], size.n_components)
    working = coordinates.transform(fitted)
    outliers = [coordinates.transform(rows) for rows in data.outliers]
    spectral = spectral_quadrics([working], max(size.n_quadrics)).to(dtype=torch.float32)
    return Points(coordinates, working, DataSet(working, coordinates.transform(data.inliers), outliers), spectral)


def cases(data: Path, size: Size, fast: bool) -> Iterator[Case]:
    """Yield all cases."""
    for data_name, raw in load_all(data, fast).items():
        points = cache(partial(in_working_coordinates, raw, size))
        for m, start_name in product(size.n_quadrics, STARTS):
            yield Case(data_name, raw, points, m, start_name)


def mean_d2(points: Tensor, quadrics: Quadrics) -> float:
    """Return the mean over points and quadrics of the order-2 distance."""
    return float(second_order_distance(points, quadrics).mean())


def roc_auc(points: Points, quadrics: Quadrics) -> float:
    """Return the ROC-AUC of the mean order-2 distance on the test rows."""
    return points.test.roc_auc(lambda rows: second_order_distance(rows, quadrics).mean(dim=1))


def run(
    case: Case, constraint_name: ConstraintName, optimizer_name: OptimizerName, lr: float, seed: int, n_steps: int
) -> Run | None:
    """Train once; None if it diverges."""
    rows, points, start = rows_of(case.data.training), case.points(seed), case.start(seed)
    steps_per_epoch = math.ceil(0.9 * rows.n_rows / BATCH_SIZE)
    options = TrainingOptions(
        constraint=constraint_name,
        optimizer_name=optimizer_name,
        lr=lr,
        momentum=MOMENTUM,
        epoch_num=max(1, round(n_steps / steps_per_epoch)),
        batch_size=BATCH_SIZE,
        seed=seed,
    )
    try:
        found = constraint_run(rows, start, options, points.coordinates)
    except FloatingPointError:
        return None
    return Run(
        steps=[epoch * steps_per_epoch for epoch in range(options.epoch_num + 1)],
        held_out=found.losses,
        training=mean_d2(points.fitted, found.quadrics),
        projected=found.orthonormal_loss,
        error=found.errors[-1],
        start_roc_auc=roc_auc(points, start),
        roc_auc=roc_auc(points, found.quadrics),
    )


def tuned(train_once: Callable[[float], Run | None], exponents: tuple[int, ...]) -> tuple[float, dict[float, float]]:
    """Return the best learning rate, and the held-out loss of all that were tried (infinite where training diverged)."""
    losses: dict[float, float] = {}

    def best_of(rates: list[float]) -> float:
        for rate in rates:
            outcome = train_once(rate)
            losses[rate] = outcome.held_out[-1] if outcome else math.inf
        return min(losses, key=losses.__getitem__)

    rate = best_of([10.0**exponent for exponent in exponents])
    return best_of([rate * 10**-0.5, rate * 10**0.5]), losses


def measure(case: Case, constraint: str, optimizer: str, size: Size, first_seed: int) -> dict[str, Any]:
    """Tune one method on one case, train it with all seeds, and return a record of it."""

    @cache
    def train_once(lr: float, seed: int = first_seed) -> Run | None:
        return run(case, constraint, optimizer, lr, seed, size.n_steps)

    lr, losses = tuned(train_once, size.exponents)
    runs = [train_once(lr), *(train_once(lr, seed) for seed in range(first_seed + 1, first_seed + size.n_seeds))]
    return {
        "data": case.data_name,
        "n_quadrics": case.n_quadrics,
        "start": case.start_name,
        "optimizer": optimizer,
        "constraint": constraint,
        "lr": lr,
        "tried": tried_rates(losses),
        **summary([run for run in runs if run]),
    }


def step_seconds(size: Size, n_quadrics: int, seed: int) -> dict[tuple[str, str], float]:
    """Return the shortest time of a step by optimiser and constraint, measured in turns."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(BATCH_SIZE, size.n_components, generator=generator)
    start = random_quadrics(n_quadrics, size.n_components, generator)
    tasks = {}
    for optimizer_name, name in METHODS:
        constraint = CONSTRAINTS[name](start)
        optimizer = constraint.optimizer(optimizer_name, lr=1e-3, momentum=MOMENTUM)
        tasks[optimizer_name, name] = partial(training_step, constraint, optimizer, points)
    return best_seconds(tasks, size.n_steps)


def tried_rates(losses: dict[float, float]) -> dict[str, float | None]:
    """Return the held-out losses by learning rate in ascending order, for JSON: None where training diverged."""
    return {f"{rate:.2g}": loss if math.isfinite(loss) else None for rate, loss in sorted(losses.items())}


def summary(runs: list[Run]) -> dict[str, Any]:
    """Return means over the seeds."""
    means = ("training", "projected", "error", "start_roc_auc", "roc_auc")
    return {
        **{name: float(np.mean([getattr(run, name) for run in runs])) for name in means},
        "n_runs": len(runs),
        "steps": runs[0].steps,
        "held_out": np.mean([run.held_out for run in runs], axis=0).tolist(),
        "final": float(np.mean([run.held_out[-1] for run in runs])),
        "final_spread": float(np.std([run.held_out[-1] for run in runs])),
        "roc_auc_spread": float(np.std([run.roc_auc for run in runs])),
    }


def pairs(records: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return penalty and manifold of the same case and optimiser together."""
    penalties, manifolds = ([record for record in records if record["constraint"] == name] for name in CONSTRAINTS)
    return list(zip(penalties, manifolds, strict=True))


def time_to_loss(penalty: dict[str, Any], manifold: dict[str, Any]) -> float:
    """Return how much longer the manifold takes to the loss that both reach after training: the larger of their smallest."""
    loss = max(min(record["held_out"][1:]) for record in (penalty, manifold))

    def milliseconds(record: dict[str, Any]) -> float:
        curve = list(zip(record["steps"], record["held_out"], strict=True))
        return record["ms_per_step"] * next(step for step, reached in curve[1:] if reached <= loss)

    return milliseconds(manifold) / milliseconds(penalty)


def chosen_rate(record: dict[str, Any]) -> str:
    """Return the learning rate, with a star if it is the smallest or the largest that was tried."""
    rates = [float(rate) for rate in record["tried"]]
    at_edge = not min(rates) * 1.1 < record["lr"] < max(rates) / 1.1
    return f"{record['lr']:.1g}{'*' * at_edge}"


def detail_table(records: list[dict[str, Any]]) -> str:
    """Return all figures as a table, penalty / manifold."""
    header = ["data", "m", "start", "optimiser", "lr", "held-out loss at the start", "at the end", "penalty's projected"]
    header += ["spread over seeds", "ROC-AUC at the start", "at the end", "orthonormality error", "ms per step"]
    rows = []
    for penalty, manifold in pairs(records):

        def both(name: str, form: str, penalty: dict[str, Any] = penalty, manifold: dict[str, Any] = manifold) -> str:
            return f"{penalty[name]:{form}} / {manifold[name]:{form}}"

        row = [penalty["data"], penalty["n_quadrics"], penalty["start"], penalty["optimizer"]]
        row.append(f"{chosen_rate(penalty)} / {chosen_rate(manifold)}")
        row += [f"{penalty['held_out'][0]:.4f}", both("final", ".4f"), f"{penalty['projected']:.4f}"]
        row += [both("final_spread", ".4f"), f"{penalty['start_roc_auc']:.4f}", both("roc_auc", ".4f")]
        row += [both("error", ".1e"), both("ms_per_step", ".1f")]
        rows.append(row)
    return markdown_table(header, rows)


def ratios(records: list[dict[str, Any]], start: str, optimizer: str) -> dict[str, float]:
    """Return manifold against penalty over all cases of one start and optimiser: ratios are geometric means."""
    chosen = [pair for pair in pairs(records) if (pair[0]["start"], pair[0]["optimizer"]) == (start, optimizer)]

    def geometric(numbers: Iterator[float]) -> float:
        return math.exp(float(np.mean([math.log(number) for number in numbers])))

    return {
        "n_cases": len(chosen),
        "loss": geometric(manifold["final"] / penalty["final"] for penalty, manifold in chosen),
        "loss_projected": geometric(manifold["final"] / penalty["projected"] for penalty, manifold in chosen),
        "n_lower": sum(manifold["final"] < penalty["projected"] for penalty, manifold in chosen),
        "roc_auc": float(np.mean([manifold["roc_auc"] - penalty["roc_auc"] for penalty, manifold in chosen])),
        "time_per_step": geometric(manifold["ms_per_step"] / penalty["ms_per_step"] for penalty, manifold in chosen),
        "time_to_loss": geometric(time_to_loss(penalty, manifold) for penalty, manifold in chosen),
    }


def summary_table(all_ratios: dict[str, dict[str, float]]) -> str:
    """Return the ratios as a table."""
    header = ["start, optimiser", "cases", "loss", "loss, penalty projected", "cases with lower loss than that"]
    header += ["ROC-AUC, difference", "time per step", "time to the same loss"]
    rows = []
    for name, ratio in all_ratios.items():
        losses = f"{ratio['loss']:.4f}", f"{ratio['loss_projected']:.4f}"
        times = ratio["time_per_step"], ratio["time_to_loss"]
        rows.append([name, ratio["n_cases"], *losses, ratio["n_lower"], f"{ratio['roc_auc']:+.4f}", *times])
    return markdown_table(header, rows)


def draw(records: list[dict[str, Any]], n_seeds: int) -> Figure:
    """Draw held-out loss against time: a column for each data set, a row for each start and number of quadrics."""
    names = list(dict.fromkeys(record["data"] for record in records))
    kinds = list(dict.fromkeys((record["n_quadrics"], record["start"]) for record in records))
    figure, panels = plt.subplots(
        len(kinds), len(names), figsize=(4.4 * len(names), 2.9 * len(kinds)), layout="constrained", squeeze=False
    )
    for (row, (m, start)), (column, name) in product(enumerate(kinds), enumerate(names)):
        ax = panels[row, column]
        chosen = [r for r in records if (r["data"], r["n_quadrics"], r["start"]) == (name, m, start)]
        for record in chosen:
            label = f"{NAMES[record['constraint']]}, {record['optimizer'].upper() if record['optimizer'] == 'sgd' else 'Adam'}"
            style = "-" if record["optimizer"] == "sgd" else "--"
            seconds = np.array(record["steps"]) * record["ms_per_step"] / 1e3
            ax.plot(seconds, record["held_out"], style, color=COLOURS[record["constraint"]], label=label, alpha=0.85)
        ax.set_title(f"{name}, m = {m}, {start} start", fontsize=10)
        ax.locator_params(axis="x", nbins=5)
        ax.grid(alpha=0.3)
    for ax in panels[-1]:
        ax.set_xlabel("seconds (steps times the shortest time of a step)")
    for ax in panels[:, 0]:
        ax.set_ylabel("held-out d₂ per quadric")
    figure.suptitle(f"Held-out loss against time, mean of {n_seeds} seeds; each method at its own best learning rate")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def conditions(size: Size, seed: int) -> str:
    """Return in words what is the same for all."""
    grid = ", ".join(f"1e{exponent}" for exponent in size.exponents)
    return (
        f"k = {size.n_components}, batch {BATCH_SIZE}, about {size.n_steps} steps, cosine schedule, momentum {MOMENTUM},\n"
        f"λ = 1, learning rates {grid} and the half powers beside the best (* marks the smallest and the largest tried);\n"
        f"seeds {seed} to {seed + size.n_seeds - 1}"
    )


def main(output: Path, data: Path = Path("../shared/data"), fast: bool = False, seed: int = 0) -> dict[str, Any]:
    """Measure, print the tables, write ``penalty_vs_manifold.json`` and ``.png``, and return the results."""
    size = FAST if fast else FULL
    records = []
    seconds = {m: step_seconds(size, m, seed) for m in size.n_quadrics}
    for case in cases(data, size, fast):
        for optimizer, constraint in METHODS:
            times = {"ms_per_step": 1e3 * seconds[case.n_quadrics][optimizer, constraint]}
            records.append(measure(case, constraint, optimizer, size, seed) | times)
        print(f"done: {case.data_name}, m = {case.n_quadrics}, {case.start_name} start", flush=True)
    all_ratios = {f"{start}, {name}": ratios(records, start, name) for start, name in product(STARTS, OPTIMIZERS)}
    print(f"\n{conditions(size, seed)}\n")
    print(f"penalty / manifold; losses are mean d₂ per quadric\n\n{detail_table(records)}\n")
    print(f"manifold over penalty, geometric means\n\n{summary_table(all_ratios)}")
    results = {"size": size._asdict(), "seed": seed, "batch_size": BATCH_SIZE, "ratios": all_ratios, "records": records}
    write_results(output, "penalty_vs_manifold", results, draw(records, size.n_seeds))
    return results


if __name__ == "__main__":
    main(**vars(argument_parser(__doc__, data=True).parse_args()))
