"""How fast scoring and training are, in units of the one matrix product that they cannot do without.

The unit is ``X @ M``, X (n, d) times M (d, m d), as one would write it. Scoring has to do this product once and a training step
twice, so 1 and 2 are the limits for whoever writes the product down; into memory that is there already it is faster, and how
much is printed, too. Everything is timed in turns in one run and the shortest time counts; only ratios mean
anything.

The naive reference is written from the paper as it stands: the parameters are monomial coefficients, f is their product with
the monomials of a point, the loss is that of the paper with its penalty, and torch differentiates it, at batch 32. The norm of
∇f, which the loss contains, is found either by differentiating f by the point, one quadric after another, or from symmetric
matrices put together from the coefficients, which is kinder.

Run it with ``python -m examples.benchmarks.speed --output DIR``, with ``OMP_NUM_THREADS`` as you like, on a quiet machine.
``--redraw`` draws ``speed.json`` of the output folder again and measures nothing.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import Parameter

from examples.benchmarks._common import (
    add_redraw,
    argument_parser,
    best_seconds,
    environment,
    markdown_table,
    stored_results,
    training_step,
    write_results,
)
from pyod_quadric.geometry.distances import second_order_from
from pyod_quadric.geometry.quadrics import Quadrics, hs_norm, values_and_gradient_norms
from pyod_quadric.training.constraints import Constraint, PenaltyConstraint, StiefelConstraint
from pyod_quadric.training.objective import mean_distance_and_gradient
from pyod_quadric.training.riemannian import geoopt
from pyod_quadric.training.starts import random_quadrics

LR, MOMENTUM = 0.01, 0.9
EPOCH_ROWS = 100_000  # of the epoch that times are extrapolated to
NAIVE_BATCH = 32
NAIVE_TARGET = 25.0
UNIT = "unit: one forward product"
IN_PLACE = "the same product, into memory that is there"
SCALED = ("scoring", "penalty step", "Stiefel step")
COLOURS = {"scoring": "#0072b2", "penalty step": "#e69f00", "Stiefel step": "#009e73"}  # for colour-blind people, too
MARKERS = {"scoring": "o", "penalty step": "s", "Stiefel step": "^"}
NAMES = {"n": "n, rows", "m": "m, quadrics", "d": "d, features"}
# name: (target, limit)
TARGETS = {
    "scoring": (1.1, 1.0),
    "loss and gradient": (None, 2.0),
    "penalty step": (2.5, 2.0),
    "Stiefel step": (3.0, 2.0),
    "Stiefel step, geoopt.EuclideanStiefel": (None, 2.0),
}
Task = Callable[[], object]


class Size(NamedTuple):
    """What is timed, and how often."""

    n_rows: int
    n_features: int
    n_quadrics: int
    repetitions: int
    n_naive: int  # quadrics of the reference that differentiates by the point; its cost is proportional to them
    scaling_base: tuple[int, int, int]  # n, m, d
    scaling_factors: tuple[int, ...]


FULL = Size(1024, 512, 100, 7, 10, (512, 16, 64), (1, 2, 4, 8))
FAST = Size(64, 12, 4, 2, 2, (32, 3, 8), (1, 2))


class Problem(NamedTuple):
    """Points and random quadrics, float32."""

    points: Tensor  # (n, d)
    quadrics: Quadrics


def make_problem(n_rows: int, n_features: int, n_quadrics: int, seed: int) -> Problem:
    """Return normally distributed points and random orthonormal quadrics with linear and constant parts."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(n_rows, n_features, generator=generator)
    quadratic = random_quadrics(n_quadrics, n_features, generator).quadratic
    linear = torch.randn(n_quadrics, n_features, generator=generator)
    return Problem(points, Quadrics(quadratic, linear, -torch.ones(n_quadrics)))


def forward_product(problem: Problem) -> Task:
    """Return the unit."""
    points, quadrics = problem
    wide = torch.cat(list(quadrics.quadratic), dim=1)  # (d, m d)
    return lambda: points @ wide


