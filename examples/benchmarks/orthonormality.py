"""How orthonormal the frame stays over many steps: on the Stiefel manifold, and beside it with the penalty.

The error is the unsquared Frobenius norm ‖ṼᵀṼ - I‖ of the float32 frame, measured in float64. The steps are SGD with momentum
and a constant learning rate on the order-2 distance of real data: ADBench's ResNet18 embeddings CIFAR10_0, in principal
coordinates. The learning rate of 1 is there to strain the retraction. The penalty has a smaller one than the manifold: at
d = 512 it diverges with 0.1.

Run it with ``python -m examples.benchmarks.orthonormality --data DIR --output DIR``; the target is an error of at most 1e-5.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from examples.benchmarks._common import (
    argument_parser,
    load_adbench,
    markdown_table,
    synthetic,
    training_step,
    write_results,
)
from examples.benchmarks._data import DATA, ONE_OF_ADBENCH, need
from pyod_quadric.geometry.frames import orthonormality_error
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.model.coordinates import fit_working_coordinates
from pyod_quadric.training.constraints import Constraint, PenaltyConstraint, StiefelConstraint
from pyod_quadric.training.riemannian import geoopt
from pyod_quadric.training.starts import random_quadrics

TARGET = 1e-5
MOMENTUM = 0.9


class Size(NamedTuple):
    """How large a problem is, and how long it runs."""

    n_features: int
    n_quadrics: int
    batch_size: int
    n_steps: int


FULL = [Size(64, 50, 128, 10_000), Size(512, 100, 64, 150)]
FAST = [Size(6, 4, 32, 60), Size(8, 5, 32, 30)]


class Method(NamedTuple):
    """A way to hold the constraint, with a learning rate."""

    name: str
    constrain: Callable[[Quadrics], Constraint]
    lr: float


METHODS = [
    Method("manifold, CholeskyStiefel, lr 0.1", StiefelConstraint, 0.1),
    Method("manifold, CholeskyStiefel, lr 1", StiefelConstraint, 1.0),
    Method(
        "manifold, geoopt.EuclideanStiefel, lr 0.1",
        lambda start: StiefelConstraint(start, manifold=geoopt.EuclideanStiefel()),
        0.1,
    ),
    Method("penalty λ = 1, lr 0.01", PenaltyConstraint, 0.01),
]


def errors_over_steps(points: Tensor, size: Size, method: Method, seed: int) -> dict[str, Any]:
    """Train for the given number of steps, and return the errors at some of them, the largest and the last."""
    generator = torch.Generator().manual_seed(seed)
    constraint = method.constrain(random_quadrics(size.n_quadrics, size.n_features, generator))
    optimizer = constraint.optimizer("sgd", lr=method.lr, momentum=MOMENTUM)
    measured = set(np.unique(np.geomspace(1, size.n_steps, 60).round().astype(int)).tolist())
    steps, errors = [0], [_error(constraint)]
    for step in range(1, size.n_steps + 1):
        batch = points[torch.randint(len(points), (size.batch_size,), generator=generator)]
        loss = training_step(constraint, optimizer, batch)
        if step in measured:
            steps.append(step)
            errors.append(_error(constraint))
    last_loss = float(loss) / size.n_quadrics
    return {"steps": steps, "errors": errors, "largest": max(errors), "last": errors[-1], "loss_per_quadric": last_loss}


def _error(constraint: Constraint) -> float:
    return float(orthonormality_error(constraint.frame.T.double()))


def working_points(data: Path, n_features: int, fast: bool) -> Tensor:
    """Return rows in as many principal coordinates."""
    points = (synthetic(n_features=n_features) if fast else load_adbench(data / ONE_OF_ADBENCH)).training
    return fit_working_coordinates(lambda: [points], n_features).transform(points)


def draw(results: list[dict[str, Any]]) -> Figure:
    """Draw the error over the steps, a panel for each size."""
    figure, panels = plt.subplots(1, len(results), figsize=(13, 5), layout="constrained", sharey=True)
    for ax, result in zip(panels, results, strict=True):
        size = Size(**result["size"])
        for name, run in result["runs"].items():
            ax.loglog(run["steps"][1:], run["errors"][1:], label=name)
        ax.axhline(TARGET, color="black", linestyle="--", label=f"target {TARGET:g}")
        ax.set(xlabel="step", title=f"d = {size.n_features}, m = {size.n_quadrics}, batch {size.batch_size}, float32")
        ax.grid(alpha=0.3)
    panels[0].set_ylabel("orthonormality error ‖ṼᵀṼ − I‖ (unsquared, in float64)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def main(output: Path, data: Path = DATA, fast: bool = False, seed: int = 0) -> dict[str, Any]:
    """Measure, print the table, write ``orthonormality.json`` and ``orthonormality.png``, and return the results."""
    if not fast:
        need(data, ONE_OF_ADBENCH)
    results = []
    for size in FAST if fast else FULL:
        points = working_points(data, size.n_features, fast)
        runs = {method.name: errors_over_steps(points, size, method, seed) for method in METHODS}
        results.append({"size": size._asdict(), "runs": runs})
        rows = [(name, run["largest"], run["last"], TARGET, run["loss_per_quadric"]) for name, run in runs.items()]
        print(f"\nd = {size.n_features}, m = {size.n_quadrics}, batch {size.batch_size}, {size.n_steps} steps, seed {seed}\n")
        header = ["method", "largest error measured", "last error", "target (manifold)", "last loss per quadric"]
        print(markdown_table(header, rows), flush=True)
    summary = {"target": TARGET, "seed": seed, "momentum": MOMENTUM, "results": results}
    write_results(output, "orthonormality", summary, draw(results))
    return summary


if __name__ == "__main__":
    main(**vars(argument_parser(__doc__, data=True).parse_args()))
