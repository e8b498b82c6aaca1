"""Rows as lines of text, from files and streams: the common part of CSV and JSON lines."""

import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.data.arrow import as_ids, as_labels
from pyod_quadric.data.disk import OnDisk
from pyod_quadric.data.sources import Identified, Index, rechunked

STDIN = "-"
BLOCK_BYTES = 2**18  # of text at once
MOST_LINE_BYTES = 2**26


class TextFile(OnDisk):
    """Rows as lines of text, read as float64; missing values are NaN.

    A pass reads the lines in bounded memory. Lines have no index, so random access loads all rows into memory, where they stay.

    Parameters
    ----------
    path : path
        ``-`` is the standard input, which allows one pass unless it is loaded.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._is_stream, self._n_passes = path == STDIN, 0
        if not self._is_stream:
            super().__init__(path)
        self.origin = "the standard input" if self._is_stream else str(path)
        self._features: list[str] = []
        self._label: str | None = None
        self._loaded: NDArray[np.float64] | None = None
        self._labels: NDArray[Any] | None = None

    @abstractmethod
    def _batches(self, features: list[str], others: list[str]) -> Iterator[Any]:
        """Yield, in one pass over the lines, Arrow batches with some of the features, and other columns as they are."""

    @abstractmethod
    def _rows(self, batch: Any) -> NDArray[np.float64]:
        """Return the features (n, d) in a batch."""

    @property
    def labels(self) -> NDArray[Any] | None:
        """The labels (n,), if a label column was chosen."""
        if self._label is not None and self._labels is None:
            if self._is_stream:
                self.load()
            else:
                self._labels = np.concatenate(
                    [as_labels(batch.column(0), self.origin) for batch in self._batches([], [self._label])]
                )
        return self._labels

    def __getitem__(self, index: Index) -> NDArray[Any]:
        self.load()
        assert self._loaded is not None
        return np.array(self._loaded[index]) if isinstance(index, slice) else self._loaded[index]

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """Yield all rows in one pass."""
        if self._loaded is not None:
            return super().blocks(size)
        return rechunked((self._rows(batch) for batch in self._batches(self._features, [])), size, np.concatenate)

    def identified_blocks(self, size: int) -> Iterator[Identified]:
        """Yield all rows in one pass, with their ids if an id column was chosen."""
        if self.id_column is None:
            return super().identified_blocks(size)
        batches = self._batches(self._features, [self.id_column])
        parts = (Identified(self._rows(batch), as_ids(batch.column(self.id_column))) for batch in batches)
        return rechunked(parts, size, Identified.joined)

    def load(self) -> None:
        """Read all rows into memory."""
        if self._loaded is not None:
            return
        labels = [self._label] if self._label is not None and self._is_stream else []
        found: list[NDArray[Any]] = []

        def rows() -> Iterator[NDArray[np.float64]]:
            for batch in self._batches(self._features, labels):
                found.extend(as_labels(batch.column(name), self.origin) for name in labels)
                yield self._rows(batch)

        self._loaded = _stacked(rows(), self.n_features)
        self.n_rows = len(self._loaded)
        if labels:
            self._labels = np.concatenate(found) if found else np.empty(0, dtype=str)

    def _count(self) -> int:
        if self._is_stream:
            self.load()
            return len(self)
        return sum(batch.num_rows for batch in self._batches(self._features[:1], []))

    @contextmanager
    def _text(self) -> Iterator[IO[bytes]]:
        if self._is_stream:
            self._n_passes += 1
            if self._n_passes > 2:  # the beginning, and the rest
                raise ValueError("the standard input can be read once; load it before")
            yield sys.stdin.buffer
        else:
            if self._current_stamp() != self._stamp:
                raise OSError(f"{self.origin} cannot be read: the file has changed since it was opened")
            with self.path.open("rb") as file:
                yield file


def blocks_of_lines(file: IO[bytes], size: int = BLOCK_BYTES, blank: bool = False) -> Iterator[bytes]:
    r"""Go through a file, some whole lines at a time.

    Parameters
    ----------
    file : file of bytes
    size : int, optional
        How many bytes a block has at least, unless it is the last.
    blank : bool, default=False
        Whether blocks of blank lines count, too.

    Examples
    --------
    >>> import io
    >>> list(blocks_of_lines(io.BytesIO(b"1,2\n3,4\n5,6"), size=5))
    [b'1,2\n3,4\n', b'5,6']
    """
    while block := file.read(size):
        if not block.endswith(b"\n"):
            block += file.readline(MOST_LINE_BYTES)
        if blank or block.strip():
            yield block


def _stacked(parts: Iterable[NDArray[np.float64]], n_features: int) -> NDArray[np.float64]:
    """Return parts of unknown number one after the other, in an array that grows where it is instead of being copied."""
    rows, n_rows = np.empty((0, n_features)), 0
    for part in parts:
        if n_rows + len(part) > len(rows):
            rows.resize((n_rows + len(part) + n_rows // 2, n_features), refcheck=False)
        rows[n_rows : n_rows + len(part)] = part
        n_rows += len(part)
    rows.resize((n_rows, n_features), refcheck=False)
    return rows
