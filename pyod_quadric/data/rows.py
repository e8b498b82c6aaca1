"""Rows from any source as tensors: arrays, files and folders, torch loaders.

Rows stay in their source until they are read. In a process group each process reads its share.
"""

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from os import PathLike
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import RandomSampler

from pyod_quadric.data.columns import Choice
from pyod_quadric.data.files import open_rows
from pyod_quadric.data.memory import in_memory
from pyod_quadric.data.sources import ArraySource, Index, RowSource, checked_shape, no_rows, not_finite, rechunked
from pyod_quadric.parallel.ranks import from_all_ranks, n_ranks, process_rank
from pyod_quadric.progress import counted, stage

N_COMPARED = 100  # rows by which processes see whether they have the same ones


class Rows(ABC):
    """Rows that are read as float32 or float64 tensors; NaN or infinite entries raise a ValueError that names the row.

    Attributes
    ----------
    n_rows, n_features : int
    dtype : torch.dtype
    names : list of str or None
        The names of the columns, if they have any.
    list_column : str or None
        The column of lists that holds the rows, if one does.
    decodes_groups : bool
        Whether random access costs as much as reading the whole enclosing row group.
    """

    n_rows: int
    n_features: int
    dtype: torch.dtype
    names: list[str] | None = None
    list_column: str | None = None
    decodes_groups = False
    _is_normalized = False
    _scales: Tensor | None = None
    _centre: Tensor | None = None
    _reach = float("inf")

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and features, like the shape of an array."""
        return self.n_rows, self.n_features

    @abstractmethod
    def read(self, index: Index) -> Tensor:
        """Return a copy of some rows as a tensor, on the CPU unless the source is a tensor on another device."""

    def blocks(self, size: int) -> Iterator[Tensor]:
        """Yield all rows in order in one pass, ``size`` at a time."""
        return (self.read(slice(start, start + size)) for start in range(0, self.n_rows, size))

    def placed_blocks(self, size: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield this process's share of all rows once, as slices of at most ``size`` rows and the rows in them."""
        n_mine = self.n_rows if n_ranks() == 1 else sum(where.stop - where.start for where in shares(self.n_rows, size))
        return counted(self._placed(size), n_mine, "rows", lambda placed: len(placed[1]))

    def _placed(self, size: int) -> Iterator[tuple[slice, Tensor]]:
        if n_ranks() > 1:
            yield from ((where, self.read(where)) for where in shares(self.n_rows, size))
            return
        start = 0
        for block in self.blocks(size):
            yield slice(start, start + len(block)), block
            start += len(block)

    def normalized(self) -> Self:
        """Return the same rows; reading divides each by its norm."""
        unit = copy.copy(self)
        unit._is_normalized = True
        return unit

    def scaled(self, scales: Tensor) -> Self:
        """Return the same rows; reading divides each column by its scale (d,)."""
        scaled = copy.copy(self)
        scaled._scales = scales
        return scaled

    def within(self, centre: Tensor, reach: float) -> Self:
        """Return the same rows; reading moves those farther than ``reach`` from ``centre`` (d,), once scaled, to there."""
        near = copy.copy(self)
        near._centre, near._reach = centre, reach
        return near

    def _prepared(self, rows: Tensor) -> Tensor:
        rows = rows if self._scales is None else scaled(rows, self._scales)
        rows = rows if self._centre is None else self._within_reach(rows, self._centre)
        return normalized(rows) if self._is_normalized else rows

    def _within_reach(self, rows: Tensor, centre: Tensor) -> Tensor:
        if not len(rows):
            return rows
        least, most = torch.aminmax(rows)  # a quick look, since rows are hardly ever out of reach
        if max(-float(least), float(most)) <= self._reach / self.n_features**0.5 - float(centre.abs().max()):
            return rows
        return within_reach(rows, centre.to(rows), rows.new_tensor(self._reach))


