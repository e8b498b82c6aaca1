"""Rows as text: ``.csv`` and ``.tsv`` files, and the standard input."""

import codecs
import csv
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.data.arrow import as_floats, as_labels, import_pyarrow
from pyod_quadric.data.columns import Choice
from pyod_quadric.data.disk import OnDisk
from pyod_quadric.data.sources import Index, rechunked

STDIN = "-"
# Of text at once: pyarrow reads 32 such blocks ahead, and a line must fit into one.
BLOCK_BYTES, BYTES_PER_COLUMN = 2**18, 2**10
MOST_HEADER_BYTES = 2**26


class CsvFile(OnDisk):
    r"""The numbers in a ``.csv`` or ``.tsv`` file, as float64; what is missing is NaN.

    A pass takes the lines as they come, in memory that does not grow with them. Lines have no index, so rows here and there
    need all rows in memory, where they stay.

    Parameters
    ----------
    path : path
        ``-`` is the standard input, through which there is one pass, unless it is loaded.
    choice : Choice, optional
        The columns, and whether there is a line of names; without it columns are called 0, 1, 2, ...
    wanted : list of str, optional
        The features that a model was fitted to.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "rows.csv"
    ...     n_letters = path.write_text("id,x,y\n7,0.5,1\n8,,2\n")
    ...     rows = CsvFile(path, Choice(drop=("id",)))
    ...     rows.names, rows[:].tolist()
    (['x', 'y'], [[0.5, 1.0], [nan, 2.0]])
    """

    def __init__(self, path: str | PathLike[str], choice: Choice | None = None, wanted: list[str] | None = None) -> None:
        self._is_stream, self._n_passes = path == STDIN, 0
        if not self._is_stream:
            super().__init__(path)
        self.origin = "the standard input" if self._is_stream else str(path)
        self._arrow = import_pyarrow(f"reading {path}")
        choice = choice or Choice()
        choice.check_effect(path, columns=True, labels=True)
        self._delimiter = "\t" if str(path).lower().endswith(".tsv") else ","
        self._header, self._label = choice.header, choice.label_column
        self._loaded: NDArray[np.float64] | None = None
        self._labels: NDArray[Any] | None = None
        with self._text() as file:
            first = self._first_line(file)
        self._first = first if self._is_stream else None  # what was read from a stream is not there a second time
        self._all_names = self._names_in(first)
        self._features = choice.features(self.origin, self._all_names, wanted if choice.header else None)
        names = self._features if choice.header else None
        self._describe(None, len(self._features), np.float64, names, self.origin)

    def _names_in(self, line: str) -> list[str]:
        fields = next(csv.reader([line], delimiter=self._delimiter), [])
        if not fields:
            raise ValueError(f"{self.origin} is empty: it has no line of column names")
        if self._header and _are_data(fields):
            raise ValueError(f"the first line of {self.origin} holds numbers, not names of columns; give header=False")
        return fields if self._header else [str(number) for number in range(len(fields))]

    @property
    def labels(self) -> NDArray[Any] | None:
        """The labels (n,) as texts, if there is a column of them."""
        if self._label is not None and self._labels is None:
            if self._is_stream:
                self.load()
            else:
                self._labels = np.concatenate([as_labels(batch.column(0)) for batch in self._batches([], [self._label])])
        return self._labels

    def __getitem__(self, index: Index) -> NDArray[Any]:
        self.load()
        assert self._loaded is not None
        return np.array(self._loaded[index]) if isinstance(index, slice) else self._loaded[index]

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """Go through all rows once."""
        if self._loaded is not None:
            return super().blocks(size)
        batches = self._batches(self._features, [])
        return rechunked((_columns(batch, self._features) for batch in batches), size, np.concatenate)

    def load(self) -> None:
        """Read all rows into memory."""
        if self._loaded is not None:
            return
        labels = [self._label] if self._label is not None and self._is_stream else []
        found: list[NDArray[Any]] = []

        def rows() -> Iterator[NDArray[np.float64]]:
            for batch in self._batches(self._features, labels):
                found.extend(as_labels(batch.column(name)) for name in labels)
                yield _columns(batch, self._features)

        self._loaded = _stacked(rows(), self.n_features)
        self.n_rows = len(self._loaded)
        if labels:
            self._labels = np.concatenate(found) if found else np.empty(0, dtype=str)

    def _count(self) -> int:
        if self._is_stream:
            self.load()
            return len(self)
        return sum(batch.num_rows for batch in self._batches(self._features[:1], []))

    def _batches(self, numbers: list[str], texts: list[str]) -> Iterator[Any]:
        """Go through the lines once, and yield some columns as numbers and some as texts."""
        arrow, kept = self._arrow, self._first
        types = dict.fromkeys(numbers, arrow.float64()) | dict.fromkeys(texts, arrow.string())
        block_bytes = max(BLOCK_BYTES, BYTES_PER_COLUMN * len(self._all_names))
        with self._text() as file:
            source: Any = file
            if self._header and kept is None:
                self._first_line(file)
            elif kept is not None and not self._header:
                source = _Continued(kept.encode(), file)
            try:
                yield from arrow.csv.open_csv(
                    source,
                    arrow.csv.ReadOptions(column_names=self._all_names, block_size=block_bytes, use_threads=False),
                    arrow.csv.ParseOptions(delimiter=self._delimiter),
                    arrow.csv.ConvertOptions(include_columns=[*numbers, *texts], column_types=types),
                )
            except arrow.ArrowInvalid as error:
                if "Empty CSV" in str(error):
                    return
                hint = "; leave columns of text out by drop=..." if "conversion error" in str(error) else ""
                raise ValueError(f"{self.origin}: {error}{hint}") from error

    @contextmanager
    def _text(self) -> Iterator[IO[bytes]]:
        if self._is_stream:
            self._n_passes += 1
            if self._n_passes > 2:  # the first line, and the rest
                raise ValueError("the standard input can be read once; load it before")
            yield sys.stdin.buffer
        else:
            if self._current_stamp() != self._stamp:
                raise OSError(f"{self.origin} cannot be read: the file has changed since it was opened")
            with self.path.open("rb") as file:
                yield file

    def _first_line(self, file: IO[bytes]) -> str:
        line = file.readline(MOST_HEADER_BYTES).removeprefix(codecs.BOM_UTF8)
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.origin} is not text in UTF-8, as a .csv file should be") from error


class _Continued:
    """A stream with something put back before it."""

    def __init__(self, before: bytes, rest: IO[bytes]) -> None:
        self._before, self._rest, self.closed = before, rest, False

    def read(self, size: int) -> bytes:
        taken, self._before = self._before[:size], self._before[size:]
        return taken or self._rest.read(size)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


def _columns(batch: Any, names: list[str]) -> NDArray[np.float64]:
    return np.stack([as_floats(batch.column(name), np.dtype(np.float64)) for name in names], axis=1)


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


def _are_data(fields: list[str]) -> bool:
    """Say whether a first line holds numbers, other than the 0, 1, 2, ... that some programs give as names."""
    try:
        numbers = [float(field) for field in fields]
    except ValueError:
        return False
    return numbers != list(range(len(fields)))
