"""Soft penalty or Stiefel manifold, and their rivals: which way to keep a tall frame orthonormal learns best.

All methods start from the same quadrics and see the same batches, in principal coordinates of real data, from a random start
and from the closed form, for few and for many quadrics, and on products of circles and of spheres, where the smallest loss is
known to be 0. A method is a way to hold orthonormality and an optimiser: the penalty and the manifold of this package, geoopt's
manifold with its own optimisers, the landing method, POGO (``pip install pogo-torch``, else it is left out), steps like Muon's
with a retraction, and an exact penalty.

The budget is the same for all: the learning rate with the lowest held-out loss of the first seed, powers of ten first, then the
two half powers beside the best. Figures are means over the seeds, which decide held-out rows, starts and batches. Everything is
measured at the retracted point: the frame is made orthonormal first, by mixing whole polynomials, since quadrics that lean
towards each other have a smaller loss. Times are numbers of steps times the shortest time of a step, measured in turns.

Run it with ``OMP_NUM_THREADS=1 python -m examples.benchmarks.penalty_vs_manifold --data DIR --output DIR``, in about an hour.
It goes on from what is in its output folder.
"""

import importlib.util
import json
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
from examples.benchmarks._data import CLINC150, DATA, ONE_OF_ADBENCH, SENTENCES, WORDNET, need
from examples.benchmarks._regimes import REGIMES, Files
from examples.benchmarks._rivals import ExactPenalty, GeooptStiefel, Landing, Muon, Pogo
from pyod_quadric import Quadrics, second_order_distance
from pyod_quadric.data.batches import held_out_indices
from pyod_quadric.model.coordinates import fit_working_coordinates
from pyod_quadric.parameters import OptimizerName
from pyod_quadric.training.constraints import Constraint, PenaltyConstraint, StiefelConstraint
from pyod_quadric.training.manifold import CholeskyStiefel
from pyod_quadric.training.objective import mean_distance_and_gradient
from pyod_quadric.training.starts import random_quadrics, spectral_quadrics

BATCH_SIZE = 256
MOMENTUM = 0.9
ONE_IN = 10  # rows that is held out
N_GRADIENT_ROWS = 2048
N_WORDNET_ROWS = 20_000
# Of the way from the start to the lowest loss that any method has found, what may be left: in the end, and along the way.
SOLVED, SOLVED_EARLY = (0.1, 0.01), (0.25, 0.1)
REFERENCE = "penalty, Adam"


class Method(NamedTuple):
    """A way to hold orthonormality, and an optimiser."""

    constraint: Callable[[Quadrics], Constraint]
    optimizer: OptimizerName
    line: tuple[str, str]  # colour and style


METHODS = {
    "penalty, SGD": Method(PenaltyConstraint, "sgd", ("#E69F00", "-")),
    "penalty, Adam": Method(PenaltyConstraint, "adam", ("#E69F00", "--")),
    "manifold, SGD": Method(StiefelConstraint, "sgd", ("#0072B2", "-")),
    "manifold, Adam": Method(StiefelConstraint, "adam", ("#0072B2", "--")),
    "geoopt, SGD": Method(GeooptStiefel, "sgd", ("#56B4E9", "-")),
    "geoopt, Adam": Method(GeooptStiefel, "adam", ("#56B4E9", "--")),
    "landing, SGD": Method(Landing, "sgd", ("#009E73", "-")),
    "POGO, SGD": Method(Pogo, "sgd", ("#CC79A7", "-")),
    "POGO, Adam": Method(Pogo, "adam", ("#CC79A7", "--")),
    "Muon, retracted": Method(Muon, "sgd", ("#D55E00", "-")),
    "exact penalty, Adam": Method(ExactPenalty, "adam", ("#000000", "--")),
}
FEASIBLE = ("manifold, SGD", "manifold, Adam", "geoopt, SGD", "geoopt, Adam", "Muon, retracted")  # by construction


class Size(NamedTuple):
    """How much is done."""

    n_components: int
    n_quadrics: tuple[int, ...]
    n_steps: int
    n_seeds: int
    exponents: tuple[int, ...]  # of the powers of ten among the learning rates


FULL = Size(n_components=40, n_quadrics=(5, 100), n_steps=200, n_seeds=2, exponents=(-4, -3, -2, -1, 0))
FAST = Size(n_components=6, n_quadrics=(2, 5), n_steps=4, n_seeds=2, exponents=(-2,))


class Points(NamedTuple):
    """Data in principal coordinates of the rows that are trained on, which the seed decides."""

    fitted: Tensor
    held_out: Tensor
    test: DataSet


