"""How well the default detector finds outliers, beside PyOD's detectors and beside itself with parts left out.

Data are embeddings of images and of texts and tabular sets from ADBench, and sentences. ADBench's sets are split 70/30,
stratified (above 10,000 rows, 10,000 of them are drawn first), and fitted in two modes: *clean* on the training rows that are
inliers, *contaminated* on all of them. Sentences are fitted on movie reviews only, and their figures are means over three other
domains as outliers. The seed decides the draw and the split, and is the ``random_state`` of the peers that have one.

Peers have PyOD's default parameters. Scaling matters to them, so they are fitted to rows as they are (raw), min-max scaled
(mm), divided by their norms (l2) and standardised (std), the weaker ones to min-max scaled rows only, as ADBench does; each
counts at its best preprocessing in each group and mode. They get float64, since some fail in float32. Ours gets raw float32
rows and has its default parameters everywhere. A fit that fails counts as chance.

Run it with ``OMP_NUM_THREADS=1 python -m examples.benchmarks.detection --data DIR --output DIR --workers 2``. All cells take
several hours, mostly for KPCA and neural networks; each is kept in ``detection_cells.json`` as soon as it is there, and a run
that was killed goes on from them. ``--again`` fits our detector anew and keeps the peers.
"""

import contextlib
import importlib
import io
import json
import time
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from joblib import Parallel, delayed
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, Normalizer, StandardScaler

from examples.benchmarks._common import (
    DataSet,
    argument_parser,
    load_adbench,
    load_sentences,
    markdown_table,
    synthetic,
    write_results,
)
from pyod_quadric import QuadricDetector

PREPROCESSINGS = {"raw": FunctionTransformer, "mm": MinMaxScaler, "l2": Normalizer, "std": StandardScaler}
OURS = "QuadricDetector"
MODES = ("clean", "contaminated")
METRICS = ("roc_auc", "average_precision")
GROUPS = ("CV_by_ResNet18", "NLP_by_BERT", "Classical", "sentences")
TITLES = {"CV_by_ResNet18": "ResNet18 images", "NLP_by_BERT": "BERT texts", "Classical": "tabular"}
# What is changed in our detector, by the name of the ablation.
ABLATIONS: dict[str, dict[str, Any]] = {
    "quadrics alone": {"score_function": "quadrics"},
    "linear part alone": {"score_function": "linear"},
    "mean distance to the quadrics": {"score_function": "mean_distance"},
    "robust=False": {"robust": False},
    "5 epochs, penalty": {"epoch_num": 5},
    "5 epochs, Stiefel": {"epoch_num": 5, "constraint": "stiefel"},
    "first-order distance": {"distance": "first_order"},
    "algebraic distance": {"distance": "algebraic"},
    "normalize=True": {"normalize": True},
    "normalize=False": {"normalize": False},
    "standardised rows": {},
}


class Peer(NamedTuple):
    """A detector of PyOD."""

    name: str  # of the class
    module: str
    preprocessings: tuple[str, ...] = ("mm",)
    parameters: dict[str, Any] = {}  # noqa: RUF012  nobody changes it
    groups: tuple[str, ...] = GROUPS


ALL = tuple(PREPROCESSINGS)
# In ascending order of cost, so that a run that was killed has whole columns.
PEERS = {
    "GMM": Peer("GMM", "gmm", ALL),
    "KNN": Peer("KNN", "knn", ALL),
    "LOF": Peer("LOF", "lof", ALL),
    "CBLOF": Peer("CBLOF", "cblof", ALL),
    "Sampling": Peer("Sampling", "sampling"),
    "LODA": Peer("LODA", "loda"),
    "PCA": Peer("PCA", "pca"),
    "IForest": Peer("IForest", "iforest"),
    "HBOS": Peer("HBOS", "hbos"),
    "COPOD": Peer("COPOD", "copod"),
    "ECOD": Peer("ECOD", "ecod"),
    "INNE": Peer("INNE", "inne", ALL),
    "OCSVM": Peer("OCSVM", "ocsvm", ALL),
    "OCSVM-poly3": Peer("OCSVM", "ocsvm", ALL, {"kernel": "poly", "degree": 3}, ("sentences",)),
    "QMCD": Peer("QMCD", "qmcd"),
    "ABOD": Peer("ABOD", "abod"),
    "AutoEncoder": Peer("AutoEncoder", "auto_encoder"),
    "DeepSVDD": Peer("DeepSVDD", "deep_svdd"),
    "KPCA": Peer("KPCA", "kpca"),
    "VAE": Peer("VAE", "vae", groups=()),  # minutes on each of the larger sets; its cost is in the other table
}
FAST_PEERS = ("GMM", "KNN", "PCA")


