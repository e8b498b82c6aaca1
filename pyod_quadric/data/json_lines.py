"""Rows as JSON lines: ``.jsonl`` and ``.ndjson`` files, and streams of them."""

import re
from collections.abc import Iterator
from contextlib import suppress
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.data.arrow import as_file, as_floats, as_rows, features_in, id_type, import_pyarrow, is_list
from pyod_quadric.data.columns import Choice
from pyod_quadric.data.sources import no_rows
from pyod_quadric.data.text import TextFile, blocks_of_lines

ROW = re.compile(r" in row (\d+)$")
NULL_FIRST, NULL_LINE = re.compile(rb"(\xef\xbb\xbf)?\s*null"), re.compile(rb"\n[ \t\r]*null")


class JsonLinesFile(TextFile):
    r"""The numbers in a file with one JSON object per line.

    The first quarter of a megabyte decides which columns there are and their types. A null or a missing key is NaN.

    Parameters
    ----------
    path : path
        Or ``-``, the standard input.
    choice : Choice, optional
        The columns; all by default.
    wanted : list of str, optional
        The features that a model was fitted to.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "rows.jsonl"
    ...     n_letters = path.write_text('{"id": "a", "x": 0.5, "y": 1}\n{"id": "b", "y": 2}\n')
    ...     rows = JsonLinesFile(path, Choice(drop=("id",)))
    ...     rows.names, rows[:].tolist()
    (['x', 'y'], [[0.5, 1.0], [nan, 2.0]])
    """

    def __init__(self, path: str | PathLike[str], choice: Choice | None = None, wanted: list[str] | None = None) -> None:
        super().__init__(path)
        self._arrow = import_pyarrow(f"reading {path}")
        choice = choice or Choice()
        choice.check_effect(path, columns=True, labels=True)
        choice.check_header(path)
        self._label, self.id_column = choice.label_column, choice.id_column
        with self._text() as file:
            self._head = next(blocks_of_lines(file), b"")
        if not self._head:
            raise no_rows(self.origin)
        head = self._parsed(self._head, None, 0)
        null = self._arrow.null()
        fields = [field.with_type(self._arrow.float64()) if field.type == null else field for field in head.schema]
        self._schema = self._arrow.schema(fields)
        self._features = features_in(self._schema, choice, wanted, self.origin)
        self._others = {name: self._exact(name) for name in (self._label, self.id_column) if name is not None}
        if self.id_column is not None:
            self.id_type = id_type(self._others[self.id_column])
        kind = self._schema.field(self._features[0]).type
        if is_list(kind):
            self.list_column = self._features[0]
            width = next((len(row) for row in head.column(self.list_column).to_pylist() if row), 0)
            self._describe(None, width, np.float64, None, self.origin)
        else:
            self._describe(None, len(self._features), np.float64, self._features, self.origin)

    def _rows(self, batch: Any) -> NDArray[np.float64]:
        dtype = np.dtype(np.float64)
        if self.list_column is None:
            return np.stack([as_floats(batch.column(name), dtype) for name in self._features], axis=1)
        try:
            return np.array(as_rows(batch.column(self.list_column), self.list_column, self.n_features, dtype))
        except ValueError as error:
            raise ValueError(f"{self.origin}: {error}") from error

    def _batches(self, features: list[str], others: list[str]) -> Iterator[Any]:
        """Yield, in one pass over the lines, batches with some of the features, and other columns as they are."""
        types = {name: self._number(name) for name in features} | {name: self._others[name] for name in others}
        schema, n_rows = self._arrow.schema(list(types.items())), 0
        with self._text() as file:
            blocks = blocks_of_lines(file)
            if self._is_stream:
                blocks = (block for part in ([self._head], blocks) for block in part)
            for block in blocks:
                table = self._parsed(block, schema, n_rows)
                n_rows += len(table)
                yield from table.to_batches()

    def _number(self, name: str) -> Any:
        """Return the type of a feature: what is no truth value is a float, since it may become one on any line."""
        kind, floats = self._schema.field(name).type, self._arrow.float64()
        if is_list(kind):
            return self._arrow.list_(floats)
        return kind if kind == self._arrow.bool_() else floats

    def _exact(self, name: str) -> Any:
        """Return the type of an id or a label that keeps what is written."""
        kind, arrow = self._schema.field(name).type, self._arrow
        if arrow.types.is_timestamp(kind):
            return arrow.string()
        if kind == arrow.float64():  # for which integers of 64 bits without a sign are taken, too
            with suppress(ValueError):
                self._parsed(self._head, arrow.schema([(name, arrow.uint64())]), 0)
                return arrow.uint64()
        return kind

    def _parsed(self, block: bytes, schema: Any, n_before: int) -> Any:
        check_lines(block, self.origin)
        json = self._arrow.json
        parse = json.ParseOptions() if schema is None else json.ParseOptions(schema, unexpected_field_behavior="ignore")
        try:
            whole = json.ReadOptions(use_threads=False, block_size=len(block) + 1)
            table = json.read_json(as_file(self._arrow, block), whole, parse)
            _ = table.column_names  # pyarrow does not look whether they are text before
            return table
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.origin}, one JSON object for each line: a name is not UTF-8: {error}") from error
        except self._arrow.ArrowInvalid as error:
            text = ROW.sub(lambda found: f" in row {n_before + int(found[1])}", str(error))
            hint = "; leave such columns out by drop=..." if "Column(/" in text and schema is not None else ""
            raise ValueError(f"{self.origin}, one JSON object for each line: {text}{hint}") from error


def check_lines(block: bytes, path: object) -> None:
    """Raise a ValueError if a line is null, since some versions of pyarrow end the process on such a first line."""
    if NULL_FIRST.match(block) or NULL_LINE.search(block):
        raise ValueError(f"{path}, one JSON object for each line: a line holds null, and no object; leave such lines out")
