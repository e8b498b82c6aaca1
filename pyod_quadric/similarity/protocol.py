"""The gain of robust similarities, on identities and distractors that did not choose the cutoff."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyod_quadric.similarity.cutoffs import best_cutoff, cutoffs_at_shares
from pyod_quadric.similarity.identification import IdentificationRate, identities, rates_of_cutoffs
from pyod_quadric.similarity.pairs import TILE_ROWS, Compare, RateOptions, ScoredRows, SimilarityName, Source


@dataclass(frozen=True, eq=False)
class HalfHalfResult:
    """The result of :func:`half_half_protocol`, with one entry for each of r repetitions.

    Parameters
    ----------
    cutoffs : ndarray of shape (r,)
        The cutoffs, chosen on the first half.
    before : list of IdentificationRate
        The rates on the second half without the cutoff.
    after : list of IdentificationRate
        The rates on the second half with the cutoff.

    Examples
    --------
    >>> rate = IdentificationRate(0.9, 0.8, 0.5, 10, 35, 100)
    >>> result = HalfHalfResult(np.array([1.0, 2.0]), [rate, rate], [rate, rate])
    >>> result.summary()["full_ir_after"]
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
    labels : array-like of shape (n,)
        Identities.
    scores : array-like of shape (n,)
        Outlier scores; see :func:`outlier_scores`.
    distractors : array-like of shape (m, d), Tensor, or path of a ``.npy`` file, optional
    distractor_scores : array-like of shape (m,), optional
    n_repeats : int, default=10
    seed : int, default=0
        The seed of the splits.
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
    >>> options = {"false_positive_rate": 0.001, "n_repeats": 2}
    >>> result = half_half_protocol(X, labels, scores=rng.random(120), **options)
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
    cutoff = float(cutoffs[best_cutoff(cutoffs, rates, full=first is not None)])
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
