"""Rows of ``.csv``, ``.tsv`` and ``.parquet`` files, a batch at a time, by pyarrow.

Pyarrow comes with the extra ``tables`` and is imported when such a file is opened.
"""

import codecs
import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.cli.columns import Choice
from pyod_quadric.cli.errors import CommandError, listed
from pyod_quadric.data.parquet import index_names, is_list, is_number

SUFFIXES = (".csv", ".tsv", ".parquet")
# Of a .csv file at once: pyarrow reads 32 such blocks ahead, and a line must fit into one.
BLOCK_BYTES, BYTES_PER_COLUMN = 2**18, 2**10
MOST_HEADER_BYTES = 2**26
PAGE_BYTES = 2**16  # of a column of a .parquet file at once
Part = tuple[NDArray[Any], NDArray[Any] | None]  # rows (n, d), and labels (n,) if there are any


def import_pyarrow(what: str) -> Any:
    """Return pyarrow, with its modules for files, or say how to install it."""
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise CommandError(f"{what} needs pyarrow: pip install 'pyod-quadric[tables]'") from error
    return pyarrow


class CsvTable:
    """Rows of a ``.csv`` or ``.tsv`` file, or of the standard input if the path is ``-``.

    Numbers are read as float64; whatever is missing is NaN.
    """

    n_rows = None  # known only at the end

    def __init__(self, path: str, choice: Choice, wanted: list[str] | None) -> None:
        self.path = path
        self._arrow = import_pyarrow(f"reading {path}")
        self._delimiter = "\t" if path.endswith(".tsv") else ","
        self._header = choice.header
        self._label = choice.label_column
        with self._opened() as file:
            first = self._first_line(file)
            self._kept = first if path == "-" else None  # what was read from a stream is not there a second time
        fields = next(csv.reader([first], delimiter=self._delimiter), [])
        if not fields:
            raise CommandError(f"{path} is empty: it has no line of column names")
        if choice.header and _are_data(fields):
            raise CommandError(f"the first line of {path} holds numbers, not names of columns; give --no-header")
        self._names = fields if choice.header else [str(place) for place in range(len(fields))]
        self._features = choice.features(path, self._names, wanted if choice.header else None)
        self.names = self._features if choice.header else None
        self.n_features = len(self._features)

    def parts(self, size: int) -> Iterator[Part]:
        """Yield rows and labels, some at a time; ``size`` is not heeded, since lines are read by bytes."""
        arrow = self._arrow
        labels = [self._label] if self._label else []
        types = dict.fromkeys(self._features, arrow.float64()) | dict.fromkeys(labels, arrow.string())
        block_bytes = max(BLOCK_BYTES, BYTES_PER_COLUMN * len(self._names))
        with self._opened() as file:
            source: Any = file
            if self._header and self._kept is None:
                self._first_line(file)
            elif self._kept is not None and not self._header:
                source = _Continued(self._kept.encode(), file)
            try:
                reader = arrow.csv.open_csv(
                    source,
                    arrow.csv.ReadOptions(column_names=self._names, block_size=block_bytes, use_threads=False),
                    arrow.csv.ParseOptions(delimiter=self._delimiter),
                    arrow.csv.ConvertOptions(include_columns=self._features + labels, column_types=types),
                )
                for batch in reader:
                    yield _columns(batch, self._features), _labels(batch, self._label)
            except arrow.ArrowInvalid as error:
                if "Empty CSV" in str(error):
                    return
                hint = "; leave columns of text out by --drop" if "conversion error" in str(error) else ""
                raise CommandError(f"{self.path}: {error}{hint}") from error

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        if self.path == "-":
            yield sys.stdin.buffer
        else:
            with Path(self.path).open("rb") as file:
                yield file

    def _first_line(self, file: IO[bytes]) -> str:
        line = file.readline(MOST_HEADER_BYTES).removeprefix(codecs.BOM_UTF8)
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CommandError(f"{self.path} is not text in UTF-8, as a .csv file should be") from error


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


