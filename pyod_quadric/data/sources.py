"""Sources of rows: they have a shape, a type and perhaps names, and are read by random access or in one pass.

Every source yields float32 or float64, by one rule: NumPy promotes all stored types to one; then float16 and bfloat16 become
float32, and everything that is not a float becomes float64.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

# What to do about rows that hold NaN; the command line has a word of its own.
INCOMPLETE = "leave such rows out by finite_rows(...), or impute what is missing"
Index = slice | NDArray[np.int64]
Sized = TypeVar("Sized", NDArray[Any], Any)


class Block(NamedTuple):
    """Some rows of a source."""

    indices: NDArray[np.int64]  # (n,), from 0 on
    rows: NDArray[Any]  # (n, d)
    finite: NDArray[np.bool_]  # (n,)
    ids: NDArray[Any] | None = None  # (n,)

    def only(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> "Block":
        """Return some of the rows."""
        ids = None if self.ids is None else self.ids[chosen]
        return Block(self.indices[chosen], self.rows[chosen], self.finite[chosen], ids)

    def followed_by(self, other: "Block") -> "Block":
        """Return the rows of both; either both have ids or neither has."""
        ids = None if self.ids is None or other.ids is None else np.concatenate([self.ids, other.ids])
        indices, finite = np.concatenate([self.indices, other.indices]), np.concatenate([self.finite, other.finite])
        return Block(indices, np.concatenate([self.rows, other.rows]), finite, ids)


@dataclass(frozen=True, eq=False)
class Identified:
    """Rows with their ids, which can be sliced and joined.

    Examples
    --------
    >>> import numpy as np
    >>> part = Identified(np.zeros((3, 2)), np.array(["a", "b", "c"]))
    >>> Identified.joined([part, part[:1]]).ids.tolist()
    ['a', 'b', 'c', 'a']
    """

    rows: NDArray[Any]  # (n, d)
    ids: NDArray[Any] | None  # (n,)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Index) -> "Identified":
        return Identified(self.rows[index], None if self.ids is None else self.ids[index])

    @staticmethod
    def joined(parts: "list[Identified]") -> "Identified":
        """Concatenate parts; either all have ids or none has."""
        ids = [part.ids for part in parts if part.ids is not None]
        return Identified(np.concatenate([part.rows for part in parts]), np.concatenate(ids) if ids else None)


class RowSource(ABC):
    """Rows (n, d) of float32 or float64.

    Attributes
    ----------
    stored : numpy.dtype
        The stored type; for several columns or files, the type to which NumPy promotes them.
    dtype : numpy.dtype
        The type of the rows that are read.
    n_features : int
    n_rows : int or None
        None if only a pass can tell.
    names : list of str or None
        The names of the columns, if they have any.
    origin : str or None
        Where the rows come from, for error messages.
    id_column : str or None
        The column whose values identify the rows, if one was chosen.
    id_type : numpy.dtype
        The type of these values: numeric or text.
    list_column : str or None
        The column of lists that holds the rows, if one does.
    decodes_groups : bool
        Whether random access costs as much as reading the whole enclosing row group, so that many rows should be read at once.
    """

    stored: np.dtype[Any]
    dtype: np.dtype[Any]
    n_features: int
    n_rows: int | None
    names: list[str] | None
    origin: str | None
    id_column: str | None = None
    id_type: np.dtype[Any] = np.dtype(str)
    list_column: str | None = None
    decodes_groups = False

    def _describe(
        self,
        n_rows: int | None,
        n_features: int,
        stored: DTypeLike,
        names: list[str] | None = None,
        origin: str | None = None,
    ) -> None:
        """Set the attributes."""
        self.n_rows, self.n_features, self.names, self.origin = n_rows, n_features, names, origin
        self.stored = np.dtype(stored)
        self.dtype = working_type(self.stored, origin)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and features."""
        if self.n_rows is None:
            self.n_rows = self._count()
        return self.n_rows, self.n_features

    @property
    def labels(self) -> NDArray[Any] | None:
        """The labels (n,) of the rows, if a column of labels was chosen."""
        return None

    @abstractmethod
    def __getitem__(self, index: Index) -> NDArray[Any]:
        """Return a copy of rows by slice or by index, in C order; NaN is kept."""

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """Yield all rows in order in one pass, ``size`` at a time; NaN is kept."""
        return (self[slice(start, start + size)] for start in range(0, self.shape[0], size))

    def identified_blocks(self, size: int) -> Iterator[Identified]:
        """Yield all rows in one pass, with their ids if an id column was chosen."""
        return (Identified(rows, None) for rows in self.blocks(size))

    def marked_blocks(self, size: int, *, with_ids: bool = False) -> Iterator[Block]:
        """Yield all rows in one pass and mark the finite ones, so that the caller decides about the others."""
        start = 0
        for part in self.identified_blocks(size) if with_ids else (Identified(rows, None) for rows in self.blocks(size)):
            finite = np.asarray(np.isfinite(part.rows).all(axis=1))
            yield Block(np.arange(start, start + len(part)), part.rows, finite, part.ids)
            start += len(part)
        if start == 0:
            raise no_rows(self.origin)

    def load(self) -> None:  # noqa: B027, most sources have nothing to load
        """Read everything into memory, if random access needs that."""

    def release(self) -> None:  # noqa: B027, nor to release
        """Drop cached data from memory."""

    def _count(self) -> int:
        return sum(map(len, self.blocks(4096)))

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        rows = self[slice(None)]
        return rows.astype(dtype, copy=False) if dtype else rows


