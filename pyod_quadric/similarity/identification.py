"""Identification rates: the share of genuine pairs that a similarity finds at a false-positive rate.

All pairs of rows are compared, and every row with every distractor, one tile of the matrix at a time. Only little is kept of a
tile: the largest similarities of false pairs, as many as may pass and one more, and for each row the similarity of its nearest
distractor.

One pass measures robust similarities for many cutoffs of the outlier score. If rows are sorted by score, a cutoff keeps a
prefix of them. So the largest false similarities grow with the cutoff, and each cutoff takes its threshold from them when its
prefix is complete.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from pyod_quadric.similarity.pairs import (
    TILE_ROWS,
    Compare,
    RateOptions,
    ScoredRows,
    SimilarityName,
    Source,
    checked_cutoffs,
)

GENUINE_ROWS = 256  # pairs of one identity are near the diagonal, when rows are in the order of their labels


@dataclass(frozen=True)
class IdentificationRate:
    """The result of :func:`identification_rate`.

    Parameters
    ----------
    ir : float
        The share of genuine pairs whose similarity reaches the threshold.
    full_ir : float
        The share of genuine pairs that reach it, and whose rows are more similar to each other than to any distractor.
    threshold : float
        A pair passes as genuine if its similarity is at least this; -inf if all pairs may pass.
    n_genuine : int
        The number of pairs of one identity.
    n_different : int
        The number of pairs of different identities.
    n_distractors : int

    Examples
    --------
    >>> numbers = {"n_genuine": 10, "n_different": 35, "n_distractors": 100}
    >>> IdentificationRate(ir=0.9, full_ir=0.8, threshold=0.5, **numbers).full_ir
    0.8
    """

    ir: float
    full_ir: float
    threshold: float
    n_genuine: int
    n_different: int
    n_distractors: int


def identification_rate(
    X: Source,
    labels: ArrayLike,
    distractors: Source | None = None,
    *,
    false_positive_rate: float = 1e-5,
    similarity: SimilarityName | Compare = "cosine",
    scores: ArrayLike | None = None,
    distractor_scores: ArrayLike | None = None,
    cutoff: float | None = None,
    fill_value: float | None = None,
    batch_size: int = TILE_ROWS,
    device: str | None = None,
) -> IdentificationRate:
    """Return the identification rate of a similarity, with and without distractors, at a false-positive rate.

    A pair passes as genuine if its similarity is at least a threshold. The threshold is the smallest number at which at most a
    share ``false_positive_rate`` of the different pairs pass. (The paper calls it a supremum. But the share falls as the
    threshold rises, so the set has no upper bound; its lower end is meant.) A pair is two different rows, in either order. So

    - false pairs of equal similarity pass together or not at all, and the rate is never exceeded;
    - a rate below one false pair lets none pass: the threshold is just above the largest similarity of a false pair;
    - where no pair is different, or all may pass, the threshold is -inf and the identification rate is 1;
    - a genuine pair as similar as a distractor is to one of its rows is distracted.

    Parameters
    ----------
    X : array-like of shape (n, d), Tensor, or path of a ``.npy`` file
        The embeddings. The device holds a copy of them.
    labels : array-like of shape (n,)
        Their identities.
    distractors : array-like of shape (m, d), Tensor, or path of a ``.npy`` file, optional
        Embeddings of other identities, read block by block. Without them ``full_ir`` equals ``ir``.
    false_positive_rate : float, default=1e-5
        In [0, 1]. Memory holds about ``false_positive_rate`` times the number of different pairs.
    similarity : {"cosine", "euclidean"} or callable, default="cosine"
        "euclidean" is the negative distance. A callable takes tensors (a, d) and (b, d) and returns finite numbers (a, b). It
        must be symmetric, and a similarity must not depend on other rows of the block.
    scores, distractor_scores : array-like of shape (n,) and (m,), optional
        Outlier scores, higher for more abnormal rows, to make the similarity robust.
    cutoff : float, optional
        A pair gets the ``fill_value`` as its similarity if either score is at or above the cutoff.
    fill_value : float, optional
        0 by default; -inf for "euclidean", where 0 is the largest similarity there is.
    batch_size : int, default=2048
        Rows and columns of a tile.
    device : str, optional
        Where to compute; by default on a CUDA device if there is one, else on the CPU.

    Returns
    -------
    IdentificationRate

    Examples
    --------
    >>> X = [[3.0, 4.0], [4.0, 3.0], [0.0, 1.0], [-1.0, 0.0]]
    >>> rate = identification_rate(X, labels=["a", "a", "b", "b"])
    >>> rate.ir, rate.n_genuine, rate.n_different
    (0.5, 2, 4)
    >>> identification_rate(X, labels=["a", "a", "b", "b"], distractors=[[3.0, 4.0]]).full_ir
    0.0
    """
    if (scores is None) != (cutoff is None):
        raise ValueError("a robust similarity needs both scores and a cutoff, but only one of them was given")
    options = RateOptions.checked(similarity, false_positive_rate, fill_value, batch_size, device)
    images = ScoredRows.checked(X, scores, "scores", all_inliers=cutoff is None)
    others = None
    if distractors is not None:
        others = ScoredRows.checked(distractors, distractor_scores, "distractor_scores", all_inliers=cutoff is None)
    cutoffs = np.array([np.inf if cutoff is None else cutoff])
    return rates_of_cutoffs(images, identities(labels, images), others, checked_cutoffs(cutoffs), options)[0]


def identification_curve(
    X: Source,
    labels: ArrayLike,
    scores: ArrayLike,
    cutoffs: ArrayLike,
    distractors: Source | None = None,
    distractor_scores: ArrayLike | None = None,
    *,
    false_positive_rate: float = 1e-5,
    similarity: SimilarityName | Compare = "cosine",
    fill_value: float | None = None,
    batch_size: int = TILE_ROWS,
    device: str | None = None,
) -> list[IdentificationRate]:
    """Return the identification rate of a robust similarity for each of several cutoffs.

    All cutoffs together take little more time than one. Parameters are those of :func:`identification_rate`; an infinite cutoff
    leaves the similarity unchanged.

    Parameters
    ----------
    X : array-like of shape (n, d), Tensor, or path of a ``.npy`` file
    labels, scores : array-like of shape (n,)
    cutoffs : array-like of shape (g,)
    distractors : array-like of shape (m, d), Tensor, or path of a ``.npy`` file, optional
    distractor_scores : array-like of shape (m,), optional
    false_positive_rate, similarity, fill_value, batch_size, device
        See :func:`identification_rate`.

    Returns
    -------
    list of IdentificationRate
        In the order of the cutoffs.

    Examples
    --------
    >>> X = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [-0.6, 0.8], [0.0, 2.0]]
    >>> labels = [0, 0, 1, 1, 2]
    >>> rates = identification_curve(X, labels, scores=[0, 0, 0, 0, 9], cutoffs=[5, float("inf")])
    >>> [rate.ir for rate in rates]
    [1.0, 0.0]
    """
    options = RateOptions.checked(similarity, false_positive_rate, fill_value, batch_size, device)
    images = ScoredRows.checked(X, scores, "scores")
    others = None if distractors is None else ScoredRows.checked(distractors, distractor_scores, "distractor_scores")
    return rates_of_cutoffs(images, identities(labels, images), others, checked_cutoffs(cutoffs), options)


def identities(labels: ArrayLike, images: ScoredRows) -> NDArray[np.int64]:
    """Return labels as numbers 0, 1, ..., or raise a ValueError if they are not one for each row or no two are equal."""
    array = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
    if array.shape != (len(images),):
        raise ValueError(f"labels must have shape ({len(images)},), one for each row of X, got {array.shape}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError("labels must be finite, got NaN or infinite ones; leave out rows of unknown identity")
    codes: NDArray[np.int64] = np.unique(array, return_inverse=True)[1].astype(np.int64)
    if n_genuine_pairs(codes) == 0:
        raise ValueError(f"there is no genuine pair: all {len(codes)} labels differ; give two or more rows of some identity")
    return codes


def n_genuine_pairs(codes: NDArray[np.int64]) -> int:
    """Return how many pairs of rows have the same code."""
    return sum(n * (n - 1) // 2 for n in np.bincount(codes).tolist())


def n_allowed(rate: float, n: int) -> int:
    """Return the largest k with ``k / n <= rate``, for a rate from 0 to 1; 0 if n is 0.

    Examples
    --------
    >>> n_allowed(0.29, 100), int(0.29 * 100)
    (29, 28)
    """
    k = min(int(rate * n) + 1, n)
    while k > 0 and k / n > rate:
        k -= 1
    return k


def rates_of_cutoffs(
    images: ScoredRows,
    codes: NDArray[np.int64],
    distractors: ScoredRows | None,
    cutoffs: NDArray[np.float64],
    options: RateOptions,
) -> list[IdentificationRate]:
    """Return the identification rates for all cutoffs, in one pass over the pairs."""
    if distractors is not None and distractors.rows.n_features != images.rows.n_features:
        widths = distractors.rows.n_features, images.rows.n_features
        raise ValueError(f"distractors must have as many features as X, got {widths[0]} and {widths[1]}")
    ascending, places = np.unique(cutoffs, return_inverse=True)
    rates = _Pairs.of(images, codes, ascending, distractors, options).rates(distractors)
    return [rates[place] for place in places]


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Rows in the order of their levels.

    The level of a row is the number of the first cutoff, in ascending order, above its score; the level of a pair is the larger
    one of its rows, and cutoff g leaves the pairs of levels up to g as they are.
    """

    points: Tensor  # (k, d): rows below the last cutoff, ready to be compared
    codes: Tensor  # (k,)
    levels: Tensor  # (k,), ascending
    cutoffs: NDArray[np.float64]  # (g,), ascending
    n_genuine: int  # pairs of all rows, those above the last cutoff included
    n_different: int
    options: RateOptions

    @classmethod
    def of(
        cls,
        images: ScoredRows,
        codes: NDArray[np.int64],
        cutoffs: NDArray[np.float64],
        distractors: ScoredRows | None,
        options: RateOptions,
    ) -> Self:
        levels = _levels(images, cutoffs)
        kept = np.argsort(levels, kind="stable")[: int((levels < len(cutoffs)).sum())]
        # A row is compared with rows and distractors, and the results with each other: one dtype for both.
        dtype = images.rows.dtype if distractors is None else torch.promote_types(images.rows.dtype, distractors.rows.dtype)
        points = images.subset(kept).read(dtype, options)
        n_genuine, n = n_genuine_pairs(codes), len(codes)
        kept_codes, kept_levels = (torch.from_numpy(array[kept]).to(options.device) for array in (codes, levels))
        return cls(points, kept_codes, kept_levels, cutoffs, n_genuine, n * (n - 1) // 2 - n_genuine, options)

    def rates(self, distractors: ScoredRows | None) -> list[IdentificationRate]:
        """Return the rates of each cutoff."""
        thresholds = self._thresholds()
        nearest = self._nearest_distractors(distractors)
        accepted, full = self._accepted(thresholds, nearest)
        n_distractors = 0 if distractors is None else len(distractors)
        rates = []
        for cutoff, threshold in enumerate(thresholds):
            filled = self._n_filled(cutoff)[0] if self._fill >= threshold else 0
            # A pair with an outlier is no more similar than that outlier is to a distractor: both have the fill value.
            undistracted = filled if n_distractors == 0 else 0
            rate = IdentificationRate(
                ir=(int(accepted[cutoff]) + filled) / self.n_genuine,
                full_ir=(int(full[cutoff]) + undistracted) / self.n_genuine,
                threshold=float(threshold),
                n_genuine=self.n_genuine,
                n_different=self.n_different,
                n_distractors=n_distractors,
            )
            rates.append(rate)
        return rates

    @property
    def _fill(self) -> Tensor:
        return self.points.new_tensor(self.options.fill_value)

    def _end(self, cutoff: int) -> int:
        """Return how many rows are below a cutoff."""
        return int((self.levels <= cutoff).sum())

    def _n_filled(self, cutoff: int) -> tuple[int, int]:
        """Return how many genuine and how many different pairs have the fill value at a cutoff."""
        end = self._end(cutoff)
        genuine = n_genuine_pairs(self.codes[:end].cpu().numpy())
        return self.n_genuine - genuine, self.n_different - (end * (end - 1) // 2 - genuine)

    def _thresholds(self) -> Tensor:
        """Return the smallest threshold (g,) at which no more false pairs pass than may."""
        n_top = n_allowed(self.options.false_positive_rate, self.n_different) + 1
        if n_top > self.n_different:  # all may pass
            return self.points.new_full((len(self.cutoffs),), -torch.inf)
        top = self.points.new_empty(0)  # the largest similarities of false pairs so far, at most n_top
        bounds, start = [], 0
        for cutoff in range(len(self.cutoffs)):
            end = self._end(cutoff)
            for columns in _tiles(start, end, self.options.batch_size):
                for rows in _tiles(0, columns.stop, self.options.batch_size):
                    top = _largest(top, self._false_similarities(rows, columns, top, n_top), n_top)
            fills = self._fill.expand(min(n_top, self._n_filled(cutoff)[1]))
            bounds.append(_largest(top, fills, n_top).min())
            start = end
        return torch.nextafter(torch.stack(bounds), self.points.new_tensor(torch.inf))

    def _false_similarities(self, rows: slice, columns: slice, top: Tensor, n_top: int) -> Tensor:
        """Return those similarities of false pairs in a tile that belong to the largest, and perhaps some more."""
        similarities = self.options.similarity.compare(self.points[rows], self.points[columns])
        if len(top) == n_top:
            i, j = (similarities > top.min()).nonzero().T  # few, so that labels are compared for these only
        else:
            i, j = torch.ones_like(similarities, dtype=torch.bool).nonzero().T
        false = (self.codes[rows][i] != self.codes[columns][j]) & (rows.start + i < columns.start + j)
        return similarities[i[false], j[false]]

    def _nearest_distractors(self, distractors: ScoredRows | None) -> Tensor:
        """Return the largest similarity of each row to a distractor at each cutoff, (k, g); -inf without distractors."""
        nearest = self.points.new_full((len(self.points), len(self.cutoffs)), -torch.inf)
        if distractors is None:
            return nearest
        levels = _levels(distractors, self.cutoffs)
        kept = np.flatnonzero(levels < len(self.cutoffs))
        for block in _tiles(0, len(kept), self.options.batch_size):
            chosen = kept[block][np.argsort(levels[kept[block]], kind="stable")]
            self._update_nearest(nearest, distractors.subset(chosen).read(self.points.dtype, self.options), levels[chosen])
        nearest = nearest.cummax(dim=1).values  # a cutoff keeps what smaller cutoffs keep
        has_outliers = torch.from_numpy(np.arange(len(self.cutoffs)) < levels.max()).to(nearest.device)
        return torch.where(has_outliers, nearest.clamp(min=self.options.fill_value), nearest)

    def _update_nearest(self, nearest: Tensor, block: Tensor, levels: NDArray[np.int64]) -> None:
        """Take note of a block of distractors (b, d), in ascending order of levels, in a column for each level."""
        present, starts = np.unique(levels, return_index=True)
        ends = [*starts[1:].tolist(), len(levels)]
        for rows in _tiles(0, len(self.points), self.options.batch_size):
            similarities = self.options.similarity.compare(self.points[rows], block)
            for level, start, end in zip(present.tolist(), starts.tolist(), ends, strict=True):
                column = nearest[rows, level]
                column.copy_(torch.maximum(column, similarities[:, start:end].amax(dim=1)))

    def _accepted(self, thresholds: Tensor, nearest: Tensor) -> tuple[Tensor, Tensor]:
        """Return how many genuine pairs without outliers reach the threshold (g,), and how many of these are not distracted."""
        accepted, full = (torch.zeros(len(thresholds), dtype=torch.int64, device=thresholds.device) for _ in range(2))
        order = self.codes.argsort(stable=True)
        codes = self.codes[order]
        ends = torch.searchsorted(codes, codes, right=True).tolist()
        for rows in _tiles(0, len(codes), min(GENUINE_ROWS, self.options.batch_size)):
            for columns in _tiles(rows.start, ends[rows.stop - 1], self.options.batch_size):
                similarities = self.options.similarity.compare(self.points[order[rows]], self.points[order[columns]])
                i, j = (codes[rows, None] == codes[columns]).nonzero().T
                once = rows.start + i < columns.start + j
                i, j = i[once], j[once]
                values, i, j = similarities[i, j], order[rows][i], order[columns][j]
                levels = torch.maximum(self.levels[i], self.levels[j])
                for cutoff, threshold in enumerate(thresholds):
                    passed = (levels <= cutoff) & (values >= threshold)
                    distraction = torch.maximum(nearest[i, cutoff], nearest[j, cutoff])
                    accepted[cutoff] += passed.sum()
                    full[cutoff] += (passed & (values > distraction)).sum()
        return accepted, full


def _levels(rows: ScoredRows, cutoffs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the number (n,) of the first of ascending cutoffs above each score."""
    return np.searchsorted(cutoffs, rows.scores, side="right").astype(np.int64)


def _largest(some: Tensor, others: Tensor, k: int) -> Tensor:
    """Return the k largest of all numbers, or all if there are fewer."""
    both = torch.cat([some, others])
    return both if len(both) <= k else both.topk(k, sorted=False).values


def _tiles(start: int, stop: int, size: int) -> Iterator[slice]:
    """Go from start to stop in slices of a size."""
    return (slice(first, min(first + size, stop)) for first in range(start, stop, size))