class ArrayRows(Rows):
    """Rows of a source with random access.

    Parameters
    ----------
    source : RowSource

    Examples
    --------
    >>> import numpy as np
    >>> rows = ArrayRows(ArraySource(np.arange(6.0).reshape(3, 2)))
    >>> rows.n_rows, rows.n_features, rows.read(slice(1))
    (3, 2, tensor([[0., 1.]], dtype=torch.float64))
    """

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self.names, self.list_column, self.decodes_groups = source.names, source.list_column, source.decodes_groups
        self.n_rows, self.n_features = source.shape
        if self.n_rows == 0:
            raise no_rows(source.origin)
        self.dtype = torch.float32 if source.dtype == np.float32 else torch.float64

    def read(self, index: Index) -> Tensor:
        """Return some rows."""
        rows = torch.from_numpy(self._source[index])
        finite = torch.isfinite(rows).all(dim=1)
        if not finite.all():
            row = int(np.arange(self.n_rows)[index][int(torch.argmin(finite.int()))])
            raise not_finite(row, self._source.origin)
        return self._prepared(rows)

    def blocks(self, size: int) -> Iterator[Tensor]:
        """Yield all rows in one pass over the source."""
        for block in self._source.marked_blocks(size):
            if not block.finite.all():
                raise not_finite(int(block.indices[~block.finite][0]), self._source.origin)
            yield self._prepared(torch.from_numpy(block.rows))


class ChosenRows(Rows):
    """Some of other rows.

    Parameters
    ----------
    rows : Rows
    indices : array of shape (k,)
        In ascending order.

    Examples
    --------
    >>> import numpy as np
    >>> ChosenRows(rows_of(np.arange(6.0).reshape(3, 2)), np.array([0, 2])).read(slice(1, 2))
    tensor([[4., 5.]], dtype=torch.float64)
    """

    def __init__(self, rows: Rows, indices: NDArray[np.int64]) -> None:
        self._rows, self._indices = rows, indices
        self.names, self.list_column, self.decodes_groups = rows.names, rows.list_column, rows.decodes_groups
        self.n_rows, self.n_features, self.dtype = len(indices), rows.n_features, rows.dtype

    def read(self, index: Index) -> Tensor:
        """Return some rows."""
        return self._prepared(self._rows.read(self._indices[index]))


class TensorRows(Rows):
    """Rows of a tensor; they stay on its device.

    Parameters
    ----------
    tensor : Tensor of shape (n, d)

    Examples
    --------
    >>> import torch
    >>> TensorRows(torch.ones(3, 2)).read(slice(2)).shape
    torch.Size([2, 2])
    """

    def __init__(self, tensor: Tensor) -> None:
        if tensor.is_complex():
            raise ValueError(f"rows must hold real numbers, got {tensor.dtype}")
        self._tensor = in_memory(tensor)
        self.n_rows, self.n_features = checked_shape(tuple(tensor.shape))
        if self.n_rows == 0:
            raise no_rows(None)
        # The rule of all sources; see pyod_quadric.data.sources.
        self.dtype = torch.float32 if tensor.is_floating_point() and tensor.element_size() <= 4 else torch.float64

    def read(self, index: Index) -> Tensor:
        """Return some rows."""
        some = self._tensor[index if isinstance(index, slice) else torch.from_numpy(index)]
        # Row by row, as arrays are read, since the order of numbers in memory decides how products are rounded.
        rows = some.to(self.dtype, copy=True, memory_format=torch.contiguous_format)
        finite = torch.isfinite(rows).all(dim=1)
        if not finite.all():
            row = int(np.arange(self.n_rows)[index][int(torch.argmin(finite.int()))])
            raise not_finite(row, None)
        return self._prepared(rows)