class Column(NamedTuple):
    """A column of the tables."""

    group: str
    mode: str

    def title(self) -> str:
        """Return the column's heading."""
        return f"{TITLES.get(self.group, self.group)}, {self.mode}"


class Task(NamedTuple):
    """One detector on one split of one set."""

    column: Column
    data_name: str
    seed: int
    method: str
    preprocessing: str

    def key(self) -> str:
        """Return the name of the cell."""
        return "/".join([*self.column, self.data_name, str(self.seed), f"{self.method}@{self.preprocessing}"])


Cells = dict[str, dict[str, Any]]


def data_names(data: Path, fast: bool) -> dict[str, list[str]]:
    """Return the names of the sets of each group; those of stand-ins are numbers of features."""
    if fast:
        return {"synthetic": ["5"]}
    adbench = {group: sorted(path.stem for path in (data / "adbench" / group).glob("*.npz")) for group in GROUPS[:-1]}
    return adbench | {"sentences": ["minilm"]}


def load(data: Path, column: Column, name: str, seed: int) -> DataSet:
    """Return a split of a set."""
    contaminated = column.mode == "contaminated"
    if column.group == "synthetic":
        split = synthetic(n_features=int(name), seed=seed)
        others = synthetic(n_features=int(name), seed=seed + 1000).outliers
        return split._replace(training=torch.cat([split.training, *others])) if contaminated else split
    if column.group == "sentences":
        return load_sentences(data / "sentences/minilm.npz", seed)
    return load_adbench(data / "adbench" / column.group / f"{name}.npz", seed, contaminated=contaminated)


def make_detector(method: str, n_features: int, seed: int) -> Any:
    """Return an unfitted detector by name; ours has its own ``random_state``."""
    if method not in PEERS:
        return QuadricDetector(**ABLATIONS.get(method, {}))
    peer = PEERS[method]
    detector_class = getattr(importlib.import_module(f"pyod.models.{peer.module}"), peer.name)
    needed = {"n_features": n_features} if peer.name == "DeepSVDD" else {}
    detector = detector_class(**peer.parameters, **needed)
    if "random_state" in detector.get_params():
        detector.set_params(random_state=seed)
    return detector


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Show neither warnings nor progress of PyOD's detectors."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def measure(task: Task, data: Path) -> tuple[str, dict[str, Any]]:
    """Return the name of a cell and what is in it."""
    split = load(data, task.column, task.data_name, task.seed)
    training, test = split.training.numpy(), torch.cat([split.inliers, *split.outliers]).numpy()
    if task.method in PEERS:
        training, test = training.astype(np.float64), test.astype(np.float64)
    scaler = PREPROCESSINGS[task.preprocessing]().fit(training)  # in clean mode it does not see outliers, either
    training, test = scaler.transform(training), scaler.transform(test)
    np.random.seed(task.seed)  # noqa: NPY002  some of PyOD's detectors draw from the global generators
    torch.manual_seed(task.seed)
    detector = make_detector(task.method, training.shape[1], task.seed)
    try:
        with quiet():
            started = time.perf_counter()
            detector.fit(training)
            fitted = time.perf_counter()
            scores = detector.decision_function(test)  # all at once: to some peers the other rows matter
            scored = time.perf_counter()
        found = quality(split, np.nan_to_num(np.asarray(scores, dtype=np.float64), nan=np.nan))  # infinite scores rank highest
    except Exception as error:  # whatever it is, there are no scores
        return task.key(), chance(split) | {"error": f"{type(error).__name__}: {error}"[:200]}
    return task.key(), found | {"fit_seconds": fitted - started, "score_seconds": scored - fitted}


