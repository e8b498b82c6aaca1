"""Curved data, by one command and without files: what quadrics see that neighbours and Gaussians do not, and what they miss.

Each set is a curved shape by construction, turned into 64 features by a random rotation, with Gaussian noise in all of them.
Outliers are Gaussian with the mean and the covariance of the shape, and have the same noise: only that they are off the shape
tells them. So one Gaussian sees nothing, and the more dimensions a shape has the farther apart its rows are for neighbours.
All shapes but the last two are intersections of quadrics; those two are scikit-learn's, and no quadric holds them.

All detectors have their default parameters and the same rows. Ours is there as it is, a score of three parts of which two
(linear, neighbours) see nothing here, and with the quadrics alone. Each line is a shape, with the mean ROC-AUC over all seeds
and the lowest of our default.

Run it with ``OMP_NUM_THREADS=1 python -m examples.benchmarks.curved``, in a minute or two.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyod.models.ecod import ECOD
from pyod.models.gmm import GMM
from pyod.models.iforest import IForest
from pyod.models.knn import KNN
from pyod.models.lof import LOF
from scipy.spatial.transform import Rotation
from sklearn.datasets import make_s_curve, make_swiss_roll
from sklearn.metrics import roc_auc_score

from examples.benchmarks._common import markdown_table
from examples.benchmarks._detection_cells import quiet as silence
from pyod_quadric import QuadricDetector

Rows = NDArray[np.float64]
Shape = Callable[[int, np.random.Generator], Rows]  # how many rows -> the rows (n, k)
Detector = Callable[[int], Any]  # by the seed

N_FEATURES = 64
N_TESTED = 500  # inliers, and as many outliers
OURS = "QuadricDetector"
DETECTORS: dict[str, Detector] = {
    OURS: lambda seed: QuadricDetector(random_state=seed),
    # The default divides rows around the origin by their norms, and has a part for these, which the quadrics alone lack.
    "quadrics alone": lambda seed: QuadricDetector(score_function="quadrics", normalize=False, random_state=seed),
    "KNN": lambda seed: KNN(),
    "LOF": lambda seed: LOF(),
    "GMM, 1 Gaussian": lambda seed: GMM(n_components=1, random_state=seed),
    "GMM, 20": lambda seed: GMM(n_components=20, random_state=seed),
    "IForest": lambda seed: IForest(random_state=seed),
    "ECOD": lambda seed: ECOD(),
}


def sphere(k: int) -> Shape:
    """Return the unit sphere in k dimensions."""

    def rows(n: int, rng: np.random.Generator) -> Rows:
        points = rng.normal(size=(n, k))
        return points / np.linalg.norm(points, axis=1, keepdims=True)

    return rows


def spheres(k: int, n_factors: int) -> Shape:
    """Return the product of unit spheres in k dimensions each; those in two are circles."""
    return lambda n, rng: np.hstack([sphere(k)(n, rng) for _ in range(n_factors)])


def ellipsoid(k: int) -> Shape:
    """Return an ellipsoid in k dimensions with axes from 1 to 2."""
    return lambda n, rng: sphere(k)(n, rng) * np.linspace(1, 2, k)


def harmonics(k: int) -> Shape:
    """Return a closed curve in 2 k dimensions: an angle's cosine and sine, those of its double, and so on."""

    def rows(n: int, rng: np.random.Generator) -> Rows:
        angles = rng.uniform(0, 2 * np.pi, size=(n, 1)) * np.arange(1, k + 1)
        return np.hstack([np.cos(angles), np.sin(angles)])

    return rows


def rotations(n: int, rng: np.random.Generator) -> Rows:
    """Return rotations of space, as the nine entries of their matrices."""
    return Rotation.random(n, rng).as_matrix().reshape(n, 9)


def products(k: int) -> Shape:
    """Return k by k matrices of rank 1: all products of the entries of two unit vectors."""
    return lambda n, rng: (sphere(k)(n, rng)[:, :, None] * sphere(k)(n, rng)[:, None]).reshape(n, k * k)


