"""Rows from wherever they are, a few at a time: arrays, memory maps, files and folders of them, torch loaders.

Whatever the source, memory holds one batch and the numbers of the rows of one window, not all rows. Shuffling takes blocks of
neighbouring rows in random order, mixes the rows of a window of blocks, and cuts that into batches. Data that fit one window
are shuffled perfectly; larger data are read from disk in long runs all the same.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import RandomSampler

from pyod_quadric.distributed import from_all_ranks, n_ranks, rank
from pyod_quadric.sources import NpyFile, ParquetFile, Shards, Source, open_path

# Blocks of batch_size rows that one window mixes.
WINDOW_BLOCKS = 64
N_COMPARED = 100  # rows by which processes see whether they have the same ones


class Rows:
    """Rows that can be read by number.

    Parameters
    ----------
    source : array-like of shape (n, d), Tensor, path, or sequence of paths
        Paths are those of ``.npy`` or Parquet files, or of folders that hold such files. Only what is read is in memory.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows(np.arange(6.0).reshape(3, 2))
    >>> rows.n_rows, rows.n_features
    (3, 2)
    """

    def __init__(self, source: ArrayLike | Tensor | Source | str | PathLike[str] | Sequence[str | PathLike[str]]) -> None:
        source = _opened(source)
        dtype = source.dtype
        real = (
            dtype != torch.bool and not dtype.is_complex
            if isinstance(dtype, torch.dtype)
            else np.issubdtype(dtype, np.number) and not np.issubdtype(dtype, np.complexfloating)
        )
        if not real:
            raise ValueError(f"rows must be real numbers, got {dtype}")
        if len(source.shape) != 2 or 0 in source.shape:
            raise ValueError(f"rows must have shape (n, d) with n and d at least 1, got {tuple(source.shape)}")
        self._source = source
        # Small floats gain nothing from float64; everything else might lose something without it.
        small = source.dtype in (torch.float32, torch.float16, torch.bfloat16, np.float32, np.float16)
        self.dtype = torch.float32 if small else torch.float64
        self.n_rows, self.n_features = int(source.shape[0]), int(source.shape[1])

    def read(self, index: slice | NDArray[np.int64]) -> Tensor:
        """Return some rows as a float32 or float64 tensor of their own, on the CPU unless the source is a tensor elsewhere.

        NaN or infinite entries raise a ValueError.
        """
        if isinstance(self._source, Tensor):
            rows = self._source[index if isinstance(index, slice) else torch.from_numpy(index)].to(self.dtype, copy=True)
        else:
            found = self._source[index]  # of an array it may be a view, of a file it is a copy already
            rows = torch.from_numpy(np.array(found) if isinstance(self._source, np.ndarray) else found).to(self.dtype)
        finite = torch.isfinite(rows).all(dim=1)
        if not finite.all():
            place = int(torch.argmin(finite.int()))
            row = range(*index.indices(self.n_rows))[place] if isinstance(index, slice) else int(index[place])
            raise ValueError(f"rows must be finite, but row {row} holds NaN or infinite entries; remove or impute it")
        return rows

    def blocks(self, size: int) -> Iterator[Tensor]:
        """Go through all rows once, in order, ``size`` at a time."""
        return (self.read(slice(start, start + size)) for start in range(0, self.n_rows, size))

    def placed_blocks(self, size: int) -> Iterator[tuple[slice, Tensor]]:
        """Go through this process's share of all rows once; gives where they stand, and the rows, at most ``size`` of them."""
        for place in shares(self.n_rows, size):
            yield place, self.read(place)


def check_shared(rows: Rows | None) -> None:
    """Raise a ValueError in all processes if they were given different rows, as far as a few of them show, or a loader (None).

    Each process would take its share of something else, and nothing would tell.
    """
    if n_ranks() == 1:
        return
    if rows is None or isinstance(rows, LoaderRows):
        raise ValueError("several processes cannot share a loader; give a file or an array that all of them can read")
    some = np.unique(np.linspace(0, rows.n_rows - 1, N_COMPARED).astype(np.int64))
    first, *others = from_all_ranks((rows.n_rows, rows.n_features, digest([rows.read(some)])))
    for number, theirs in enumerate(others, start=1):
        if theirs != first:
            raise ValueError(
                "all processes must be given the same rows, of which each takes its share: process 0 has "
                f"{first[0]} rows of {first[1]} features, process {number} has {theirs[0]} of {theirs[1]}"
                + (", with other values" if theirs[:2] == first[:2] else "")
            )


