"""Rows to compare: the similarity, the rate, and the outlier scores."""

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from pyod_quadric.data.rows import Rows, normalized, rows_of
from pyod_quadric.parallel.devices import device_of

TILE_ROWS = 2048  # of a tile of similarities: 16 MB in float32, and products of this size run at full speed

Source = ArrayLike | Tensor | str | PathLike[str]
SimilarityName = Literal["cosine", "euclidean"]
Compare = Callable[[Tensor, Tensor], Tensor]  # (a, d), (b, d) -> (a, b)


class Similarity(NamedTuple):
    """A per-row preparation, a pairwise comparison, and the value that replaces similarities of outliers."""

    prepare: Callable[[Tensor], Tensor]
    compare: Compare
    fill_value: float = 0.0


def similarity_of(similarity: SimilarityName | Compare) -> Similarity:
    """Return a similarity by name, or a callable with its results checked."""
    if callable(similarity):
        return Similarity(_unchanged, _checked_callable(similarity))
    if similarity not in _SIMILARITIES:
        raise ValueError(f"similarity must be one of {list(_SIMILARITIES)} or a callable, got {similarity!r}")
    return _SIMILARITIES[similarity]


def _unchanged(points: Tensor) -> Tensor:
    return points


def _inner_products(x: Tensor, y: Tensor) -> Tensor:
    return x @ y.T


def _negative_distances(x: Tensor, y: Tensor) -> Tensor:
    return -torch.cdist(x, y)


def _checked_callable(similarity: Compare) -> Compare:
    def compare(x: Tensor, y: Tensor) -> Tensor:
        values = similarity(x, y)
        shape = len(x), len(y)
        if not isinstance(values, Tensor) or values.shape != shape or not torch.isfinite(values).all():
            got = f"a tensor of shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(f"the similarity must return a tensor of finite numbers of shape {shape}, got {got}")
        return values.to(x.dtype)

    return compare


_SIMILARITIES = {
    "cosine": Similarity(normalized, _inner_products),
    "euclidean": Similarity(_unchanged, _negative_distances, fill_value=-np.inf),
}


@dataclass(frozen=True)
class RateOptions:
    """The options of a rate: similarity, false-positive rate, tiles, and device."""

    similarity: Similarity
    false_positive_rate: float
    fill_value: float
    batch_size: int
    device: torch.device

    @classmethod
    def checked(
        cls,
        similarity: SimilarityName | Compare,
        false_positive_rate: float,
        fill_value: float | None,
        batch_size: int,
        device: str | None,
    ) -> Self:
        """Return the options, or raise a ValueError that says what is wrong with them."""
        chosen = similarity_of(similarity)
        if not 0 <= false_positive_rate <= 1:
            raise ValueError(f"false_positive_rate must be from 0 to 1, got {false_positive_rate}")
        if batch_size < 1:
            raise ValueError(f"batch_size must be 1 or more, got {batch_size}")
        fill = chosen.fill_value if fill_value is None else float(fill_value)
        if np.isnan(fill):
            raise ValueError("fill_value must be a number, got NaN")
        return cls(chosen, float(false_positive_rate), fill, int(batch_size), device_of(device))


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Some rows of a source, and their outlier scores."""

    rows: Rows
    numbers: NDArray[np.int64]  # (n,)
    scores: NDArray[np.float64]  # (n,)

    @classmethod
    def checked(cls, source: Source, scores: ArrayLike | None, name: str, all_inliers: bool = False) -> Self:
        """Return all rows of a source, or raise a ValueError if the scores are not theirs."""
        rows = rows_of(source)
        if all_inliers:
            return cls(rows, np.arange(rows.n_rows), np.zeros(rows.n_rows))
        if scores is None:
            raise ValueError(f"{name} are needed for a cutoff, one for each of the {rows.n_rows} rows, got None")
        return cls(rows, np.arange(rows.n_rows), checked_scores(scores, rows.n_rows, name))

    def __len__(self) -> int:
        return len(self.numbers)

    def subset(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> "ScoredRows":
        """Return some of the rows, by their places here."""
        return ScoredRows(self.rows, self.numbers[chosen], self.scores[chosen])

    def read(self, dtype: torch.dtype, options: RateOptions) -> Tensor:
        """Return the rows (n, d), ready to be compared, on the device."""
        return options.similarity.prepare(self.rows.read(self.numbers).to(options.device, dtype))


def checked_scores(scores: ArrayLike, n_rows: int, name: str) -> NDArray[np.float64]:
    """Return outlier scores as an array (n,), or raise a ValueError."""
    array = np.asarray(scores.detach().cpu() if isinstance(scores, Tensor) else scores, dtype=np.float64)
    if array.shape != (n_rows,):
        raise ValueError(f"{name} must have shape ({n_rows},), one for each row, got {array.shape}")
    if np.isnan(array).any():
        raise ValueError(f"{name} must be numbers, got {int(np.isnan(array).sum())} NaN; repair the detector or leave rows out")
    return array


def checked_cutoffs(cutoffs: ArrayLike) -> NDArray[np.float64]:
    """Return cutoffs as an array (g,), or raise a ValueError."""
    array = np.asarray(cutoffs, dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or np.isnan(array).any():
        raise ValueError(f"cutoffs must be one or more numbers, of shape (g,), got {array.tolist()}")
    return array
