"""From paths to sources of rows: files by their suffix, folders, and lists of both; and files of labels."""

import codecs
import csv
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
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
from pyod_quadric.data.json_lines import JsonLinesFile, check_lines
from pyod_quadric.data.parquet import ParquetFile
from pyod_quadric.data.sources import RowSource, Shards
from pyod_quadric.data.text import STDIN, blocks_of_lines

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
    """Open files of rows, one after the other, and all files of folders in the order of their names.

    Opening reads only the beginning of a file, except for ``.npz`` files, which it reads whole. Several files are matched by
    the names of their columns: the first file decides which are features, and the others may have them in any order. A folder
    stands for its ``.npy`` and ``.parquet`` files; if there are none, for its ``.csv`` and ``.tsv`` files; else for its
    ``.jsonl`` and ``.ndjson`` files. Partitions, folders such as ``day=1``, belong to the folder that contains them, and their
    values are not features. Names that begin with a dot or an underscore are ignored. Empty files are left out if others have
    rows.

    Parameters
    ----------
    paths : path or sequence of paths
        Paths of ``.npy``, ``.npz``, ``.csv``, ``.tsv``, ``.jsonl``, ``.ndjson`` or ``.parquet`` files, or of folders.
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
    files = [file for path in given for file in _files(Path(path))]
    parts: list[RowSource] = []
    for file in [file for file in files if not (file.is_file() and file.stat().st_size == 0)] or files[:1]:
        first = next((part.names for part in parts if part.names is not None), None)
        parts.append(_open_file(file, choice, wanted if first is None else first, are_all=first is not None and not wanted))
    parts = [part for part in parts if part.n_rows != 0] or parts[:1]
    return parts[0] if len(parts) == 1 else Shards(parts, origin=", ".join(map(str, given[:3])))


def open_stdin(choice: Choice | None = None, wanted: list[str] | None = None) -> RowSource:
    """Open the standard input: JSON lines if it begins with a brace, else CSV."""
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
        if files := list(_files_in(path, suffixes)):
            _warn_of_other_folders(path, suffixes)
            return files
    known = [suffix for suffixes in FOLDER_SUFFIXES for suffix in suffixes]
    raise ValueError(f"the folder {path} holds no {', '.join(known[:-1])} or {known[-1]} files")


def _files_in(folder: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Yield files of a folder and of its partitions that end with a suffix, in the order of their names."""
    for path in _visible(folder):
        if path.is_dir() and "=" in path.name:
            yield from _files_in(path, suffixes)
        elif path.suffix.lower() in suffixes and path.is_file():
            yield path


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith((".", "_")))


def _warn_of_other_folders(folder: Path, suffixes: tuple[str, ...]) -> None:
    """Say which folders in a folder hold rows, too, that are left out."""
    others = [path for path in _visible(folder) if path.is_dir() and "=" not in path.name]
    left_out = [path.name for path in others if any(_files_in(path, suffixes))]
    if left_out:
        names = listed(left_out)
        warnings.warn(f"rows in folders of {folder} are left out: {names}; name them, too, if they count", stacklevel=4)


def read_labels(path: AnyPath) -> NDArray[Any]:
    """Return labels (n,) from a file: an array, or a table with one column; labels of a ``.csv`` file are text.

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
        if suffix == ".npz" and isinstance(labels, np.ndarray):
            raise ValueError("it holds one array, as a .npy file does, and is no archive")
    if suffix == ".npz":
        with labels as arrays:
            names = list(arrays)
            labels = array_of(path, arrays, "y" if len(names) != 1 else names[0])
    if labels.ndim != 1 or labels.dtype.kind not in "fiubUS":
        raise ValueError(f"{path} must hold labels of shape (n,), numbers or texts, got {labels.dtype} of {labels.shape}")
    return np.asarray(labels)


def _only_column(path: Path) -> NDArray[Any]:
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".tsv"):
        arrow = import_pyarrow(f"reading {path}")
        if suffix != ".parquet":
            with path.open("rb") as file:
                for block in blocks_of_lines(file):
                    check_lines(block, path)
        with damage_named(path):
            table = arrow.parquet.read_table(path) if suffix == ".parquet" else arrow.json.read_json(path)
            names = table.column_names  # which may be no text
        if len(names) == 1:
            return as_labels(table.column(0), path)
    else:
        with damage_named(path), path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter="\t" if suffix == ".tsv" else ",")
            names, *lines = [line for line in reader if line] or [[]]
        if len(names) == 1 and all(len(line) == 1 for line in lines):
            return np.asarray([line[0] for line in lines])
    raise ValueError(f"{path} must have one column, of labels, got {listed(names) or 'nothing'}")
