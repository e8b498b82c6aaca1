"""Follow a stream whose manifold turns slowly: an ellipse that makes a quarter turn while rows come in, chunk by chunk.

Each chunk is scored first and learnt then. A detector that was fitted to the first chunk alone is left behind; one that
remembers all rows alike mixes old with new ones; one with a ``window`` learns from the latest rows and turns with them.

Run it with ``python -m examples.drift_example``; it prints the ROC-AUC over time and saves a picture. Needs no download.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import roc_auc_score

from examples.quadric_example import CONTAMINATION, generate_data
from pyod_quadric import QuadricDetector

FIRST, ALL, LATEST = "fit to the first chunk", "partial_fit, all rows alike", "partial_fit, window"
COLOURS = {FIRST: "tab:gray", ALL: "#e69f00", LATEST: "#0072b2"}


def chunk_at(number: int, n_chunks: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a chunk of the stream, points (n, 2) near the ellipse at that time, and labels (n,), 1 for outliers."""
    n_outliers = round(CONTAMINATION * n_rows)
    points, labels = generate_data(n_rows - n_outliers, n_outliers, seed=number)
    turn = np.pi / 2 * number / max(1, n_chunks - 1)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    order = np.random.default_rng(number).permutation(n_rows)
    return (points @ rotation.T)[order], labels[order]


def draw(figures: dict[str, list[float]], detectors: dict[str, QuadricDetector], chunk: np.ndarray, window: int) -> Figure:
    """Draw the ROC-AUC over time, and the last chunk with the thresholds of all detectors at the end."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.3), layout="constrained", width_ratios=(3, 2))
    axis = np.linspace(-4.5, 4.5, 201)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    right.scatter(*chunk.T, s=9, color="black", label=f"the last {len(chunk)} rows")
    for name, values in figures.items():
        label = f"{name} of {window} rows" if name == LATEST else name
        left.plot(np.arange(2, len(values) + 2), values, color=COLOURS[name], label=label)
        detector = detectors[name]
        scores = detector.decision_function(grid.reshape(-1, 2)).reshape(grid.shape[:2])
        right.contour(axis, axis, scores, levels=[detector.threshold_], colors=COLOURS[name])
    left.set(xlabel=f"chunk, of {len(chunk)} rows", ylabel="ROC-AUC, before it is learnt", title="A quarter turn")
    left.legend(loc="lower left")
    left.grid(alpha=0.3)
    right.set(xlabel="x₁", ylabel="x₂", title="Thresholds at the end", aspect="equal")
    right.legend(loc="lower right")
    return figure


def main(
    picture: Path | None = None, quiet: bool = False, n_chunks: int = 46, n_rows: int = 400, window: int = 800
) -> dict[str, list[float]]:
    """Score and learn chunk by chunk; return for each detector the ROC-AUC of all chunks but the first, over time."""
    detectors = {name: QuadricDetector(contamination=CONTAMINATION) for name in (FIRST, ALL, LATEST)}
    detectors[LATEST].set_params(window=window)
    figures: dict[str, list[float]] = {name: [] for name in detectors}
    for number in range(n_chunks):
        points, labels = chunk_at(number, n_chunks, n_rows)
        for name, detector in detectors.items():
            if number > 0:
                figures[name].append(float(roc_auc_score(labels, detector.decision_function(points))))
            if number == 0 or name != FIRST:
                detector.partial_fit(points)
    if picture:
        figure = draw(figures, detectors, points, window)
        figure.savefig(picture, dpi=100)
        plt.close(figure)
    if not quiet:
        print(f"mean ROC-AUC in three parts of {n_chunks} chunks of {n_rows} rows, in which the ellipse makes a quarter turn")
        for name, values in figures.items():
            print(f"{name:28}", *(f"{part.mean():.3f}" for part in np.array_split(values, 3)))
        print(f"picture: {picture}")
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=Path("drift.png"), help="where to save the picture")
    main(parser.parse_args().picture)
