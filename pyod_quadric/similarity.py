"""Robust similarities: what an outlier is similar to means nothing, so its similarities are taken away.

Everything here works with any outlier score: one of a detector with a ``decision_function``, of a function, or an array.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from pyod_quadric.identification import (
    TILE_ROWS,
    Compare,
    IdentificationRate,
    RateOptions,
    ScoredRows,
    SimilarityName,
    Source,
    checked_cutoffs,
    checked_scores,
    identities,
    n_allowed,
    rates_of_cutoffs,
    rows_of,
)

# Shares of rows that a cutoff may declare outliers: none, then from one in a thousand to half of them.
SHARES = (0.0, *(float(share) for share in np.geomspace(0.001, 0.5, 40)))
SCORED_ROWS = 8192  # at once: detectors make copies, often in float64


Array = TypeVar("Array", NDArray[Any], Tensor)


def robust_similarity(
    similarity: Array, scores_x: ArrayLike, scores_y: ArrayLike, cutoff: float, fill_value: float = 0.0
) -> Array:
    """Return a similarity without the similarities of outliers: where either score reaches the cutoff, the fill value.

    Parameters
    ----------
    similarity : array or Tensor of shape (n, m), or (n,)
        Of all pairs of two sets of rows; or of n pairs.
    scores_x : array-like of shape (n,)
        Outlier scores of the first rows, higher for more abnormal ones.
    scores_y : array-like of shape (m,), or (n,)
        Of the second rows.
    cutoff : float
        Rows whose score is not below it are outliers.
    fill_value : float, default=0.0
        What outliers have in common with anything. Choose it below all similarities that count: 0 is the largest negative
        distance.

    Returns
    -------
    array or Tensor like ``similarity``

    Examples
    --------
    >>> import numpy as np
    >>> robust_similarity(np.array([[0.9, 0.2], [0.8, 0.7]]), scores_x=[0.1, 5.0], scores_y=[0.2, 0.3], cutoff=1.0)
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
    """Return the outlier scores (n,) of rows, a block at a time, higher for more abnormal ones.

    Parameters
    ----------
    detector : object with a ``decision_function``, or callable
        A fitted detector of PyOD or one like it; one of scikit-learn, whose scores are higher for normal rows, and are turned
        around; a pipeline that ends with either; or a function from rows (n, d) to scores (n,). The score of a row may not
        depend on the others.
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
    function = getattr(detector, "decision_function", None)
    if function is None:
        if not callable(detector):
            raise TypeError(f"a detector needs a decision_function, or must be callable, got {type(detector).__name__}")
        return detector
    if hasattr(detector, "fit"):
        check_is_fitted(detector)
    if isinstance(_innermost(detector), OutlierMixin):
        return lambda rows: -function(rows)
    return function  # type: ignore[no-any-return]


def _innermost(detector: object) -> object:
    """Return the detector at the end of a pipeline, or in a frozen estimator: it decides the sign of the scores."""
    if isinstance(detector, Pipeline):
        return _innermost(detector.steps[-1][1])
    return _innermost(detector.estimator) if isinstance(detector, FrozenEstimator) else detector


class RobustSimilarity(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A similarity that knows outliers, with a cutoff of their score that makes its identification rate the largest.

    Parameters
    ----------
    detector : object with a ``decision_function``, or callable
        Fitted; see :func:`outlier_scores`. ``clone`` takes the fit away, unless it is in scikit-learn's ``FrozenEstimator``.
    similarity : {"cosine", "euclidean"} or callable, default="cosine"
        See :func:`identification_rate`.
    cutoff : float, optional
        Rows whose score is not below it are outliers. By default :meth:`fit` chooses it.
    fill_value : float, optional
        The similarity of outliers to anything: by default 0, and -inf for "euclidean".
    shares : sequence of float, optional
        The cutoffs to try: those above which there are such shares of the rows of :meth:`fit`, from 0 (all rows are below the
        cutoff, which is infinite) to 1. By default none, and 40 from one in a thousand to a half, in equal ratios.
    false_positive_rate : float, default=1e-5
        At which identification rates are compared.
    batch_size : int, default=2048
        Rows and columns of a tile of similarities.
    device : str, optional
        Where to compare; by default on a CUDA device if there is one, else on the CPU.

    Attributes
    ----------
    cutoff_ : float
        Among those with the largest rate, Full IR if there are distractors and IR if not, the one with the fewest outliers.
    cutoffs_ : ndarray of shape (g,)
        All that were tried.
    rates_ : list of IdentificationRate
        At each of them.
    rate_ : IdentificationRate
        At ``cutoff_``, on the rows of the fit; for other rows expect less.

    Examples
    --------
    >>> import numpy as np
    >>> from pyod_quadric import QuadricDetector
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat(np.arange(30), 3)
    >>> X = np.append(rng.normal(size=(30, 8))[labels] + 0.1 * rng.normal(size=(90, 8)), 9 + rng.normal(size=(10, 8)), axis=0)
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
        """Choose the cutoff by rows (n, d) and their identities, and distractors (m, d) if there are any.

        Rows should be others than those that the detector was fitted to, whose scores are too low.
        """
        options = self._options()
        images = self._scored(X)
        others = None if distractors is None else self._scored(distractors)
        given = None if self.cutoff is None else checked_cutoffs([self.cutoff])
        cutoffs = cutoffs_at_shares(images.scores, self.shares) if given is None else given
        self.rates_ = rates_of_cutoffs(images, identities(labels, images), others, cutoffs, options)
        best = _best(cutoffs, self.rates_, full=others is not None)
        self.cutoffs_, self.cutoff_, self.rate_ = cutoffs, float(cutoffs[best]), self.rates_[best]
        self.n_features_in_ = images.rows.n_features
        return self

    def pairwise(self, X: Source, Y: Source | None = None) -> NDArray[np.floating]:
        """Return the robust similarities (n, m) of rows X (n, d) and Y (m, d), by default X itself.

        Needs a cutoff: one that was given, or a fit.
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


