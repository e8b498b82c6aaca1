"""The cells of the detection benchmark: one detector, fitted to one split of one set."""

import contextlib
import importlib
import io
import json
import time
import warnings
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, Normalizer, StandardScaler

from examples.benchmarks._common import DataSet
from examples.benchmarks._regimes import CONTAMINATED, REGIMES, STAND_IN, Files
from pyod_quadric import QuadricDetector

PREPROCESSINGS = {"raw": FunctionTransformer, "mm": MinMaxScaler, "l2": Normalizer, "std": StandardScaler}
OURS = "QuadricDetector"
METRICS = ("roc_auc", "average_precision")
# What is changed in our detector, by the name of the ablation.
ABLATIONS: dict[str, dict[str, Any]] = {
    "without neighbours": {"score_function": "linear+quadrics"},
    "without quadrics": {"score_function": "linear+neighbors"},
    "without linear part": {"score_function": "quadrics+neighbors"},
    "linear part alone": {"score_function": "linear"},
    "quadrics alone": {"score_function": "quadrics"},
    "neighbours alone": {"score_function": "neighbors"},
    "mean distance to the quadrics": {"score_function": "mean_distance"},
    "robust=False": {"robust": False},
    "normalize=True": {"normalize": True},
    "normalize=False": {"normalize": False},
    "first-order distance": {"distance": "first_order"},
    "algebraic distance": {"distance": "algebraic"},
    "5 epochs, penalty": {"epoch_num": 5},
    "5 epochs, Stiefel": {"epoch_num": 5, "constraint": "stiefel"},
}
NOT_ABLATED = ("wordnet",)  # half a minute for each fit


class Peer(NamedTuple):
    """A detector of PyOD."""

    name: str  # of the class
    module: str
    preprocessings: tuple[str, ...] = ("mm",)
    parameters: Mapping[str, Any] = MappingProxyType({})
    most_rows: int = 20_000  # of the training rows, drawn at random; more would take minutes for each cell
    regimes: tuple[str, ...] | None = None  # all, unless it says otherwise


ALL = tuple(PREPROCESSINGS)
# In ascending order of cost, so that a run that was killed has whole columns.
PEERS = {
    "GMM": Peer("GMM", "gmm", ALL, most_rows=200_000),
    "KNN": Peer("KNN", "knn", ALL),
    "PCA": Peer("PCA", "pca", most_rows=200_000),
    "IForest": Peer("IForest", "iforest", most_rows=200_000),
    "HBOS": Peer("HBOS", "hbos", most_rows=200_000),
    "COPOD": Peer("COPOD", "copod"),
    "ECOD": Peer("ECOD", "ecod"),
    "INNE": Peer("INNE", "inne", ALL),
    "CBLOF": Peer("CBLOF", "cblof", ALL),
    "LOF": Peer("LOF", "lof", ALL),
    "Sampling": Peer("Sampling", "sampling"),
    "LODA": Peer("LODA", "loda"),
    "QMCD": Peer("QMCD", "qmcd", most_rows=5000),
    "ABOD": Peer("ABOD", "abod", most_rows=5000),
    "OCSVM": Peer("OCSVM", "ocsvm", most_rows=8000),
    "OCSVM-poly3": Peer("OCSVM", "ocsvm", ALL, {"kernel": "poly", "degree": 3}, regimes=("sentences",)),
    "LUNAR": Peer("LUNAR", "lunar", ("mm", "l2"), most_rows=5000),  # it scales by the ranges of columns itself
    "KPCA": Peer("KPCA", "kpca", most_rows=3000),
    "DeepSVDD": Peer("DeepSVDD", "deep_svdd", most_rows=5000),
    "AutoEncoder": Peer("AutoEncoder", "auto_encoder", most_rows=5000),
    "VAE": Peer("VAE", "vae", regimes=()),  # minutes on each of the larger sets; its cost is in the other table
}
FAST_PEERS = ("GMM", "KNN", "PCA")