def quality(split: DataSet, scores: NDArray[np.float64]) -> dict[str, float]:
    """Return both metrics of the scores of all test rows, means over the kinds of outliers."""
    inside, *outside = np.split(scores, np.cumsum([len(split.inliers), *map(len, split.outliers)])[:-1])
    pairs = [(np.repeat([0, 1], [len(inside), len(rows)]), np.concatenate([inside, rows])) for rows in outside]
    return {
        "roc_auc": float(np.mean([roc_auc_score(*pair) for pair in pairs])),
        "average_precision": float(np.mean([average_precision_score(*pair) for pair in pairs])),
    }


def chance(split: DataSet) -> dict[str, float]:
    """Return both metrics of scores that say nothing."""
    return quality(split, np.zeros(len(split.inliers) + sum(map(len, split.outliers))))


class Plan(NamedTuple):
    """What is measured."""

    sets: dict[str, list[str]]  # by group
    seeds: list[int]
    methods: dict[str, tuple[str, ...]]  # preprocessings by detector: ours, its ablations, the peers

    def columns(self) -> list[Column]:
        """Return all columns of the tables."""
        return [Column(group, mode) for group, mode in product(self.sets, MODES) if (group, mode) != ("sentences", MODES[1])]

    def tasks(self, column: Column, method: str, preprocessing: str) -> list[Task]:
        """Return what the mean in a column is over."""
        if method in PEERS and column.group in GROUPS and column.group not in PEERS[method].groups:
            return []
        return [Task(column, name, seed, method, preprocessing) for seed, name in product(self.seeds, self.sets[column.group])]

    def all_tasks(self) -> list[Task]:
        """Return everything in the order in which it is done."""
        return [
            task
            for method, preprocessings in self.methods.items()
            for preprocessing, column in product(preprocessings, self.columns())
            for task in self.tasks(column, method, preprocessing)
        ]


def make_plan(data: Path, seeds: list[int], fast: bool) -> Plan:
    """Return what to measure."""
    peers = {name: PEERS[name].preprocessings for name in (FAST_PEERS if fast else PEERS)}
    ours = {name: ("std",) if name == "standardised rows" else ("raw",) for name in (OURS, *ABLATIONS)}
    return Plan(data_names(data, fast), seeds, ours | peers)


def read_cells(path: Path) -> Cells:
    """Return the cells that are there already."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_cells(path: Path, cells: Cells) -> None:
    """Write all cells; the file is whole at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(cells, indent=0), encoding="utf-8")
    unfinished.replace(path)


def fill(cells: Cells, path: Path, tasks: list[Task], data: Path, workers: int) -> None:
    """Measure the cells that are missing."""
    missing = [task for task in tasks if task.key() not in cells]
    print(f"{len(tasks)} cells, {len(missing)} of them to be measured", flush=True)
    measured = Parallel(n_jobs=workers, return_as="generator_unordered")(delayed(measure)(task, data) for task in missing)
    for key, cell in measured:
        cells[key] = cell
        write_cells(path, cells)


class Entry(NamedTuple):
    """One detector in one column, at its best preprocessing."""

    preprocessing: str
    means: dict[str, float]  # by metric
    by_seed: list[float]  # mean ROC-AUC
    roc_auc: list[float]  # of each set with each seed
    n_failed: int


def entry(cells: Cells, plan: Plan, column: Column, method: str) -> Entry | None:
    """Return the best of the preprocessings whose cells are all there, by ROC-AUC."""
    entries = []
    for preprocessing in plan.methods[method]:
        keys = [task.key() for task in plan.tasks(column, method, preprocessing)]
        if keys and all(key in cells for key in keys):
            means = {metric: float(np.mean([cells[key][metric] for key in keys])) for metric in METRICS}
            found = [cells[key]["roc_auc"] for key in keys]
            by_seed = np.reshape(found, (len(plan.seeds), -1)).mean(axis=1).tolist()
            entries.append(Entry(preprocessing, means, by_seed, found, sum("error" in cells[key] for key in keys)))
    return max(entries, key=lambda entry: entry.means["roc_auc"], default=None)


