"""Batches of rows in an order that the seed determines.

Memory holds one batch and the row indices of one window, never all rows. Shuffling takes blocks of neighbouring rows in random
order, shuffles the rows of a window of blocks, and cuts the window into batches. Data that fit into one window are shuffled
perfectly; larger data are still read from disk in long runs.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyod_quadric.data.rows import LoaderRows, Rows, first_of, rows_of
from pyod_quadric.parallel.ranks import n_ranks, process_rank

# Blocks of batch_size rows that one window mixes.
WINDOW_BLOCKS = 64


def shuffled(n_rows: int, batch_size: int, seed: tuple[int, ...]) -> Iterator[NDArray[np.int64]]:
    """Yield the row indices of the batches of one epoch; all but the last have ``batch_size`` rows.

    The order depends only on the seed, so an epoch can be repeated, or resumed in the middle.

    Examples
    --------
    >>> [len(batch) for batch in shuffled(10, 4, seed=(0, 0))]
    [4, 4, 2]
    """
    rng = np.random.default_rng(seed)
    starts = rng.permutation(np.arange(0, n_rows, batch_size))
    left_over = np.empty(0, dtype=np.int64)
    for first in range(0, len(starts), WINDOW_BLOCKS):
        chosen = starts[first : first + WINDOW_BLOCKS]
        window = np.concatenate([left_over, *(np.arange(s, min(s + batch_size, n_rows)) for s in chosen)])
        rng.shuffle(window)
        n_full = len(window) // batch_size * batch_size
        yield from window[:n_full].reshape(-1, batch_size)
        left_over = window[n_full:]
    if len(left_over):
        yield left_over


class Batches(ABC):
    """Batches of rows for training, the same for the same seed and epoch."""

    @abstractmethod
    def epoch(self, number: int, first: int = 0) -> Iterator[Tensor]:
        """Yield the batches of an epoch, from the batch with the index ``first`` on."""

    def n_batches(self) -> int | None:
        """Return the number of batches of an epoch, if it is known."""
        return None

    def validation(self) -> Iterator[Tensor]:
        """Yield the held-out rows, in batches; by default there are none."""
        return iter(())


class RowBatches(Batches):
    """Shuffled batches of rows, the same for the same seed and epoch; one row in k can be held out.

    Parameters
    ----------
    rows : Rows
    batch_size : int
    seed : int
    one_in : int, default=0
        The k: of every k consecutive rows one is held out, at a position that the seed determines; 0 holds out none.
    weights : array of shape (n,), optional
        The probability, from 0 to 1, with which each row is drawn in an epoch. The mean over an epoch is therefore a weighted
        mean, and batches of rows with small weights are smaller.
    groups : array of shape (n,), optional
        If given, one group in k is held out, with all its rows.
    """

    def __init__(
        self,
        rows: Rows,
        batch_size: int,
        seed: int,
        one_in: int = 0,
        weights: NDArray[np.floating] | None = None,
        groups: NDArray[np.int64] | None = None,
    ) -> None:
        self._rows, self._batch_size, self._seed, self._one_in, self._weights = rows, batch_size, seed, one_in, weights
        if weights is not None and (weights.shape != (rows.n_rows,) or not ((weights >= 0) & (weights <= 1)).all()):
            raise ValueError(f"weights must be {rows.n_rows} numbers from 0 to 1, one for each row")
        self._by_group = None if groups is None or not one_in else held_out_groups(groups, one_in, seed)
        n_neighbours, rest = divmod(rows.n_rows, one_in) if one_in else (0, 0)
        # The last neighbours may be too few for their place.
        self._n_held_out = n_neighbours + int(one_in > 0 and self._places(np.array([n_neighbours]))[0] < rest)
        if self._by_group is not None:
            self._n_held_out = len(self._by_group[1])
        self._n_training = rows.n_rows - self._n_held_out
        if self._n_training < 1:
            raise ValueError(f"no rows are left to train on: {self._n_held_out} of {rows.n_rows} are held out")

    def epoch(self, number: int, first: int = 0) -> Iterator[Tensor]:
        """Yield the batches of an epoch, from the batch with the index ``first`` on."""
        order = shuffled(self._n_training, self._batch_size, (self._seed, number))
        # In rising order the rows come from disk in one sweep; their order within a batch does not matter.
        batches = (
            (np.sort(self._training_rows(batch)), (self._seed, number, place))
            for place, batch in enumerate(islice(order, first, None), first)
        )
        at_once = WINDOW_BLOCKS if self._rows.decodes_groups else 1
        while window := list(islice(batches, at_once)):
            yield from self._read_together(window)

    def n_batches(self) -> int:
        """Return the number of batches of an epoch, counting those without any drawn row."""
        return -(-self._n_training // self._batch_size)

    def validation(self) -> Iterator[Tensor]:
        """Yield the held-out rows, in batches."""
        for start in range(0, self._n_held_out, self._batch_size):
            group = np.arange(start, min(start + self._batch_size, self._n_held_out))
            held_out = group * self._one_in + self._places(group) if self._by_group is None else self._by_group[1][group]
            # The same rows take part after every epoch, so that losses can be compared.
            yield from self._read_together([(held_out, (self._seed, start))])

    def _read_together(self, batches: Sequence[tuple[NDArray[np.int64], tuple[int, ...]]]) -> Iterator[Tensor]:
        """Yield batches of those rows that take part; in each process its share of them, which may be none."""
        drawn = [numbers[_taking_part(numbers, self._weights, seed)] for numbers, seed in batches]
        mine = [numbers[process_rank() :: n_ranks()] for numbers in drawn if len(numbers)]
        if len(mine) == 1:
            yield self._rows.read(mine[0])
        elif mine:
            all_numbers = np.sort(np.concatenate(mine))
            rows = self._rows.read(all_numbers)
            for numbers in mine:
                yield rows[torch.from_numpy(np.searchsorted(all_numbers, numbers))]

    def _training_rows(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of training rows by number: what is left of each group, in order."""
        if not self._one_in:
            return numbers
        if self._by_group is not None:
            return self._by_group[0][numbers]
        group, place = np.divmod(numbers, self._one_in - 1)
        return group * self._one_in + place + (place >= self._places(group))

    def _places(self, groups: NDArray[np.int64]) -> NDArray[np.int64]:
        return held_out_places(groups, self._one_in, self._seed)