def cutoffs_at_shares(scores: NDArray[np.float64], shares: ArrayLike | None = None) -> NDArray[np.float64]:
    """Return the cutoffs (g,) that at most such shares of the scores reach; infinity for a share of 0.

    Examples
    --------
    >>> import numpy as np
    >>> cutoffs_at_shares(np.array([1.0, 2.0, 3.0, 4.0]), [0.0, 0.5])
    array([inf,  3.])
    """
    wanted = np.asarray(SHARES if shares is None else shares, dtype=np.float64)
    if wanted.ndim != 1 or wanted.size == 0 or not ((wanted >= 0) & (wanted <= 1)).all():
        raise ValueError(f"shares must be one or more numbers from 0 to 1, of shape (g,), got {wanted.tolist()}")
    return np.array([_cutoff_at(scores, share) if share > 0 else np.inf for share in wanted])


def _cutoff_at(scores: NDArray[np.float64], share: float) -> float:
    """Return the lowest score that at most this share of the scores reaches; just above all scores if none is so low."""
    values, counts = np.unique(scores, return_counts=True)
    reached = np.cumsum(counts[::-1])[::-1]  # how many scores are no lower than each value
    low_enough = values[reached <= n_allowed(share, len(scores))]
    return float(low_enough[0] if len(low_enough) else np.nextafter(values[-1], np.inf))


def _best(cutoffs: NDArray[np.float64], rates: list[IdentificationRate], full: bool) -> int:
    """Return the place of the largest rate; of equal ones that of the largest cutoff."""
    values = [rate.full_ir if full else rate.ir for rate in rates]
    return max(range(len(values)), key=lambda place: (values[place], cutoffs[place]))


@dataclass(frozen=True, eq=False)
class HalfHalfResult:
    """What :func:`half_half_protocol` returns: one entry for each of r repetitions.

    Parameters
    ----------
    cutoffs : ndarray of shape (r,)
        Chosen on the first half.
    before, after : list of IdentificationRate
        On the second half, without and with the cutoff.

    Examples
    --------
    >>> rate = IdentificationRate(0.9, 0.8, 0.5, 10, 35, 100)
    >>> HalfHalfResult(np.array([1.0, 2.0]), [rate, rate], [rate, rate]).summary()["full_ir_after"]
    (0.8, 0.0)
    """

    cutoffs: NDArray[np.float64]
    before: list[IdentificationRate]
    after: list[IdentificationRate]

    def summary(self) -> dict[str, tuple[float, float]]:
        """Return mean and standard deviation of ``ir_before``, ``ir_after``, ``full_ir_before`` and ``full_ir_after``."""
        columns = {
            f"{name}_{when}": [getattr(rate, name) for rate in rates]
            for name in ("ir", "full_ir")
            for when, rates in (("before", self.before), ("after", self.after))
        }
        return {name: (float(np.mean(values)), float(np.std(values))) for name, values in columns.items()}


