"""Sentences of one source or of three are normal, those of another one are not: what is normal in all mixes of the sources.

In the table of detection movie reviews are normal; here every source has its turn, and so have three of them together, where
rows are in several clusters. The four best detectors of that table are compared, PyOD's on rows divided by their norms, ours on
raw ones. At most 2,500 rows of each source are fitted, 1,000 others are inliers, and 1,000 of the other source outliers.

Run it with ``OMP_NUM_THREADS=1 python -m examples.benchmarks.domains --data DIR --output DIR``, in some ten minutes.
"""

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from examples.benchmarks._common import argument_parser, markdown_table, write_results
from examples.benchmarks._detection_cells import OURS, PREPROCESSINGS, make_detector, quiet

METHODS = {OURS: "raw", "KNN": "l2", "GMM": "l2", "CBLOF": "l2"}
N_FITTED, N_TESTED = 2500, 1000


class Task(NamedTuple):
    """What is normal and what is not."""

    name: str
    inside: list[str]
    outside: str


def tasks(sources: list[str]) -> list[Task]:
    """Return all pairs of sources, and each against all others together.

    Examples
    --------
    >>> [task.name for task in tasks(["a", "b", "c"])][-2:]
    ['all but b', 'all but c']
    """
    pairs = [Task(f"{inside}, not {outside}", [inside], outside) for inside, outside in permutations(sources, 2)]
    return pairs + [Task(f"all but {name}", [other for other in sources if other != name], name) for name in sources]


def load(data: Path, fast: bool) -> dict[str, NDArray[np.float32]]:
    """Return rows by source, or stand-ins that need no file."""
    if fast:
        rng = np.random.default_rng(0)
        means = 3 * rng.normal(size=(3, 8))
        return {name: (mean + rng.normal(size=(90, 8))).astype(np.float32) for name, mean in zip("abc", means, strict=True)}
    with np.load(data / "sentences/minilm.npz") as arrays:
        return {name: arrays[name].astype(np.float32) for name in arrays}


def split(rows: NDArray[np.float32], seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return rows to fit and rows to test."""
    mixed = np.random.default_rng(seed).permutation(rows)
    n_tested = min(N_TESTED, len(rows) // 3)
    return mixed[n_tested : n_tested + N_FITTED], mixed[:n_tested]


def measure(task: Task, sources: dict[str, NDArray[np.float32]], seed: int) -> dict[str, float]:
    """Return the ROC-AUC of each detector."""
    halves = [split(sources[name], seed) for name in task.inside]
    training, inliers = (np.concatenate(parts) for parts in zip(*halves, strict=True))
    outliers = split(sources[task.outside], seed)[1]
    labels = np.repeat([0, 1], [len(inliers), len(outliers)])
    found = {}
    for name, preprocessing in METHODS.items():
        scaler = PREPROCESSINGS[preprocessing]().fit(training)
        with quiet():
            detector = make_detector(name, training.shape[1], seed).fit(scaler.transform(training))
            scores = detector.decision_function(scaler.transform(np.concatenate([inliers, outliers])))
        found[name] = float(roc_auc_score(labels, scores))
    return found


def rows_of_table(results: dict[str, dict[str, float]]) -> Iterator[list[object]]:
    """Yield a line for each task, and the means over all."""
    for name, found in results.items():
        yield [name, *found.values()]
    yield ["mean", *(float(np.mean([found[method] for found in results.values()])) for method in METHODS)]


def draw(results: dict[str, dict[str, float]]) -> Figure:
    """Draw the ROC-AUC of each detector in each task."""
    figure, ax = plt.subplots(figsize=(7, 0.8 + 0.32 * len(results)), layout="constrained")
    for method, marker in zip(METHODS, "osd^", strict=True):
        colour = "tab:red" if method == OURS else None
        ax.plot(
            [found[method] for found in results.values()], range(len(results)), marker, label=method, color=colour, alpha=0.8
        )
    ax.set_yticks(range(len(results)), list(results))
    ax.invert_yaxis()
    ax.set(xlabel="ROC-AUC", title="What is normal, and what is not")
    ax.grid(alpha=0.3)
    ax.legend(loc="lower left")
    return figure


def main(output: Path, data: Path = Path("../shared/data"), fast: bool = False, seed: int = 0) -> dict[str, Any]:
    """Measure, print the table, write ``domains.json`` and ``domains.png``, and return the results."""
    sources = load(data, fast)
    results = {}
    for task in tasks(list(sources)):
        results[task.name] = measure(task, sources, seed)
        print(task.name, {name: round(number, 4) for name, number in results[task.name].items()}, flush=True)
    header = ["normal", *(name if name == OURS else f"{name}, {METHODS[name]}" for name in METHODS)]
    print(f"\nROC-AUC, seed {seed}\n\n{markdown_table(header, rows_of_table(results))}")
    summary = {"seed": seed, "results": results}
    write_results(output, "domains", summary, draw(results))
    return summary


if __name__ == "__main__":
    main(**vars(argument_parser(__doc__, data=True).parse_args()))