def check_shared(rows: Rows | None) -> None:
    """Raise a ValueError in all processes if they have different rows, or a loader (None); a sample of rows is compared.

    Otherwise each process would take its share of different data without an error.
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
    """Read this process's share once; raise an error of any process in all of them, which would otherwise wait for it."""
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
    """Yield the slices of the blocks of this process, at most ``size`` rows each.

    Examples
    --------
    >>> list(shares(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = min(size, -(-n_rows // n_ranks()))
    for start in range(process_rank() * size, n_rows, n_ranks() * size):
        yield slice(start, min(start + size, n_rows))


def rows_of(source: Any, names: list[str] | None = None, list_column: str | None = None) -> Rows:
    """Return rows of any supported kind as :class:`Rows`.

    Parameters
    ----------
    source : array-like of shape (n, d), Tensor, RowSource, path, sequence of paths, loader, or Rows
        Paths are those that :func:`pyod_quadric.data.files.open_rows` takes. A loader is an iterable of batches that can be
        iterated again in the same order.
    names : list of str, optional
        The features that a model was fitted to: the columns to take from files that have names, in this order.
    list_column : str, optional
        The column of lists that a model was fitted to; files that have it are read by it.

    Examples
    --------
    >>> import numpy as np
    >>> rows = rows_of(np.arange(6.0).reshape(3, 2))
    >>> rows.n_rows, rows.n_features
    (3, 2)
    """
    if isinstance(source, Rows):
        return source
    if are_paths(source):
        return ArrayRows(open_rows(source, Choice(list_column=list_column), wanted=names))
    if isinstance(source, RowSource):
        if names is not None and source.names is not None and source.names != names:
            raise ValueError(f"the columns must be {', '.join(names)}, in this order, got {', '.join(source.names)}")
        return ArrayRows(source)
    if is_loader(source):
        return LoaderRows(source)
    found = in_memory(source)
    return TensorRows(found) if isinstance(found, Tensor) else ArrayRows(ArraySource(np.asanyarray(found)))


def is_large(source: object) -> bool:
    """Return whether these are rows on disk, of a loader, in a tensor or with their own names, instead of an array-like."""
    return isinstance(source, np.memmap | RowSource | Rows | Tensor) or are_paths(source) or is_loader(source)


def large_rows(source: Any, names: list[str] | None = None, list_column: str | None = None) -> Rows:
    """Return the rows of a large source; the names, or the column of lists, are those of the model, if it has any."""
    return rows_of(source, names, list_column)


def are_paths(source: object) -> bool:
    """Return whether this is a path or a sequence of paths."""
    if isinstance(source, list | tuple):
        return bool(source) and all(isinstance(part, str | PathLike) for part in source)
    return isinstance(source, str | PathLike)


def is_loader(source: object) -> bool:
    """Return whether this is an iterable of batches instead of rows."""
    if isinstance(source, Sequence | Mapping | set | PathLike):
        return False
    is_array = any(hasattr(source, name) for name in ("shape", "__array__", "__dataframe__", "__dlpack__"))
    return isinstance(source, Iterable) and not is_array


class LoaderRows(Rows):
    """Rows of a torch ``DataLoader``, or of any iterable of batches that can be iterated again, by their position in it.

    Every read takes a pass over the loader, so read many rows at once. The order must be the same in every pass.

    Parameters
    ----------
    loader : iterable of Tensor or array of shape (?, d), or of tuples and lists that begin with one, or dictionaries of one

    Examples
    --------
    >>> import torch
    >>> rows = LoaderRows([torch.zeros(2, 3), torch.ones(4, 3)])
    >>> rows.n_rows, [len(block) for block in rows.blocks(5)]
    (6, [5, 1])
    """

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader = loader
        if self._begun() is loader:
            raise ValueError("the rows are needed several times, but an iterator gives them once; give a loader or an array")
        if isinstance(getattr(loader, "sampler", None), RandomSampler):
            raise ValueError("rows are known by their place, but this loader shuffles them; set shuffle=False")
        self._beginning: str | None = None  # a hash of the first batch, by which every pass is compared with this one
        self.n_rows = 0
        self._first_pass()

    @stage("reading")
    def _first_pass(self) -> None:
        n_batches = len(self._loader) if isinstance(self._loader, Sized) else None
        for batch in counted(self._begun(), n_batches, "batches"):
            with _in_batch(self.n_rows):
                rows = rows_of(first_of(batch))
                if self.n_rows == 0:
                    self.n_features, self.dtype = rows.n_features, rows.dtype
                    self._beginning = digest([rows.read(slice(None))])
            if rows.n_features != self.n_features:
                raise ValueError(f"batches must have {self.n_features} features, as the first one does, got {rows.n_features}")
            self.dtype = torch.promote_types(self.dtype, rows.dtype)
            self.n_rows += rows.n_rows
        if not self.n_rows:
            raise ValueError("the loader has no rows")

    def _begun(self) -> Iterator[Any]:
        """Begin a pass. A DataLoader draws a seed for its workers then, from the generator that everyone shares."""
        with torch.random.fork_rng(devices=[]):
            return iter(self._loader)

    def read(self, index: Index) -> Tensor:
        """Return some rows, in one pass over the loader."""
        indices = np.arange(*index.indices(self.n_rows)) if isinstance(index, slice) else index
        found = torch.empty(len(indices), self.n_features, dtype=self.dtype)
        start = 0
        for batch in self._batches():
            here = (indices >= start) & (indices < start + len(batch))
            found[torch.from_numpy(here)] = batch[torch.from_numpy(indices[here] - start)].cpu()
            start += len(batch)
        return found

    def blocks(self, size: int) -> Iterator[Tensor]:
        """Yield all rows in order in one pass, ``size`` at a time."""
        return rechunked(self._batches(), size, torch.cat)

    def _batches(self) -> Iterator[Tensor]:
        start = 0
        for batch in self._begun():
            with _in_batch(start):
                rows = rows_of(first_of(batch)).read(slice(None))
            if start == 0 and digest([rows]) != self._beginning:
                raise ValueError("the loader began with other rows before; it must not shuffle, nor change anything at random")
            start += len(rows)
            yield self._prepared(rows.to(self.dtype))
        if start != self.n_rows:
            raise ValueError(f"the loader gave {self.n_rows} rows at first, now it gives {start}; it must give the same ones")


@contextmanager
def _in_batch(start: int) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError) as error:
        raise type(error)(f"in a batch of the loader that begins with row {start}: {error}") from error


def first_of(batch: Any) -> Any:
    """Return the rows of a batch: the batch itself, its first element, or the only value of a dictionary."""
    if isinstance(batch, Mapping) and len(batch) == 1:
        return next(iter(batch.values()))
    return batch[0] if isinstance(batch, tuple | list) and batch else batch


def scaled(points: Tensor, scales: Tensor) -> Tensor:
    """Divide points (n, d) by the scales (d,) of their features; results out of range become the largest finite number.

    Examples
    --------
    >>> scaled(torch.tensor([[3.0, 1e38]]), torch.tensor([2.0, 1e-3]))
    tensor([[1.5000e+00, 3.4028e+38]])
    """
    most = _constant(torch.finfo(points.dtype).max, points)
    return torch.minimum(torch.maximum(points / scales.to(points), -most), most)


def normalized(points: Tensor) -> Tensor:
    """Divide every row by its Euclidean norm; rows of zeros stay unchanged.

    Examples
    --------
    >>> normalized(torch.tensor([[3e300, 4e300], [3.0, 4.0]], dtype=torch.float64))
    tensor([[0.6000, 0.8000],
            [0.6000, 0.8000]], dtype=torch.float64)
    """
    # Squares may leave the range of numbers beyond these, so the largest entry is made 1 before.
    least, most = (_constant(number**0.4, points) for number in (torch.finfo(points.dtype).tiny, torch.finfo(points.dtype).max))
    sizes = points.abs().amax(dim=1, keepdim=True)
    points = points / torch.where((sizes > 0) & ((sizes < least) | (sizes > most)), sizes, 1)
    norms = torch.linalg.vector_norm(points, dim=1, keepdim=True)
    return points / torch.where(norms > 0, norms, 1)


def _constant(number: float, like: Tensor) -> Tensor:
    """Return a number as a tensor (1,): ONNX graphs of torch have Python's numbers, and tensors without shape, as float32."""
    return torch.tensor([number], dtype=like.dtype).to(like.device)