class ArraySource(RowSource):
    """Rows of an array in memory or of a memory map, with optional names.

    Parameters
    ----------
    array : array-like of shape (n, d)
    names : list of str, optional
    labels : array of shape (n,), optional
    origin : str, optional
        Where it comes from.
    ids : (str, array of shape (n,)), optional
        The name of the id column, and the ids.

    Examples
    --------
    >>> import numpy as np
    >>> source = ArraySource(np.arange(6).reshape(3, 2), names=["a", "b"])
    >>> source.shape, source.dtype, source[1:].tolist()
    ((3, 2), dtype('float64'), [[2.0, 3.0], [4.0, 5.0]])
    """

    def __init__(
        self,
        array: ArrayLike,
        names: list[str] | None = None,
        labels: NDArray[Any] | None = None,
        origin: str | None = None,
        ids: tuple[str, NDArray[Any]] | None = None,
    ) -> None:
        self._array, self._labels = np.asanyarray(array), labels
        shape = checked_shape(self._array.shape, origin)
        self._describe(*shape, self._array.dtype, names, origin)
        if names is not None and len(names) != shape[1]:
            raise ValueError(f"there must be a name for each of {shape[1]} columns, got {len(names)}")
        for what, values in (("labels", labels), ("ids", None if ids is None else ids[1])):
            if values is not None and values.shape != shape[:1]:
                raise ValueError(f"{origin or 'the array'} has {shape[0]} rows, but {what} of shape {values.shape}")
        if ids is not None:
            self.id_column, self._ids = ids
            self.id_type = self._ids.dtype

    @property
    def labels(self) -> NDArray[Any] | None:
        """The labels (n,), if there are any."""
        return self._labels

    def identified_blocks(self, size: int) -> Iterator[Identified]:
        """Yield all rows in one pass, with their ids if there are any."""
        for start, rows in enumerate(self.blocks(size)):
            where = slice(start * size, (start + 1) * size)
            yield Identified(rows, None if self.id_column is None else self._ids[where])

    def __getitem__(self, index: Index) -> NDArray[Any]:
        # A slice is a view, which must be copied; rows by index are a copy already.
        copied: Callable[..., NDArray[Any]] = np.array if isinstance(index, slice) else np.asarray
        return copied(self._array[index], self.dtype, order="C")


