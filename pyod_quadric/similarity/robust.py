"""Robust similarities: similarities of outliers mean nothing, so they are replaced.

Everything here works with any outlier score: from a detector with a ``decision_function``, a function, or an array.
"""

from collections.abc import Callable
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from pyod_quadric.data.rows import rows_of
from pyod_quadric.similarity.cutoffs import best_cutoff, cutoffs_at_shares
from pyod_quadric.similarity.identification import identities, rates_of_cutoffs
from pyod_quadric.similarity.pairs import (
    TILE_ROWS,
    Compare,
    RateOptions,
    ScoredRows,
    SimilarityName,
    Source,
    checked_cutoffs,
    checked_scores,
)

SCORED_ROWS = 8192  # at once: detectors make copies, often in float64

Array = TypeVar("Array", NDArray[Any], Tensor)


def robust_similarity(
    similarity: Array, scores_x: ArrayLike, scores_y: ArrayLike, cutoff: float, fill_value: float = 0.0
) -> Array:
    """Return a similarity with the fill value for pairs in which either score reaches the cutoff.

    Parameters
    ----------
    similarity : array or Tensor of shape (n, m), or (n,)
        The similarities of all pairs of two sets of rows, or of n pairs.
    scores_x : array-like of shape (n,)
        Outlier scores of the first rows, higher for more abnormal rows.
    scores_y : array-like of shape (m,), or (n,)
        Outlier scores of the second rows.
    cutoff : float
        Rows with a score at or above the cutoff are outliers.
    fill_value : float, default=0.0
        The similarity of outliers to anything. Choose it below all similarities that count: 0 is the largest negative
        distance.

    Returns
    -------
    array or Tensor like ``similarity``

    Examples
    --------
    >>> import numpy as np
    >>> similarity = np.array([[0.9, 0.2], [0.8, 0.7]])
    >>> robust_similarity(similarity, scores_x=[0.1, 5.0], scores_y=[0.2, 0.3], cutoff=1.0)
    array([[0.9, 0.2],
           [0. , 0. ]])
    """
    if similarity.ndim not in (1, 2):
        raise ValueError(f"similarity must have shape (n, m), or (n,) for pairs, got {tuple(similarity.shape)}")
    if np.isnan(cutoff):
        raise ValueError("cutoff must be a number, got NaN")
    first = checked_scores(scores_x, similarity.shape[0], "scores_x")
    second = checked_scores(scores_y, similarity.shape[-1], "scores_y")
    kept = np.maximum(first if similarity.ndim == 1 else first[:, None], second) < cutoff
    if isinstance(similarity, Tensor):
        return similarity.masked_fill(~torch.from_numpy(kept).to(similarity.device), fill_value)
    return np.where(kept, similarity, np.asarray(fill_value, dtype=np.result_type(similarity, np.float32)))


def outlier_scores(detector: object, X: Source) -> NDArray[np.float64]:
    """Return the outlier scores (n,) of rows, block by block, higher for more abnormal rows.

    Parameters
    ----------
    detector : object with a ``decision_function``, or callable
        A fitted detector of PyOD or one like it; one of scikit-learn, whose sign is inverted since its scores are higher for
        normal rows; a pipeline that ends with either; or a function from rows (n, d) to scores (n,). The score of a row must
        not depend on other rows.
    X : array-like of shape (n, d), Tensor, or path of a ``.npy`` file

    Examples
    --------
    >>> import numpy as np
    >>> outlier_scores(lambda rows: -np.linalg.norm(rows, axis=1), [[3.0, 4.0], [0.0, 1.0]])
    array([-5., -1.])
    """
    score = _score_function(detector)
    blocks = (block.cpu().numpy() for block in rows_of(X).blocks(SCORED_ROWS))
    return np.concatenate([checked_scores(score(block), len(block), "the detector's scores") for block in blocks])


def _score_function(detector: object) -> Callable[[NDArray[Any]], ArrayLike]:
    function: Callable[[NDArray[Any]], Any] | None = getattr(detector, "decision_function", None)
    if function is None:
        if not callable(detector):
            raise TypeError(f"a detector needs a decision_function, or must be callable, got {type(detector).__name__}")
        return detector
    if hasattr(detector, "fit"):
        check_is_fitted(detector)
    if isinstance(_innermost(detector), OutlierMixin):
        return lambda rows: -function(rows)
    return function


def _innermost(detector: object) -> object:
    """Return the detector at the end of a pipeline, or in a frozen estimator: it decides the sign of the scores."""
    if isinstance(detector, Pipeline):
        return _innermost(detector.steps[-1][1])
    return _innermost(detector.estimator) if isinstance(detector, FrozenEstimator) else detector