def digest(tensors: Iterable[Tensor]) -> str:
    """Return a hash of the types, shapes and entries of tensors.

    Examples
    --------
    >>> digest([torch.zeros(2)]) == digest([torch.zeros(2)]), digest([torch.zeros(2)]) == digest([torch.zeros(1, 2)])
    (True, False)
    """
    found = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        found.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def shares(n_rows: int, size: int) -> Iterator[slice]:
    """Yield where the blocks of this process stand, at most ``size`` rows each.

    Examples
    --------
    >>> list(shares(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = min(size, -(-n_rows // n_ranks()))
    for start in range(rank() * size, n_rows, n_ranks() * size):
        yield slice(start, min(start + size, n_rows))


def _opened(source: Any) -> NDArray[Any] | Tensor | Source:
    """Return what has a shape, a type and rows."""
    if isinstance(source, str | PathLike):
        return open_path(source)
    if isinstance(source, list | tuple) and source and all(isinstance(part, str | PathLike) for part in source):
        return Shards([open_path(part) for part in source])
    if isinstance(source, Tensor):
        return source.detach()
    return source if isinstance(source, NpyFile | ParquetFile | Shards) else np.asanyarray(source)


class LoaderRows(Rows):
    """Rows of a torch ``DataLoader``, or of any iterable of batches that can be gone through again, by their place in it.

    Whatever is read takes a pass over the loader, so read many rows at once. The order must be the same in every pass.

    Parameters
    ----------
    loader : iterable of Tensor or array of shape (?, d), or of tuples and lists that begin with one

    Examples
    --------
    >>> import torch
    >>> rows = LoaderRows([torch.zeros(2, 3), torch.ones(4, 3)])
    >>> rows.n_rows, [len(block) for block in rows.blocks(5)]
    (6, [5, 1])
    """

    def __init__(self, loader: Iterable[Any]) -> None:
        if iter(loader) is loader:
            raise ValueError("the rows are needed several times, but an iterator gives them once; give a loader or a list")
        if isinstance(getattr(loader, "sampler", None), RandomSampler):
            raise ValueError("rows are known by their place, but this loader shuffles them; set shuffle=False")
        self._loader = loader
        self.n_rows = 0
        for batch in loader:
            rows = Rows(_first(batch))
            if self.n_rows and rows.n_features != self.n_features:
                raise ValueError(f"batches must have {self.n_features} features, as the first one does, got {rows.n_features}")
            self.n_rows, self.n_features, self.dtype = self.n_rows + rows.n_rows, rows.n_features, rows.dtype
        if not self.n_rows:
            raise ValueError("the loader has no rows")

    def read(self, index: slice | NDArray[np.int64]) -> Tensor:
        """Return some rows, from one pass."""
        numbers = np.arange(*index.indices(self.n_rows)) if isinstance(index, slice) else index
        found = torch.empty(len(numbers), self.n_features, dtype=self.dtype)
        start = 0
        for batch in self._batches():
            here = (numbers >= start) & (numbers < start + len(batch))
            found[torch.from_numpy(here)] = batch[torch.from_numpy(numbers[here] - start)].cpu()
            start += len(batch)
        return found

    def blocks(self, size: int) -> Iterator[Tensor]:
        """Go through all rows once, in order, ``size`` at a time."""
        left: list[Tensor] = []
        for batch in self._batches():
            left.append(batch)
            while sum(map(len, left)) >= size:
                together = torch.cat(left)
                yield together[:size]
                left = [together[size:]]
        rest = torch.cat(left)
        if len(rest):
            yield rest

    def placed_blocks(self, size: int) -> Iterator[tuple[slice, Tensor]]:
        """Go through this process's share of all rows once."""
        start = 0
        for block in self.blocks(size):
            yield slice(start, start + len(block)), block
            start += len(block)

    def _batches(self) -> Iterator[Tensor]:
        start = 0
        for batch in self._loader:
            try:
                rows = Rows(_first(batch)).read(slice(None)).to(self.dtype)
            except ValueError as error:
                raise ValueError(f"in a batch of the loader that begins with row {start}: {error}") from error
            start += len(rows)
            yield rows
        if start != self.n_rows:
            raise ValueError(f"the loader gave {self.n_rows} rows at first, now it gives {start}; it must give the same ones")