class Subset(RowSource):
    """Some rows of a source, read on demand.

    Parameters
    ----------
    source : RowSource
    indices : array of shape (k,)
        The indices of the rows, in ascending order.

    Examples
    --------
    >>> import numpy as np
    >>> Subset(ArraySource(np.arange(4.0)[:, None]), np.array([1, 3]))[:].tolist()
    [[1.0], [3.0]]
    """

    def __init__(self, source: RowSource, indices: NDArray[np.int64]) -> None:
        if (np.diff(indices) <= 0).any():
            raise ValueError("the indices of a subset must rise")
        self._source, self.indices = source, indices
        self._describe(len(indices), source.n_features, source.stored, source.names, source.origin)
        self.decodes_groups, self.list_column = source.decodes_groups, source.list_column
        self.id_column, self.id_type = source.id_column, source.id_type

    @property
    def labels(self) -> NDArray[Any] | None:
        """The labels (k,) of these rows, if there are any."""
        labels = self._source.labels
        return None if labels is None else labels[self.indices]

    def __getitem__(self, index: Index) -> NDArray[Any]:
        return self._source[self.indices[index]]

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """Yield these rows, in one pass over all rows."""
        return rechunked(self._chosen(self._source.blocks(size)), size, np.concatenate)

    def identified_blocks(self, size: int) -> Iterator[Identified]:
        """Yield these rows in one pass, with their ids if there are any."""
        return rechunked(self._chosen(self._source.identified_blocks(size)), size, Identified.joined)

    def _chosen(self, blocks: Iterator[Sized]) -> Iterator[Sized]:
        start = 0
        for block in blocks:
            first, last = np.searchsorted(self.indices, [start, start + len(block)])
            yield block[self.indices[first:last] - start]
            start += len(block)

    def load(self) -> None:
        """Read all rows of the source into memory, if random access needs that."""
        self._source.load()

    def release(self) -> None:
        """Drop the cached data of the source."""
        self._source.release()


class Shards(RowSource):
    """Several sources, one after the other.

    Parameters
    ----------
    parts : sequence of RowSource
        All with the same number of features. The names are those of the first part that has any.

    Examples
    --------
    >>> import numpy as np
    >>> shards = Shards([ArraySource(np.zeros((2, 3))), ArraySource(np.ones((4, 3)))])
    >>> shards.shape, shards[1:3].tolist()
    ((6, 3), [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    """

    def __init__(self, parts: Sequence[RowSource], origin: str | None = None) -> None:
        if len({part.n_features for part in parts}) != 1:
            widths = sorted(f"{part.origin or 'an array'}: {part.n_features}" for part in parts)
            raise ValueError(f"shards must have the same number of features, got {', '.join(widths)}")
        self._parts, self._last = parts, 0
        names = next((part.names for part in parts if part.names is not None), None)
        sizes = [part.n_rows for part in parts]
        n_rows = None if None in sizes else sum(size or 0 for size in sizes)
        self._describe(n_rows, parts[0].n_features, np.result_type(*(part.stored for part in parts)), names, origin)
        self.decodes_groups = any(part.decodes_groups for part in parts)
        self.list_column = next((part.list_column for part in parts if part.list_column is not None), None)
        if parts[0].id_column is not None:
            self.id_column = parts[0].id_column
            self.id_type = _common_type([part.id_type for part in parts], f"the column {self.id_column} of {origin}")

    @property
    def labels(self) -> NDArray[Any] | None:
        """The labels (n,) of all parts, if they have any."""
        found = [part.labels for part in self._parts]
        return None if found[0] is None else np.concatenate([labels for labels in found if labels is not None])

    def __getitem__(self, index: Index) -> NDArray[Any]:
        indices = np.arange(*index.indices(self.shape[0])) if isinstance(index, slice) else index
        rows = np.empty((len(indices), self.n_features), self.dtype)
        starts = np.cumsum([0, *(part.shape[0] for part in self._parts)])
        holders = np.searchsorted(starts, indices, side="right") - 1
        for holder in np.unique(holders):
            chosen = holders == holder
            if holder != self._last:  # not all parts are to keep something
                self._parts[self._last].release()
                self._last = int(holder)
            rows[chosen] = self._parts[holder][indices[chosen] - starts[holder]]
        return rows

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """Yield the rows of the parts, one part after the other."""
        rows = (block.astype(self.dtype, copy=False) for part in self._parts for block in part.blocks(size))
        return rechunked(rows, size, np.concatenate)

    def identified_blocks(self, size: int) -> Iterator[Identified]:
        """Yield the rows of the parts, one part after the other, with their ids if there are any."""
        blocks = (block for part in self._parts for block in part.identified_blocks(size))
        typed = (Identified(block.rows.astype(self.dtype, copy=False), block.ids) for block in blocks)
        return rechunked(typed, size, Identified.joined)

    def load(self) -> None:
        """Read those parts into memory whose random access needs that."""
        for part in self._parts:
            part.load()

    def _count(self) -> int:
        return sum(part.shape[0] for part in self._parts)


