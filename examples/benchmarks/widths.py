"""What more coordinates and training are worth: quadrics in closed form and trained, from 50 coordinates to all of them.

Two large sets of text embeddings: glosses of WordNet without four of its files, whose glosses are the outliers, and CLINC150,
whose outliers are questions out of scope. Trained quadrics have the mean of their order-2 distances as the score, or are a part
of the combined score; closed forms likewise. Beside them stand the linear part, nearest neighbours with all rows, PCA, and the
paper's own settings, Q-FULL, Q-BASE and Q-SUB. Rates of training were chosen by the held-out loss of 100 quadrics in 200
coordinates of CLINC150, and then used for all.

Run it with ``OMP_NUM_THREADS=1 python -m examples.benchmarks.widths --data DIR --output DIR``, in about an hour and a half. It
goes on from what is in its output folder.
"""

import json
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import roc_auc_score

from examples._baselines import nearest_neighbours, on_subsample, principal_distance
from examples.benchmarks._common import argument_parser, markdown_table, synthetic, write_results
from examples.benchmarks._data import CLINC150, DATA, WORDNET, need
from examples.benchmarks._detection_cells import quiet
from examples.benchmarks._regimes import LEXICOGRAPHER_FILES, N_WORDNET, REGIMES, Files
from pyod_quadric import QuadricDetector

Rows = np.ndarray  # (n, d)


class Split(NamedTuple):
    """Rows to fit, inliers to judge by, and outliers by kind."""

    training: Rows
    inliers: Rows
    outliers: dict[str, Rows]


class Size(NamedTuple):
    """How much is done."""

    widths: tuple[int | None, ...]  # coordinates of trained quadrics; None is all, whitened
    closed: tuple[int, ...]  # of closed forms
    n_quadrics: int
    n_rows_seen: int  # in training, a row in each epoch counted anew


FULL = Size(widths=(100, 200, None), closed=(50, 100), n_quadrics=100, n_rows_seen=320_000)
FAST = Size(widths=(3, None), closed=(3,), n_quadrics=4, n_rows_seen=2000)
BATCH_SIZE = 256
RATES = {"penalty": 0.03, "stiefel": 0.03}  # of Adam
FROM_CLOSED_FORM = 0.001  # larger ones throw away what the closed form has
VALIDATION = 0.1


def wordnet(data: Path) -> Split:
    """Return glosses of all files but four, and of those four."""
    with np.load(data / WORDNET) as arrays:
        rows, file = arrays["X"], arrays["lexfile"]
    rng = np.random.default_rng(0)
    inside = rng.permutation(np.flatnonzero(~np.isin(file, list(LEXICOGRAPHER_FILES.values()))))
    outliers = {
        name: rows[rng.permutation(np.flatnonzero(file == code))[:N_WORDNET]].astype(np.float32)
        for name, code in LEXICOGRAPHER_FILES.items()
    }
    return Split(rows[inside[N_WORDNET:]].astype(np.float32), rows[inside[:N_WORDNET]].astype(np.float32), outliers)


def intents(data: Path) -> Split:
    """Return questions of 150 intents, and questions out of scope."""
    split = REGIMES["clinc150"].load(Files(data), "out of scope", 0, False)
    return Split(split.training.numpy(), split.inliers.numpy(), {"out of scope": split.outliers[0].numpy()})


def made_up(data: Path) -> Split:
    """Return a stand-in that needs no files."""
    split = synthetic()
    return Split(split.training.numpy(), split.inliers.numpy(), {"around": split.outliers[0].numpy()})


SETS: dict[str, Callable[[Path], Split]] = {"WordNet": wordnet, "CLINC150": intents}
FAST_SETS: dict[str, Callable[[Path], Split]] = {"synthetic": made_up}