def is_large(source: object) -> bool:
    """Say whether these are rows on disk or of a loader, instead of an array-like in memory."""
    if isinstance(source, str | PathLike | np.memmap | NpyFile | ParquetFile | Shards):
        return True
    if isinstance(source, list | tuple):
        return bool(source) and all(isinstance(part, str | PathLike) for part in source)
    known = isinstance(source, dict | set) or any(hasattr(source, name) for name in ("shape", "__array__", "__dataframe__"))
    return isinstance(source, Iterable) and not known


def large_rows(source: Any) -> Rows:
    """Return the rows of what is large."""
    on_disk = isinstance(source, str | PathLike | np.memmap | list | tuple | NpyFile | ParquetFile | Shards)
    return Rows(source) if on_disk else LoaderRows(source)


def _first(batch: Any) -> Any:
    return batch[0] if isinstance(batch, tuple | list) and batch else batch


def shuffled(n_rows: int, batch_size: int, seed: tuple[int, ...]) -> Iterator[NDArray[np.int64]]:
    """Yield the row numbers of one epoch's batches, all of ``batch_size`` but the last.

    The order depends on the seed alone, so an epoch can be repeated, or entered in its middle.

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


class RowBatches:
    """Shuffled batches of rows, the same for the same seed and epoch, with one row in k held out.

    Parameters
    ----------
    rows : Rows
    batch_size : int
    seed : int
    one_in : int, default=0
        The k: of every k neighbouring rows one is kept apart, at a place that the seed decides; 0 keeps none apart.
    weights : array of shape (n,), optional
        With which probability each row takes part in an epoch, from 0 to 1. So the mean over an epoch is that of weighted
        rows, and batches are smaller where weights are.
    """

    def __init__(
        self, rows: Rows, batch_size: int, seed: int, one_in: int = 0, weights: NDArray[np.floating] | None = None
    ) -> None:
        self._rows, self._batch_size, self._seed, self._one_in, self._weights = rows, batch_size, seed, one_in, weights
        if weights is not None and (weights.shape != (rows.n_rows,) or not ((weights >= 0) & (weights <= 1)).all()):
            raise ValueError(f"weights must be {rows.n_rows} numbers from 0 to 1, one for each row")
        n_groups, rest = divmod(rows.n_rows, one_in) if one_in else (0, 0)
        # The last group may be too short for its place.
        self._n_held_out = n_groups + int(one_in > 0 and self._places(np.array([n_groups]))[0] < rest)
        self._n_training = rows.n_rows - self._n_held_out
        if self._n_training < 1:
            raise ValueError(f"no rows are left to train on: {self._n_held_out} of {rows.n_rows} are held out")

    def epoch(self, number: int, first: int = 0) -> Iterator[Tensor]:
        """Yield the batches of an epoch, from the batch with the number ``first`` on."""
        order = shuffled(self._n_training, self._batch_size, (self._seed, number))
        for place, batch in enumerate(islice(order, first, None), first):
            # In rising order the rows come from disk in one sweep; their order within a batch does not matter.
            yield from self._read(np.sort(self._training_rows(batch)), (self._seed, number, place))

    def validation(self) -> Iterator[Tensor]:
        """Yield the held-out rows, in batches."""
        for start in range(0, self._n_held_out, self._batch_size):
            group = np.arange(start, min(start + self._batch_size, self._n_held_out))
            # The same rows take part after every epoch, so that losses can be compared.
            yield from self._read(group * self._one_in + self._places(group), (self._seed, start))

    def _read(self, numbers: NDArray[np.int64], seed: tuple[int, ...]) -> Iterator[Tensor]:
        """Yield a batch of those rows that take part; in each process its share of them, which may be none."""
        numbers = numbers[_taking_part(numbers, self._weights, seed)]
        if len(numbers):
            yield self._rows.read(numbers[rank() :: n_ranks()])

    def _training_rows(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of training rows by number: what is left of each group, in order."""
        if not self._one_in:
            return numbers
        group, place = np.divmod(numbers, self._one_in - 1)
        return group * self._one_in + place + (place >= self._places(group))

    def _places(self, groups: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return which row of each group is held out: a hash of its number and the seed, so that nothing need be stored."""
        mixed = (groups.astype(np.uint64) + np.uint64(self._seed)) * np.uint64(0x9E3779B97F4A7C15)
        return ((mixed >> np.uint64(40)) % np.uint64(self._one_in)).astype(np.int64)


class PassBatches:
    """Batches of rows in their own order, for rows that cannot be read by number; none are held out.

    Parameters
    ----------
    rows : LoaderRows
    batch_size, seed, weights
        As for :class:`RowBatches`.
    """

    def __init__(self, rows: LoaderRows, batch_size: int, seed: int, weights: NDArray[np.floating] | None = None) -> None:
        self._rows, self._batch_size, self._seed, self._weights = rows, batch_size, seed, weights

    def epoch(self, number: int, first: int = 0) -> Iterator[Tensor]:
        """Yield the batches of one pass, from the batch with the number ``first`` on."""
        for place, batch in enumerate(self._rows.blocks(self._batch_size)):
            chosen = np.arange(place * self._batch_size, place * self._batch_size + len(batch))
            taking_part = _taking_part(chosen, self._weights, (self._seed, number, place))
            if place >= first and taking_part.any():
                yield batch[torch.from_numpy(taking_part)]

    def validation(self) -> Iterator[Tensor]:
        """Yield nothing."""
        return iter(())


def _taking_part(numbers: NDArray[np.int64], weights: NDArray[np.floating] | None, seed: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which rows take part, each with the probability that its weight says."""
    if weights is None:
        return np.ones(len(numbers), dtype=bool)
    drawn: NDArray[np.bool_] = np.random.default_rng((*seed, 1)).random(len(numbers)) < weights[numbers]
    return drawn


class LoaderBatches:
    """Batches from a torch ``DataLoader`` or any iterable that can be gone through again, in its own order.

    Batches are tensors or arrays of shape (?, d), or tuples and lists that begin with one. A sampler with ``set_epoch`` is
    told the epoch; one that shuffles by torch's global generator finds it seeded with the seed and the epoch, and it is put
    back afterwards. No rows are held out.
    """

    def __init__(self, loader: Iterable[Any], seed: int) -> None:
        self._loader, self._seed = loader, seed

    def epoch(self, number: int, first: int = 0) -> Iterator[Tensor]:
        """Yield the batches of one pass, from the batch with the number ``first`` on."""
        set_epoch = getattr(getattr(self._loader, "sampler", None), "set_epoch", None)
        if set_epoch:
            set_epoch(number)
        # Torch's loaders and samplers draw their seed when they begin, which is when the first batch is asked for.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(np.random.default_rng((self._seed, number)).integers(2**63)))
            iterator = iter(self._loader)
            beginning = list(islice(iterator, 1))
        for batch in islice(chain(beginning, iterator), first, None):
            yield Rows(_first(batch)).read(slice(None))

    def validation(self) -> Iterator[Tensor]:
        """Yield nothing."""
        return iter(())


def moved(batches: Iterable[Tensor], device: torch.device) -> Iterator[Tensor]:
    """Move batches to a device; to CUDA asynchronously from pinned memory, one batch ahead."""
    if device.type != "cuda":
        yield from (batch.to(device) for batch in batches)
        return
    ahead = None
    for batch in batches:
        following = (batch.pin_memory() if batch.device.type == "cpu" else batch).to(device, non_blocking=True)
        if ahead is not None:
            yield ahead
        ahead = following
    if ahead is not None:
        yield ahead


def device_of(name: str | None) -> torch.device:
    """Return the device of that name, by default a CUDA device if there is one, or raise a ValueError if there is none."""
    found = torch.cuda.is_available()
    local = int(os.environ.get("LOCAL_RANK", 0)) if n_ranks() > 1 else 0  # each process of a machine has a device of its own
    try:
        device = torch.device(name or (f"cuda:{local}" if found else "cpu"))
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device must be None or a name such as 'cpu' or 'cuda:0', got {name!r}") from error
    if device.type == "cuda" and not found:
        raise ValueError(f"there is no CUDA device here, but device is {name!r}; device=None takes what there is")
    return device
