"""Files of rows that are read a part at a time, and those of NumPy: ``.npy`` and ``.npz``.

Every read maps or decodes little more than it returns, and lets go of it again: a memory map that stays open would fill the
memory with all that it has touched.
"""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.data.columns import Choice, listed
from pyod_quadric.data.sources import ArraySource, Index, RowSource, checked_shape

WINDOW_BYTES = 2**26  # of a file that are mapped at once to read rows here and there
DAMAGE = (OSError, EOFError, ValueError, SyntaxError, zipfile.BadZipFile, zlib.error)


class OnDisk(RowSource):
    """A file, which must stay as it was when it was opened."""

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
    """The array in a ``.npy`` file, stored row by row or column by column.

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
        # Only the header: a map of everything may be more than the process is allowed.
        with damage_named(path), self.path.open("rb") as file:
            shape, self._by_column, self._stored = _npy_header(file)
            self._offset = file.tell()
            needed, there = self._offset + self._stored.itemsize * int(np.prod(shape)), self.path.stat().st_size
            if there < needed:
                raise ValueError(f"it is damaged: its header promises {needed} bytes, but there are {there}")
        n_rows, n_features = checked_shape(shape, str(path))
        self._n_stored = n_rows
        self._describe(n_rows, n_features, self._stored.newbyteorder("="), origin=str(path))

    def __getitem__(self, index: Index) -> NDArray[Any]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._n_stored)
            if step < 0:
                return self[np.arange(start, stop, step)]
            return self._copied(start, max(start, stop), slice(None, None, step))
        rows = np.empty((len(index), self.n_features), self.dtype)
        row_bytes = self._stored.itemsize * self.n_features
        windows = index // max(1, WINDOW_BYTES // row_bytes)  # rows may be far apart, and what is between is not needed
        for window in np.unique(windows):
            chosen = windows == window
            first = int(index[chosen].min())
            rows[chosen] = self._copied(first, int(index[chosen].max()) + 1, index[chosen] - first)
        return rows

    def _copied(self, start: int, stop: int, index: Index) -> NDArray[Any]:
        """Return some of the rows from ``start`` to ``stop``."""
        if start == stop:
            return np.empty((0, self.n_features), self.dtype)
        with self._unchanged(f"rows {start} to {stop - 1}"):
            if not self._by_column:
                return np.array(self._mapped(start * self.n_features, (stop - start, self.n_features))[index], self.dtype)
            columns = (self._mapped(k * self._n_stored + start, (stop - start,))[index] for k in range(self.n_features))
            return np.stack([column.astype(self.dtype) for column in columns], axis=1)

    def _mapped(self, first: int, shape: tuple[int, ...]) -> NDArray[Any]:
        """Map as many numbers as a shape has, from the one with the index ``first`` on."""
        return np.memmap(self.path, self._stored, "r", self._offset + first * self._stored.itemsize, shape)


def _npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape, whether columns come one after the other, and the type."""
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"it has version {version} of the .npy format, which is for named columns")
    shape, by_column, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never loaded")
    return shape, by_column and len(shape) > 1, dtype


def open_npz(path: str | PathLike[str], choice: Choice | None = None) -> ArraySource:
    """Return the rows in an ``.npz`` file, which are read into memory.

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
    """Return an array of an ``.npz`` file; Python objects are never unpickled, since that can run whatever they say."""
    if name not in arrays:
        raise ValueError(f"{path} has no array {name}; its arrays: {listed(list(arrays))}")
    try:
        return np.asarray(arrays[name])
    except DAMAGE as error:
        raise ValueError(f"the array {name} of {path} cannot be read: it is damaged, or holds Python objects") from error


@contextmanager
def damage_named(path: object) -> Iterator[None]:
    """Say which file cannot be read, and turn whatever is raised into a ValueError."""
    try:
        yield
    except DAMAGE as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
