"""Files of rows that are read in parts, and NumPy's files: ``.npy`` and ``.npz``.

Every read takes little more from the file than it returns. Files are not mapped: a mapped file that is cut off while it is read
would end the process.
"""

import csv
import itertools
import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.data.columns import Choice, listed
from pyod_quadric.data.sources import ArraySource, Index, RowSource, checked_shape

WINDOW_BYTES = 2**26  # of a file that are read at once
GAP_BYTES = 2**14  # what is between rows is read with them, if it is less: that costs less than another call
DAMAGE = (OSError, EOFError, ValueError, KeyError, RuntimeError, SyntaxError, csv.Error, zipfile.BadZipFile, zlib.error)


class OnDisk(RowSource):
    """A file that must not change after it is opened."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self._stamp = self._current_stamp()

    def _current_stamp(self) -> tuple[int, int, int]:
        found = self.path.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns

    @contextmanager
    def _unchanged(self, what: str) -> Iterator[None]:
        """Say what could not be read, if what is done inside fails or the file is another one by now."""
        try:
            if self._current_stamp() != self._stamp:
                raise ValueError("the file has changed since it was opened")
            yield
        except (OSError, ValueError) as error:
            raise OSError(f"{what} of {self.path} cannot be read: {error}") from error


class NpyFile(OnDisk):
    """The array in a ``.npy`` file, in C or Fortran order.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/rows.npy", np.arange(6.0).reshape(3, 2))
    ...     NpyFile(f"{folder}/rows.npy")[np.array([2, 0])].tolist()
    [[4.0, 5.0], [0.0, 1.0]]
    """

    def __init__(self, path: str | PathLike[str], choice: Choice | None = None) -> None:
        super().__init__(path)
        choice = choice or Choice()
        choice.check_effect(path)
        choice.check_header(path)
        with damage_named(path), self.path.open("rb") as file:
            shape, self._by_column, self._stored = _npy_header(file, os.fstat(file.fileno()).st_size)
            self._offset = file.tell()
        n_rows, n_features = checked_shape(shape, str(path))
        row_bytes = n_features * self._stored.itemsize
        self._describe(n_rows, n_features, self._stored.newbyteorder("="), origin=str(path))
        self._window = max(1, WINDOW_BYTES // row_bytes)
        self._gap = max(1, GAP_BYTES // (self._stored.itemsize if self._by_column else row_bytes))

    def __getitem__(self, index: Index) -> NDArray[Any]:
        if not isinstance(index, slice):
            return self._some(index)
        start, stop, step = index.indices(self.shape[0])
        if step != 1:
            return self._some(np.arange(start, stop, step))
        rows = np.empty((max(0, stop - start), self.n_features), self.dtype)
        with self._opened(start, stop) as file:
            for first in range(0, len(rows), self._window):
                self._read(file, start + first, rows[first : first + self._window])
        return rows

    def _some(self, index: NDArray[np.int64]) -> NDArray[Any]:
        """Return rows by index, in whatever order."""
        rows = np.empty((len(index), self.n_features), self.dtype)
        if not len(index):
            return rows
        order = np.argsort(index, kind="stable")
        numbers = index[order]
        # In one go what is near each other, but no more than a window.
        ends = (np.diff(numbers) > self._gap) | (np.diff(numbers // self._window) > 0)
        starts = [0, *(np.flatnonzero(ends) + 1).tolist(), len(numbers)]
        with self._opened(numbers[0], numbers[-1] + 1) as file:
            for start, stop in itertools.pairwise(starts):
                first = int(numbers[start])
                chosen = numbers[start:stop] - first if stop > start + 1 else None
                self._read(file, first, rows[start:stop], chosen)
        if (order[:-1] < order[1:]).all():
            return rows
        found = np.empty_like(rows)
        found[order] = rows
        return found

    @contextmanager
    def _opened(self, start: int, stop: int) -> Iterator[FileIO]:
        with self._unchanged(f"rows {start} to {stop - 1}"), self.path.open("rb", buffering=0) as file:
            yield file

    def _read(self, file: FileIO, first: int, rows: NDArray[Any], chosen: NDArray[np.int64] | None = None) -> None:
        """Fill an array (n, d) with rows from a number on: the next n ones, or those chosen, counted from there and rising.

        A memory map would save a copy, but where a file is cut off while it is read, the system would end the process.
        """
        count = len(rows) if chosen is None else int(chosen[-1]) + 1
        picked = slice(None) if chosen is None else chosen
        if self._by_column:
            for column in range(self.n_features):
                rows[:, column] = self._numbers(file, column * self.shape[0] + first, count)[picked]
        elif self._stored == rows.dtype and chosen is None:
            self._fill(file, first * self.n_features, rows)
        else:
            numbers = self._numbers(file, first * self.n_features, count * self.n_features)
            rows[:] = numbers.reshape(count, self.n_features)[picked]

    def _numbers(self, file: FileIO, first: int, count: int) -> NDArray[Any]:
        """Return ``count`` numbers from the index ``first`` on, as they are stored."""
        numbers = np.empty(count, self._stored)
        self._fill(file, first, numbers)
        return numbers

    def _fill(self, file: FileIO, first: int, numbers: NDArray[Any]) -> None:
        """Fill an array of the stored type with the numbers from one on."""
        left = numbers.reshape(-1).view(np.uint8).data
        file.seek(self._offset + first * self._stored.itemsize)
        while left:
            n_read = file.readinto(left)
            if not n_read:
                raise ValueError("the file was cut off while it was read")
            left = left[n_read:]


def _npy_header(file: IO[bytes], there: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape, whether the order is Fortran's, and the type, after a check against the size of the file."""
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"it has version {version} of the .npy format, which is for named columns")
    try:
        shape, by_column, dtype = read(file)
    except (tokenize.TokenError, SyntaxError, RecursionError, MemoryError) as error:  # it is parsed as Python's literals are
        raise ValueError(f"its header is damaged: {error}") from error
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never loaded")
    if any(type(length) is not int for length in shape):  # True and False are ints to Python, but not always to NumPy
        raise ValueError(f"it is damaged: its header promises a shape of {shape}")
    needed = file.tell() + dtype.itemsize * math.prod(shape)  # in Python's numbers, which do not overflow
    if min(shape, default=0) < 0 or there < needed:
        raise ValueError(f"it is damaged: its header promises {needed} bytes of shape {shape}, but there are {there}")
    return shape, by_column and len(shape) > 1, dtype


