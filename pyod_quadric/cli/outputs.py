"""Files that are whole or not there, and that replace others only when told to."""

import csv
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pyod_quadric.cli.arrow import import_pyarrow
from pyod_quadric.cli.errors import USAGE, CommandError

SUFFIXES = (".npy", ".csv", ".parquet")


def check_output(path: str, force: bool, inputs: tuple[str, ...] = (), suffixes: tuple[str, ...] = ()) -> None:
    """Raise a CommandError if a file cannot or must not be written, before any work is done for it."""
    target = Path(path)
    if suffixes and target.suffix.lower() not in suffixes:
        raise CommandError(f"the output {path} must end with {' or '.join(suffixes)}", USAGE)
    if not target.parent.is_dir():
        raise CommandError(f"{path} cannot be written: there is no folder {target.parent}")
    if target.is_dir():
        raise CommandError(f"{path} cannot be written: it is a folder")
    if target.exists():
        if any(Path(other).exists() and target.samefile(other) for other in inputs):
            raise CommandError(f"{path} is an input of this command, and is not overwritten")
        if not force:
            raise CommandError(f"{path} is there already; --force overwrites it")
    try:
        tempfile.TemporaryFile(dir=target.parent).close()
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def whole_file(path: str, force: bool) -> Iterator[IO[bytes]]:
    """Write a file beside the place and move it there at the end; nothing is left of it if anything is raised."""
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists() and not force:  # since it was checked
            raise CommandError(f"{path} is there already; --force overwrites it")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


class Writer(Protocol):
    """Where the columns of a result go, some rows at a time."""

    def write(self, columns: dict[str, NDArray[Any]]) -> None:
        """Write some rows."""


class CsvWriter:
    """Columns as lines of text, with a line of names before."""

    def __init__(self, file: IO[str], names: list[str]) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow(names)

    def write(self, columns: dict[str, NDArray[Any]]) -> None:
        """Write some rows."""
        self._writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


class NpyWriter:
    """One of the columns as an array (n,), whose length is written down at the end."""

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
        """Write down how many rows there are."""
        self._file.seek(0)
        self._write_header()

    def _write_header(self) -> None:
        # The format pads headers so that they keep their length while the array grows.
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._n_rows,)}
        np.lib.format.write_array_header_1_0(self._file, header)


class ParquetColumns:
    """Columns of a ``.parquet`` file, one row group for each block."""

    def __init__(self, file: IO[bytes], types: dict[str, DTypeLike]) -> None:
        self._arrow = import_pyarrow("writing .parquet files")
        self._schema = self._arrow.schema([(name, _arrow_type(self._arrow, dtype)) for name, dtype in types.items()])
        self._writer = self._arrow.parquet.ParquetWriter(file, self._schema)

    def write(self, columns: dict[str, NDArray[Any]]) -> None:
        """Write some rows."""
        arrays = [self._arrow.array(columns[field.name], type=field.type) for field in self._schema]
        self._writer.write_batch(self._arrow.record_batch(arrays, schema=self._schema))

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


def _arrow_type(arrow: Any, dtype: DTypeLike) -> Any:
    return arrow.string() if np.dtype(dtype).kind == "U" else arrow.from_numpy_dtype(dtype)


@contextmanager
def open_writer(path: str | None, types: dict[str, DTypeLike], force: bool, npy: str) -> Iterator[Writer]:
    """Open a writer of columns: to a file, by what its name ends with, or as text to the standard output.

    Parameters
    ----------
    path : str, optional
    types : dict
        The columns and their types.
    force : bool
        Whether to replace a file.
    npy : str
        The column that a ``.npy`` file holds.
    """
    if path is None:
        yield CsvWriter(sys.stdout, list(types))
        return
    suffix = Path(path).suffix.lower()
    with whole_file(path, force) as file:
        if suffix == ".csv":
            text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
            yield CsvWriter(text, list(types))
            text.detach()  # the file is closed elsewhere
        else:
            writer = NpyWriter(file, npy, types[npy]) if suffix == ".npy" else ParquetColumns(file, types)
            yield writer
            writer.close()