Entries = dict[Column, dict[str, Entry]]


def all_entries(cells: Cells, plan: Plan) -> Entries:
    """Return all detectors in all columns, best first; those without figures are left out."""
    entries: Entries = {}
    for column in plan.columns():
        found = {method: entry(cells, plan, column, method) for method in plan.methods}
        there = {method: item for method, item in found.items() if item is not None}
        entries[column] = dict(sorted(there.items(), key=lambda item: -item[1].means["roc_auc"]))
    return entries


def without(entries: Entries, methods: Any) -> Entries:
    """Return the entries of the other methods."""
    return {column: {name: item for name, item in row.items() if name not in methods} for column, row in entries.items()}


def mean_ranks(entries: Entries) -> dict[Column, dict[str, float]]:
    """Return the mean over sets and seeds of the rank of each detector by ROC-AUC, 1 for the best."""
    ranks = {}
    for column, row in entries.items():
        means = rankdata([[-number for number in item.roc_auc] for item in row.values()], axis=0).mean(axis=1)
        ranks[column] = dict(zip(row, means.tolist(), strict=True))
    return ranks


def peers_table(entries: Entries) -> str:
    """Return ROC-AUC / average precision and the preprocessing of each detector, by mean rank."""
    ranks = mean_ranks(entries)
    names = {name for row in entries.values() for name in row}
    overall = {name: float(np.mean([row[name] for row in ranks.values() if name in row])) for name in names}
    rows = []
    n_missing = {name: sum(name not in row for row in ranks.values()) for name in names}
    for name in sorted(names, key=lambda name: (n_missing[name] > 0, overall[name])):  # ranks in some columns compare with none
        n_columns = len(ranks) - n_missing[name]
        cells = [_figures(row[name], name != OURS) if name in row else "–" for row in entries.values()]
        rows.append([name, *cells, f"{overall[name]:.1f}" + ("" if n_columns == len(entries) else f" ({n_columns} columns)")])
    return markdown_table(["detector", *(column.title() for column in entries), "mean rank"], rows)


def _figures(item: Entry, with_preprocessing: bool = False) -> str:
    text = f"{item.means['roc_auc']:.3f} / {item.means['average_precision']:.3f}"
    return text + f" {item.preprocessing}" * with_preprocessing + f" ({item.n_failed} failed)" * (item.n_failed > 0)


def ablation_table(entries: Entries) -> str:
    """Return ROC-AUC / average precision of our detector and its variants."""
    names = [name for name in (OURS, *ABLATIONS) if any(name in row for row in entries.values())]
    rows = []
    for name in names:
        there = [row[name].means["roc_auc"] - row[OURS].means["roc_auc"] for row in entries.values() if name in row]
        cells = [_figures(row[name]) if name in row else "–" for row in entries.values()]
        rows.append(["default" if name == OURS else name, *cells, f"{np.mean(there):+.4f}"])
    return markdown_table(["variant", *(column.title() for column in entries), "ROC-AUC, mean difference"], rows)


def margin_table(entries: Entries, seeds: list[int]) -> str:
    """Return how far our detector is ahead of the best peer of each column, with each seed."""
    rows = []
    for column, row in entries.items():
        if OURS not in row or len(row) < 2:
            continue
        best = next(name for name in row if name != OURS)
        means = [f"{row[name].means['roc_auc']:.4f}" for name in (OURS, best)]
        margins = [f"{margin:+.4f}" for margin in np.subtract(row[OURS].by_seed, row[best].by_seed)]
        rank = f"{mean_ranks({column: row})[column][OURS]:.1f} of {len(row)}"
        rows.append([column.title(), *means, f"{best}@{row[best].preprocessing}", *margins, rank])
    header = ["group, mode", "ours", "best peer", "which is", *(f"margin, seed {seed}" for seed in seeds), "our mean rank"]
    return markdown_table(header, rows)


N_DRAWN = 9  # detectors in each panel