def check_npy(path: str | PathLike[str]) -> None:
    """Raise a ValueError if a ``.npy`` file is shorter than its header promises, before memory for it is allocated."""
    with damage_named(path), Path(path).open("rb") as file:
        _npy_header(file, os.fstat(file.fileno()).st_size)


def open_npz(path: str | PathLike[str], choice: Choice | None = None) -> ArraySource:
    """Read the rows of an ``.npz`` file into memory.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/rows.npz", X=np.zeros((3, 2)), y=np.arange(3))
    ...     source = open_npz(f"{folder}/rows.npz", Choice(label_column="y"))
    >>> source.shape, source.labels.tolist()
    ((3, 2), [0, 1, 2])
    """
    choice = choice or Choice()
    choice.check_effect(path, labels=True, array=True)
    choice.check_header(path)
    with damage_named(path):
        arrays = np.load(path, allow_pickle=False)
        if isinstance(arrays, np.ndarray):
            raise ValueError("it holds one array, as a .npy file does, and is no archive")
    with arrays:
        names = list(arrays)
        chosen = choice.array or ("X" if "X" in names else names[0] if len(names) == 1 else None)
        if chosen is None:
            raise ValueError(f"{path} has the arrays {listed(names)}; choose one by array=...")
        rows = array_of(path, arrays, chosen)
        labels = None if choice.label_column is None else array_of(path, arrays, choice.label_column)
        ids = None if choice.id_column is None else array_of(path, arrays, choice.id_column)
    if ids is not None and ids.dtype.kind not in "iuf":
        ids = ids.astype(str)
    return ArraySource(rows, labels=labels, origin=str(path), ids=None if ids is None else (str(choice.id_column), ids))


def array_of(path: object, arrays: Any, name: str) -> NDArray[Any]:
    """Return an array of an ``.npz`` file; Python objects are refused, since unpickling can run code."""
    if name not in arrays:
        raise ValueError(f"{path} has no array {name}; its arrays: {listed(list(arrays))}")
    try:
        member = f"{name}.npy"
        with arrays.zip.open(member) as file:
            _npy_header(file, arrays.zip.getinfo(member).file_size)
        return np.asarray(arrays[name])
    except DAMAGE as error:
        raise ValueError(f"the array {name} of {path} cannot be read: it is damaged, or holds Python objects") from error


@contextmanager
def damage_named(path: object) -> Iterator[None]:
    """Turn errors of reading into a ValueError that names the file."""
    try:
        yield
    except DAMAGE as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
