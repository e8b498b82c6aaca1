"""Rows on disk, read a part at a time: ``.npy`` files, Parquet files, and folders of them.

A source has a ``shape`` and a ``dtype`` and gives rows by slice or by number, as an array does. Every read maps or decodes
little more than it returns, and lets go of it again: a memory map that stays open would fill the memory with all that it has
touched.
"""

from collections.abc import Callable, Sequence
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


class _ArrayLike:
    """What NumPy needs to make an array of a source."""

    shape: tuple[int, ...]

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        rows: NDArray[Any] = self[:]  # type: ignore[index]  # a source
        return rows.astype(dtype, copy=False) if dtype else rows


class NpyFile(_ArrayLike):
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
        self.path = Path(path)
        with self.path.open("rb") as file:  # only the header: a map of everything may be more than the process is allowed
            version = np.lib.format.read_magic(file)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
            if read is None:
                raise ValueError(f"{self.path} has version {version} of the .npy format, which is for named columns")
            shape, column_by_column, dtype = read(file)
            self._offset = file.tell()
        if dtype.hasobject:
            raise ValueError(f"{self.path} holds Python objects, which are never loaded")
        if column_by_column and len(shape) > 1:
            raise ValueError(f"{self.path} is stored column by column; save it again with numpy.ascontiguousarray")
        self.shape: tuple[int, ...] = shape
        self.dtype: np.dtype[Any] = dtype
        needed, there = self._offset + dtype.itemsize * int(np.prod(shape)), self.path.stat().st_size
        if there < needed:
            raise ValueError(f"{self.path} is damaged: its header promises {needed} bytes, but there are {there}")

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
        try:
            part = np.memmap(self.path, self.dtype, "r", offset, (stop - start, *self.shape[1:]))
        except (OSError, ValueError) as error:
            raise OSError(f"rows {start} to {stop - 1} of {self.path} cannot be read: {error}") from error
        rows = part[index]
        return np.array(rows) if isinstance(index, slice) else np.asarray(rows)  # rows by number are a copy already


class ParquetFile(_ArrayLike):
    """The numbers in the columns of a Parquet file; one row group at a time is in memory."""

    def __init__(self, path: str | PathLike[str]) -> None:
        from pyarrow import parquet  # of the extra "tables"; needed for these files only

        self.path = Path(path)
        self._file = parquet.ParquetFile(self.path)
        metadata = self._file.metadata
        self._starts = np.cumsum([0, *(metadata.row_group(k).num_rows for k in range(metadata.num_row_groups))])
        self._decoded: tuple[int, NDArray[Any]] | None = None
        self.shape: tuple[int, ...] = (metadata.num_rows, metadata.num_columns)
        # The types of the columns of no rows, together: what all of them fit into.
        types = [field.type.to_pandas_dtype() for field in self._file.schema_arrow]
        self.dtype: np.dtype[Any] = np.result_type(*types)

    def __getitem__(self, index: Index) -> NDArray[Any]:
        numbers = np.arange(*index.indices(self.shape[0])) if isinstance(index, slice) else index
        rows = np.empty((len(numbers), self.shape[1]), self.dtype)
        groups = np.searchsorted(self._starts, numbers, side="right") - 1
        for group in np.unique(groups):
            chosen = groups == group
            rows[chosen] = self._group(int(group))[numbers[chosen] - self._starts[group]]
        return rows

    def _group(self, number: int) -> NDArray[Any]:
        if self._decoded is None or self._decoded[0] != number:
            self._decoded = None  # two at a time would be one too many
            table = self._file.read_row_group(number)
            columns = [column.to_numpy().astype(self.dtype, copy=False) for column in table.columns]
            self._decoded = number, np.stack(columns, axis=1)
        return self._decoded[1]


class Shards(_ArrayLike):
    """Several sources, one after the other.

    Examples
    --------
    >>> import numpy as np
    >>> shards = Shards([np.zeros((2, 3)), np.ones((4, 3))])
    >>> shards.shape, shards[1:3].tolist()
    ((6, 3), [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    """

    def __init__(self, parts: Sequence[Source]) -> None:
        widths = {part.shape[1:] for part in parts}
        if len(widths) != 1:
            raise ValueError(f"shards must have the same number of features, got {sorted(widths)}")
        self._parts = parts
        self._starts = np.cumsum([0, *(part.shape[0] for part in parts)])
        self.shape: tuple[int, ...] = (int(self._starts[-1]), *widths.pop())
        self.dtype: np.dtype[Any] = np.result_type(*(part.dtype for part in parts))

    def __getitem__(self, index: Index) -> NDArray[Any]:
        numbers = np.arange(*index.indices(self.shape[0])) if isinstance(index, slice) else index
        rows = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        places = np.searchsorted(self._starts, numbers, side="right") - 1
        for place in np.unique(places):
            chosen = places == place
            rows[chosen] = self._parts[place][numbers[chosen] - self._starts[place]]
        return rows


READERS: dict[str, Callable[[Path], Source]] = {".npy": NpyFile, ".parquet": ParquetFile}


def open_path(path: str | PathLike[str]) -> Source:
    """Return the rows of a file, or of all files of a folder in the order of their names."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in READERS)
        if not files:
            raise ValueError(f"the folder {path} holds no {' or '.join(READERS)} files")
        return Shards([_opened(file) for file in files])
    return _opened(path)


def _opened(path: Path) -> Source:
    if path.suffix not in READERS:
        raise ValueError(f"{path} must be a {' or '.join(READERS)} file, or a folder of such files")
    try:
        return READERS[path.suffix](path)
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