class Case(NamedTuple):
    """A data set, the number of quadrics, and where they start."""

    data_name: str
    points: Callable[[int], Points]  # by seed
    n_quadrics: int
    start_name: str  # "random", "closed form", or "known optimum", which starts at random

    @property
    def title(self) -> str:
        """A name for tables."""
        return f"{self.data_name}, m = {self.n_quadrics}, {self.start_name}"

    def start(self, seed: int) -> Quadrics:
        """Return where training starts."""
        points = self.points(seed).fitted
        if self.start_name == "closed form":
            return spectral_quadrics([points], self.n_quadrics).to(dtype=torch.float32)
        return random_quadrics(self.n_quadrics, points.shape[1], torch.Generator().manual_seed(seed))


class Run(NamedTuple):
    """One training run; losses are means over held-out rows and over quadrics, at the retracted point."""

    losses: list[float]  # at the start, and at the measured steps
    gradient_norm: float  # Riemannian, of the training loss, over that at the start
    error: float  # of the frame as it is
    roc_auc: float


# --- Cases ---


def product_of_spheres(n_spheres: int, dimension: int, n_rows: int = 4000, seed: int = 0) -> DataSet:
    """Return rows of a product of unit spheres, rotated: as many quadrics vanish on all of them.

    Outliers have the same radius as a whole.

    Examples
    --------
    >>> rows = product_of_spheres(3, 2, 10).training
    >>> bool(torch.allclose(rows.square().sum(dim=1), torch.tensor(3.0)))
    True
    """
    generator = torch.Generator().manual_seed(seed)
    d = n_spheres * dimension
    rotation = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q

    def rows(n: int, n_blocks: int) -> Tensor:
        blocks = torch.randn(n, n_blocks, d // n_blocks, generator=generator, dtype=torch.float64)
        on_spheres = torch.nn.functional.normalize(blocks, dim=2).flatten(1) * math.sqrt(n_spheres / n_blocks)
        return (on_spheres @ rotation).float()

    return DataSet(rows(n_rows, n_spheres), rows(n_rows // 4, n_spheres), [rows(n_rows // 4, 1)])


MNIST = "adbench/Classical/24_mnist.npz"


def load_all(data: Path) -> dict[str, DataSet]:
    """Return the real data sets by name."""
    files = Files(data)
    glosses = REGIMES["wordnet"].load(files, "plants", 0, False)
    return {
        "CIFAR10_0": load_adbench(data / ONE_OF_ADBENCH),
        "sentences": load_sentences(data / SENTENCES),
        "mnist": load_adbench(data / MNIST),
        "CLINC150": REGIMES["clinc150"].load(files, "out of scope", 0, False),
        "WordNet": glosses._replace(training=glosses.training[:N_WORDNET_ROWS]),
    }


def in_working_coordinates(data: DataSet, n_components: int, seed: int) -> Points:
    """Return the data in principal coordinates of the rows that are trained on."""
    chosen = held_out_indices(len(data.training), ONE_IN, seed)
    fitted = data.training[np.setdiff1d(np.arange(len(data.training)), chosen)]
    coordinates = fit_working_coordinates(lambda: [fitted], min(n_components, fitted.shape[1]))
    outliers = [coordinates.transform(rows) for rows in data.outliers]
    test = DataSet(fitted[:0], coordinates.transform(data.inliers), outliers)
    return Points(coordinates.transform(fitted), coordinates.transform(data.training[chosen]), test)


def cases(data: Path, size: Size, fast: bool) -> Iterator[Case]:
    """Yield all cases: known optima first."""
    known = [("3 circles", 3, 2, (3, 2))] if fast else [("10 circles", 10, 2, (10, 5)), ("5 spheres", 5, 4, (5, 3))]
    for name, n_spheres, dimension, numbers in known:
        points = cache(partial(in_working_coordinates, product_of_spheres(n_spheres, dimension), n_spheres * dimension))
        yield from (Case(name, points, m, "known optimum") for m in numbers)
    for name, raw in ({"synthetic": synthetic(n_features=8)} if fast else load_all(data)).items():
        points = cache(partial(in_working_coordinates, raw, size.n_components))
        yield from (Case(name, points, m, start) for m, start in product(size.n_quadrics, ("random", "closed form")))


# --- Runs ---


def measured_steps(n_steps: int) -> list[int]:
    """Return after how many steps the loss is measured: at the start, then ever more rarely."""
    return [0, *dict.fromkeys(round(n_steps ** (power / 12)) for power in range(3, 13))]


def retracted(constraint: Constraint) -> Quadrics:
    """Return the quadrics with an orthonormal frame."""
    return constraint.quadrics().orthonormalized()


def mean_d2(points: Tensor, quadrics: Quadrics) -> float:
    """Return the mean over points and quadrics of the order-2 distance."""
    return float(second_order_distance(points, quadrics).mean())


def riemannian_gradient_norm(points: Tensor, quadrics: Quadrics) -> float:
    """Return the length of the gradient of the loss along the manifold, the free coefficients included."""
    packed = quadrics.packed()
    _, gradient = mean_distance_and_gradient(points[:N_GRADIENT_ROWS], packed, quadrics.linear, quadrics.constant)
    along = CholeskyStiefel().proju(packed.T, gradient.packed.T)
    return math.sqrt(sum(float(part.square().sum()) for part in (along, gradient.linear, gradient.constant)))


def run(case: Case, method: Method, lr: float, seed: int, n_steps: int) -> Run | None:
    """Train once; None if it diverges."""
    points, start = case.points(seed), case.start(seed)
    constraint = method.constraint(start)
    optimizer = constraint.optimizer(method.optimizer, lr, MOMENTUM)
    steps, losses = measured_steps(n_steps), [mean_d2(points.held_out, start)]
    rng = np.random.default_rng(seed)
    try:
        for step in range(n_steps):
            for group in optimizer.param_groups:
                group["lr"] = lr * (1 + math.cos(math.pi * step / n_steps)) / 2
            batch = points.fitted[torch.from_numpy(rng.integers(len(points.fitted), size=BATCH_SIZE))]
            training_step(constraint, optimizer, batch)
            if step + 1 in steps:
                losses.append(mean_d2(points.held_out, retracted(constraint)))
                if not math.isfinite(losses[-1]):
                    return None
        end = retracted(constraint)
    except (ValueError, torch.linalg.LinAlgError):  # no orthonormal frame is near
        return None
    norms = [riemannian_gradient_norm(points.fitted, quadrics) for quadrics in (start, end)]
    areas = points.test.roc_auc(lambda rows: second_order_distance(rows, end).mean(dim=1))
    return Run(losses, norms[1] / norms[0], float(constraint.error()), areas)


def tuned(train_once: Callable[[float], Run | None], exponents: tuple[int, ...]) -> tuple[float, dict[float, float]]:
    """Return the best learning rate, and the held-out loss of all that were tried (infinite where training diverged)."""
    losses: dict[float, float] = {}

    def best_of(rates: list[float]) -> float:
        for rate in rates:
            outcome = train_once(rate)
            losses[rate] = outcome.losses[-1] if outcome else math.inf
        return min(losses, key=losses.__getitem__)

    rate = best_of([10.0**exponent for exponent in exponents])
    return best_of([rate * 10**-0.5, rate * 10**0.5]), losses


def measure(case: Case, method: Method, size: Size, first_seed: int) -> dict[str, Any]:
    """Tune one method on one case, train it with all seeds, and return a record of it."""

    @cache
    def train_once(lr: float, seed: int = first_seed) -> Run | None:
        return run(case, method, lr, seed, size.n_steps)

    lr, losses = tuned(train_once, size.exponents)
    runs = [train_once(lr), *(train_once(lr, seed) for seed in range(first_seed + 1, first_seed + size.n_seeds))]
    ended = [one for one in runs if one]
    means = {name: float(np.mean([getattr(one, name) for one in ended])) for name in ("gradient_norm", "error", "roc_auc")}
    return {
        "lr": lr,
        "tried": {f"{rate:.2g}": loss if math.isfinite(loss) else None for rate, loss in sorted(losses.items())},
        "n_diverged": len(runs) - len(ended),
        "losses": np.mean([one.losses for one in ended], axis=0).tolist(),
        **means,
    }


def step_seconds(size: Size, seed: int, methods: dict[str, Method]) -> dict[str, float]:
    """Return the shortest time of a step of each method for the most quadrics, measured in turns."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(BATCH_SIZE, size.n_components, generator=generator)
    start = random_quadrics(max(size.n_quadrics), size.n_components, generator)
    tasks = {}
    for name, method in methods.items():
        constraint = method.constraint(start)
        tasks[name] = partial(training_step, constraint, constraint.optimizer(method.optimizer, 1e-3, MOMENTUM), points)
    return best_seconds(tasks, min(size.n_steps, 50))


# --- What was found ---

Records = dict[str, dict[str, Any]]  # of one case, by method


def chosen_cases(records: dict[str, Records], kind: str) -> list[Records]:
    """Return the records of cases of one kind of start."""
    return [entries for title, entries in records.items() if title.endswith(kind)]


def geometric_mean(numbers: list[float]) -> float:
    """Return the geometric mean, NaN of nothing."""
    return math.exp(float(np.mean(np.log(numbers)))) if numbers else math.nan


def loss_ratio(chosen: list[Records], name: str, other: str) -> float:
    """Return the geometric mean over cases of final losses of one method over those of another."""
    return geometric_mean([entries[name]["losses"][-1] / entries[other]["losses"][-1] for entries in chosen])


def steps_to(entries: Records, name: str, left: float, steps: list[int]) -> float:
    """Return after how many steps a method is so near to the lowest loss that any has found; infinite if never."""
    start = entries[name]["losses"][0]
    lowest = min(min(entry["losses"]) for entry in entries.values())
    target = lowest + left * (start - lowest)
    return next((step for step, loss in zip(steps, entries[name]["losses"], strict=True) if loss <= target), math.inf)


def _steps_to_all(chosen: list[Records], name: str, left: float, steps: list[int]) -> np.ndarray:
    return np.array([steps_to(entries, name, left, steps) for entries in chosen])


def sensitivity(chosen: list[Records], name: str, decades: float) -> float:
    """Return by how much the loss is larger at a rate so many decades from the best, the median over cases."""
    found = []
    for entries in chosen:
        tried = {float(rate): loss for rate, loss in entries[name]["tried"].items()}
        best = min(loss for loss in tried.values() if loss is not None)
        for rate, loss in tried.items():
            if abs(math.log10(rate / entries[name]["lr"]) - decades) < 0.05:
                found.append(math.inf if loss is None else loss / best)
    return float(np.median(found)) if found else math.nan


def summary_table(records: dict[str, Records], seconds: dict[str, float], steps: list[int]) -> str:
    """Return one line for each method."""
    header = ["method", "loss, random start", "loss, closed form", "loss left, known optimum", "near the best in"]
    header += ["ROC-AUC, difference", "Riemannian gradient", "orthonormality error", "time of a step", "diverged"]
    header += ["loss at a tenth / ten times the rate"]
    random, closed, known = (chosen_cases(records, kind) for kind in ("random", "closed form", "known optimum"))
    real, every, lines = random + closed, list(records.values()), []
    for name in seconds:
        left = geometric_mean([entries[name]["losses"][-1] / entries[name]["losses"][0] for entries in known])
        near = sum(math.isfinite(steps_to(entries, name, SOLVED[1], steps)) for entries in every)
        areas = np.mean([entries[name]["roc_auc"] - entries[REFERENCE]["roc_auc"] for entries in real])
        tried = [loss for entries in every for loss in entries[name]["tried"].values()]
        lines.append(
            [
                name,
                f"{loss_ratio(random, name, REFERENCE):.3f}",
                f"{loss_ratio(closed, name, REFERENCE):.3f}",
                left,
                f"{near} of {len(every)}",
                f"{areas:+.3f}",
                geometric_mean([entries[name]["gradient_norm"] for entries in every]),
                max(entries[name]["error"] for entries in every),
                f"{seconds[name] / seconds[REFERENCE]:.2f}",
                f"{np.mean([loss is None for loss in tried]):.0%}",
                " / ".join(f"{sensitivity(every, name, decades):.2f}" for decades in (-1, 1)),
            ]
        )
    return markdown_table(header, lines)


def detail_table(records: dict[str, Records]) -> str:
    """Return the final losses, with the learning rates, of all cases; * marks a rate at the edge of those tried."""

    def cell(entry: dict[str, Any]) -> str:
        rates = [float(rate) for rate in entry["tried"]]
        at_edge = not min(rates) * 1.1 < entry["lr"] < max(rates) / 1.1
        return f"{entry['losses'][-1]:.4f} ({entry['lr']:.1g}{'*' * at_edge})"

    names = list(next(iter(records.values())))
    lines = [
        [title, f"{entries[names[0]]['losses'][0]:.4f}", *(cell(entries[name]) for name in names)]
        for title, entries in records.items()
    ]
    return markdown_table(["case", "at the start", *names], lines)


def draw(records: dict[str, Records], seconds: dict[str, float], steps: list[int], title: str) -> Figure:
    """Draw performance profiles by time, data profiles by steps, and what a wrong learning rate costs."""
    # Two columns, so that it can be read in a column of text.
    figure, grid = plt.subplots(3, 2, figsize=(9.2, 12), layout="constrained")
    panels = grid.T
    every = list(records.values())
    numbers = np.arange(1, steps[-1] + 1)
    for row, (left, left_early) in enumerate(zip(SOLVED, SOLVED_EARLY, strict=True)):
        by_time, by_steps = panels[row, :2]
        times = {name: seconds[name] * _steps_to_all(every, name, left, steps) for name in seconds}
        fastest = np.min(list(times.values()), axis=0)
        ratios = np.geomspace(1, 10, 60)
        for name in seconds:
            colour, style = METHODS[name].line
            with np.errstate(invalid="ignore"):
                shares = [np.mean(times[name] / fastest <= ratio) for ratio in ratios]
            by_time.plot(ratios, shares, style, color=colour, label=name)
            found = _steps_to_all(every, name, left_early, steps)
            by_steps.step(numbers, [np.mean(found <= n) for n in numbers], style, color=colour, where="post")
        by_time.set(xscale="log", xlabel="time, over that of the fastest method", ylabel=f"share of cases within {left:.0%}")
        by_steps.set(xlabel="steps", ylabel=f"share of cases within {left_early:.0%}")
        for ax in (by_time, by_steps):
            ax.set_ylim(-0.02, 1.02)
    decades = [-1, -0.5, 0, 0.5, 1]  # what nearly all cases have tried
    for name in seconds:
        colour, style = METHODS[name].line
        costs = [min(3.0, sensitivity(every, name, decade)) for decade in decades]
        panels[0, 2].plot(decades, costs, style, color=colour, marker=".")
        ratios_to_reference = sorted(entries[name]["losses"][-1] / entries[REFERENCE]["losses"][-1] for entries in every)
        panels[1, 2].plot(np.linspace(0, 1, len(every)), ratios_to_reference, style, color=colour)
    panels[0, 2].set(xlabel="decades from the best learning rate", ylabel="loss over the best, median, at most 3")
    panels[0, 2].set_xticks(decades)
    panels[1, 2].set(xlabel="share of cases", ylabel=f"final loss over that of {REFERENCE}", yscale="log", ylim=(0.5, 2))
    panels[1, 2].set_yticks([0.5, 0.7, 1, 1.4, 2], ["0.5", "0.7", "1", "1.4", "2"], minor=False)
    panels[1, 2].minorticks_off()
    for ax in panels.flat:
        ax.grid(alpha=0.3)
    figure.suptitle(title, fontsize=10)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def conditions(size: Size, seed: int, n_cases: int) -> str:
    """Return in words what is the same for all."""
    grid = ", ".join(f"1e{exponent}" for exponent in size.exponents)
    return (
        f"{n_cases} cases, k = {size.n_components} (20 for known optima), batch {BATCH_SIZE}, {size.n_steps} steps, cosine "
        f"schedule, momentum {MOMENTUM}, λ = 1,\nlearning rates {grid} and the half powers beside the best,\n"
        f"seeds {seed} to {seed + size.n_seeds - 1}; all at the retracted point"
    )


def main(output: Path, data: Path = DATA, fast: bool = False, seed: int = 0) -> dict[str, Any]:
    """Measure, print the tables, write ``penalty_vs_manifold.json`` and ``.png``, and return the results."""
    if not fast:
        need(data, ONE_OF_ADBENCH, MNIST, SENTENCES, CLINC150, WORDNET)
    size = FAST if fast else FULL
    has_pogo = importlib.util.find_spec("pogo") is not None
    methods = {name: method for name, method in METHODS.items() if has_pogo or method.constraint is not Pogo}
    seconds, steps = step_seconds(size, seed, methods), measured_steps(size.n_steps)
    output.mkdir(parents=True, exist_ok=True)
    path = output / "penalty_vs_manifold_cells.json"
    records: dict[str, Records] = json.loads(path.read_text()) if path.exists() else {}
    for case in cases(data, size, fast):
        entries = records.setdefault(case.title, {})
        for name, method in methods.items():
            if name not in entries:
                entries[name] = measure(case, method, size, seed)
        path.write_text(json.dumps(records, indent=1) + "\n")
        print(f"done: {case.title}", flush=True)
    title = conditions(size, seed, len(records))
    summary = summary_table(records, seconds, steps)
    print(f"\n{title}\n\nlosses are over those of {REFERENCE}\n\n{summary}\n\n{detail_table(records)}")
    results = {"size": size._asdict(), "seed": seed, "steps": steps, "ms": {k: 1e3 * v for k, v in seconds.items()}}
    write_results(output, "penalty_vs_manifold", results | {"records": records}, draw(records, seconds, steps, title))
    return results | {"records": records}


if __name__ == "__main__":
    main(**vars(argument_parser(__doc__, data=True).parse_args()))
