"""Train quadrics with the penalty and on the manifold, see how far the two detectors agree, and combine them.

Both start from the same random quadrics and differ in nothing but how orthonormality is held. The rows are near a product of
three circles, an intersection of three quadrics in six dimensions; one in twenty is an outlier. The agreement is the rank
correlation of their scores of new rows, and the combination is the average of the standardised scores.

The learning rate is 0.1, the largest of three that were tried, and the one where the combination is the best of the three:

==== ================ ======= ======= =======
rate rank correlation penalty stiefel average
==== ================ ======= ======= =======
0.01 0.990            0.878   0.868   0.873
0.03 0.607            0.966   0.852   0.948
0.1  0.591            0.988   0.968   0.990
==== ================ ======= ======= =======

Run it with ``python -m examples.penalty_vs_manifold_example``; it prints the figures and saves a picture. The careful
comparison, with tuned learning rates and real data, is ``python -m examples.benchmarks.penalty_vs_manifold``.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from pyod.utils.utility import standardizer
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from pyod_quadric import QuadricDetector
from pyod_quadric.plotting import plot_history

N_CIRCLES = 3
CONSTRAINTS = ("penalty", "stiefel")


class Comparison(NamedTuple):
    """What the example finds."""

    correlation: float
    roc_auc: dict[str, float]
    orthonormality_error: dict[str, float]


def generate_data(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (n, 6) near a product of three circles, one in twenty an outlier at other radii, and labels."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(n) % 20 == 0).astype(int)
    angles = rng.uniform(0, 2 * np.pi, (n, N_CIRCLES))
    noise = 0.1 * rng.normal(size=(n, N_CIRCLES))
    radii = np.where(labels[:, None] == 1, rng.uniform(0.3, 1.5, (n, N_CIRCLES)), 1 + noise)
    return np.concatenate([radii * np.cos(angles), radii * np.sin(angles)], axis=1), labels


def detector(constraint: str, epoch_num: int) -> QuadricDetector:
    """Return a detector that is trained under a constraint from a random start, so that training has something to do."""
    return QuadricDetector(
        n_quadrics=N_CIRCLES,
        init="random",
        epoch_num=epoch_num,
        lr=0.1,
        batch_size=64,
        constraint=constraint,
        score_function="mean_distance",
    )


def draw(fitted: dict[str, QuadricDetector], scores: np.ndarray, labels: np.ndarray, correlation: float) -> Figure:
    """Draw both trainings on one scale, and the scores of one against those of the other."""
    figure, (*left, right) = plt.subplots(1, 3, figsize=(14, 4.8), layout="constrained")
    for ax, (name, member) in zip(left, fitted.items(), strict=True):
        plot_history(member.history_, ax=ax).set_title(f"Training, {name}")
    left[1].sharey(left[0])
    for label, colour, text in ((0, "lightsteelblue", "inliers"), (1, "tab:red", "outliers")):
        chosen = scores[labels == label]
        right.scatter(*chosen.T, s=9, color=colour, label=f"{len(chosen)} {text}")
    right.set(
        xlabel="standardised score, penalty",
        ylabel="standardised score, stiefel",
        title=f"New rows: rank correlation {correlation:.3f}",
    )
    right.legend()
    return figure


def main(picture: Path | None = None, n: int = 1000, epoch_num: int = 30, quiet: bool = False) -> Comparison:
    """Fit both, compare and combine; return the agreement, and the ROC-AUCs on new rows."""
    training, _ = generate_data(n, seed=0)
    rows, labels = generate_data(n, seed=1)
    fitted = {constraint: detector(constraint, epoch_num).fit(training) for constraint in CONSTRAINTS}
    on_training = np.stack([member.decision_scores_ for member in fitted.values()], axis=1)
    _, scores = standardizer(on_training, np.stack([member.decision_function(rows) for member in fitted.values()], axis=1))
    correlation = float(spearmanr(*scores.T).statistic)
    columns = [*scores.T, scores.mean(axis=1)]
    roc_auc = {
        name: float(roc_auc_score(labels, column)) for name, column in zip((*CONSTRAINTS, "average"), columns, strict=True)
    }
    errors = {name: member.history_["orthonormality_error"][-1] for name, member in fitted.items()}
    if not quiet:
        print(f"rank correlation of the scores of {n} new rows: {correlation:.4f}")
        for name, value in roc_auc.items():
            error = f", orthonormal to {errors[name]:.1e}" if name in errors else ""
            print(f"{name}: ROC-AUC {value:.4f}{error}")
    if picture:
        figure = draw(fitted, scores, labels, correlation)
        figure.savefig(picture, dpi=80)
        plt.close(figure)
        if not quiet:
            print(f"picture: {picture}")
    return Comparison(correlation, roc_auc, errors)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--picture", type=Path, default=Path("penalty_vs_manifold_example.png"), help="where to save the picture"
    )
    parser.add_argument("--fast", action="store_true", help="few rows and epochs, to see that it runs")
    arguments = parser.parse_args()
    main(arguments.picture, **({"n": 200, "epoch_num": 3} if arguments.fast else {}))