def row_norms(points: Tensor) -> Tensor:
    """Return the Euclidean norms (n,) of points (n, d), in float64, so that squares of float32 numbers do not overflow."""
    norms: Tensor = torch.linalg.vector_norm(points, dim=1, dtype=torch.float64)
    return norms


def within_reach(points: Tensor, centre: Tensor, reach: Tensor) -> Tensor:
    """Return points (n, d), moving those farther than ``reach`` from ``centre`` (d,) to that distance, in their direction.

    Within reach, squares do not overflow. All results for a farther point are those of the point in its place. NaN stays NaN.

    Examples
    --------
    >>> points = torch.tensor([[3.0, 4.0], [3e38, 4e37], [-torch.inf, 0.0]])
    >>> within_reach(points, torch.zeros(2), torch.tensor(10.0)).round(decimals=1)
    tensor([[  3.0000,   4.0000],
            [  9.9000,   1.3000],
            [-10.0000,   0.0000]])
    """
    d = points.shape[1]
    largest = _constant(torch.finfo(points.dtype).max, points)
    most = largest / (4 * d)  # of which the length can be computed
    finite = torch.minimum(torch.maximum(points, -largest), largest)
    # What is larger is divided as a whole, so that it keeps its direction; beside it a centre is nothing.
    away = finite / (finite.abs().amax(dim=1, keepdim=True) / most).clamp(min=1) - centre
    reach = torch.minimum(reach, most)
    sizes = torch.maximum(away.abs().amax(dim=1, keepdim=True), reach / d)
    lengths = torch.maximum(sizes * torch.linalg.vector_norm(away / sizes, dim=1, keepdim=True), reach)
    return torch.where(lengths > reach, centre + away * (reach / lengths), points)