class RobustSimilarity(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A similarity that ignores outliers, with the cutoff of the outlier score that gives the largest identification rate.

    Parameters
    ----------
    detector : object with a ``decision_function``, or callable
        A fitted detector; see :func:`outlier_scores`. ``clone`` drops the fit, unless scikit-learn's ``FrozenEstimator`` wraps
        it.
    similarity : {"cosine", "euclidean"} or callable, default="cosine"
        See :func:`identification_rate`.
    cutoff : float, optional
        Rows with a score at or above the cutoff are outliers. By default :meth:`fit` chooses it.
    fill_value : float, optional
        The similarity of outliers to anything: 0 by default, and -inf for "euclidean".
    shares : sequence of float, optional
        The cutoffs to try, as shares of the rows of :meth:`fit` that they leave out, from 0 (an infinite cutoff) to 1. By
        default no row, and 40 shares from one in a thousand to a half, in equal ratios.
    false_positive_rate : float, default=1e-5
        The false-positive rate at which identification rates are compared.
    batch_size : int, default=2048
        Rows and columns of a tile of similarities.
    device : str, optional
        Where to compare; by default on a CUDA device if there is one, else on the CPU.

    Attributes
    ----------
    cutoff_ : float
        The cutoff with the largest rate: Full IR if there are distractors, else IR. Of several, the one with the fewest
        outliers.
    cutoffs_ : ndarray of shape (g,)
        All cutoffs that were tried.
    rates_ : list of IdentificationRate
        The rate at each of them.
    rate_ : IdentificationRate
        The rate at ``cutoff_``, on the rows of the fit; expect less on other rows.

    Examples
    --------
    >>> import numpy as np
    >>> from pyod_quadric import QuadricDetector
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat(np.arange(30), 3)
    >>> faces = rng.normal(size=(30, 8))[labels] + 0.1 * rng.normal(size=(90, 8))
    >>> X = np.append(faces, 9 + rng.normal(size=(10, 8)), axis=0)
    >>> labels = np.append(labels, 100 + np.arange(10))  # ten outliers, all similar to each other
    >>> detector = QuadricDetector().fit(X[:90])
    >>> robust = RobustSimilarity(detector, false_positive_rate=0.001).fit(X, labels)
    >>> robust.rates_[0].ir < robust.rate_.ir
    True
    >>> robust.pairwise(X[:2], X[-2:])
    array([[0., 0.],
           [0., 0.]])
    """

    def __init__(
        self,
        detector: object,
        similarity: SimilarityName | Compare = "cosine",
        *,
        cutoff: float | None = None,
        fill_value: float | None = None,
        shares: ArrayLike | None = None,
        false_positive_rate: float = 1e-5,
        batch_size: int = TILE_ROWS,
        device: str | None = None,
    ) -> None:
        self.detector = detector
        self.similarity = similarity
        self.cutoff = cutoff
        self.fill_value = fill_value
        self.shares = shares
        self.false_positive_rate = false_positive_rate
        self.batch_size = batch_size
        self.device = device

    def fit(self, X: Source, labels: ArrayLike, distractors: Source | None = None) -> Self:
        """Choose the cutoff from rows (n, d), their identities (n,), and optional distractors (m, d).

        Do not use the training rows of the detector, whose scores are too low.
        """
        options = self._options()
        images = self._scored(X)
        others = None if distractors is None else self._scored(distractors)
        given = None if self.cutoff is None else checked_cutoffs([self.cutoff])
        cutoffs = cutoffs_at_shares(images.scores, self.shares) if given is None else given
        self.rates_ = rates_of_cutoffs(images, identities(labels, images), others, cutoffs, options)
        best = best_cutoff(cutoffs, self.rates_, full=others is not None)
        self.cutoffs_, self.cutoff_, self.rate_ = cutoffs, float(cutoffs[best]), self.rates_[best]
        self.n_features_in_ = images.rows.n_features
        return self

    def pairwise(self, X: Source, Y: Source | None = None) -> NDArray[np.floating]:
        """Return the robust similarities (n, m) of rows X (n, d) and Y (m, d), by default X itself.

        Needs a given cutoff, or a fit.
        """
        if self.cutoff is None:
            check_is_fitted(self, "cutoff_")
        cutoff = self.cutoff_ if self.cutoff is None else self.cutoff
        options, first = self._options(), self._scored(X)
        second = first if Y is None else self._scored(Y)
        if first.rows.n_features != second.rows.n_features:
            raise ValueError(f"X and Y must have as many features, got {first.rows.n_features} and {second.rows.n_features}")
        dtype = torch.promote_types(first.rows.dtype, second.rows.dtype)
        y = second.read(dtype, options)
        result = np.empty((len(first), len(second)), dtype=str(dtype).removeprefix("torch."))
        for start in range(0, len(first), options.batch_size):
            block = first.subset(np.arange(start, min(start + options.batch_size, len(first))))
            similarities = options.similarity.compare(block.read(dtype, options), y)
            robust = robust_similarity(similarities, block.scores, second.scores, cutoff, options.fill_value)
            result[start : start + len(block)] = robust.cpu().numpy()
        return result

    def _scored(self, X: Source) -> ScoredRows:
        return ScoredRows.checked(X, outlier_scores(self.detector, X), "scores")

    def _options(self) -> RateOptions:
        return RateOptions.checked(self.similarity, self.false_positive_rate, self.fill_value, self.batch_size, self.device)
