"""What decisions are worth: flagged inliers, p-values, false discoveries, probabilities and drift, beside PyOD's detectors.

Detectors are fitted to inliers, two thirds of them or fewer, and judged by the others: how many are flagged at a contamination
of .01, .05 and .1, and how far their p-values are from uniform ones (the distance of Kolmogorov and Smirnov). P-values of
PyOD's detectors are made from their training scores in the same way. Mixtures with outliers show false discoveries among what
is selected at a rate of .1, and how well probabilities are calibrated (expected calibration error, ten bins). Batches of new
inliers show how often drift is found where there is none, at a level of .05.

Run it with ``OMP_NUM_THREADS=1 python -m examples.benchmarks.decisions --data DIR --output DIR``, in about half an hour.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from joblib import Parallel, delayed
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import false_discovery_control
from sklearn.metrics import roc_auc_score

from examples.benchmarks._common import argument_parser, markdown_table, write_results
from examples.benchmarks._data import CLINC150, DATA, SENTENCES, WORDNET, adbench, need
from examples.benchmarks._detection_cells import OURS, make_detector, quiet
from pyod_quadric import QuadricDetector
from pyod_quadric.model.calibration import Calibration, drift_of

METHODS = (OURS, "KNN", "GMM", "IForest", "LOF")
CONTAMINATIONS = (0.01, 0.05, 0.1)
SHARES = (0.01, 0.05, 0.1)  # of outliers in mixtures
RATE = 0.1  # of false discoveries
BATCHES = (50, 200, 1000, 10_000)
N_MIXTURES, N_MIXED = 20, 1000
SIZES = (200, 400, 1000, 2000, 8000)
FEW = 400  # rows, below which there is noise of the split itself
MOST_ROWS, MOST_TESTED, MOST_OUTLIERS = 12_000, 20_000, 2000
N_BINS = 10
COLOURS = dict(zip(METHODS, ("#d55e00", "#0072b2", "#e69f00", "#009e73", "#cc79a7"), strict=True))  # for all eyes
CURVES = {OURS: "posterior", "KNN": "unify", "GMM": "unify", "IForest": "unify"}

Rows = NDArray[np.float32]


class Task(NamedTuple):
    """A set at a size: rows to draw from, how many to fit, outliers, and the group of each row, if it has one."""

    name: str
    inliers: Rows
    n: int
    outliers: Rows
    groups: NDArray[Any] | None = None


def tasks(data: Path, fast: bool) -> Iterator[Task]:
    """Yield all sets at all sizes."""
    if fast:
        rng = np.random.default_rng(0)
        yield Task(
            "a cloud", rng.normal(size=(300, 5)).astype(np.float32), 200, rng.normal(size=(40, 5), scale=3).astype(np.float32)
        )
        people = np.repeat(np.arange(100), 3)
        rows = (rng.normal(size=(100, 5))[people] + 0.1 * rng.normal(size=(300, 5))).astype(np.float32)
        yield Task("in groups", rows, 200, 5 * rows[:40], people)
        return
    need(data)
    for path in sorted(adbench(data)):
        with np.load(path) as arrays:
            rows, labels = arrays["X"].astype(np.float32), arrays["y"]
        yield Task(path.stem, rows[labels == 0], 2 * min(MOST_ROWS, int((labels == 0).sum())) // 3, rows[labels == 1])
    with np.load(data / SENTENCES) as arrays:
        sources = {name: arrays[name].astype(np.float32) for name in arrays}
    for name, rows in sources.items():
        others = np.concatenate([other for key, other in sources.items() if key != name])
        yield from (Task(name, rows, n, others) for n in SIZES if 4 * n <= 3.1 * len(rows))
    with np.load(data / CLINC150) as arrays:
        rows, part, intent = arrays["X"].astype(np.float32), arrays["part"], arrays["intent"]
    known = np.isin(part, (0, 2))
    yield from (Task("clinc150", rows[known], n, rows[part == 5]) for n in (400, 2000, 10_000))
    yield Task("clinc150, new intents, no groups", rows[known], 10_000, rows[part == 5], -intent[known] - 1)
    yield Task("clinc150, new intents, groups", rows[known], 10_000, rows[part == 5], intent[known])
    with np.load(data / WORDNET) as arrays:
        rows, files = arrays["X"].astype(np.float32), arrays["lexfile"]
    yield from (Task("wordnet", rows[files != 20], n, rows[files == 20]) for n in (2000, 8000))


def split(task: Task, seed: int) -> tuple[Rows, Rows, NDArray[Any] | None]:
    """Return rows to fit, inliers to judge by, and the groups of the former; with groups, none is in both."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(task.inliers))
    if task.groups is None:
        return task.inliers[order[: task.n]], task.inliers[order[task.n :][:MOST_TESTED]], None
    names = rng.permutation(np.unique(task.groups))
    fitted = np.isin(task.groups, names[: 2 * len(names) // 3])
    groups = task.groups[fitted] if task.groups.min() >= 0 else None
    return task.inliers[fitted], task.inliers[~fitted][:MOST_TESTED], groups


def binned(probabilities: NDArray[np.float64], labels: NDArray[np.int_]) -> NDArray[np.float64]:
    """Return the share of rows in each of ten bins, and their probabilities and labels summed and divided by all: (10, 3)."""
    bins = np.minimum((probabilities * N_BINS).astype(int), N_BINS - 1)
    sums = [np.bincount(bins, weights, N_BINS) for weights in (None, probabilities, labels)]
    return np.stack(sums, axis=1) / len(labels)


def expected_calibration_error(bins: NDArray[np.float64]) -> float:
    """Return the mean difference between predicted and true shares of outliers.

    Examples
    --------
    >>> round(expected_calibration_error(binned(np.array([0.1, 0.1, 0.9, 0.9]), np.array([0, 0, 1, 1]))), 3)
    0.1
    """
    return float(np.abs(bins[:, 1] - bins[:, 2]).sum())


def measure(task: Task, method: str, seed: int) -> dict[str, Any]:
    """Fit a detector and judge its decisions."""
    training, inliers, groups = split(task, seed)
    rng = np.random.default_rng(seed)
    with quiet():
        started = time.perf_counter()
        detector = make_detector(method, training.shape[1], seed)
        detector = detector.fit(training, groups=groups) if isinstance(detector, QuadricDetector) else detector.fit(training)
        seconds = time.perf_counter() - started
        inside, outside = detector.decision_function(inliers), detector.decision_function(task.outliers[:MOST_OUTLIERS])
        table = Calibration.of(np.asarray(detector.decision_scores_, dtype=np.float64))
        p_inside, p_outside = (detector_p_values(table, scores) for scores in (inside, outside))
        uniform = np.arange(1, len(p_inside) + 1) / len(p_inside)
        found: dict[str, Any] = {
            "flagged": [float(np.mean(inside > np.quantile(detector.decision_scores_, 1 - c))) for c in CONTAMINATIONS],
            "ks": float(np.abs(np.sort(p_inside) - uniform).max()),
            "ks_of_chance": float(0.8687 * np.sqrt(1 / len(training) + 1 / len(inside))),
            "roc_auc": float(roc_auc_score(np.repeat([0, 1], [len(inside), len(outside)]), np.r_[inside, outside])),
            "seconds": seconds,
            "fdr": [false_discoveries(p_inside, p_outside, share, rng) for share in SHARES],
            "drift": [
                None if task.groups is not None else drift_rate(inside, detector.decision_scores_, size, rng)
                for size in BATCHES
            ],
            "bins": calibration_bins(detector, inliers, task.outliers, rng),
        }
    return found


def detector_p_values(table: Calibration, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return p-values from a table."""
    return table.p_values_of(torch.as_tensor(scores, dtype=torch.float64)).numpy()


def false_discoveries(inside: NDArray[Any], outside: NDArray[Any], share: float, rng: np.random.Generator) -> list[float]:
    """Return the mean share of inliers among what is selected, and of outliers that are, over mixtures."""
    false, power = [], []
    for _ in range(N_MIXTURES):
        n = min(N_MIXED, len(inside))
        n_outside = min(len(outside), max(1, round(share * n)))
        p_values = np.r_[rng.choice(inside, n - n_outside, replace=False), rng.choice(outside, n_outside, replace=False)]
        chosen = false_discovery_control(p_values) <= RATE
        false.append(chosen[: n - n_outside].sum() / max(1, chosen.sum()))
        power.append(chosen[n - n_outside :].mean())
    return [float(np.mean(false)), float(np.mean(power))]


def drift_rate(inside: NDArray[Any], training_scores: NDArray[Any], size: int, rng: np.random.Generator) -> float | None:
    """Return how often batches of inliers are found to have drifted, at a level of .05."""
    if 2 * size > len(inside):
        return None
    found = [drift_of(rng.choice(inside, size, replace=False), training_scores).pvalue < 0.05 for _ in range(N_MIXTURES)]
    return float(np.mean(found))


def calibration_bins(detector: Any, inliers: Rows, outliers: Rows, rng: np.random.Generator) -> dict[str, Any]:
    """Return how each kind of probability is calibrated on a mixture with a tenth of outliers, the default contamination."""
    n_outside = max(1, min(len(outliers), len(inliers) // 9, MOST_OUTLIERS))
    inside = inliers[: 9 * n_outside]
    rows = np.concatenate([inside, outliers[rng.choice(len(outliers), n_outside, replace=False)]])
    labels = np.repeat([0, 1], [len(inside), n_outside])
    methods = ("posterior", "unify", "linear") if isinstance(detector, QuadricDetector) else ("unify", "linear")
    return {method: binned(detector.predict_proba(rows, method=method)[:, 1], labels).tolist() for method in methods}


def n_seeds(n: int) -> int:
    """Return how many splits to look at: more where few rows make each of them noisy."""
    return 10 if n < 1000 else 4 if n < 4000 else 2


def average(entries: list[Any]) -> Any:
    """Return the mean of numbers, lists and dictionaries of them, entry by entry; None stays."""
    if isinstance(entries[0], dict):
        return {name: average([entry[name] for entry in entries]) for name in entries[0]}
    if isinstance(entries[0], list):
        return [average(list(parts)) for parts in zip(*entries, strict=True)]
    numbers = [entry for entry in entries if entry is not None]
    return float(np.mean(numbers)) if numbers else None


def summary(results: dict[str, Any], method: str) -> dict[str, Any]:
    """Return the figures of a method over all sets."""
    cells = [entry for entry in results.values() if "no groups" not in entry["name"]]
    gaps = {
        size: np.array(
            [np.subtract(entry[method]["flagged"], CONTAMINATIONS) for entry in cells if (entry["n"] >= FEW) == large]
        )
        for size, large in (("many", True), ("few", False))
        if any((entry["n"] >= FEW) == large for entry in cells)
    }
    both = np.concatenate(list(gaps.values()))
    mean = average([entry[method] for entry in cells])
    return {
        "mean deviation": float(np.abs(both).mean()),
        f"largest, from {FEW} rows": float(np.abs(gaps["many"]).max()) if "many" in gaps else None,
        f"largest, below {FEW}": float(np.abs(gaps["few"]).max()) if "few" in gaps else None,
        "KS": mean["ks"],
        "KS by chance": mean["ks_of_chance"],
        "largest KS from 2000 rows": max((entry[method]["ks"] for entry in cells if entry["n"] >= 2000), default=None),
        **{f"FDR at {share:.0%}": mean["fdr"][i][0] for i, share in enumerate(SHARES)},
        **{f"power at {share:.0%}": mean["fdr"][i][1] for i, share in enumerate(SHARES)},
        **{f"drift in {size} rows": mean["drift"][i] for i, size in enumerate(BATCHES)},
        **{
            f"calibration error, {kind}": float(
                np.mean([expected_calibration_error(np.array(entry[method]["bins"][kind])) for entry in cells])
            )
            for kind in mean["bins"]
        },
    }


def draw(results: dict[str, Any]) -> Figure:
    """Draw the share of flagged inliers at a contamination of .05 for each set and method, and calibration curves."""
    figure, (ax, curves) = plt.subplots(1, 2, figsize=(12, 2 + 0.2 * len(results)), layout="constrained", width_ratios=(3, 2))
    for method, marker in zip(METHODS, "osd^v", strict=True):
        shares = [entry[method]["flagged"][1] for entry in results.values()]
        ax.plot(shares, range(len(results)), marker, label=method, color=COLOURS[method], alpha=0.8, markersize=5)
    ax.axvline(0.05, color="black", linewidth=0.8)
    ax.set_yticks(range(len(results)), list(results), fontsize=7)
    ax.invert_yaxis()
    ax.set(xlabel="share of new inliers flagged at contamination 0.05", xscale="log", xlim=(0.01, 1.1))
    ax.margins(y=0.01)
    ax.grid(alpha=0.3)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.03), ncols=len(METHODS), frameon=False)
    told = [entry for entry in results.values() if "no groups" not in entry["name"]]
    for (method, kind), marker in zip(CURVES.items(), "osd^", strict=True):
        bins = np.mean([entry[method]["bins"][kind] for entry in told], axis=0)
        share, predicted, true = bins[bins[:, 0] > 0].T
        style = {"label": f"{method}, {kind}", "color": COLOURS[method], "markersize": 5}
        curves.plot(predicted / share, true / share, f"{marker}-", **style)
    curves.plot([0, 1], [0, 1], color="black", linewidth=0.8)
    curves.set(xlabel="predicted probability of being an outlier", ylabel="true share of outliers", xlim=(0, 1), ylim=(0, 1))
    curves.set_aspect("equal")
    curves.set_title(f"mixtures with a tenth of outliers, mean of {len(told)} settings", fontsize=9)
    curves.grid(alpha=0.3)
    curves.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), frameon=False)
    return figure


def main(output: Path, data: Path = DATA, fast: bool = False, seed: int = 0) -> dict[str, Any]:
    """Measure, print the tables, write ``decisions.json`` and ``decisions.png``, and return the results."""
    results: dict[str, Any] = {}
    for task in tasks(data, fast):
        seeds = range(seed, seed + (1 if fast else n_seeds(task.n)))
        jobs = [(method, number) for method in METHODS for number in seeds]
        found = Parallel(n_jobs=1 if fast else -1)(delayed(measure)(task, *job) for job in jobs)
        entry: dict[str, Any] = {"name": task.name, "n": task.n, "n_features": task.inliers.shape[1], "seeds": len(seeds)}
        entry |= {
            method: average([cell for job, cell in zip(jobs, found, strict=True) if job[0] == method]) for method in METHODS
        }
        results[f"{task.name}, {task.n} rows"] = entry
        print(task.name, task.n, {method: [round(x, 3) for x in entry[method]["flagged"]] for method in METHODS}, flush=True)
    header = ["set", "rows", *(f"{method} at {c:g}" for method in METHODS for c in CONTAMINATIONS)]
    rows = [[e["name"], e["n"], *(x for method in METHODS for x in e[method]["flagged"])] for e in results.values()]
    totals = {method: summary(results, method) for method in METHODS}
    names = list(totals[OURS])
    overall = [
        [name, *("" if totals[method].get(name) is None else totals[method][name] for method in METHODS)] for name in names
    ]
    print(f"\nShare of new inliers flagged\n\n{markdown_table(header, rows)}")
    print(f"\nOver all sets\n\n{markdown_table(['', *METHODS], overall)}")
    write_results(output, "decisions", {"first_seed": seed, "results": results, "summary": totals}, draw(results))
    return {"results": results, "summary": totals}


if __name__ == "__main__":
    main(**vars(argument_parser(__doc__, data=True).parse_args()))
