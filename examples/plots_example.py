"""Draw all pictures that pyod_quadric.plotting has, as one gallery.

The data are an ellipse in the plane and the seam of a tennis ball in space, with outliers around them. Needs no download.

Run it with ``python -m examples.plots_example``; it saves one picture.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure

from examples.quadric_example import generate_data
from examples.tennis_ball_example import seam
from pyod_quadric import QuadricDetector, principal_spectrum
from pyod_quadric.plotting import (
    plot_contributions,
    plot_distances,
    plot_history,
    plot_quadrics,
    plot_scores,
    plot_spectrum,
)


def seam_with_outliers(n_inliers: int = 300, n_outliers: int = 15, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return points (n, 3) near a seam on the unit sphere, with outliers around it, and labels (n,), 1 for outliers."""
    rng = np.random.default_rng(seed)
    curve = seam(torch.tensor(rng.uniform(0, 2 * np.pi, n_inliers))).numpy()
    points = np.concatenate([curve + rng.normal(scale=0.03, size=curve.shape), rng.uniform(-1.3, 1.3, size=(n_outliers, 3))])
    return points, np.repeat([0, 1], [n_inliers, n_outliers])


def embeddings(n: int = 500, seed: int = 0) -> np.ndarray:
    """Return rows (n, 12) near a subspace of dimension 5."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 5)) @ rng.normal(size=(5, 12)) + 0.3 * rng.normal(size=(n, 12))


def draw(epoch_num: int = 40, n_cells: int = 24) -> Figure:
    """Fit and draw everything."""
    ellipse, ellipse_labels = generate_data()
    ball, ball_labels = seam_with_outliers()
    flat = QuadricDetector(contamination=0.1).fit(ellipse)
    space = QuadricDetector(contamination=0.05).fit(ball)
    trained = QuadricDetector(
        init="random",
        score_function="mean_distance",
        n_quadrics=2,
        epoch_num=epoch_num,
        lr=0.03,
        batch_size=32,
        training_options={"validation_fraction": 0.2},
    ).fit(ball)
    figure, axes = plt.subplot_mosaic(
        [["curves", "surfaces"], ["scores", "features"], ["distances", "distances"], ["training", "spectrum"]],
        figsize=(11, 17),  # so that it can be read in a column of text
        layout="constrained",
        per_subplot_kw={"surfaces": {"projection": "3d"}},
    )
    plot_quadrics(flat.model_, ellipse, labels=ellipse_labels, ax=axes["curves"])
    plot_quadrics(space.model_, ball, labels=ball_labels, n_cells=n_cells, ax=axes["surfaces"])
    plot_scores(space.decision_scores_, space.threshold_, labels=ball_labels, ax=axes["scores"])
    worst = np.argsort(space.decision_scores_)[::-1][:20]
    plot_distances(space.quadric_distances(ball[worst]), row_names=worst, ax=axes["distances"])
    axes["distances"].set_title("Distances of the 20 rows with the highest scores")
    contributions = space.explain(ball)
    plot_contributions(
        contributions[worst[0]],
        contributions,
        feature_names=["x₁", "x₂", "x₃"],
        title=f"What each feature adds to the score of row {worst[0]}",
        ax=axes["features"],
    )
    plot_history(trained.history_, ax=axes["training"])
    plot_spectrum(principal_spectrum(embeddings()), ax=axes["spectrum"])
    return figure


def main(picture: Path | None = None, quiet: bool = False, **changes: int) -> Figure:
    """Draw the gallery, and save it if there is a place to."""
    figure = draw(**changes)
    if picture:
        figure.savefig(picture, dpi=80)
        if not quiet:
            print(f"picture: {picture}")
    plt.close(figure)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=Path("plots.png"), help="where to save the picture")
    parser.add_argument("--fast", action="store_true", help="few epochs and coarse surfaces, to see that it runs")
    arguments = parser.parse_args()
    main(arguments.picture, **({"epoch_num": 2, "n_cells": 8} if arguments.fast else {}))
