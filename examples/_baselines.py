"""The outlier detectors that the paper compares, and two more: each is fitted to rows and returns a score of rows.

As in the paper, all methods but the norm normalise embeddings first. The detectors of this package do so by themselves.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from pyod.models.knn import KNN
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import RBFSampler
from sklearn.metrics import pairwise_distances
from sklearn.preprocessing import normalize
from sklearn.svm import OneClassSVM

from pyod_quadric import QuadricDetector

Rows = np.ndarray  # (n, d)
Score = Callable[[Rows], np.ndarray]  # (n, d) -> (n,), higher for more abnormal rows
Method = Callable[[Rows], Score]

N_FOURIER_FEATURES = 300  # as in the paper
N_SVM_ROWS = 5000  # a support vector machine grows with the square of the rows


def methods(n_epochs: int = 20, n_quadrics: int = 100) -> dict[str, Method]:
    """Return the methods of the comparison by name; training goes through the rows ``n_epochs`` times."""

    def from_paper(variant: str, m: int, **changes: float) -> Method:
        return quadrics(QuadricDetector.from_paper(variant, n_quadrics=m, epoch_num=n_epochs, **changes))

    return {
        "default": quadrics(QuadricDetector()),
        "default, normalised": quadrics(QuadricDetector(normalize=True)),
        "Q-FULL": from_paper("full", n_quadrics),
        "Q-BASE": from_paper("base", n_quadrics, lr=0.001),  # squares diverge at the learning rate of the others
        "Q-SUB": on_subsample(from_paper("sub", max(1, 3 * n_quadrics // 10))),
        "PCA": principal_distance,
        "KPCA-ND": kernel_pca,
        "OCSVM": one_class_svm,
        "NORM": embedding_norm,
        "KNN": nearest_neighbours,
    }


def quadrics(detector: QuadricDetector) -> Method:
    """Return the method of a detector of this package."""
    return lambda rows: _fitted(detector, rows).decision_function


def _fitted(detector: QuadricDetector, rows: Rows) -> Any:
    return QuadricDetector(**detector.get_params()).fit(rows)


def on_subsample(method: Method, one_in: int = 4) -> Method:
    """Return a method that is fitted to a part of the rows; the paper takes one in 75 of six million."""
    return lambda rows: method(rows[np.random.default_rng(0).permutation(len(rows))[: max(2, len(rows) // one_in)]])


def principal_distance(rows: Rows, n_components: float | int | None = None) -> Score:
    """Return the distance to the principal subspace, by default of a third of the dimensions, as in the paper."""
    model = PCA(n_components or max(1, rows.shape[1] // 3), random_state=0).fit(normalize(rows))

    def score(points: Rows) -> np.ndarray:
        unit = normalize(points)
        return np.linalg.norm(unit - model.inverse_transform(model.transform(unit)), axis=1)

    return score


def kernel_pca(rows: Rows) -> Score:
    """Return the reconstruction error of kernel PCA with an RBF kernel, by random Fourier features (Hoffmann, 2007).

    The width of the kernel is the median distance; a third of the components is kept.
    """
    unit = normalize(rows)
    sample = unit[np.random.default_rng(0).permutation(len(unit))[:1000]]
    gamma = 1 / (2 * np.median(pairwise_distances(sample)) ** 2)
    features = RBFSampler(gamma=gamma, n_components=N_FOURIER_FEATURES, random_state=0).fit(unit)
    model = PCA(min(N_FOURIER_FEATURES // 3, len(rows) - 1), random_state=0).fit(features.transform(unit))

    def score(points: Rows) -> np.ndarray:
        mapped = features.transform(normalize(points))
        return np.linalg.norm(mapped - model.inverse_transform(model.transform(mapped)), axis=1)

    return score


def one_class_svm(rows: Rows) -> Score:
    """Return the score of a one-class support vector machine with a polynomial kernel of degree 3, on a subsample."""
    chosen = np.random.default_rng(0).permutation(len(rows))[:N_SVM_ROWS]
    model = OneClassSVM(kernel="poly", degree=3, gamma=1.0).fit(normalize(rows[chosen]))
    return lambda points: -model.decision_function(normalize(points))


def embedding_norm(rows: Rows) -> Score:
    """Return the negative norm: networks make short embeddings of what they do not know. Nothing is fitted."""
    return lambda points: -np.linalg.norm(points, axis=1)


def nearest_neighbours(rows: Rows) -> Score:
    """Return the distance to the fifth neighbour (PyOD's default)."""
    model = KNN().fit(normalize(rows))
    return lambda points: model.decision_function(normalize(points))
