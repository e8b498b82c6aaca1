"""Watch the embeddings of a service day by day, and see when they stop being like those of the fit.

The embeddings are what a small network, trained here on scikit-learn's handwritten digits, has before its last layer. Each day
brings 150 images, with noise and shifted by a pixel. From the eleventh day on some papers lie sideways in the scanner, one in
fifty at first and a half in the end. From the twenty-first day on none does, but the scanner has lost contrast.

Each day one p-value says whether the whole batch is like the rows of the fit, and the procedure of Benjamini and Hochberg names
rows. Days are flagged below 0.001, so a false alarm is to be expected once in three years.

Needs the extra ``plot``. Run it with ``python -m examples.embedding_drift_example``.
"""

import argparse
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from pyod_quadric import QuadricDetector

N_DAYS, N_ROWS = 30, 150
ALARM = 0.001
FALSE_DISCOVERIES = 0.1


class Images(NamedTuple):
    """Images (?, 8, 8), from 0 to 1: for the network, with labels; others; and others that lie sideways."""

    network: np.ndarray
    labels: np.ndarray
    others: np.ndarray
    sideways: np.ndarray


def digits(rng: np.random.Generator) -> Images:
    """Return scikit-learn's images."""
    data = load_digits()
    network, others = np.split(rng.permutation(len(data.images)), [700])
    images = data.images / 16
    return Images(images[network], data.target[network], images[others], np.rot90(images[others], axes=(1, 2)))


def taken(images: np.ndarray, n: int, rng: np.random.Generator, contrast: float = 1.0) -> np.ndarray:
    """Return some images as they come from the scanner, (n, 64)."""
    chosen = contrast * rng.choice(images, n)
    shifted = [
        np.roll(image, shift, axis=(0, 1)) for image, shift in zip(chosen, rng.integers(-1, 2, size=(n, 2)), strict=True)
    ]
    return np.reshape(shifted, (n, -1)) + 0.05 * rng.normal(size=(n, 64))


def share_sideways(day: int) -> float:
    """Return the share of papers that lie sideways on a day, from 1 on."""
    return 0.02 + 0.48 * (day - 11) / 9 if 11 <= day <= 20 else 0.0


def contrast(day: int) -> float:
    """Return the contrast of the scanner on a day."""
    return 0.7 if day > 20 else 1.0


def batch(day: int, images: Images, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the images of a day (n, 64), and which of them lie sideways."""
    is_sideways = rng.random(N_ROWS) < share_sideways(day)
    kinds = [taken(some, N_ROWS, rng, contrast(day)) for some in (images.others, images.sideways)]
    return np.where(is_sideways[:, None], kinds[1], kinds[0]), is_sideways


def embed(network: MLPClassifier, images: np.ndarray) -> np.ndarray:
    """Return what the network has before its last layer, (n, 64)."""
    rows = images
    for weights, shift in zip(network.coefs_[:-1], network.intercepts_[:-1], strict=True):
        rows = np.maximum(rows @ weights + shift, 0)
    return rows


def draw(p_values: list[float], sideways: list[float], named: list[float]) -> Figure:
    """Draw the p-value of each day, and how many rows were named."""
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 6), layout="constrained", sharex=True)
    days = np.arange(1, N_DAYS + 1)
    drawn, is_alarm = np.maximum(p_values, 1e-12), np.array(p_values) < ALARM
    top.scatter(days[~is_alarm], drawn[~is_alarm], color="#0072b2", label="no alarm")
    top.scatter(days[is_alarm], drawn[is_alarm], color="#d55e00", marker="D", label="alarm")
    top.axhline(ALARM, color="black", linestyle=":", label=f"alarm below {ALARM:g}")
    top.set(yscale="log", ylabel="p-value of the batch", title=f"{N_ROWS} rows a day; p-values below 1e-12 are drawn there")
    bottom.step(days, sideways, where="mid", color="black", label="lie sideways")
    bottom.step(days, named, where="mid", color="#d55e00", label=f"rows named, of which {FALSE_DISCOVERIES:.0%} may be wrong")
    bottom.set(xlabel="day", ylabel="rows")
    for axes in (top, bottom):
        axes.axvspan(10.5, 20.5, color="tab:gray", alpha=0.15)
        axes.axvspan(20.5, N_DAYS + 0.5, color="tab:gray", alpha=0.3)
    top.legend(loc="lower left")
    bottom.legend(loc="center left")
    bottom.text(15.5, bottom.get_ylim()[1] * 0.9, "some lie sideways", ha="center")
    bottom.text(25.5, bottom.get_ylim()[1] * 0.9, "low contrast", ha="center")
    return figure


Day = tuple[np.ndarray, np.ndarray]  # rows (n, d), and which of them lie sideways (n,)


def watch(detector: QuadricDetector, days: Iterable[Day]) -> dict[str, list[float]]:
    """Return the p-value of each day, and how many of its rows lie sideways and are named."""
    names = ("p-value", "sideways", "named", "named rightly")
    found: dict[str, list[float]] = {name: [] for name in names}
    for rows, is_sideways in days:
        p_value = detector.drift_test(rows).pvalue
        named = detector.predict(rows, false_discovery_rate=FALSE_DISCOVERIES)
        counts = (is_sideways.sum(), named.sum(), named[is_sideways].sum())
        for name, value in zip(found, (p_value, *counts), strict=True):
            found[name].append(float(value))
    return found


def main(picture: Path | None = None, quiet: bool = False, seed: int = 0) -> dict[str, list[float]]:
    """Watch all days; return for each its p-value, how many papers lay sideways, and how many rows were named."""
    rng = np.random.default_rng(seed)
    images = digits(rng)
    network = MLPClassifier((128, 64), max_iter=300, random_state=0)
    network.fit(images.network.reshape(len(images.network), -1), images.labels)
    with warnings.catch_warnings():
        # The fit warns of groups, since the same papers are scanned several times. So they are later on: there are no new ones.
        warnings.filterwarnings("ignore", "rows are far nearer to each other")
        detector = QuadricDetector().fit(embed(network, taken(images.others, 3000, rng)))
    batches = (batch(day, images, rng) for day in range(1, N_DAYS + 1))
    found = watch(detector, ((embed(network, rows), is_sideways) for rows, is_sideways in batches))
    if picture:
        figure = draw(found["p-value"], found["sideways"], found["named"])
        figure.savefig(picture, dpi=100)
        plt.close(figure)
    if not quiet:
        for day, (p_value, n_sideways, n_named, n_right) in enumerate(zip(*found.values(), strict=True), start=1):
            alarm = "  alarm" if p_value < ALARM else ""
            counts = f"{n_sideways:3.0f} sideways, {n_named:3.0f} named, {n_right:3.0f} rightly"
            print(f"day {day:2}: {counts}, p = {p_value:.1e}{alarm}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=Path("embedding_drift.png"), help="where to save the picture")
    main(parser.parse_args().picture)