def _common_type(types: list[np.dtype[Any]], what: str) -> np.dtype[Any]:
    """Return the type of ids that come from several files."""
    are_texts = {kind.kind == "U" for kind in types}
    if len(are_texts) > 1:
        raise ValueError(f"{what} must hold numbers in all files, or texts in all, got {', '.join(map(str, set(types)))}")
    return np.result_type(*types)


def rechunked(parts: Iterable[Sized], size: int, join: Callable[[list[Sized]], Sized]) -> Iterator[Sized]:
    """Yield parts of ``size`` rows (the last may have fewer) from parts of any number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> [len(block) for block in rechunked([np.ones((2, 1)), np.ones((5, 1))], 3, np.concatenate)]
    [3, 3, 1]
    """
    left: list[Sized] = []
    n_left = 0
    for part in parts:
        start = 0
        while n_left + len(part) - start >= size:
            stop = start + size - n_left
            left.append(part[start:stop])
            yield join(left) if len(left) > 1 else left[0]
            left, n_left, start = [], 0, stop
        if start < len(part):
            left.append(part[start:])
            n_left += len(part) - start
    if left:
        yield join(left) if len(left) > 1 else left[0]


def working_type(stored: DTypeLike, origin: str | None = None) -> np.dtype[Any]:
    """Return the type, float32 or float64, in which rows of a stored type are read.

    Examples
    --------
    >>> working_type("float16"), working_type("int8")
    (dtype('float32'), dtype('float64'))
    """
    found = np.dtype(stored)
    if found.kind == "V" and np.can_cast(found, np.float32):  # bfloat16, which NumPy knows from other packages alone
        return np.dtype(np.float32)
    if found.kind not in "fiub":
        raise ValueError(f"{origin or 'rows'} must hold real numbers, got {found}")
    return np.dtype(np.float32 if found.kind == "f" and found.itemsize <= 4 else np.float64)


def checked_shape(shape: tuple[int, ...], origin: str | None = None) -> tuple[int, int]:
    """Return the shape (n, d) if it is valid for rows, or raise a ValueError."""
    if len(shape) != 2 or shape[1] == 0:
        remedy = "; one row is X[None], one feature X[:, None]" if len(shape) == 1 and origin is None else ""
        raise ValueError(
            f"{origin or 'the array'} must hold rows of shape (n, d) with d at least 1, got {tuple(shape)}{remedy}"
        )
    return int(shape[0]), int(shape[1])


def no_rows(origin: str | None) -> ValueError:
    """Return the error to raise if there are no rows."""
    return ValueError(f"{origin or 'the source'} has no rows; at least 1 is needed")


def check_finite(rows: NDArray[np.floating]) -> None:
    """Raise a ValueError that names the first row (n, d) with NaN or infinite entries, if there is one.

    Examples
    --------
    >>> check_finite(np.eye(2))
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total = rows.sum(dtype=np.float64)  # a pass without a copy; only if it overflows, more is needed
    if not np.isfinite(total):
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            raise not_finite(int(np.argmin(finite)), None)


def not_finite(row: int, origin: str | None) -> ValueError:
    """Return the error to raise for a row with NaN or infinite entries."""
    where = f" of {origin} (counted from 0)" if origin else ""
    return ValueError(f"row {row}{where} holds NaN or infinite entries; {INCOMPLETE}")
