"""Rows from wherever they are: arrays, tensors, memory maps, files and folders of them, torch loaders.

Whatever the source, only what is read is in memory. In a process group each process reads its share.
"""

import copy
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import RandomSampler

from pyod_quadric.data.disk import RowSource
from pyod_quadric.data.sources import open_paths
from pyod_quadric.parallel.ranks import from_all_ranks, n_ranks, rank

N_COMPARED = 100  # rows by which processes see whether they have the same ones


class Rows:
    """Rows that can be read by number.

    Parameters
    ----------
    source : array-like of shape (n, d), Tensor, path, or sequence of paths
        Paths are those of ``.npy`` or Parquet files, or of folders that hold such files. Only what is read is in memory.
    names : list of str, optional
        The columns to take from Parquet files, in this order; all by default.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows(np.arange(6.0).reshape(3, 2))
    >>> rows.n_rows, rows.n_features
    (3, 2)
    """

    names: list[str] | None = None  # of the columns, if they have any
    in_groups = False  # whether rows here and there cost as much as all rows around them
    _unit = False  # whether rows are divided by their norms

    def __init__(
        self,
        source: ArrayLike | Tensor | RowSource | str | PathLike[str] | Sequence[str | PathLike[str]],
        names: list[str] | None = None,
    ) -> None:
        source = _opened(source, names)
        dtype = source.dtype
        if dtype.is_complex if isinstance(dtype, torch.dtype) else dtype.kind not in "fiub":
            raise ValueError(f"rows must be real numbers, got {dtype}")
        if len(source.shape) != 2 or 0 in source.shape:
            raise ValueError(f"rows must have shape (n, d) with n and d at least 1, got {tuple(source.shape)}")
        self._source = source
        # Small floats gain nothing from float64; everything else might lose something without it.
        small = source.dtype in (torch.float32, torch.float16, torch.bfloat16, np.float32, np.float16)
        self.dtype = torch.float32 if small else torch.float64
        self.n_rows, self.n_features = int(source.shape[0]), int(source.shape[1])
        if isinstance(source, RowSource):
            self.names, self.in_groups = source.names, source.in_groups

    def read(self, index: slice | NDArray[np.int64]) -> Tensor:
        """Return some rows as a float32 or float64 tensor of their own, on the CPU unless the source is a tensor elsewhere.

        NaN or infinite entries raise a ValueError.
        """
        if isinstance(self._source, Tensor):
            rows = self._source[index if isinstance(index, slice) else torch.from_numpy(index)].to(self.dtype, copy=True)
        else:
            dtype = np.float32 if self.dtype == torch.float32 else np.float64
            # Of an array it may be a view, of a file it is a copy already. The order in memory decides about rounding.
            copied = np.array if isinstance(self._source, np.ndarray) else np.asarray
            rows = torch.from_numpy(copied(self._source[index], dtype, order="C"))
        finite = torch.isfinite(rows).all(dim=1)
        if not finite.all():
            place = int(torch.argmin(finite.int()))
            row = range(*index.indices(self.n_rows))[place] if isinstance(index, slice) else int(index[place])
            raise ValueError(f"rows must be finite, but row {row} holds NaN or infinite entries; remove or impute it")
        return normalized(rows) if self._unit else rows

    def normalized(self) -> Self:
        """Return the same rows, each divided by its norm when it is read."""
        unit = copy.copy(self)
        unit._unit = True
        return unit

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
    first, *others = from_all_ranks((rows.n_rows, rows.n_features, _digest_or_error(rows, some)))
    for number, theirs in enumerate(others, start=1):
        if theirs != first:
            raise ValueError(
                "all processes must be given the same rows, of which each takes its share: process 0 has "
                f"{first[0]} rows of {first[1]} features, process {number} has {theirs[0]} of {theirs[1]}"
                + (", with other values" if theirs[:2] == first[:2] else "")
            )


def check_shares(rows: Rows, size: int) -> None:
    """Read this process's share once, and raise in all processes what goes wrong in any: later on they would wait for it."""
    if n_ranks() == 1:
        return
    mine: Exception | None = None
    try:
        for _ in rows.placed_blocks(size):
            pass
    except (ValueError, OSError) as error:
        mine = error
    for theirs in from_all_ranks(mine):
        if theirs is not None:
            raise theirs


def _digest_or_error(rows: Rows, numbers: NDArray[np.int64]) -> str:
    try:
        return digest([rows.read(numbers)])
    except (ValueError, OSError) as error:  # the other processes wait for an answer
        return str(error)


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


