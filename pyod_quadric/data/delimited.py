"""Rows as text with delimiters: ``.csv`` and ``.tsv`` files, and streams of them."""

import codecs
import csv
import re
from collections.abc import Iterator
from itertools import chain
from os import PathLike
from reprlib import repr as shortened
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.data.arrow import as_file, as_floats, import_pyarrow
from pyod_quadric.data.columns import Choice, no_numbers
from pyod_quadric.data.text import BLOCK_BYTES, MOST_LINE_BYTES, TextFile, blocks_of_lines

BYTES_PER_COLUMN = 2**10  # so that a block has many rows
ROW = re.compile(r"Row #(\d+)")
CONVERSION = re.compile(r"CSV column #(\d+): .*invalid value '(.*)'", re.DOTALL)


class CsvFile(TextFile):
    r"""The numbers in a ``.csv`` or ``.tsv`` file.

    Parameters
    ----------
    path : path
        Or ``-``, the standard input.
    choice : Choice, optional
        The columns, and whether there is a header; without one, columns are called 0, 1, 2, ...
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
        super().__init__(path)
        self._arrow = import_pyarrow(f"reading {path}")
        choice = choice or Choice()
        choice.check_effect(path, columns=True, labels=True)
        self._delimiter = "\t" if str(path).lower().endswith(".tsv") else ","
        self._header, self._label, self.id_column = choice.header, choice.label_column, choice.id_column
        with self._text() as file:
            first = self._first_line(file)
        self._first = first if self._is_stream else None  # what was read from a stream is not there a second time
        self._all_names = self._names_in(first)
        self._features = choice.features(self.origin, self._all_names, wanted if choice.header else None)
        names = self._features if choice.header else None
        self._describe(None, len(self._features), np.float64, names, self.origin)

    def _names_in(self, line: str) -> list[str]:
        if "\r" in line.rstrip("\r\n"):
            raise ValueError(f"{self.origin} ends its lines by carriage returns; change them to line feeds (tr '\\r' '\\n')")
        fields = next(csv.reader([line], delimiter=self._delimiter), [])
        other = next((sign for sign in ";\t," if sign in line), None) if len(fields) == 1 and '"' not in line else None
        if other is not None:
            raise ValueError(f"{self.origin} has {other!r} between columns; {self._delimiter!r} was expected, as its name says")
        if not fields:
            raise ValueError(f"{self.origin} is empty: it has no line of column names")
        if self._header and _are_data(fields):
            raise ValueError(f"the first line of {self.origin} holds numbers, not names of columns; give header=False")
        return fields if self._header else [str(number) for number in range(len(fields))]

    def _rows(self, batch: Any) -> NDArray[np.float64]:
        return np.stack([as_floats(batch.column(name), np.dtype(np.float64)) for name in self._features], axis=1)

    def _batches(self, features: list[str], others: list[str]) -> Iterator[Any]:
        """Yield, in one pass over the lines, batches with some of the features as numbers, and other columns as texts."""
        arrow, kept, n_rows, beginning = self._arrow, self._first, 0, b""
        types = dict.fromkeys(features, arrow.float64()) | dict.fromkeys(others, arrow.string())
        with self._text() as file:
            if self._header and kept is None:
                self._first_line(file)
            # In one column a line without anything is a row, whose number is missing.
            size, blank = max(BLOCK_BYTES, BYTES_PER_COLUMN * len(self._all_names)), len(self._all_names) == 1
            blocks = blocks_of_lines(file, size, blank)
            for block in blocks if kept is None or self._header else chain([kept.encode()], blocks):
                beginning = beginning or block
                try:
                    table = self._parsed(block, types)
                except arrow.ArrowInvalid as error:
                    raise self._what_is_wrong(str(error), n_rows, beginning, features) from error
                n_rows += len(table)
                yield from table.to_batches()

    def _what_is_wrong(self, error: str, n_before: int, beginning: bytes, features: list[str]) -> ValueError:
        """Return what is raised for an error of pyarrow in lines after so many rows."""
        if found := CONVERSION.search(error):
            late = {self._all_names[int(found[1])]: shortened(found[2])}
            return no_numbers(self.origin, self._texts(beginning, features) | late)
        return ValueError(f"{self.origin}: " + ROW.sub(lambda found: f"Row #{n_before + int(found[1])}", error))

    def _parsed(self, lines: bytes, types: dict[str, Any]) -> Any:
        arrow = self._arrow.csv
        return arrow.read_csv(
            as_file(self._arrow, lines),
            arrow.ReadOptions(column_names=self._all_names, block_size=len(lines) + 1, use_threads=False),
            arrow.ParseOptions(delimiter=self._delimiter, ignore_empty_lines=len(self._all_names) > 1),
            arrow.ConvertOptions(include_columns=list(types), column_types=types),
        )

    def _texts(self, lines: bytes, features: list[str]) -> dict[str, str]:
        """Return those features that hold texts in some lines, with an example of each."""
        try:
            table = self._parsed(lines, dict.fromkeys(features, self._arrow.string()))
        except self._arrow.ArrowInvalid:
            return {}
        missing = {*self._arrow.csv.ConvertOptions().null_values}
        examples = {
            name: next((text for text in table.column(name).to_pylist() if not (text in missing or _is_number(text))), None)
            for name in features
        }
        return {name: shortened(text) for name, text in examples.items() if text is not None}

    def _first_line(self, file: IO[bytes]) -> str:
        line = file.readline(MOST_LINE_BYTES).removeprefix(codecs.BOM_UTF8)
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.origin} is not text in UTF-8, as a .csv file should be") from error


def _are_data(fields: list[str]) -> bool:
    """Say whether a first line holds numbers, other than the 0, 1, 2, ... that some programs give as names."""
    try:
        numbers = [float(field) for field in fields]
    except ValueError:
        return False
    return numbers != list(range(len(fields)))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
