"""Find outliers around a curved cloud with QuadricDetector, and draw what it has learnt.

The data are two-dimensional, so that the learnt quadric and the landscape of scores can be drawn. Needs no download.

Run it with ``python examples/quadric_example.py``; it prints PyOD's evaluation and saves a picture.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from pyod.models.base import BaseDetector
from pyod.models.gmm import GMM
from pyod.utils.data import evaluate_print
from sklearn.metrics import roc_auc_score

from pyod_quadric import QuadricDetector

CONTAMINATION = 0.1
TILT = 0.5  # of the ellipse, an angle
# Light enough for points and texts to be read on it.
PALE_BLUES = LinearSegmentedColormap.from_list("pale blues", plt.get_cmap("Blues")(np.linspace(0, 0.55, 256)))


def generate_data(n_inliers: int = 360, n_outliers: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return points (n, 2) near a tilted ellipse, with outliers anywhere around it, and labels (n,), 1 for outliers."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n_inliers)
    ellipse = np.stack([3 * np.cos(angle), np.sin(angle)], axis=1)
    turned = np.array([[np.cos(TILT), -np.sin(TILT)], [np.sin(TILT), np.cos(TILT)]])
    inliers = ellipse @ turned.T + rng.normal(scale=0.08, size=(n_inliers, 2))
    outliers = rng.uniform(-4, 4, size=(n_outliers, 2))
    return np.concatenate([inliers, outliers]), np.repeat([0, 1], [n_inliers, n_outliers])


def draw(points: np.ndarray, labels: np.ndarray, detectors: dict[str, BaseDetector]) -> Figure:
    """Draw the points over the landscape of each detector's score, with its threshold and what quadrics it has."""
    axis = np.linspace(-4.5, 4.5, 201)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    figure, panels = plt.subplots(1, len(detectors), figsize=(9.2, 4.9), layout="constrained", sharey=True)
    for ax, (name, detector) in zip(panels, detectors.items(), strict=True):
        # Ranks among the training scores, since scores of different detectors have different units.
        scores = detector.decision_function(grid.reshape(-1, 2)).reshape(grid.shape[:2])
        shares = np.searchsorted(np.sort(detector.decision_scores_), scores) / len(points)
        filled = ax.contourf(axis, axis, shares, levels=np.linspace(0, 1, 11), cmap=PALE_BLUES)
        ax.contour(axis, axis, scores, levels=[detector.threshold_], colors="black", linestyles="dashed", linewidths=1.2)
        for label, colour, marker, text in ((0, "black", "o", "inliers"), (1, "#d55e00", "D", "outliers")):
            chosen = points[labels == label]
            ax.scatter(*chosen.T, s=16 if label else 3, color=colour, marker=marker, label=f"{len(chosen)} {text}")
        ax.plot([], [], color="black", linestyle="dashed", linewidth=1.2, label="threshold")
        is_ours = isinstance(detector, QuadricDetector)
        if is_ours:
            draw_quadric(ax, detector, axis)
        words = "the empty middle\nis abnormal" if is_ours else "the empty middle\nis the most normal"
        ax.text(0, 0, words, ha="center", va="center", rotation=np.rad2deg(TILT), fontsize="small")
        ax.set(xlabel="x₁", title=name, aspect="equal", xlim=axis[[0, -1]], ylim=axis[[0, -1]])
    figure.colorbar(filled, ax=panels, label="share of training rows with a lower score")
    panels[0].set_ylabel("x₂")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize="small")
    return figure


def draw_quadric(ax: Axes, detector: QuadricDetector, axis: np.ndarray) -> None:
    """Draw the zero set of the quadric that counts most."""
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    quadric = detector.input_quadrics_[int(detector.quadric_weights_.argmax())]
    values = quadric.values(quadric.linear.new_tensor(grid)).reshape(len(axis), len(axis))
    ax.contour(axis, axis, values, levels=[0], colors="#e69f00", linewidths=2.5)
    ax.plot([], [], color="#e69f00", linewidth=2.5, label="learnt quadric")


def main(picture: Path | None = None, quiet: bool = False) -> float:
    """Fit, score and draw; return the ROC-AUC on new points."""
    training, training_labels = generate_data(seed=0)  # the labels are only for the evaluation
    points, labels = generate_data(seed=1)
    detectors = {
        "QuadricDetector": QuadricDetector(contamination=CONTAMINATION).fit(training),
        "a Gaussian (GMM)": GMM(contamination=CONTAMINATION, random_state=0).fit(training),
    }
    scores = {name: detector.decision_function(points) for name, detector in detectors.items()}
    if not quiet:
        for name, detector in detectors.items():
            evaluate_print(f"{name}, training rows", training_labels, detector.decision_scores_)
            evaluate_print(f"{name}, new rows", labels, scores[name])
    figure = draw(training, training_labels, detectors)
    if picture:
        figure.savefig(picture, dpi=100)
    plt.close(figure)
    if not quiet:
        print(f"picture: {picture}")
    return float(roc_auc_score(labels, scores["QuadricDetector"]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=Path("quadric_example.png"), help="where to save the picture")
    main(parser.parse_args().picture)