def product_in_place(problem: Problem) -> Task:
    """Return the unit without fresh memory for its result."""
    points, quadrics = problem
    wide = torch.cat(list(quadrics.quadratic), dim=1)
    product = torch.empty(len(points), wide.shape[1])
    return lambda: torch.mm(points, wide, out=product)


def scoring(problem: Problem) -> Task:
    """Return what ``second_order_distance`` does after its checks."""
    points, quadrics = problem
    parts = quadrics.quadratic, quadrics.linear, quadrics.constant
    return lambda: second_order_from(*values_and_gradient_norms(points, *parts), hs_norm(parts[0]))


def loss_and_gradient(problem: Problem) -> Task:
    """Return the objective and its gradient, written into memory that is there already."""
    points, quadrics = problem
    constraint = PenaltyConstraint(quadrics)
    parts, out = constraint.parts(), constraint.gradient_buffer
    return lambda: mean_distance_and_gradient(points, *parts, out=out)


def full_step(problem: Problem, constrain: Callable[[Quadrics], Constraint]) -> Task:
    """Return one whole step of training with SGD."""
    constraint = constrain(problem.quadrics)
    optimizer = constraint.optimizer("sgd", LR, MOMENTUM)
    return lambda: training_step(constraint, optimizer, problem.points)


def our_tasks(problem: Problem) -> dict[str, Task]:
    """Return everything that is measured in units, with the unit."""
    return {
        UNIT: forward_product(problem),
        IN_PLACE: product_in_place(problem),
        "scoring": scoring(problem),
        "loss and gradient": loss_and_gradient(problem),
        "penalty step": full_step(problem, PenaltyConstraint),
        "Stiefel step": full_step(problem, StiefelConstraint),
        "Stiefel step, geoopt.EuclideanStiefel": full_step(
            problem, lambda quadrics: StiefelConstraint(quadrics, manifold=geoopt.EuclideanStiefel())
        ),
    }


class NaiveQuadrics:
    """The paper's loss, term by term, for torch to differentiate.

    Parameters
    ----------
    quadrics : Quadrics
        Where to start.
    differentiate : bool
        Whether ∇f comes from differentiating f by the point, or from matrices put together from the coefficients.
    """

    def __init__(self, quadrics: Quadrics, differentiate: bool) -> None:
        d = quadrics.n_features
        self.row, self.column = torch.triu_indices(d, d)
        self.size = len(self.row)
        self.coefficients = Parameter(quadrics.coefficients())  # (m, D)
        self.weights = torch.where(self.row == self.column, 1.0, 0.5**0.5)
        self.gradients = self.differentiated if differentiate else self.assembled
        self.optimizer = torch.optim.SGD([self.coefficients], lr=LR, momentum=MOMENTUM)

    def values(self, points: Tensor) -> Tensor:
        """Return f, shape (n, m), from all monomials of the points."""
        monomials = torch.cat([points[:, self.row] * points[:, self.column], points, torch.ones_like(points[:, :1])], dim=1)
        return monomials @ self.coefficients.T

    def differentiated(self, points: Tensor, values: Tensor) -> Tensor:
        """Return ∇f, shape (n, m, d), by differentiating each f by the points."""
        columns = values.sum(dim=0)
        return torch.stack([torch.autograd.grad(column, points, create_graph=True)[0] for column in columns], dim=1)

    def assembled(self, points: Tensor, values: Tensor) -> Tensor:
        """Return ∇f, shape (n, m, d), as 2 A x + b."""
        m, d = values.shape[1], points.shape[1]
        upper = torch.zeros(m, d, d).index_put(
            (torch.arange(m)[:, None], self.row, self.column), self.coefficients[:, : self.size]
        )
        return torch.einsum("nd,mde->nme", points, upper + upper.mT) + self.coefficients[:, self.size : -1]

    def loss(self, points: Tensor) -> Tensor:
        """Return the mean over points of the sum of d₂, plus the penalty."""
        points = points.clone().requires_grad_()
        values = self.values(points)
        half = torch.linalg.vector_norm(self.gradients(points, values), dim=2) / 2
        frame = self.coefficients[:, : self.size] * self.weights
        norms = torch.linalg.vector_norm(frame, dim=1)
        distances = ((half**2 + values.abs() * norms).sqrt() - half) / norms
        return distances.sum(dim=1).mean() + (frame @ frame.T - torch.eye(len(frame))).square().sum()

    def step(self, points: Tensor) -> None:
        """Make one step of SGD."""
        self.optimizer.zero_grad()
        self.loss(points).backward()
        self.optimizer.step()