def half_half_protocol(
    X: Source,
    labels: ArrayLike,
    scores: ArrayLike,
    distractors: Source | None = None,
    distractor_scores: ArrayLike | None = None,
    *,
    n_repeats: int = 10,
    seed: int = 0,
    shares: ArrayLike | None = None,
    false_positive_rate: float = 1e-5,
    similarity: SimilarityName | Compare = "cosine",
    fill_value: float | None = None,
    batch_size: int = TILE_ROWS,
    device: str | None = None,
) -> HalfHalfResult:
    """Choose the cutoff on one half and measure the identification rate on the other, several times.

    Identities are split at random, and so are distractors; all rows of an identity are in one half. Identities with a single
    row are split apart from the others, so that both halves have genuine pairs.

    Parameters
    ----------
    X : array-like of shape (n, d), Tensor, or path of a ``.npy`` file
    labels, scores : array-like of shape (n,)
        Identities, and outlier scores (see :func:`outlier_scores`).
    distractors : array-like of shape (m, d), Tensor, or path of a ``.npy`` file, optional
    distractor_scores : array-like of shape (m,), optional
    n_repeats : int, default=10
    seed : int, default=0
        Decides the splits.
    shares : sequence of float, optional
        See :class:`RobustSimilarity`.
    false_positive_rate, similarity, fill_value, batch_size, device
        See :func:`identification_rate`.

    Returns
    -------
    HalfHalfResult

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat(np.arange(40), 3)
    >>> X = rng.normal(size=(40, 8))[labels] + 0.3 * rng.normal(size=(120, 8))
    >>> result = half_half_protocol(X, labels, scores=rng.random(120), false_positive_rate=0.001, n_repeats=2)
    >>> len(result.after), sorted(result.summary())
    (2, ['full_ir_after', 'full_ir_before', 'ir_after', 'ir_before'])
    """
    options = RateOptions.checked(similarity, false_positive_rate, fill_value, batch_size, device)
    images = ScoredRows.checked(X, scores, "scores")
    codes = identities(labels, images)
    others = None if distractors is None else ScoredRows.checked(distractors, distractor_scores, "distractor_scores")
    if n_repeats < 1:
        raise ValueError(f"n_repeats must be 1 or more, got {n_repeats}")
    results = [_half_half(images, codes, others, shares, options, np.random.default_rng((seed, r))) for r in range(n_repeats)]
    chosen, before, after = zip(*results, strict=True)
    return HalfHalfResult(np.array(chosen), list(before), list(after))


def _half_half(
    images: ScoredRows,
    codes: NDArray[np.int64],
    distractors: ScoredRows | None,
    shares: ArrayLike | None,
    options: RateOptions,
    rng: np.random.Generator,
) -> tuple[float, IdentificationRate, IdentificationRate]:
    """Return the cutoff of one half, and the rates of the other without and with it."""
    choosing = _half_of_identities(codes, rng)
    first = second = None
    if distractors is not None:
        half = rng.permutation(len(distractors)) < len(distractors) // 2
        first, second = distractors.subset(np.flatnonzero(half)), distractors.subset(np.flatnonzero(~half))
    cutoffs = cutoffs_at_shares(images.scores[choosing], shares)
    rates = rates_of_cutoffs(images.subset(choosing), codes[choosing], first, cutoffs, options)
    cutoff = float(cutoffs[_best(cutoffs, rates, full=first is not None)])
    both = np.array([np.inf, cutoff])
    before, after = rates_of_cutoffs(images.subset(~choosing), codes[~choosing], second, both, options)
    return cutoff, before, after


