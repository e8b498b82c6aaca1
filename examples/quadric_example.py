"""Find outliers around a curved cloud: fit a quadric to clean data and score new points by their distance to it.

The data are two-dimensional, so that the learnt quadric and the landscape of scores can be drawn. Needs no download.

Run it with ``python examples/quadric_example.py``; it prints PyOD's evaluation and saves a picture.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from pyod.utils.data import evaluate_print
from sklearn.metrics import roc_auc_score

from pyod_quadric import Quadrics, algebraic_distance, second_order_distance, spectral_fit


def generate_data(n_inliers: int = 400, n_outliers: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return points (n, 2) near a tilted ellipse, with outliers anywhere around it, and labels (n,), 1 for outliers."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n_inliers)
    ellipse = np.stack([3 * np.cos(angle), np.sin(angle)], axis=1)
    tilt = np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]])
    inliers = ellipse @ tilt.T + rng.normal(scale=0.08, size=(n_inliers, 2))
    outliers = rng.uniform(-4, 4, size=(n_outliers, 2))
    return np.concatenate([inliers, outliers]), np.repeat([0, 1], [n_inliers, n_outliers])


def draw(points: np.ndarray, labels: np.ndarray, quadrics: Quadrics) -> Figure:
    """Draw the points over the landscape of algebraic and of order-2 distance, each with the learnt quadric."""
    axis = np.linspace(-4.5, 4.5, 301)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    flat = torch.tensor(grid.reshape(-1, 2))
    figure, panels = plt.subplots(1, 2, figsize=(11, 5), layout="constrained", sharey=True)
    distances = {"|f|, algebraic": algebraic_distance, "d₂, second order": second_order_distance}
    for ax, (name, distance) in zip(panels, distances.items(), strict=True):
        scores = distance(flat, quadrics).mean(dim=1).reshape(grid.shape[:2])
        filled = ax.contourf(axis, axis, scores, levels=12, cmap="Blues")
        figure.colorbar(filled, ax=ax, label=f"distance to the quadric ({name})")
        ax.contour(axis, axis, quadrics.values(flat).reshape(grid.shape[:2]), levels=[0], colors="black", linewidths=2)
        for label, colour, text in ((0, "tab:green", "inliers"), (1, "tab:red", "outliers")):
            chosen = points[labels == label]
            ax.scatter(*chosen.T, s=9, color=colour, label=f"{len(chosen)} {text}")
        ax.plot([], [], color="black", label="learnt quadric")
        ax.set(xlabel="x₁", title=f"score: {name}", aspect="equal", xlim=axis[[0, -1]], ylim=axis[[0, -1]])
    panels[0].set_ylabel("x₂")
    panels[0].legend(loc="lower right")
    return figure


def main(picture: Path | None = None, quiet: bool = False) -> float:
    """Fit, score and draw; return the ROC-AUC of the order-2 distance."""
    training, _ = generate_data(n_outliers=0, seed=0)
    points, labels = generate_data(seed=1)
    quadrics = spectral_fit(torch.tensor(training), n_quadrics=1, inner_product="gradient")
    scores = second_order_distance(torch.tensor(points), quadrics).mean(dim=1).numpy()
    figure = draw(points, labels, quadrics)
    if picture:
        figure.savefig(picture, dpi=110)
    plt.close(figure)
    if not quiet:
        evaluate_print("quadric in closed form", labels, scores)
        print(f"picture: {picture}")
    return float(roc_auc_score(labels, scores))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=Path("quadric_example.png"), help="where to save the picture")
    main(parser.parse_args().picture)
