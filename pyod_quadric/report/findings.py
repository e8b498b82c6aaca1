"""The content of a report about rows, from one pass over them.

Memory holds a block of rows, all scores, and what the report shows: a bounded number of points and a few whole rows.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta

from pyod_quadric.data.sources import ArraySource, Block
from pyod_quadric.detector import QuadricDetector
from pyod_quadric.model.calibration import DriftResult
from pyod_quadric.model.model import Model

Columns = dict[str, NDArray[Any]]
EXPLAINED_ROWS = 1000  # at random, for what the parts of the score add to usual rows
PARTS = {"linear_part": "linear part", "quadrics": "quadrics", "neighbors": "neighbours", "norms": "length of the row"}
RATES = (0.001, 0.01, 0.05, 0.1)
TINY = float(np.finfo(np.float32).tiny)  # what is divided by at least


@dataclass(frozen=True, eq=False)
class Findings:
    """The content of a report.

    Parameters
    ----------
    detector : QuadricDetector
    n_dropped : int
        The number of rows left out because they are not finite.
    scores, p_values : ndarray of shape (n,)
        Scores and p-values of all other rows.
    drawn : dict of ndarray
        Rows to draw, in ascending order of their scores: ``row``, ``score``, ``p_value``, ``x``, ``y`` and perhaps ``id``.
    axes : tuple of str
        The names of ``x`` and ``y``.
    top : dict of ndarray
        The rows with the highest scores, highest first: ``row``, ``score``, ``p_value``, ``rows`` (t, d), ``contributions``
        (t, d) and perhaps ``id``.
    parts : dict of ndarray of shape (2,)
        The mean share of each part in the scores of usual rows and of the top ones.
    quadrics : ndarray of shape (2, m)
        The same for each quadric.
    drift : DriftResult or None
        None if the fit has groups and the rows have none.
    """

    detector: QuadricDetector
    n_dropped: int
    scores: NDArray[np.float64]
    p_values: NDArray[np.float64]
    drawn: Columns
    axes: tuple[str, str]
    top: Columns
    parts: dict[str, NDArray[np.float64]]
    quadrics: NDArray[np.float64]
    drift: DriftResult | None


class Lowest:
    """The columns of the added entries with the lowest keys, in the order of their keys.

    Examples
    --------
    >>> import numpy as np
    >>> lowest = Lowest(2)
    >>> for start in (6, 0, 3):
    ...     lowest.add(np.arange(start, start + 3), row=np.arange(start, start + 3))
    >>> lowest.found()["row"]
    array([0, 1])
    """

    def __init__(self, most: int) -> None:
        self._most, self._n, self._worst = most, 0, np.inf
        self._parts: list[Columns] = []

    def add(self, keys: NDArray[Any], **columns: NDArray[Any]) -> None:
        """Add entries."""
        chosen = keys < self._worst
        self._parts.append({name: column[chosen] for name, column in ({"key": keys} | columns).items()})
        self._n += int(chosen.sum())
        if self._n >= 2 * self._most:  # seldom, since sorting takes time
            self._parts = [self.found()]
            self._n, self._worst = self._most, self._parts[0]["key"][-1]

    def found(self) -> Columns:
        """Return the columns, with ``key`` among them."""
        joined = {name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]}
        order = np.argsort(joined["key"], kind="stable")[: self._most]
        return {name: column[order] for name, column in joined.items()}


def findings(
    detector: QuadricDetector,
    blocks: Iterable[Block],
    *,
    names: list[str] | None = None,
    groups: Callable[[NDArray[np.int64]], ArrayLike] | None = None,
    top: int = 20,
    points: int = 100_000,
) -> Findings:
    """Return the content of a report, in one pass over the rows.

    Parameters
    ----------
    detector : QuadricDetector
        A fitted detector.
    blocks : iterable of Block
        Rows that are not finite are left out.
    names : list of str, optional
        The names of the features in the blocks.
    groups : callable, optional
        A function from indices of rows to their groups, for the drift test.
    top, points : int
        The number of outliers to explain, and the largest number of rows to draw: rows above the threshold with the highest
        scores, up to half of this number, and a uniform sample of the others.
    """
    if top < 1 or points < 2:
        raise ValueError(f"top must be 1 or more and points 2 or more, got {top} and {points}")
    rng = np.random.default_rng(0)  # the same rows give the same page
    axes, place = plane(detector.model_)
    outliers, sample = Lowest(points // 2), Lowest(points)
    highest, explained = Lowest(top), Lowest(EXPLAINED_ROWS)
    scores, indices, n_dropped = [], [], 0
    for block in blocks:
        kept = block.only(block.finite)
        n_dropped += len(block.rows) - len(kept.rows)
        if not len(kept.rows):
            continue
        score = detector.decision_function(ArraySource(kept.rows, names))
        x, y = place(kept.rows, score)
        columns = {"row": kept.indices, "score": score} | ({} if kept.ids is None else {"id": kept.ids})
        drawn = columns | {"x": x, "y": y}
        above, keys = score > detector.threshold_, rng.random(len(score))
        outliers.add(-score[above], **{name: column[above] for name, column in drawn.items()})
        sample.add(keys, **drawn)
        highest.add(-score, rows=kept.rows, **columns)
        explained.add(keys, rows=kept.rows)
        scores.append(score)
        if groups is not None:
            indices.append(kept.indices)
    if not scores:
        raise ValueError("all rows hold NaN or infinite entries, so that there is nothing to report")
    every, best = np.concatenate(scores), highest.found()
    best["contributions"] = detector.explain(ArraySource(best["rows"], names))
    usual, most = (shares(detector, ArraySource(part["rows"], names)) for part in (explained.found(), best))
    rows_drawn = _united(outliers.found(), sample.found(), points)
    for columns in (best, rows_drawn):
        columns["p_value"] = detector.p_values_of(columns["score"])
    drift = None
    if detector.groups_ is None or groups is not None:
        drift = detector.drift_of_scores(every, groups=None if groups is None else groups(np.concatenate(indices)))
    return Findings(
        detector,
        n_dropped,
        every,
        detector.p_values_of(every),
        rows_drawn,
        axes,
        best,
        {name: np.array([share, most[0][name]]) for name, share in usual[0].items()},
        np.stack([usual[1], most[1]]),
        drift,
    )


def plane(
    model: Model,
) -> tuple[tuple[str, str], Callable[[NDArray[Any], NDArray[np.float64]], tuple[NDArray[Any], NDArray[Any]]]]:
    """Return the names of two coordinates of the fit, and the map to them from rows (n, d) and their scores (n,)."""
    if model.linear_part is not None:
        part = model.linear_part
        mean, matrix = part.mean, part.axes[:2]
        total = float(part.variances.sum()) + part.complement * (part.axes.shape[1] - len(part.axes))
        words = [f"principal coordinate {k + 1} ({float(part.variances[k]) / total:.0%})" for k in range(len(matrix))]
    else:
        found = model.coordinates if model.neighbors is None else model.neighbors.coordinates
        mean, matrix = found.mean, found.matrix[:2]
        words = [f"coordinate {k + 1} of the model" for k in range(len(matrix))]

    def place(rows: NDArray[Any], scores: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
        points = model.prepared(torch.from_numpy(rows)).double()
        x, *others = ((points - mean.double()) @ matrix.double().T).T.numpy()
        return x, others[0] if others else scores

    return (words[0], words[1] if len(words) > 1 else "outlier score"), place


def shares(detector: QuadricDetector, rows: ArraySource) -> tuple[dict[str, float], NDArray[np.float64]]:
    """Return the mean share of each part in the scores of rows, and that of each quadric (m,)."""
    model, points = detector.model_, torch.from_numpy(rows[:])
    scores = model.score(points).numpy()
    scores = np.where(scores > 0, scores, np.inf)
    there = [name for name in PARTS if getattr(model, name) is not None]
    parts = {}
    for name in there:
        without: dict[str, Any] = dict.fromkeys(set(there) - {name})
        alone = replace(model, **without)
        parts[PARTS[name]] = float((alone.score(points).numpy() / scores).mean())
    distances, weights = detector.quadric_distances(rows), detector.quadric_weights_
    added = distances / max(1, distances.shape[1]) if weights is None else weights * distances**2
    return parts, (added / scores[:, None]).mean(axis=0)


def calibration(scores: NDArray[np.float64]) -> list[tuple[float, float, int, float, float]]:
    """Return for each rate the score above which rows have at most this p-value, and its reliability.

    A row is flagged if its score is above the k-th highest of n held-out rows, k = ⌊rate (n + 1)⌋. The share of new rows like
    them that are flagged has the distribution Beta(k, n + 1 - k) over fits (Vovk 2012).

    Returns
    -------
    list of tuple
        The rate, the score, k, and the share of new rows in nine of ten fits, from and to. Rates below 1 / (n + 1) are left
        out, for which there are too few rows.

    Examples
    --------
    >>> import numpy as np
    >>> [(rate, cutoff, k) for rate, cutoff, k, _, _ in calibration(np.arange(199.0))]
    [(0.01, 197.0, 2), (0.05, 189.0, 10), (0.1, 179.0, 20)]
    """
    n, ascending, found = len(scores), np.sort(scores), []
    for rate in RATES:
        k = math.floor(rate * (n + 1) + 1e-9)
        if k:
            low, high = beta.ppf([0.05, 0.95], k, n + 1 - k)
            found.append((rate, float(ascending[n - k]), k, float(low), float(high)))
    return found


def _united(outliers: Columns, sample: Columns, most: int) -> Columns:
    """Return the outliers and as much of the sample as there is room for, in ascending order of their scores."""
    others = np.flatnonzero(~np.isin(sample["row"], outliers["row"]))[: most - len(outliers["row"])]
    both = {name: np.concatenate([outliers[name], sample[name][others]]) for name in sample if name != "key"}
    order = np.argsort(both["score"], kind="stable")
    return {name: column[order] for name, column in both.items()}