def contestants(size: Size, n: int, d: int) -> dict[str, Any]:
    """Return what is compared: detectors, and functions that fit a score to rows."""
    epochs = max(1, round(size.n_rows_seen / n))
    found: dict[str, Any] = {
        "linear part": QuadricDetector(score_function="linear"),
        "default": QuadricDetector(),
        "PCA": principal_distance,
        "KNN, all rows": nearest_neighbours,
    }
    for k, score in product(size.closed, ("mean_distance", "combined")):
        found[f"closed form, k = {k}, {score}"] = QuadricDetector(n_components=k, score_function=score)
    common = {"n_quadrics": size.n_quadrics, "epoch_num": epochs, "optimizer_name": "adam", "batch_size": BATCH_SIZE}
    options = {"training_options": {"validation_fraction": VALIDATION}}
    papers: dict[str, Any] = {"score_function": "mean_distance", "n_folds": None, "robust": False}
    for k, (constraint, lr) in product(size.widths, RATES.items()):
        m = min(size.n_quadrics, (k or d) * ((k or d) + 1) // 2)
        found[f"{constraint}, k = {k or d}, random start"] = QuadricDetector(
            **(common | options | papers | {"n_quadrics": m}), init="random", n_components=k or d, constraint=constraint, lr=lr
        )
    k = size.closed[-1]
    start = {"init": "spectral", "n_components": k, "n_quadrics": size.n_quadrics}
    found[f"closed form, k = {k}, as many quadrics as are trained"] = QuadricDetector(**start, score_function="mean_distance")
    for constraint in RATES:
        found[f"{constraint}, k = {k}, from closed form"] = QuadricDetector(
            **(common | options | papers | start), constraint=constraint, lr=FROM_CLOSED_FORM
        )
    for variant, name in (("full", "Q-FULL"), ("base", "Q-BASE"), ("sub", "Q-SUB")):
        rate = {"lr": 0.001} if variant == "base" else {}  # squares diverge at the rate of the others
        m = 3 * size.n_quadrics // 10 if variant == "sub" else size.n_quadrics
        found[name] = QuadricDetector.from_paper(
            variant, n_quadrics=m, epoch_num=epochs, batch_size=BATCH_SIZE, n_folds=None, **rate
        )
    wide = 200 if d > 200 else d
    found[f"penalty, k = {wide}, combined"] = QuadricDetector(
        **(common | options), init="random", n_components=wide, constraint="penalty", lr=RATES["penalty"], n_folds=3
    )
    return found


def fitted(detector: QuadricDetector, rows: Rows) -> QuadricDetector:
    """Fit a detector, where its training diverges with a tenth of the rate."""
    try:
        return detector.fit(rows)
    except FloatingPointError:
        return fitted(detector.set_params(lr=detector.lr / 10), rows)


def measure(split: Split, contestant: Any, name: str) -> dict[str, Any]:
    """Fit one contestant and return its ROC-AUC by kind of outliers, its time, and the curve of its training."""
    started = time.process_time()
    with quiet():
        if isinstance(contestant, QuadricDetector) and name != "Q-SUB":
            score = fitted(contestant, split.training).decision_function
        elif name == "Q-SUB":
            score = on_subsample(lambda rows: contestant.fit(rows).decision_function)(split.training)
        else:
            score = contestant(split.training)
        seconds = time.process_time() - started
        inside = score(split.inliers)
        areas = {
            kind: float(roc_auc_score(np.repeat([0, 1], [len(inside), len(rows)]), np.concatenate([inside, score(rows)])))
            for kind, rows in split.outliers.items()
        }
    history = getattr(contestant, "history_", {})
    m = contestant.n_quadrics if history.get("loss") else 1
    return {
        "roc_auc": areas,
        "mean": float(np.mean(list(areas.values()))),
        "seconds": seconds,
        "loss": [loss / m for loss in history.get("loss", [])],
        "held_out_loss": [loss / m for loss in history.get("held_out_loss", [])],
        "orthonormality_error": (history.get("orthonormality_error") or [None])[-1],
    }


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the figures of one set."""
    kinds = list(next(iter(results.values()))["roc_auc"])
    header = ["", *kinds, "mean", "fit, CPU seconds", "training loss", "held-out loss", "orthonormality error"]
    lines = []
    for name, entry in results.items():
        last = [f"{entry[key][-1]:.3f}" if entry[key] else "" for key in ("loss", "held_out_loss")]
        error = entry["orthonormality_error"]
        areas = [f"{entry['roc_auc'][kind]:.3f}" for kind in kinds]
        lines.append([name, *areas, f"{entry['mean']:.3f}", f"{entry['seconds']:.0f}", *last, "" if error is None else error])
    return markdown_table(header, lines)


def draw(results: dict[str, dict[str, dict[str, Any]]]) -> Figure:
    """Draw the ROC-AUC of all and the curves of training, a row for each set."""
    figure, panels = plt.subplots(
        len(results), 2, figsize=(13, 6.4 * len(results)), layout="constrained", squeeze=False, width_ratios=[3, 2]
    )
    for (bars, curves), (title, entries) in zip(panels, results.items(), strict=True):
        ordered = sorted(entries, key=lambda name: entries[name]["mean"])
        trained = [bool(entries[name]["loss"]) for name in ordered]
        colours = ["#e69f00" if flag else "#0072b2" for flag in trained]
        bars.barh(ordered, [entries[name]["mean"] for name in ordered], color=colours)
        for place, name in enumerate(ordered):
            bars.text(entries[name]["mean"], place, f" {entries[name]['mean']:.3f}", va="center", fontsize=8)
        bars.set_xlim(
            min(0.5, min(entry["mean"] for entry in entries.values())), 1.05 * max(e["mean"] for e in entries.values())
        )
        bars.set_xlabel("ROC-AUC, mean over kinds of outliers")
        bars.set_title(f"{title}: trained quadrics are orange")
        for name in entries:
            losses = entries[name]["held_out_loss"]
            if losses and np.isfinite(losses).all():
                curves.plot(range(1, len(losses) + 1), losses, marker=".", label=name)
        curves.set_xlabel("epoch")
        curves.set_ylabel("held-out d₂ for each quadric")
        curves.grid(alpha=0.3)
        if curves.lines:
            curves.legend(fontsize=7)
    return figure


def main(output: Path, data: Path = DATA, fast: bool = False, sets: Sequence[str] = tuple(SETS)) -> dict[str, Any]:
    """Measure, print the tables, write ``widths.json`` and ``widths.png``, and return the results."""
    size, loaders = (FAST, FAST_SETS) if fast else (FULL, {name: SETS[name] for name in sets})
    if not fast:
        need(data, CLINC150, WORDNET)
    output.mkdir(parents=True, exist_ok=True)
    path = output / "widths_cells.json"
    results: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    for title, load in loaders.items():
        split, entries = load(data), results.setdefault(title, {})
        for name, contestant in contestants(size, *split.training.shape).items():
            if name not in entries:
                entries[name] = measure(split, contestant, name)
                path.write_text(json.dumps(results, indent=1) + "\n")
                print(f"{title}, {name}: {entries[name]['mean']:.3f}, {entries[name]['seconds']:.0f} s", flush=True)
        print(f"\n{title}, {len(split.training)} rows\n\n{table(entries)}\n")
    found = {"size": size._asdict(), "rates": RATES, "batch_size": BATCH_SIZE, "results": results}
    write_results(output, "widths", found, draw(results))
    return found


if __name__ == "__main__":
    parser = argument_parser(__doc__, data=True, seeds=None)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="which sets")
    main(**vars(parser.parse_args()))