class ParquetTable:
    """Rows of a ``.parquet`` file: columns of numbers, or one column of lists of numbers, as embeddings often are."""

    def __init__(self, path: str, choice: Choice, wanted: list[str] | None) -> None:
        self.path = path
        self._arrow = arrow = import_pyarrow(f"reading {path}")
        try:
            # Neither mapped nor read ahead, so that no more than some pages of each column are in memory.
            self._file = arrow.parquet.ParquetFile(path, buffer_size=PAGE_BYTES, pre_buffer=False)
        except arrow.ArrowInvalid as error:
            raise CommandError(f"{path} is not a .parquet file, or damaged: {error}") from error
        schema = self._file.schema_arrow
        names = [name for name in schema.names if name not in index_names(schema)]
        self._label = choice.label_column
        lists = choice.columns is not None and len(choice.columns) == 1 and _is_list(schema, choice.columns[0])
        self._features = choice.features(path, names, None if lists else wanted)
        lists = len(self._features) == 1 and _is_list(schema, self._features[0])
        for name in () if lists else self._features:
            kind = schema.field(name).type
            if not is_number(kind):
                raise CommandError(f"the column {name} of {path} holds {kind}, not numbers; leave it out by --drop {name}")
        small = (arrow.float16(), arrow.float32())
        kinds = [schema.field(name).type for name in self._features]
        self._small = all((kind.value_type if lists else kind) in small for kind in kinds)
        self.n_rows = int(self._file.metadata.num_rows)
        self._lists = lists
        self.names = None if lists else self._features
        self.n_features = self._width() if lists else len(self._features)

    def parts(self, size: int) -> Iterator[Part]:
        """Yield rows and labels, at most ``size`` at a time."""
        columns = self._features + ([self._label] if self._label else [])
        try:
            for batch in self._file.iter_batches(batch_size=size, columns=columns, use_threads=False):
                rows = self._listed(batch) if self._lists else _columns(batch, self._features)
                yield rows.astype(np.float32 if self._small else np.float64, copy=False), _labels(batch, self._label)
        except (self._arrow.ArrowException, OSError) as error:
            raise CommandError(f"{self.path} is damaged: {error}") from error

    def _width(self) -> int:
        batch = next(self._file.iter_batches(batch_size=1, columns=self._features), None)
        return 0 if batch is None else len(batch.column(0)[0].as_py() or ())

    def _listed(self, batch: Any) -> NDArray[Any]:
        column = batch.column(self._features[0])
        flat = column.flatten().to_numpy(zero_copy_only=False)
        lengths = self._arrow.compute.list_value_length(column).to_numpy(zero_copy_only=False)
        if not (lengths == self.n_features).all():
            raise CommandError(f"the lists in {self._features[0]} of {self.path} must all have {self.n_features} numbers")
        return np.asarray(flat.reshape(-1, self.n_features))


def only_column(path: str) -> NDArray[Any]:
    """Return the values (n,) of a table with a single column, which has a name; those of a ``.csv`` file are texts."""
    if path.lower().endswith(".parquet"):
        arrow = import_pyarrow(f"reading {path}")
        try:
            table = arrow.parquet.read_table(path)
        except arrow.ArrowInvalid as error:
            raise CommandError(f"{path} is not a .parquet file, or damaged: {error}") from error
        names, lines = table.column_names, [[value] for value in table.column(0).to_pylist()] if table.num_columns else []
    else:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            names, *lines = [line for line in csv.reader(file) if line] or [[]]
    if len(names) != 1 or any(len(line) != 1 for line in lines):
        raise CommandError(f"{path} must have one column, of labels, got {listed(names) or 'nothing'}")
    return np.asarray([line[0] for line in lines])


def _is_list(schema: Any, name: str) -> bool:
    return name in schema.names and is_list(schema.field(name).type)


def _columns(batch: Any, names: list[str]) -> NDArray[Any]:
    columns = (batch.column(name) for name in names)
    # Numbers that are no floats have no NaN for what is missing.
    floats = (column if "float" in str(column.type) else column.cast("float64", safe=False) for column in columns)
    return np.column_stack([column.to_numpy(zero_copy_only=False) for column in floats])


def _labels(batch: Any, name: str | None) -> NDArray[Any] | None:
    return None if name is None else np.asarray(batch.column(name).to_pylist())


def _are_data(fields: list[str]) -> bool:
    """Say whether a first line holds numbers, other than the 0, 1, 2, ... that some programs give as names."""
    try:
        numbers = [float(field) for field in fields]
    except ValueError:
        return False
    return numbers != list(range(len(fields)))