def sheet(make: Callable[..., tuple[Rows, Any]]) -> Shape:
    """Return a surface of scikit-learn's with a variance of 1."""

    def rows(n: int, rng: np.random.Generator) -> Rows:
        points = make(n, random_state=int(rng.integers(2**31)))[0]
        return points / points.std()

    return rows


SHAPES: dict[str, Shape] = {
    "circle": spheres(2, 1),
    "2 circles": spheres(2, 2),
    "4 circles": spheres(2, 4),
    "8 circles": spheres(2, 8),
    "4 spheres of 2 dimensions": spheres(3, 4),
    "sphere of 2 dimensions": sphere(3),
    "sphere of 7 dimensions": sphere(8),
    "sphere of 15 dimensions": sphere(16),
    "ellipsoid of 7 dimensions": ellipsoid(8),
    "curve of 4 harmonics": harmonics(4),
    "rotations of space": rotations,
    "4 × 4 matrices of rank 1": products(4),
    "S-curve": sheet(make_s_curve),
    "Swiss roll": sheet(make_swiss_roll),
}


def draw(shape: Shape, n: int, noise: float, seed: int) -> tuple[Rows, Rows, NDArray[np.int_]]:
    """Return rows to fit (n, 64), and test rows with their labels, 1 for outliers."""
    rng = np.random.default_rng(seed)
    points = shape(n + N_TESTED, rng)
    many = shape(20_000, rng)
    outliers = rng.multivariate_normal(many.mean(axis=0), np.cov(many, rowvar=False), size=N_TESTED)
    everything = np.concatenate([points, outliers])
    rotation = np.linalg.qr(rng.normal(size=(N_FEATURES, N_FEATURES)))[0][: everything.shape[1]]
    rows = everything @ rotation + noise * rng.normal(size=(len(everything), N_FEATURES))
    return rows[:n], rows[n:], np.repeat([0, 1], N_TESTED)


def main(
    n_rows: int = 1000,
    noise: float = 0.05,
    seeds: Sequence[int] = range(5),
    shapes: Sequence[str] = tuple(SHAPES),
    quiet: bool = False,
) -> dict[str, dict[str, list[float]]]:
    """Measure, print the table, and return the ROC-AUC of each shape, detector and seed."""
    found: dict[str, dict[str, list[float]]] = {name: {method: [] for method in DETECTORS} for name in shapes}
    for name, entries in found.items():
        for seed in seeds:
            training, test, labels = draw(SHAPES[name], n_rows, noise, seed)
            for method, make in DETECTORS.items():
                with silence():
                    scores = make(seed).fit(training).decision_function(test)
                entries[method].append(float(roc_auc_score(labels, scores)))
    if not quiet:
        title = f"{n_rows} rows of {N_FEATURES} features, noise {noise:g}; mean ROC-AUC over {len(seeds)} seeds"
        print(f"{title}\n\n{table(found)}")
    return found


def table(found: dict[str, dict[str, list[float]]]) -> str:
    """Return one line for each shape, and the means of all."""
    lines = [[name, *map(mean, entries.values()), f"{min(entries[OURS]):.3f}"] for name, entries in found.items()]
    every = {method: [number for entries in found.values() for number in entries[method]] for method in DETECTORS}
    lines.append(["all", *map(mean, every.values()), f"{min(every[OURS]):.3f}"])
    return markdown_table(["shape", *DETECTORS, "lowest of ours"], lines)


def mean(numbers: list[float]) -> str:
    """Return the mean with three digits."""
    return f"{np.mean(numbers):.3f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000, dest="n_rows", help="rows to fit")
    parser.add_argument("--noise", type=float, default=0.05, help="standard deviation of the noise in each feature")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)), help="all seeds")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), metavar="NAME", help="which shapes")
    main(**vars(parser.parse_args()))
