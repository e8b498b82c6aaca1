"""Rows of files, a block at a time, and what becomes of rows with NaN."""

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.cli.arrow import SUFFIXES, CsvTable, ParquetTable, Part, only_column
from pyod_quadric.cli.columns import Choice
from pyod_quadric.cli.errors import USAGE, CommandError, listed
from pyod_quadric.data.disk import NpyFile, RowSource
from pyod_quadric.data.sources import open_paths

OnNan = Literal["error", "drop", "score-nan"]
BLOCK_ROWS = 4096


class Table(Protocol):
    """Rows of a file."""

    path: str

    @property
    def names(self) -> list[str] | None:
        """The names of the features, if they have any."""

    @property
    def n_features(self) -> int:
        """How many features there are."""

    @property
    def n_rows(self) -> int | None:
        """How many rows there are, if that is known before they are read."""

    def parts(self, size: int) -> Iterator[Part]:
        """Yield rows and labels, about ``size`` at a time."""


class ArrayTable:
    """Rows of an array, or of something on disk that is read a part at a time."""

    def __init__(self, path: str, array: NDArray[Any] | RowSource, labels: NDArray[Any] | None = None) -> None:
        if array.dtype.kind not in "fiub":
            raise CommandError(f"{path} must hold real numbers, got {array.dtype}")
        if len(array.shape) != 2 or array.shape[1] == 0:
            raise CommandError(f"{path} must hold rows of shape (n, d), got shape {array.shape}")
        if labels is not None and labels.shape != array.shape[:1]:
            raise CommandError(f"{path} has {array.shape[0]} rows, but labels of shape {labels.shape}")
        self.path, self.array, self._labels = path, array, labels
        self.names = array.names if isinstance(array, RowSource) else None
        self.n_rows: int = array.shape[0]
        self.n_features: int = array.shape[1]

    def parts(self, size: int) -> Iterator[Part]:
        """Yield rows and labels, at most ``size`` at a time."""
        for start in range(0, self.n_rows, size):
            part = slice(start, min(start + size, self.n_rows))
            yield np.array(self.array[part]), None if self._labels is None else self._labels[part]


class Block(NamedTuple):
    """Some rows of a table."""

    numbers: NDArray[np.int64]  # (n,), from 0 on
    rows: Any  # (n, d), an array or a source
    finite: NDArray[np.bool_]  # (n,)
    labels: NDArray[Any] | None  # (n,)

    def only(self, kept: NDArray[np.bool_] | NDArray[np.int64]) -> "Block":
        """Return some of the rows, in the order of their places, if those are given."""
        return Block(self.numbers[kept], self.rows[kept], self.finite[kept], None if self.labels is None else self.labels[kept])

    def joined(self, other: "Block") -> "Block":
        """Return these rows and others, without labels."""
        numbers, rows, finite = (np.concatenate(pair) for pair in zip(self[:3], other[:3], strict=True))
        return Block(numbers, rows, finite, None)


def open_table(path: str, choice: Choice | None = None, wanted: list[str] | None = None) -> Table:
    """Open a file of rows; only the beginning is read, except of ``.npz`` files.

    Parameters
    ----------
    path : str
        Of a ``.npy``, ``.npz``, ``.csv``, ``.tsv`` or ``.parquet`` file, or of a folder of ``.npy`` and ``.parquet`` files;
        ``-`` is a ``.csv`` file on the standard input.
    choice : Choice, optional
    wanted : list of str, optional
        The features that a model needs, if it knows their names.
    """
    choice = choice or Choice()
    if Path(path).is_dir():
        return _folder(path, choice, wanted)
    suffix = _checked_suffix(path)
    if suffix == ".parquet":
        return ParquetTable(path, choice, wanted)
    if suffix in SUFFIXES:
        return CsvTable(path, choice, wanted)
    _check_no_columns(path, choice.columns or choice.drop or (choice.label_column and suffix == ".npy"))
    if suffix == ".npy":
        try:
            return ArrayTable(path, NpyFile(path))
        except ValueError:  # stored column by column, or not at all what it should be
            return ArrayTable(path, _loaded(path, mmap_mode="r"))
    arrays = _loaded(path)
    names = list(arrays)
    rows = choice.array or ("X" if "X" in names else names[0] if len(names) == 1 else None)
    if rows is None:
        raise CommandError(f"{path} has the arrays {listed(names)}; choose one by --array")
    return ArrayTable(path, _array(path, arrays, rows), _array(path, arrays, choice.label_column))


