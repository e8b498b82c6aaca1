"""Writers of result columns to files, block by block."""

import csv
import json
import math
from abc import ABC, abstractmethod
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pyod_quadric.data.arrow import import_pyarrow

TEXT = (".csv", ".jsonl", ".ndjson")


class SupportsWrite(Protocol):
    """Anything that text can be written to."""

    def write(self, text: str, /) -> object:
        """Write some text."""


class Writer(ABC):
    """A writer of result columns."""

    @abstractmethod
    def write(self, columns: dict[str, NDArray[Any]]) -> None:
        """Write some rows."""

    def close(self) -> None:  # noqa: B027, text has no end
        """Write what is known only at the end; the caller closes the file."""


class CsvWriter(Writer):
    """Columns as CSV: a header, then lines.

    Examples
    --------
    >>> import io
    >>> import numpy as np
    >>> file = io.StringIO()
    >>> CsvWriter(file, ["row", "score"]).write({"row": np.array([0]), "score": np.array([0.5])})
    >>> print(file.getvalue(), end="")
    row,score
    0,0.5
    """

    def __init__(self, file: SupportsWrite, names: list[str]) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow(names)

    def write(self, columns: dict[str, NDArray[Any]]) -> None:
        """Write some rows."""
        self._writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


class JsonLinesWriter(Writer):
    """Columns as JSON lines; NaN, which JSON does not have, becomes null.

    Examples
    --------
    >>> import io
    >>> import numpy as np
    >>> file = io.StringIO()
    >>> JsonLinesWriter(file).write({"row": np.array([0, 1]), "score": np.array([0.5, np.nan])})
    >>> print(file.getvalue(), end="")
    {"row": 0, "score": 0.5}
    {"row": 1, "score": null}
    """

    def __init__(self, file: SupportsWrite) -> None:
        self._file, self._encoded = file, json.JSONEncoder(allow_nan=False).encode

    def write(self, columns: dict[str, NDArray[Any]]) -> None:
        """Write some rows."""
        lists = [_without_nan(column) for column in columns.values()]
        for values in zip(*lists, strict=True):
            self._file.write(self._encoded(dict(zip(columns, values, strict=True))) + "\n")


class NpyWriter(Writer):
    """One of the columns as an array (n,); its length is written at the end."""

    def __init__(self, file: IO[bytes], name: str, dtype: DTypeLike) -> None:
        self._file, self._name, self._dtype = file, name, np.dtype(dtype)
        self._n_rows = 0
        self._write_header()

    def write(self, columns: dict[str, NDArray[Any]]) -> None:
        """Write some rows."""
        values = columns[self._name].astype(self._dtype)
        self._file.write(values.tobytes())
        self._n_rows += len(values)

    def close(self) -> None:
        """Write the number of rows into the header."""
        self._file.seek(0)
        self._write_header()

    def _write_header(self) -> None:
        # The format pads headers so that they keep their length while the array grows.
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._n_rows,)}
        np.lib.format.write_array_header_1_0(self._file, header)


class ParquetWriter(Writer):
    """Columns of a ``.parquet`` file, one row group for each block."""

    def __init__(self, file: IO[bytes], types: dict[str, DTypeLike]) -> None:
        self._arrow = arrow = import_pyarrow("writing .parquet files")
        kinds = {name: np.dtype(dtype) for name, dtype in types.items()}
        fields = [(name, arrow.string() if kind.kind == "U" else arrow.from_numpy_dtype(kind)) for name, kind in kinds.items()]
        self._schema = arrow.schema(fields)
        self._writer = arrow.parquet.ParquetWriter(file, self._schema)

    def write(self, columns: dict[str, NDArray[Any]]) -> None:
        """Write some rows."""
        arrays = [self._arrow.array(columns[field.name], type=field.type) for field in self._schema]
        self._writer.write_batch(self._arrow.record_batch(arrays, schema=self._schema))

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


def text_writer(file: SupportsWrite, suffix: str, names: list[str]) -> Writer:
    """Return a writer of CSV or JSON lines."""
    return CsvWriter(file, names) if suffix == ".csv" else JsonLinesWriter(file)


def writer_of(file: IO[bytes], suffix: str, types: dict[str, DTypeLike], npy: str) -> Writer:
    """Return a writer of columns to an open file.

    Parameters
    ----------
    file : binary file
    suffix : {".csv", ".jsonl", ".ndjson", ".npy", ".parquet"}
        The kind of file.
    types : dict
        The columns and their types.
    npy : str
        The column that a ``.npy`` file gets.
    """
    if suffix in TEXT:
        return text_writer(_Encoded(file), suffix, list(types))
    return NpyWriter(file, npy, types[npy]) if suffix == ".npy" else ParquetWriter(file, types)


class _Encoded:
    """Text on a binary file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        return self._file.write(text.encode())


def _without_nan(column: NDArray[Any]) -> list[Any]:
    values: list[Any] = column.tolist()
    if column.dtype.kind not in "fO":
        return values
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in values]