def time_naive(problem: Problem, size: Size) -> dict[str, float]:
    """Return seconds per row of our penalty step and of both naive references, timed in turns."""
    batch = problem.points[:NAIVE_BATCH]
    by_point = NaiveQuadrics(problem.quadrics[: size.n_naive], differentiate=True)
    assembled = NaiveQuadrics(problem.quadrics, differentiate=False)
    tasks = {
        "ours": full_step(problem, PenaltyConstraint),
        "naive, ∇f from matrices": lambda: assembled.step(batch),
        "naive, ∇f by autograd": lambda: by_point.step(batch),
    }
    seconds = best_seconds(tasks, max(2, size.repetitions // 2))
    rows = dict(zip(tasks, (len(problem.points), len(batch), len(batch)), strict=True))
    per_row = {name: seconds[name] / rows[name] for name in tasks}
    # One pass through the monomials for each quadric. More quadrics make each pass dearer, too, so this is on the low side.
    per_row["naive, ∇f by autograd"] *= size.n_quadrics / size.n_naive
    return per_row


def time_scaling(size: Size, seed: int) -> dict[str, Any]:
    """Return seconds as n, m and d grow, one at a time, and the exponents between the two largest sizes."""
    curves: dict[str, Any] = {}
    for place, name in enumerate("nmd"):
        sizes, seconds = [], []
        for factor in size.scaling_factors:
            n, m, d = (number * (factor if i == place else 1) for i, number in enumerate(size.scaling_base))
            sizes.append((n, m, d)[place])
            tasks = our_tasks(make_problem(n, d, m, seed))
            seconds.append(best_seconds({task: tasks[task] for task in SCALED}, 5))
        times = {task: [second[task] for second in seconds] for task in seconds[0]}
        doublings = np.log2(sizes[-1] / sizes[-2])
        exponents = {task: float(np.log2(time[-1] / time[-2]) / doublings) for task, time in times.items()}
        curves[name] = {"sizes": sizes, "seconds": times, "last_exponent": exponents}
    return curves


def draw(results: dict[str, Any], size: Size) -> Figure:
    """Draw the costs in units beside their targets, and the three scaling curves."""
    figure, panels = plt.subplots(2, 2, figsize=(13, 9), layout="constrained")
    _draw_units(panels[0, 0], results["units"], size)
    base = dict(zip("nmd", size.scaling_base, strict=True))
    for ax, (name, slope) in zip(panels.flat[1:], (("n", 1), ("m", 1), ("d", 2)), strict=True):
        curve = results["scaling"][name]
        sizes = np.array(curve["sizes"], dtype=float)
        for task, seconds in curve["seconds"].items():
            label = f"{task}, last slope {curve['last_exponent'][task]:.2f}"
            ax.loglog(sizes, 1e3 * np.array(seconds), color=COLOURS[task], marker=MARKERS[task], label=label)
        reference = 1e3 * curve["seconds"]["scoring"][-1] * (sizes / sizes[-1]) ** slope
        ax.loglog(sizes, reference, "k--", label=f"slope {slope}")
        ax.set_xticks(sizes, [f"{number:g}" for number in sizes])
        ax.minorticks_off()
        fixed = ", ".join(f"{other} = {number}" for other, number in base.items() if other != name)
        ax.set(xlabel=NAMES[name], ylabel="milliseconds (best of 5)", title=f"Cost against {name} ({fixed})")
        ax.grid(alpha=0.3)
        ax.legend()
    return figure


def _draw_units(ax: Axes, units: dict[str, float], size: Size) -> None:
    names = list(TARGETS)
    places = np.arange(len(names))
    ax.barh(places, [units[name] for name in names], color="lightsteelblue", label="measured")
    for place, (name, (target, limit)) in enumerate(TARGETS.items()):
        right = max(units[name], target or 0, limit)  # so that no line runs through the number
        ax.annotate(f"{units[name]:.2f}", (right, place), (4, 0), textcoords="offset points", va="center")
        ax.vlines(limit, place - 0.4, place + 0.4, "black", label=None if place else "limit")
        if target is not None:
            ax.vlines(target, place - 0.4, place + 0.4, "#d55e00", "dashed", label=None if place else "target")
    ax.set_yticks(places, [name.replace(", ", ",\n") for name in names])
    ax.invert_yaxis()
    ax.set_xlim(0, 1.15 * max(units[name] for name in names))
    title = f"{size.n_rows} rows, {size.n_features} features, {size.n_quadrics} quadrics, float32"
    ax.set(xlabel="units (one forward product)", title=title)
    ax.legend(loc="upper right")


def units_table(seconds: dict[str, float]) -> str:
    """Return times in units as a table, beside targets and limits."""
    rows = [(name, f"{seconds[name] / seconds[UNIT]:.2f}", target or "", limit) for name, (target, limit) in TARGETS.items()]
    return markdown_table(["task", f"units ({seconds[UNIT]:.3g} s each)", "target at most", "limit"], rows)


def naive_table(per_row: dict[str, float], n_rows: int) -> str:
    """Return seconds per row as a table, extrapolated to an epoch."""
    header = ["penalty step with SGD", "batch", "ms per row", f"seconds per epoch of {EPOCH_ROWS} rows", "times ours", "target"]
    rows = []
    for name, seconds in per_row.items():
        batch, target = (n_rows, "") if name == "ours" else (NAIVE_BATCH, f"at least {NAIVE_TARGET:g}")
        rows.append((name, batch, 1e3 * seconds, seconds * EPOCH_ROWS, seconds / per_row["ours"], target))
    return markdown_table(header, rows)


def scaling_table(scaling: dict[str, Any]) -> str:
    """Return the exponents as a table."""
    rows = [(name, *(f"{exponent:.2f}" for exponent in curve["last_exponent"].values())) for name, curve in scaling.items()]
    return markdown_table(["cost grows like this power of", *SCALED], rows)


def main(output: Path, fast: bool = False, seed: int = 0, redraw: bool = False) -> dict[str, Any]:
    """Measure, print the tables, write ``speed.json`` and ``speed.png``, and return the results."""
    if redraw:
        stored = stored_results(output, "speed")
        write_results(output, "speed", stored, draw(stored, Size(**stored["size"])))
        return stored
    size = FAST if fast else FULL
    problem = make_problem(size.n_rows, size.n_features, size.n_quadrics, seed)
    print(f"n = {size.n_rows}, d = {size.n_features}, m = {size.n_quadrics}, float32, seed {seed}, {environment()}")
    seconds = best_seconds(our_tasks(problem), size.repetitions)
    print(f"\n{units_table(seconds)}\n\n{IN_PLACE}: {seconds[IN_PLACE] / seconds[UNIT]:.2f} units\n", flush=True)
    per_row = time_naive(problem, size)
    print(f"{naive_table(per_row, size.n_rows)}\n", flush=True)
    scaling = time_scaling(size, seed)
    print(scaling_table(scaling))
    results = {
        "size": size._asdict(),
        "seed": seed,
        "seconds": seconds,
        "units": {name: second / seconds[UNIT] for name, second in seconds.items()},
        "targets": TARGETS,
        "seconds_per_row": per_row,
        "times_ours": {name: second / per_row["ours"] for name, second in per_row.items()},
        "scaling": scaling,
    }
    write_results(output, "speed", results, draw(results, size))
    return results


if __name__ == "__main__":
    parser = argument_parser(__doc__, data=False)
    add_redraw(parser)
    main(**vars(parser.parse_args()))