def _half_of_identities(codes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which rows (n,) belong to a random half of the identities, with genuine pairs in both halves."""
    counts = np.bincount(codes)
    with_pairs, others = rng.permutation(np.flatnonzero(counts > 1)), rng.permutation(np.flatnonzero(counts == 1))
    if len(with_pairs) < 2:
        raise ValueError("two identities with two or more rows are needed, one for each half, got 1")
    half = np.concatenate([with_pairs[: len(with_pairs) // 2], others[: len(others) // 2]])
    return np.isin(codes, half)


@dataclass(frozen=True)
class CutoffAtRate:
    """A row of :func:`threshold_table`.

    Parameters
    ----------
    target : float
        The rate that was asked for.
    cutoff : float
        Rows whose score is not below it are outliers.
    rate : float
        The share of the held-out rows, or inliers, that reach it: at most the target.
    upper_bound : float
        What the rate of new rows stays below with a confidence of 95 % (Clopper and Pearson's bound).
    recall : float or None
        The share of the known outliers that reach the cutoff, if there are any.

    Examples
    --------
    >>> CutoffAtRate(target=0.01, cutoff=3.5, rate=0.009, upper_bound=0.015, recall=None).cutoff
    3.5
    """

    target: float
    cutoff: float
    rate: float
    upper_bound: float
    recall: float | None


def threshold_table(
    scores: ArrayLike, rates: ArrayLike = (0.001, 0.003, 0.01, 0.03, 0.1), *, outliers: ArrayLike | None = None
) -> list[CutoffAtRate]:
    """Return cutoffs for deployment from the scores of held-out rows, that is, rows that the detector was not fitted to.

    Parameters
    ----------
    scores : array-like of shape (n,)
        Outlier scores, higher for more abnormal rows.
    rates : array-like of shape (r,)
        What may reach the cutoff at most: a share of all rows, or, if outliers are known, a share of the inliers, which is the
        false-positive rate. Below one row the cutoff is just above all scores, and the upper bound tells what it is worth.
    outliers : array-like of shape (n,), optional
        Which of the rows are known to be outliers: 1 or True.

    Returns
    -------
    list of CutoffAtRate

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.arange(1000.0)
    >>> [(row.cutoff, row.rate) for row in threshold_table(scores, [0.01, 0.1])]
    [(990.0, 0.01), (900.0, 0.1)]
    >>> (row,) = threshold_table(scores, [0.1], outliers=scores >= 950)
    >>> row.cutoff, row.rate, row.recall, round(row.upper_bound, 3)
    (855.0, 0.1, 1.0, 0.117)
    """
    values = checked_scores(scores, np.size(scores), "scores")
    wanted = np.atleast_1d(np.asarray(rates, dtype=np.float64))
    if not ((wanted >= 0) & (wanted <= 1)).all():
        raise ValueError(f"rates must be from 0 to 1, got {wanted.tolist()}")
    known = np.zeros(len(values), dtype=bool) if outliers is None else _checked_outliers(outliers, len(values))
    inliers = values[~known]
    if len(inliers) == 0:
        raise ValueError(
            "scores of inliers are needed, but there are none" + (": all rows are outliers" if len(values) else "")
        )
    return [_cutoff_row(inliers, values[known], float(rate)) for rate in wanted]


def _checked_outliers(outliers: ArrayLike, n_rows: int) -> NDArray[np.bool_]:
    known = np.asarray(outliers)
    if known.shape != (n_rows,) or not np.isin(known, (0, 1)).all():
        raise ValueError(f"outliers must be {n_rows} zeros and ones, one for each score, got {known.dtype} of {known.shape}")
    return known.astype(bool)


def _cutoff_row(inliers: NDArray[np.float64], outliers: NDArray[np.float64], target: float) -> CutoffAtRate:
    cutoff = _cutoff_at(inliers, target)
    count, n = int((inliers >= cutoff).sum()), len(inliers)
    bound = 1.0 if count == n else float(beta.ppf(0.95, count + 1, n - count))
    recall = float(np.mean(outliers >= cutoff)) if len(outliers) else None
    return CutoffAtRate(target, cutoff, count / n, bound, recall)
