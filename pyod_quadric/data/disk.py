"""A file of rows on disk, read a part at a time, and the simplest one: ``.npy``.

A source has a ``shape`` and a ``dtype`` and gives rows by slice or by number, as an array does. Every read maps or decodes
little more than it returns, and lets go of it again: a memory map that stays open would fill the memory with all that it has
touched.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Index = slice | NDArray[np.int64]
WINDOW_BYTES = 2**26  # of a file that are mapped at once to read rows here and there


class Source(Protocol):
    """What has rows."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, index: Index) -> NDArray[Any]:
        """Return rows, by slice or by number."""


class RowSource(ABC):
    """A source of which NumPy can make an array.

    Attributes
    ----------
    names : list of str or None
        Of the columns, if they have any.
    in_groups : bool
        Whether rows here and there cost as much as all rows around them, so that many should be read at once.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    names: list[str] | None = None
    in_groups = False

    @abstractmethod
    def __getitem__(self, index: Index) -> NDArray[Any]:
        """Return rows, by slice or by number."""

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        rows = self[slice(None)]
        return rows.astype(dtype, copy=False) if dtype else rows


class OnDisk(RowSource):
    """A file, which must stay as it was when it was opened."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self._stamp = self._look()

    def _look(self) -> tuple[int, int, int]:
        found = self.path.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns

    @contextmanager
    def _unchanged(self, what: str) -> Iterator[None]:
        """Say what could not be read, if what is done inside fails or the file is another one by now."""
        try:
            if self._look() != self._stamp:
                raise ValueError("the file has changed since it was opened")
            yield
        except (OSError, ValueError) as error:
            raise OSError(f"{what} of {self.path} cannot be read: {error}") from error


class NpyFile(OnDisk):
    """The array in a ``.npy`` file.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/rows.npy", np.arange(6.0).reshape(3, 2))
    ...     NpyFile(f"{folder}/rows.npy")[np.array([2, 0])].tolist()
    [[4.0, 5.0], [0.0, 1.0]]
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        super().__init__(path)
        with self.path.open("rb") as file:  # only the header: a map of everything may be more than the process is allowed
            version = np.lib.format.read_magic(file)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
            if read is None:
                raise ValueError(f"it has version {version} of the .npy format, which is for named columns")
            shape, column_by_column, dtype = read(file)
            self._offset = file.tell()
        if dtype.hasobject:
            raise ValueError("it holds Python objects, which are never loaded")
        if column_by_column and len(shape) > 1:
            raise ValueError("it is stored column by column; save it again with numpy.ascontiguousarray")
        self.shape = shape
        self._stored = dtype
        self.dtype = dtype.newbyteorder("=")
        needed, there = self._offset + dtype.itemsize * int(np.prod(shape)), self.path.stat().st_size
        if there < needed:
            raise ValueError(f"it is damaged: its header promises {needed} bytes, but there are {there}")

    def __getitem__(self, index: Index) -> NDArray[Any]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self.shape[0])
            return self._copied(start, max(start, stop), slice(None, None, step))
        rows = np.empty((len(index), *self.shape[1:]), self.dtype)
        windows = index // max(1, WINDOW_BYTES // self._row_bytes())  # rows may be far apart, and what is between is not needed
        for window in np.unique(windows):
            chosen = windows == window
            first = int(index[chosen].min())
            rows[chosen] = self._copied(first, int(index[chosen].max()) + 1, index[chosen] - first)
        return rows

    def _row_bytes(self) -> int:
        return max(1, self.dtype.itemsize * int(np.prod(self.shape[1:])))

    def _copied(self, start: int, stop: int, index: Index) -> NDArray[Any]:
        if start == stop:
            return np.empty((0, *self.shape[1:]), self.dtype)
        offset = self._offset + start * self._row_bytes()
        with self._unchanged(f"rows {start} to {stop - 1}"):
            part = np.memmap(self.path, self._stored, "r", offset, (stop - start, *self.shape[1:]))
        rows = part[index]
        copied = np.array(rows) if isinstance(index, slice) else np.asarray(rows)  # rows by number are a copy already
        return copied.astype(self.dtype, copy=False)