def held_out_indices(n_rows: int, one_in: int, seed: int) -> NDArray[np.int64]:
    """Return the indices of the rows that :class:`RowBatches` holds out of training.

    Examples
    --------
    >>> len(held_out_indices(100, one_in=10, seed=0))
    10
    """
    groups = np.arange(-(-n_rows // one_in))
    indices = groups * one_in + held_out_places(groups, one_in, seed)
    return indices[indices < n_rows]


def held_out_places(groups: NDArray[np.int64], one_in: int, seed: int) -> NDArray[np.int64]:
    """Return which row of each group is held out: a hash of the group's number and the seed, so that nothing is stored."""
    mixed = (groups.astype(np.uint64) + np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(40)) % np.uint64(one_in)).astype(np.int64)


def held_out_groups(groups: NDArray[np.int64], one_in: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of rows to train on and to hold out; one group in ``one_in`` is held out, and at least one."""
    names = np.random.default_rng(seed).permutation(np.unique(groups))
    held_out = np.isin(groups, names[: max(1, round(len(names) / one_in))])
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


class PassBatches(Batches):
    """Batches of rows in their stored order, for rows without random access; none are held out.

    Parameters
    ----------
    rows : LoaderRows
    batch_size, seed, weights
        As for :class:`RowBatches`.
    """

    def __init__(self, rows: LoaderRows, batch_size: int, seed: int, weights: NDArray[np.floating] | None = None) -> None:
        self._rows, self._batch_size, self._seed, self._weights = rows, batch_size, seed, weights

    def n_batches(self) -> int:
        """Return the number of batches of a pass, counting those without any drawn row."""
        return -(-self._rows.n_rows // self._batch_size)

    def epoch(self, number: int, first: int = 0) -> Iterator[Tensor]:
        """Yield the batches of one pass, from the batch with the index ``first`` on."""
        for place, batch in enumerate(self._rows.blocks(self._batch_size)):
            chosen = np.arange(place * self._batch_size, place * self._batch_size + len(batch))
            taking_part = _taking_part(chosen, self._weights, (self._seed, number, place))
            if place >= first and taking_part.any():
                yield batch[torch.from_numpy(taking_part)]


def _taking_part(numbers: NDArray[np.int64], weights: NDArray[np.floating] | None, seed: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which rows take part, each with the probability that its weight says."""
    if weights is None:
        return np.ones(len(numbers), dtype=bool)
    drawn: NDArray[np.bool_] = np.random.default_rng((*seed, 1)).random(len(numbers)) < weights[numbers]
    return drawn


class LoaderBatches(Batches):
    """Batches from a torch ``DataLoader``, or from any iterable that can be iterated again, in its own order.

    Batches are tensors or arrays of shape (?, d), or tuples and lists that begin with one. A sampler with ``set_epoch`` is told
    the epoch. If a sampler shuffles by torch's global generator, that generator is seeded with the seed and the epoch, and
    restored afterwards. No rows are held out.
    """

    def __init__(self, loader: Iterable[Any], seed: int) -> None:
        self._loader, self._seed = loader, seed

    def n_batches(self) -> int | None:
        """Return the number of batches of the loader, if it is known."""
        return len(self._loader) if isinstance(self._loader, Sized) else None

    def epoch(self, number: int, first: int = 0) -> Iterator[Tensor]:
        """Yield the batches of one pass, from the batch with the index ``first`` on."""
        set_epoch = getattr(getattr(self._loader, "sampler", None), "set_epoch", None)
        if set_epoch:
            set_epoch(number)
        # Torch's loaders and samplers draw their seed when they begin, which is when the first batch is asked for.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(np.random.default_rng((self._seed, number)).integers(2**63)))
            iterator = iter(self._loader)
            beginning = list(islice(iterator, 1))
        for batch in islice(chain(beginning, iterator), first, None):
            yield rows_of(first_of(batch)).read(slice(None))
