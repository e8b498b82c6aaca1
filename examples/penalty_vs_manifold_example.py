"""Train quadrics with the penalty and on the manifold, see how far the two scores agree, and combine them.

Both start from the same random quadrics and differ in nothing but how orthonormality is held; each has the best of three
learning rates. The rows are near a product of three circles, an intersection of three quadrics in six dimensions; one in twenty
is an outlier. The combination is the average of the standardised scores, by PyOD's utilities. Beside them stand the default
detector, its linear part alone, and quadrics in closed form.

Run it with ``python -m examples.penalty_vs_manifold_example``; it prints the figures and saves a picture. The careful
comparison, with more learning rates and real data, is ``python -m examples.benchmarks.penalty_vs_manifold``.
"""

import argparse
from pathlib import Path

import numpy as np
from pyod.utils.utility import standardizer
from sklearn.metrics import roc_auc_score

from pyod_quadric import Comparison, compare_constraints
from pyod_quadric.plotting import plot_comparison

N_CIRCLES = 3
LEARNING_RATES = (0.01, 0.03, 0.1)


def generate_data(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (n, 6) near a product of three circles, one in twenty an outlier at other radii, and labels."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(n) % 20 == 0).astype(int)
    angles = rng.uniform(0, 2 * np.pi, (n, N_CIRCLES))
    noise = 0.1 * rng.normal(size=(n, N_CIRCLES))
    radii = np.where(labels[:, None] == 1, rng.uniform(0.3, 1.5, (n, N_CIRCLES)), 1 + noise)
    return np.concatenate([radii * np.cos(angles), radii * np.sin(angles)], axis=1), labels


def main(picture: Path | None = None, n: int = 1000, epoch_num: int = 30, quiet: bool = False) -> tuple[Comparison, float]:
    """Compare and combine; return the comparison, and the ROC-AUC of the average of both scores."""
    rows, labels = generate_data(n, seed=0)
    found = compare_constraints(
        rows,
        labels,
        n_quadrics=N_CIRCLES,
        n_components=None,
        init="random",
        epoch_num=epoch_num,
        batch_size=64,
        learning_rates=LEARNING_RATES,
    )
    average = standardizer(np.stack([found.scores[name] for name in found.runs], axis=1)).mean(axis=1)
    combined = float(roc_auc_score(labels, average))
    if not quiet:
        print(f"rank correlation of the scores of {n} rows: {found.rank_correlation:.4f}")
        for name, run in found.runs.items():
            print(f"{name}: learning rate {run.lr:g}, orthonormal to {run.errors[-1]:.1e}")
        for detector in found.detectors.values():
            print(f"ROC-AUC {detector.roc_auc:.4f}: {detector.words}")
        print(f"ROC-AUC {combined:.4f}: the average of penalty and manifold")
    if picture:
        plot_comparison(found).savefig(picture, dpi=80)
        if not quiet:
            print(f"picture: {picture}")
    return found, combined


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--picture", type=Path, default=Path("penalty_vs_manifold_example.png"), help="where to save the picture"
    )
    parser.add_argument("--fast", action="store_true", help="few rows and epochs, to see that it runs")
    arguments = parser.parse_args()
    main(arguments.picture, **({"n": 200, "epoch_num": 3} if arguments.fast else {}))
