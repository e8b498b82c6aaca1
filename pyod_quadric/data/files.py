"""From paths to sources of rows: files by what their names end with, folders, and lists of them; and files of labels."""

import codecs
import csv
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.data.arrow import as_labels, import_pyarrow
from pyod_quadric.data.columns import Choice, ChoiceError, listed
from pyod_quadric.data.delimited import CsvFile
from pyod_quadric.data.disk import NpyFile, array_of, check_npy, damage_named, open_npz
from pyod_quadric.data.json_lines import JsonLinesFile
from pyod_quadric.data.parquet import ParquetFile
from pyod_quadric.data.sources import RowSource, Shards
from pyod_quadric.data.text import STDIN

AnyPath = str | PathLike[str]
READERS: dict[str, Callable[[Path, Choice, list[str] | None], RowSource]] = {
    ".npy": lambda path, choice, _: NpyFile(path, choice),
    ".npz": lambda path, choice, _: open_npz(path, choice),
    ".csv": CsvFile,
    ".tsv": CsvFile,
    ".jsonl": JsonLinesFile,
    ".ndjson": JsonLinesFile,
    ".parquet": ParquetFile,
}
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
# What counts in a folder: the first of these kinds that is there, since a table of text often stands beside arrays.
FOLDER_SUFFIXES = ((".npy", ".parquet"), (".csv", ".tsv"), (".jsonl", ".ndjson"))


def open_rows(paths: AnyPath | Sequence[AnyPath], choice: Choice | None = None, wanted: list[str] | None = None) -> RowSource:
    """Open files of rows, and all files of folders in the order of their names, one after the other.

    Only the beginnings are read, but for ``.npz`` files. In several files columns with names are found by them: those of the
    first file decide, in whatever order the others have them. In a folder ``.npy`` and ``.parquet`` files count, or if there
    are none, ``.csv`` and ``.tsv`` files, or if there are none of them either, ``.jsonl`` and ``.ndjson`` files.

    Parameters
    ----------
    paths : path or sequence of paths
        Of ``.npy``, ``.npz``, ``.csv``, ``.tsv``, ``.jsonl``, ``.ndjson`` or ``.parquet`` files, or of folders.
    choice : Choice, optional
        The columns, labels and array to take.
    wanted : list of str, optional
        The features that a model was fitted to, if it knows their names.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number in range(3):
    ...         np.save(f"{folder}/{number}.npy", np.full((2, 4), number))
    ...     open_rows(folder).shape
    (6, 4)
    """
    choice = choice or Choice()
    given = [paths] if isinstance(paths, str | PathLike) else list(paths)
    parts: list[RowSource] = []
    for file in (file for path in given for file in _files(Path(path))):
        first = next((part.names for part in parts if part.names is not None), None)
        parts.append(_open_file(file, choice, wanted if first is None else first, are_all=first is not None and not wanted))
    return parts[0] if len(parts) == 1 else Shards(parts, origin=", ".join(map(str, given[:3])))


def open_stdin(choice: Choice | None = None, wanted: list[str] | None = None) -> RowSource:
    """Open the standard input, which holds JSON lines if it begins with a brace, and else the text of a ``.csv`` file."""
    stream: Any = sys.stdin.buffer
    is_json = stream.peek(1).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{")
    return (JsonLinesFile if is_json else CsvFile)(STDIN, choice, wanted)


def _open_file(path: Path, choice: Choice, wanted: list[str] | None, *, are_all: bool) -> RowSource:
    """Open a file; its columns must be the wanted ones, if those are all that the first file has."""
    if path.suffix.lower() not in READERS:
        raise ChoiceError(f"{path} must end with {', '.join(READERS)}, which says what it is, or be a folder")
    reader = READERS[path.suffix.lower()]
    if not are_all:
        return reader(path, choice, wanted)
    source = reader(path, choice, None)
    if source.names is None or source.names == wanted:
        return source
    differing = ", ".join(sorted(set(source.names) ^ set(wanted or [])))
    if differing:
        raise ValueError(f"{path} cannot be read: its columns are not those of the first file; they differ in {differing}")
    return reader(path, replace(choice, columns=wanted, drop=()), None)


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if not path.is_dir():
        return [path]
    for suffixes in FOLDER_SUFFIXES:
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in suffixes and file.is_file())
        if files:
            return files
    known = [suffix for suffixes in FOLDER_SUFFIXES for suffix in suffixes]
    raise ValueError(f"the folder {path} holds no {', '.join(known[:-1])} or {known[-1]} files")


def read_labels(path: AnyPath) -> NDArray[Any]:
    """Return labels (n,) from a file: an array, or a table with one column; those of a ``.csv`` file are texts.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/y.npy", [0, 1, 1])
    ...     read_labels(f"{folder}/y.npy").tolist()
    [0, 1, 1]
    """
    (path,) = _files(Path(path)) if not Path(path).is_dir() else [Path(path)]
    suffix = path.suffix.lower()
    if suffix not in READERS:
        raise ChoiceError(f"{path} must end with {', '.join(READERS)}, which says what it is")
    if suffix in TABLES:
        return _only_column(path)
    if suffix == ".npy":
        check_npy(path)
    with damage_named(path):
        labels: Any = np.load(path, allow_pickle=False)
    if suffix == ".npz":
        names = list(labels)
        labels = array_of(path, labels, "y" if len(names) != 1 else names[0])
    if labels.ndim != 1 or labels.dtype.kind not in "fiubUS":
        raise ValueError(f"{path} must hold labels of shape (n,), numbers or texts, got {labels.dtype} of {labels.shape}")
    return np.asarray(labels)


def _only_column(path: Path) -> NDArray[Any]:
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".tsv"):
        arrow = import_pyarrow(f"reading {path}")
        with damage_named(path):
            table = arrow.parquet.read_table(path) if suffix == ".parquet" else arrow.json.read_json(path)
        if table.num_columns == 1:
            return as_labels(table.column(0))
        names = table.column_names
    else:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter="\t" if suffix == ".tsv" else ",")
            names, *lines = [line for line in reader if line] or [[]]
        if len(names) == 1 and all(len(line) == 1 for line in lines):
            return np.asarray([line[0] for line in lines])
    raise ValueError(f"{path} must have one column, of labels, got {listed(names) or 'nothing'}")
