"""Combine QuadricDetector with other detectors of PyOD, and see what the combination gains over its members.

Six detectors are fitted to the same raw rows, outliers included, with default parameters. Their scores are standardised by the
mean and the spread of the training scores, and combined as PyOD does: by average, maximum, median, average of maxima (AOM),
maximum of averages (MOA), and a majority vote of the labels. The average of ranks needs no standardising, so that no member
can drown the others. The average without QuadricDetector shows what it adds to the others.

By default the rows are those of scikit-learn's breast cancer data, with one in ten malignant, in ten subsamples. With the
option ``--data`` they are all sets of ADBench in a folder, split as in the benchmarks.

Needs the extra ``ensemble``. Run it with ``python -m examples.ensemble_example``.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pyod.models.base import BaseDetector
from pyod.models.combination import aom, average, majority_vote, maximization, median, moa
from pyod.models.ecod import ECOD
from pyod.models.gmm import GMM
from pyod.models.iforest import IForest
from pyod.models.knn import KNN
from pyod.models.lof import LOF
from pyod.utils.utility import standardizer
from scipy.stats import rankdata
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from examples.benchmarks._common import load_adbench
from pyod_quadric import QuadricDetector

OURS = "QuadricDetector"
N_BUCKETS = 3  # groups of two members in AOM and MOA


class Split(NamedTuple):
    """Rows to fit, without labels, and rows to test, with labels."""

    name: str
    training: np.ndarray
    test: np.ndarray
    labels: np.ndarray


def members() -> dict[str, BaseDetector]:
    """Return the detectors of the ensemble, not fitted."""
    return {
        OURS: QuadricDetector(),
        "KNN": KNN(),
        "LOF": LOF(),
        "IForest": IForest(random_state=0),
        "ECOD": ECOD(),
        "GMM": GMM(random_state=0),
    }


def breast_cancer(n_splits: int, n_outliers: int = 40) -> Iterator[Split]:
    """Yield subsamples of scikit-learn's data: all benign rows and some malignant ones as outliers, half of them to fit."""
    rows, benign = load_breast_cancer(return_X_y=True)
    inliers, outliers = rows[benign == 1], rows[benign == 0]
    for seed in range(n_splits):
        chosen = np.random.default_rng(seed).choice(len(outliers), n_outliers, replace=False)
        points, labels = np.append(inliers, outliers[chosen], axis=0), np.repeat([0, 1], [len(inliers), n_outliers])
        training, test, _, test_labels = train_test_split(points, labels, test_size=0.5, stratify=labels, random_state=seed)
        yield Split("breast cancer", training, test, test_labels)


def adbench(
    folder: Path, n_rows: int, groups: tuple[str, ...] = ("CV_by_ResNet18", "NLP_by_BERT", "Classical")
) -> Iterator[Split]:
    """Yield the sets of ADBench in a folder, with at most ``n_rows`` rows to fit."""
    for group in groups:
        for path in sorted((folder / "adbench" / group).glob("*.npz")):
            data = load_adbench(path, contaminated=True)
            test = np.concatenate([data.inliers.numpy(), data.outliers[0].numpy()])
            labels = np.repeat([0, 1], [len(data.inliers), len(data.outliers[0])])
            yield Split(group, data.training.numpy()[:n_rows], test, labels)


Scores = dict[str, np.ndarray]


def combined(training: np.ndarray, test: np.ndarray, votes: np.ndarray) -> Scores:
    """Return combinations (n,) of the scores (n, members) of test rows.

    Scores are standardised by those of the training rows.
    """
    _, scores = standardizer(training, test)
    return {
        "average": average(scores),
        "maximization": maximization(scores),
        "median": median(scores),
        "aom": aom(scores, n_buckets=N_BUCKETS, random_state=0),
        "moa": moa(scores, n_buckets=N_BUCKETS, random_state=0),
        "majority_vote": majority_vote(votes),
        "average of ranks": average(rankdata(test, axis=0)),
        f"average without {OURS}": average(scores[:, 1:]),  # it is the first
    }


def roc_aucs(split: Split) -> dict[str, float]:
    """Fit all members; return the ROC-AUC of each and of their combinations on the test rows."""
    fitted = {name: detector.fit(split.training) for name, detector in members().items()}
    scores = {name: detector.decision_function(split.test) for name, detector in fitted.items()}
    training = np.stack([detector.decision_scores_ for detector in fitted.values()], axis=1)
    votes = np.stack([detector.predict(split.test) for detector in fitted.values()], axis=1)
    scores |= combined(training, np.stack(list(scores.values()), axis=1), votes)
    return {name: float(roc_auc_score(split.labels, score)) for name, score in scores.items()}


def main(data: Path | None = None, n_rows: int = 2000, n_splits: int = 10, quiet: bool = False) -> dict[str, dict[str, float]]:
    """Print a table of mean ROC-AUCs; return them for each group of sets, by the name of the member or combination."""
    groups: dict[str, list[dict[str, float]]] = {}
    for split in adbench(data, n_rows) if data else breast_cancer(n_splits):
        groups.setdefault(split.name, []).append(roc_aucs(split))
    if not groups:
        raise SystemExit(f"there is no file adbench/<group>/<set>.npz in the folder {data}, that --data names")
    means = {group: {name: float(np.mean([row[name] for row in rows])) for name in rows[0]} for group, rows in groups.items()}
    if not quiet:
        print(table(means, {group: len(rows) for group, rows in groups.items()}))
    return means


def table(means: dict[str, dict[str, float]], sizes: dict[str, int]) -> str:
    """Return the means as a Markdown table, with what the best combination gains over the best member below it."""
    groups, n_members = list(means), len(members())
    names = list(means[groups[0]])
    lines = [
        "| | " + " | ".join(f"{group}, {sizes[group]} splits" for group in groups) + " |",
        "|---" * (len(groups) + 1) + "|",
    ]
    lines += [f"| {name} | " + " | ".join(f"{means[group][name]:.3f}" for group in groups) + " |" for name in names]
    for group in groups:
        best_member, best_combination = (
            max(part, key=lambda name: means[group][name]) for part in (names[:n_members], names[n_members:])
        )
        gain = means[group][best_combination] - means[group][best_member]
        lines.append(f"\n{group}: {best_combination} has {gain:+.3f} over the best member, {best_member}")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with adbench/<group>/<set>.npz; by default scikit-learn's data")
    parser.add_argument("--rows", type=int, default=2000, dest="n_rows", help="how many rows to fit at most, with --data")
    parser.add_argument("--splits", type=int, default=10, dest="n_splits", help="how many subsamples, without --data")
    main(**vars(parser.parse_args()))
