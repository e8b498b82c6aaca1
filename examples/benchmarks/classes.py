"""What classes of the normal rows would be worth: scores that know them, and scores that do not, on intents and glosses.

Fitted to questions of CLINC150's 150 intents, they look for questions that are out of scope; fitted to those of 120
intents, for the other 30; fitted to 20,000 glosses of WordNet, for those of a file that was left out; fitted to the pixels of
nine of scikit-learn's ten digits, for the tenth. Mahalanobis distances to the nearest class mean, with one covariance for all
classes, are as in Lee et al. (2018); *relative* ones, less the distance from the mean of all rows, as in Ren et al. (2021).
With clusters in place of classes they need no labels.

Run it with ``OMP_NUM_THREADS=1 python -m examples.benchmarks.classes --data DIR``, in about half an hour.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.covariance import LedoitWolf
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from examples.benchmarks._common import argument_parser, environment, markdown_table
from examples.benchmarks._data import CLINC150, WORDNET, need
from pyod_quadric import QuadricDetector

Rows = NDArray[np.float32]
N_LEFT_OUT = 30
WORDNET_FILES, N_WORDNET, N_WORDNET_TEST = (0, 18, 20, 38), 20_000, 3_000
DIGITS = (1, 3, 8)  # those that are hardest to tell from the others


class Task(NamedTuple):
    """Rows with classes to fit, and rows to tell apart; all have length 1."""

    name: str
    training: Rows  # (n, d)
    classes: NDArray[np.int64]  # (n,), from 0
    new: Rows
    labels: NDArray[np.int64]  # of the new rows, 1 for outliers

    def roc_auc(self, scores: NDArray[Any]) -> float:
        """Return the ROC-AUC of scores of the new rows."""
        return float(roc_auc_score(self.labels, scores))


def task(name: str, training: Rows, classes: NDArray[Any], inliers: Rows, outliers: Rows) -> Task:
    """Return a task from raw rows."""
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (training, np.append(inliers, outliers, axis=0))]
    labels = np.repeat([0, 1], [len(inliers), len(outliers)])
    return Task(name, unit[0], np.unique(classes, return_inverse=True)[1], unit[1], labels)


def intents(data: Path, seeds: list[int]) -> Iterator[Task]:
    """Return the tasks of CLINC150."""
    with np.load(data / CLINC150) as arrays:
        rows, intent, part = arrays["X"].astype(np.float32), arrays["intent"], arrays["part"]
    training, test, outside = (part == place for place in (0, 2, 5))
    yield task("out of scope", rows[training], intent[training], rows[test], rows[outside])
    for seed in seeds:
        left_out = np.random.default_rng(seed).choice(np.unique(intent[training]), N_LEFT_OUT, replace=False)
        known = ~np.isin(intent, left_out)
        fitted = training & known
        yield task(f"new intents, seed {seed}", rows[fitted], intent[fitted], rows[test & known], rows[test & ~known])


def glosses(data: Path) -> Iterator[Task]:
    """Return the tasks of WordNet, whose files are the classes."""
    with np.load(data / WORDNET) as arrays:
        rows, file = arrays["X"].astype(np.float32), arrays["lexfile"]
    for number in WORDNET_FILES:
        rng = np.random.default_rng(0)
        inside, outside = (rng.permutation(np.flatnonzero(chosen)) for chosen in (file != number, file == number))
        test, fitted = np.split(inside[: N_WORDNET_TEST + N_WORDNET], [N_WORDNET_TEST])
        yield task(f"WordNet without {number}", rows[fitted], file[fitted], rows[test], rows[outside[:N_WORDNET_TEST]])


def digits() -> Iterator[Task]:
    """Return the tasks of handwritten digits."""
    pixels, digit = load_digits(return_X_y=True)
    rows = pixels.astype(np.float32)
    for number in DIGITS:
        inside = np.random.default_rng(0).permutation(np.flatnonzero(digit != number))
        test, fitted = np.split(inside, [len(inside) // 3])
        yield task(f"digits without {number}", rows[fitted], digit[fitted], rows[test], rows[digit == number])


def made(seed: int = 0) -> Task:
    """Return a task that needs no files: clusters, and rows between them."""
    rng = np.random.default_rng(seed)
    means, classes = rng.normal(size=(6, 8)), rng.integers(6, size=900)
    rows = (means[classes] + 0.2 * rng.normal(size=(900, 8))).astype(np.float32)
    between = (means[rng.permutation(6)].mean(axis=0) + 0.5 * rng.normal(size=(100, 8))).astype(np.float32)
    return task("made", rows[:600], classes[:600], rows[600:], between)


class ClassMeans:
    """Distances to the nearest of several means, with one covariance (shrunk after Ledoit and Wolf) for all of them."""

    def __init__(self, rows: Rows, classes: NDArray[np.int64]) -> None:
        self.means = np.stack([rows[classes == number].mean(axis=0) for number in range(classes.max() + 1)])
        self.all = LedoitWolf().fit(rows)
        self.root = np.linalg.cholesky(LedoitWolf(assume_centered=True).fit(rows - self.means[classes]).precision_)

    def squared(self, rows: Rows) -> NDArray[Any]:
        """Return the squared distances (n, m) to all means."""
        points, means = rows @ self.root, self.means @ self.root
        return (points**2).sum(axis=1)[:, None] - 2 * points @ means.T + (means**2).sum(axis=1)

    def nearest(self, rows: Rows) -> NDArray[Any]:
        """Return those to the nearest mean (n,)."""
        return self.squared(rows).min(axis=1)

    def relative(self, rows: Rows) -> NDArray[Any]:
        """Return the same, less the squared distance from the mean of all rows."""
        return self.nearest(rows) - self.all.mahalanobis(rows)


def clusters(rows: Rows, k: int) -> NDArray[np.int64]:
    """Return the cluster (n,) of each row."""
    found = KMeans(min(k, len(rows) // 4), n_init=1, random_state=0, max_iter=30).fit(rows).labels_
    return np.unique(found, return_inverse=True)[1]


def centred(task: Task) -> NDArray[Any]:
    """Return scores of a detector of rows less the means of their classes; new rows are of the nearest class."""
    means = ClassMeans(task.training, task.classes)
    detector = QuadricDetector(normalize=False).fit(task.training - means.means[task.classes])
    return detector.decision_function(task.new - means.means[means.squared(task.new).argmin(axis=1)])


def one_each(task: Task) -> NDArray[Any]:
    """Return the least score of detectors of each class, in the unit of its rows."""
    scores = []
    for number in range(task.classes.max() + 1):
        detector = QuadricDetector(normalize=False).fit(task.training[task.classes == number])
        scores.append(detector.decision_function(task.new) / np.median(detector.decision_scores_))
    return np.min(scores, axis=0)


def energy(task: Task) -> NDArray[Any]:
    """Return the energy of a linear classifier."""
    logits = LogisticRegression(C=10, max_iter=300).fit(task.training, task.classes).decision_function(task.new)
    return -np.log(np.exp(logits).sum(axis=1))


METHODS: dict[str, Callable[[Task], NDArray[Any]]] = {
    "default": lambda task: QuadricDetector().fit(task.training).decision_function(task.new),
    "KNN, k = 5": lambda task: NearestNeighbors(n_neighbors=5).fit(task.training).kneighbors(task.new)[0][:, -1],
    "150 clusters, relative": lambda task: ClassMeans(task.training, clusters(task.training, 150)).relative(task.new),
    "400 clusters, relative": lambda task: ClassMeans(task.training, clusters(task.training, 400)).relative(task.new),
    "classes, nearest": lambda task: ClassMeans(task.training, task.classes).nearest(task.new),
    "classes, relative": lambda task: ClassMeans(task.training, task.classes).relative(task.new),
    "default of class-centred rows": centred,
    "one default for each class": one_each,
    "linear classifier, energy": energy,
}


def main(data: Path, seeds: list[int], fast: bool = False) -> dict[str, list[float]]:
    """Print the ROC-AUC of all methods in all tasks as a table, and return them."""
    if not fast:
        need(data, CLINC150, WORDNET)
    tasks = [made()] if fast else [*intents(data, seeds), *glosses(data), *digits()]
    results = {name: [task.roc_auc(method(task)) for task in tasks] for name, method in METHODS.items()}
    print(f"{environment()}\n")
    print(markdown_table(["", *(task.name for task in tasks)], [[name, *row] for name, row in results.items()]))
    return results


if __name__ == "__main__":
    arguments = argument_parser(__doc__, data=True, seeds=True).parse_args()
    main(arguments.data, arguments.seeds, arguments.fast)
