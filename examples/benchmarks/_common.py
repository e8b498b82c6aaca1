"""What the benchmarks share: timing, tables, files, and the development data by the protocol of their table."""

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.optim import Optimizer

from examples.benchmarks._data import DATA
from pyod_quadric.training.constraints import Constraint
from pyod_quadric.training.objective import mean_distance_and_gradient

N_ADBENCH_ROWS = 10_000  # larger sets are subsampled to so many
N_SENTENCES = 8_000  # movie sentences to fit
SPLIT_SEED = 0


class DataSet(NamedTuple):
    """Rows to fit, clean unless asked for otherwise, and test rows: inliers, and one or several kinds of outliers."""

    training: Tensor  # (n, d), float32
    inliers: Tensor
    outliers: list[Tensor]
    groups: NDArray[Any] | None = None  # (n,), of the training rows

    def roc_auc(self, score: Callable[[Tensor], Tensor]) -> float:
        """Return the ROC-AUC of an outlier score on the test rows, the mean over kinds of outliers."""
        inside = score(self.inliers)
        return float(np.mean([_roc_auc(inside, score(outliers)) for outliers in self.outliers]))


def _roc_auc(inside: Tensor, outside: Tensor) -> float:
    labels = np.repeat([0, 1], [len(inside), len(outside)])
    return float(roc_auc_score(labels, torch.cat([inside, outside]).numpy()))


def load_adbench(path: Path, seed: int = SPLIT_SEED, *, contaminated: bool = False) -> DataSet:
    """Return a set of ADBench, split 70/30, stratified, to fit on inliers only or on all training rows."""
    with np.load(path) as arrays:
        points, labels = arrays["X"].astype(np.float32), arrays["y"]
    if len(points) > N_ADBENCH_ROWS:
        chosen = np.random.default_rng(seed).choice(len(points), N_ADBENCH_ROWS, replace=False)
        points, labels = points[chosen], labels[chosen]
    training, test, training_labels, test_labels = train_test_split(
        points, labels, test_size=0.3, stratify=labels, random_state=seed
    )
    parts = training if contaminated else training[training_labels == 0], test[test_labels == 0], test[test_labels == 1]
    fitted, inliers, outliers = (torch.from_numpy(part) for part in parts)
    return DataSet(fitted, inliers, [outliers])


def load_sentences(path: Path, seed: int = SPLIT_SEED) -> DataSet:
    """Return sentence embeddings: movie reviews to fit and as inliers, each other domain as outliers."""
    with np.load(path) as arrays:
        domains = {name: torch.from_numpy(arrays[name].astype(np.float32)) for name in arrays}
    movies = domains.pop("movie")
    movies = movies[torch.from_numpy(np.random.default_rng(seed).permutation(len(movies)))]
    return DataSet(movies[:N_SENTENCES], movies[N_SENTENCES:], list(domains.values()))


def synthetic(n_rows: int = 400, n_features: int = 6, seed: int = 0) -> DataSet:
    """Return a stand-in that needs no files: a noisy ellipsoid with outliers around it."""
    generator = torch.Generator().manual_seed(seed)

    def normal(n: int) -> Tensor:
        return torch.randn(n, n_features, generator=generator)

    radii = torch.linspace(1, 2, n_features)
    ellipsoid = torch.nn.functional.normalize(normal(2 * n_rows)) * radii + 0.03 * normal(2 * n_rows)
    return DataSet(ellipsoid[:n_rows], ellipsoid[n_rows:], [normal(n_rows // 10)])


IN_A_ROW = 3  # timed runs of a task in its turn


def best_seconds(tasks: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    """Return the shortest time of each task.

    The tasks take turns, so that what else the machine does falls on all of them alike. In its turn each runs several times
    in a row, as steps of training do; the first of a row is not timed.
    """
    best = dict.fromkeys(tasks, np.inf)
    for _ in range(repetitions):
        for name, task in tasks.items():
            task()
            for _ in range(IN_A_ROW):
                started = time.perf_counter()
                task()
                best[name] = min(best[name], time.perf_counter() - started)
    return best


def training_step(constraint: Constraint, optimizer: Optimizer, points: Tensor) -> Tensor:
    """Make one whole step of training, as the training loop does, and return the loss."""
    loss, gradient = mean_distance_and_gradient(points, *constraint.parts(), out=constraint.gradient_buffer)
    constraint.set_gradient(gradient)
    optimizer.step()
    return loss


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; numbers are rounded to three significant digits."""
    lines = [header, ["---"] * len(header), *([_cell(entry) for entry in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(entry: object) -> str:
    return f"{entry:.3g}" if isinstance(entry, float) else str(entry)


def write_results(output: Path, name: str, results: Mapping[str, Any], figure: Figure) -> None:
    """Write ``<name>.json`` (with the environment) and ``<name>.png`` into a directory, which is made if need be."""
    output.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"environment": environment(), **results}, indent=1)
    (output / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    figure.savefig(output / f"{name}.png", dpi=110)
    plt.close(figure)
    print(f"\nwritten: {output / name}.json and .png")


def stored_results(output: Path, name: str) -> dict[str, Any]:
    """Return the figures of an earlier run from ``<name>.json``, with their environment, to draw them again."""
    path = output / f"{name}.json"
    if not path.exists():
        raise SystemExit(f"there are no figures to draw in {path}; run the benchmark without --redraw")
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    print(f"figures of {path}, measured with {results['environment']}")
    return results


def environment() -> dict[str, Any]:
    """Return what the figures were measured with."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
    }


def argument_parser(docstring: str, *, data: bool, seeds: bool | None = False) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have; they are the parameters of ``main``."""
    parser = argparse.ArgumentParser(description=docstring.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="small sizes, to see that it runs; the figures mean nothing")
    parser.add_argument("--output", type=Path, default=Path("benchmark_results"), help="directory for the JSON and the PNG")
    if seeds:
        parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="all seeds")
    elif seeds is not None:
        parser.add_argument("--seed", type=int, default=0, help="the first seed")
    if data:
        parser.add_argument("--data", type=Path, default=DATA, help="folder of the data; see README.md beside the benchmarks")
    return parser


def add_redraw(parser: argparse.ArgumentParser) -> None:
    """Add an option to draw the figures of an earlier run again."""
    parser.add_argument("--redraw", action="store_true", help="draw the figures in the output folder again; measure nothing")


def resident(name: str) -> int:
    """Return a figure of the memory of this process in bytes, by its name in Linux's ``/proc/self/status``."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])