def _opened(source: Any, names: list[str] | None) -> NDArray[Any] | Tensor | RowSource:
    """Return what has a shape, a type and rows."""
    if _are_paths(source):
        paths = [source] if isinstance(source, str | PathLike) else source
        return open_paths(paths, None if names is None else lambda found: _all_of(names, found))
    if isinstance(source, Tensor):
        return source.detach()
    return source if isinstance(source, RowSource) else np.asanyarray(source)


def _are_paths(source: object) -> bool:
    if isinstance(source, list | tuple):
        return bool(source) and all(isinstance(part, str | PathLike) for part in source)
    return isinstance(source, str | PathLike)


def _all_of(names: list[str], found: list[str]) -> list[str]:
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"it lacks the columns {', '.join(missing)}, which are needed; its columns: {', '.join(found)}")
    return names


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
            raise ValueError("the rows are needed several times, but an iterator gives them once; give a loader or an array")
        if isinstance(getattr(loader, "sampler", None), RandomSampler):
            raise ValueError("rows are known by their place, but this loader shuffles them; set shuffle=False")
        self._loader = loader
        self._beginning: str | None = None  # a hash of the first batch, by which every pass is compared with this one
        self.n_rows = 0
        for batch in loader:
            with _in_batch(self.n_rows):
                rows = Rows(first_of(batch))
                if self.n_rows == 0:
                    self.n_features, self.dtype = rows.n_features, rows.dtype
                    self._beginning = digest([rows.read(slice(None))])
            if rows.n_features != self.n_features:
                raise ValueError(f"batches must have {self.n_features} features, as the first one does, got {rows.n_features}")
            self.dtype = torch.promote_types(self.dtype, rows.dtype)
            self.n_rows += rows.n_rows
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
        left: list[Tensor] = []  # fewer than size rows, all together
        for batch in self._batches():
            left.append(batch)
            if sum(map(len, left)) >= size:
                pieces = torch.split(torch.cat(left), size)
                n_full = len(pieces) - (len(pieces[-1]) < size)
                yield from pieces[:n_full]
                left = list(pieces[n_full:])
        if left:
            yield torch.cat(left)

    def placed_blocks(self, size: int) -> Iterator[tuple[slice, Tensor]]:
        """Go through this process's share of all rows once."""
        start = 0
        for block in self.blocks(size):
            yield slice(start, start + len(block)), block
            start += len(block)

    def _batches(self) -> Iterator[Tensor]:
        start = 0
        for batch in self._loader:
            with _in_batch(start):
                rows = Rows(first_of(batch)).read(slice(None))
            if start == 0 and digest([rows]) != self._beginning:
                raise ValueError("the loader began with other rows before; it must not shuffle, nor change anything at random")
            start += len(rows)
            rows = rows.to(self.dtype)
            yield normalized(rows) if self._unit else rows
        if start != self.n_rows:
            raise ValueError(f"the loader gave {self.n_rows} rows at first, now it gives {start}; it must give the same ones")


@contextmanager
def _in_batch(start: int) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"in a batch of the loader that begins with row {start}: {error}") from error


def is_large(source: object) -> bool:
    """Say whether these are rows on disk or of a loader, instead of an array-like in memory."""
    if _is_on_disk(source):
        return True
    if isinstance(source, list | tuple):
        return False
    known = isinstance(source, dict | set) or any(hasattr(source, name) for name in ("shape", "__array__", "__dataframe__"))
    return isinstance(source, Iterable) and not known


def large_rows(source: Any, names: list[str] | None = None) -> Rows:
    """Return the rows of what is large; ``names`` are those of the columns to take from Parquet files, if they matter."""
    return Rows(source, names) if _is_on_disk(source) else LoaderRows(source)


def _is_on_disk(source: object) -> bool:
    return isinstance(source, np.memmap | RowSource) or _are_paths(source)


def first_of(batch: Any) -> Any:
    """Return the rows of a batch: itself, or what it begins with."""
    return batch[0] if isinstance(batch, tuple | list) and batch else batch


def normalized(points: Tensor) -> Tensor:
    """Divide every row by its Euclidean norm; rows of zeros stay."""
    norms = torch.linalg.vector_norm(points, dim=1, keepdim=True)
    return points / torch.where(norms > 0, norms, 1)


def row_norms(points: Tensor) -> Tensor:
    """Return the Euclidean norms (n,) of points (n, d), in float64, where squares of what float32 can hold are finite."""
    norms: Tensor = torch.linalg.vector_norm(points, dim=1, dtype=torch.float64)
    return norms