class Column(NamedTuple):
    """A column of the tables."""

    regime: str
    mode: str

    def title(self) -> str:
        """Return the column's heading."""
        return f"{(REGIMES | STAND_IN)[self.regime].title}, {self.mode}"


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


def load(files: Files, column: Column, name: str, seed: int) -> DataSet:
    """Return a split of a set."""
    return (REGIMES | STAND_IN)[column.regime].load(files, name, seed, column.mode == CONTAMINATED)


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


def measure(task: Task, files: Files) -> tuple[str, dict[str, Any]]:
    """Return the name of a cell and what is in it."""
    split = load(files, task.column, task.data_name, task.seed)
    training, test = split.training.numpy(), torch.cat([split.inliers, *split.outliers]).numpy()
    known = {} if split.groups is None else {"groups": split.groups}
    if task.method in PEERS:
        if len(training) > (most := PEERS[task.method].most_rows):
            training = np.random.default_rng(task.seed).permutation(training)[:most]
        training, test, known = training.astype(np.float64), test.astype(np.float64), {}
    scaler = PREPROCESSINGS[task.preprocessing]().fit(training)  # in clean mode it does not see outliers, either
    training, test = scaler.transform(training), scaler.transform(test)
    np.random.seed(task.seed)  # noqa: NPY002  some of PyOD's detectors draw from the global generators
    torch.manual_seed(task.seed)
    detector = make_detector(task.method, training.shape[1], task.seed)
    try:
        with quiet():
            started = time.perf_counter()
            detector.fit(training, **known)
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

    sets: dict[str, list[str]]  # by regime
    seeds: list[int]
    methods: dict[str, tuple[str, ...]]  # preprocessings by detector: ours, its ablations, the peers

    def columns(self) -> list[Column]:
        """Return all columns of the tables."""
        return [Column(name, mode) for name in self.sets for mode in (REGIMES | STAND_IN)[name].modes]

    def tasks(self, column: Column, method: str, preprocessing: str, seed: int) -> list[Task]:
        """Return what the mean in a column is over, with one seed."""
        regimes = PEERS[method].regimes if method in PEERS else None
        if regimes is not None and column.regime not in regimes:
            return []
        if method in ABLATIONS and (column.regime in NOT_ABLATED or seed != self.seeds[0]):
            return []
        return [Task(column, name, seed, method, preprocessing) for name in self.sets[column.regime]]

    def all_tasks(self) -> list[Task]:
        """Return everything in the order in which it is done."""
        return [
            task
            for method, preprocessings in self.methods.items()
            for seed, preprocessing, column in product(self.seeds, preprocessings, self.columns())
            for task in self.tasks(column, method, preprocessing, seed)
        ]


def make_plan(files: Files, seeds: list[int], fast: bool) -> Plan:
    """Return what to measure."""
    regimes = STAND_IN if fast else {name: regime for name, regime in REGIMES.items() if name != "faces" or files.faces}
    peers = {name: PEERS[name].preprocessings for name in (FAST_PEERS if fast else PEERS)}
    ours = dict.fromkeys((OURS, *ABLATIONS), ("raw",))
    return Plan({name: regime.names(files) for name, regime in regimes.items()}, seeds, ours | peers)


def read_cells(path: Path) -> Cells:
    """Return the cells that are there already."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_cells(path: Path, cells: Cells) -> None:
    """Write all cells; the file is whole at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(cells, indent=0), encoding="utf-8")
    unfinished.replace(path)


def fill(cells: Cells, path: Path, tasks: list[Task], files: Files, workers: int) -> None:
    """Measure the cells that are missing."""
    missing = [task for task in tasks if task.key() not in cells]
    print(f"{len(tasks)} cells, {len(missing)} of them to be measured", flush=True)
    measured = Parallel(n_jobs=workers, return_as="generator_unordered")(delayed(measure)(task, files) for task in missing)
    for key, cell in measured:
        cells[key] = cell
        write_cells(path, cells)