def _folder(path: str, choice: Choice, wanted: list[str] | None) -> ArrayTable:
    if choice.label_column:
        raise CommandError(f"labels cannot be read from the folder {path}; leave their column out by --drop", USAGE)
    try:
        source = open_paths([path], lambda names: choice.features(path, names, wanted))
    except (ValueError, ImportError) as error:
        raise CommandError(str(error)) from error
    if source.names is None:
        _check_no_columns(path, choice.columns or choice.drop)
    return ArrayTable(path, source)


def _check_no_columns(path: str, named: object) -> None:
    if named:
        raise CommandError(f"{path} has no named columns; --columns, --drop and --label-column are for tables", USAGE)


def checked_blocks(table: Table, on_nan: OnNan, size: int = BLOCK_ROWS) -> Iterator[Block]:
    """Go through a table once; rows that are not finite raise, if they are errors, or are marked."""
    first = 0
    for rows, labels in table.parts(size):
        finite: NDArray[np.bool_] = np.asarray(np.isfinite(rows).all(axis=1))
        block = Block(np.arange(first, first + len(rows)), rows, finite, labels)
        first += len(rows)
        if on_nan == "error" and not finite.all():
            number = block.numbers[~finite][0]
            raise CommandError(
                f"row {number} of {table.path} (counted from 0) holds NaN or infinite entries; --on-nan decides about such rows"
            )
        yield block
    if first == 0:
        raise CommandError(f"{table.path} has no rows")


def read_all(table: Table, on_nan: OnNan) -> tuple[Block, int]:
    """Return all finite rows, and how many were left out; those of a mapped file stay there if all are finite."""
    mapped = table.array if isinstance(table, ArrayTable) else None
    n_rows, blocks = 0, []
    for block in checked_blocks(table, on_nan):
        n_rows += len(block.rows)
        kept = block.only(block.finite)
        blocks.append(kept if mapped is None else kept._replace(rows=kept.rows[:0]))
    numbers = np.concatenate([block.numbers for block in blocks])
    if len(numbers) == 0:
        raise CommandError(f"all rows of {table.path} hold NaN or infinite entries, so that none is left")
    if mapped is None:
        rows: Any = np.concatenate([block.rows for block in blocks])
    else:
        rows = mapped if len(numbers) == n_rows else mapped[numbers]
    labels = [block.labels for block in blocks if block.labels is not None]
    finite = np.ones(len(numbers), dtype=bool)
    return Block(numbers, rows, finite, np.concatenate(labels) if labels else None), n_rows - len(numbers)


def read_labels(path: str) -> NDArray[Any]:
    """Return labels (n,) from a file: an array, or a table with one column; those of a ``.csv`` file are texts."""
    suffix = _checked_suffix(path)
    if suffix in SUFFIXES:
        return only_column(path)
    labels = _loaded(path)
    if suffix == ".npz":
        names = list(labels)
        labels = _array(path, labels, "y" if len(names) != 1 else names[0])
    if labels.ndim != 1 or labels.dtype.kind not in "fiubUS":
        raise CommandError(f"{path} must hold labels of shape (n,), numbers or texts, got {labels.dtype} of {labels.shape}")
    return np.asarray(labels)


def _checked_suffix(path: str) -> str:
    known = (".npy", ".npz", *SUFFIXES)
    suffix = ".csv" if path == "-" else Path(path).suffix.lower()
    if suffix not in known:
        raise CommandError(f"{path} must end with {', '.join(known)}, which says what it is", USAGE)
    if path != "-" and not Path(path).is_file():
        raise CommandError(f"there is no file {path}")
    return suffix


def _loaded(path: str, mmap_mode: Literal["r"] | None = None) -> Any:
    """Return what NumPy finds in a file. Python objects are never unpickled, since that can run whatever they say."""
    try:
        loaded = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        objects = "Python objects" in str(error)
        reason = "it holds Python objects, which are never loaded" if objects else "it is empty, damaged or something else"
        raise CommandError(f"{path} cannot be read as an array of numbers: {reason}") from error
    if isinstance(loaded, np.ndarray) != (not path.lower().endswith(".npz")):
        raise CommandError(f"{path} is not what its name says: an array in .npy, several in .npz")
    return loaded


def _array(path: str, arrays: Any, name: str | None) -> Any:
    if name is None:
        return None
    if name not in arrays:
        raise CommandError(f"{path} has no array {name}; its arrays: {listed(list(arrays))}")
    try:
        return arrays[name]
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise CommandError(f"the array {name} of {path} cannot be read: it is damaged, or holds Python objects") from error