def draw(entries: Entries, plan: Plan) -> Figure:
    """Draw the mean ROC-AUC of our detector and the best peers, a panel for each column of the table."""
    n_columns = min(4, len(entries))
    n_rows = -(-len(entries) // n_columns)
    figure, panels = plt.subplots(
        n_rows, n_columns, figsize=(4.2 * n_columns, 0.6 + 3.4 * n_rows), layout="constrained", squeeze=False
    )
    for ax, (column, row) in zip(panels.flat, entries.items(), strict=False):
        shown = [name for place, name in enumerate(row) if place < N_DRAWN or name == OURS]
        _draw_column(ax, {name: row[name] for name in shown})
        n_sets = len(plan.sets[column.group])
        ax.set_title(f"{column.title()} ({n_sets} {'sets' if n_sets > 1 else 'set'})", fontsize=10)
        ax.set_xlabel("ROC-AUC" + ", mean over the sets" * (n_sets > 1))
    for ax in panels.flat[len(entries) :]:
        ax.set_axis_off()
    n_seeds = len(plan.seeds)
    figure.suptitle(
        f"Ours (raw rows, defaults) and the best peers, each at its best preprocessing; {n_seeds} seeds (ticks), mean (dot)"
    )
    return figure


def _draw_column(ax: Axes, row: dict[str, Entry]) -> None:
    for place, (name, item) in enumerate(row.items()):
        colour = "tab:red" if name == OURS else "tab:blue"
        mean = item.means["roc_auc"]
        ax.plot(item.by_seed, [place] * len(item.by_seed), "|", color=colour, markersize=9, alpha=0.7)
        ax.plot(mean, place, "o", color=colour)
        ax.annotate(
            f"{mean:.3f}", (max(*item.by_seed, mean), place), (7, 0), textcoords="offset points", va="center", fontsize=8
        )
    labels = [name if name == OURS else f"{name}@{item.preprocessing}" for name, item in row.items()]
    ax.set_yticks(range(len(row)), labels, fontsize=8)
    ax.set_ylim(len(row) - 0.5, -0.5)
    ax.margins(x=0.05)
    low, high = ax.get_xlim()
    ax.set_xlim(low, high + 0.22 * (high - low))  # room for the numbers
    ax.grid(alpha=0.3)


def main(
    output: Path,
    data: Path = Path("../shared/data"),
    fast: bool = False,
    seeds: list[int] | None = None,
    workers: int = 1,
    again: bool = False,
    cached: bool = False,
) -> dict[str, Any]:
    """Measure what is missing, print the tables, write ``detection.json`` and ``.png``, and return the results."""
    plan = make_plan(data, seeds or [0, 1], fast)
    path = output / "detection_cells.json"
    cells = read_cells(path)
    if again:
        cells = {key: cell for key, cell in cells.items() if key.rsplit("/", 1)[1].split("@")[0] in PEERS}
    if not cached:
        fill(cells, path, plan.all_tasks(), data, workers)
    entries = all_entries(cells, plan)
    if not any(entries.values()):
        raise SystemExit(f"there are no cells in {path}: run without --cached first")
    compared, ours = without(entries, ABLATIONS), without(entries, PEERS)
    print(f"\nROC-AUC / average precision, means over sets and seeds {plan.seeds}\n\n{peers_table(compared)}")
    print(f"\nours against the best peer\n\n{margin_table(compared, plan.seeds)}")
    print(f"\nour detector with something changed\n\n{ablation_table(ours)}")
    results = {
        "seeds": plan.seeds,
        "sets": plan.sets,
        "mean_ranks": {column.title(): row for column, row in mean_ranks(compared).items()},
        "entries": {column.title(): {name: item._asdict() for name, item in row.items()} for column, row in entries.items()},
    }
    write_results(output, "detection", results, draw(compared, plan))
    return results


if __name__ == "__main__":
    parser = argument_parser(__doc__, data=True, seeds=True)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--again", action="store_true", help="fit our detector anew; peers that are there are kept")
    parser.add_argument("--cached", action="store_true", help="fit nothing: tables of what is there")
    main(**vars(parser.parse_args()))
