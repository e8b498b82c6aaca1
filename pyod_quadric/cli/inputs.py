"""Rows and models that commands read, and the treatment of rows with NaN."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.cli.errors import CommandError
from pyod_quadric.cli.outputs import note
from pyod_quadric.data.columns import Choice
from pyod_quadric.data.files import open_rows, open_stdin, read_labels
from pyod_quadric.data.sources import Block, RowSource, Subset, not_finite
from pyod_quadric.detector import QuadricDetector

OnNan = Literal["error", "drop", "score-nan"]
BLOCK_ROWS = 4096


def choice_of(arguments: argparse.Namespace) -> Choice:
    """Return what the arguments say about columns."""
    return Choice(
        columns=arguments.columns,
        drop=tuple(arguments.drop),
        label_column=arguments.label_column,
        id_column=arguments.id_column,
        array=arguments.array,
        header=not arguments.no_header,
    )


def with_groups(choice: Choice, arguments: argparse.Namespace) -> Choice:
    """Return the choice with the column of groups in place of that of labels, which a fit does not need."""
    if arguments.group_column is None:
        return choice
    labels = () if choice.label_column is None else (choice.label_column,)
    return replace(choice, label_column=arguments.group_column, drop=choice.drop + labels)


def groups_of(kept: "Kept", arguments: argparse.Namespace) -> NDArray[Any] | None:
    """Return the groups of the kept rows, if there are any."""
    if arguments.group_column is not None:
        return kept.rows.labels
    return None if arguments.groups is None else labels_of(arguments.groups, kept)


def open_input(path: str, choice: Choice, wanted: list[str] | None = None) -> RowSource:
    """Open a file of rows, a folder, or the standard input, which is ``-``."""
    return open_stdin(choice, wanted) if path == "-" else open_rows(path, choice, wanted)


def load_model(path: str) -> QuadricDetector:
    """Read a model file."""
    if not Path(path).is_file():
        raise CommandError(f"there is no model file {path}")
    detector: QuadricDetector = QuadricDetector.load(path)
    return detector


def open_for_model(detector: QuadricDetector, path: str, choice: Choice, quiet: bool = True) -> RowSource:
    """Open the rows of a file that a model takes."""
    wanted = [str(name) for name in getattr(detector, "feature_names_in_", [])] or None
    lists: str | None = getattr(detector, "list_column_", None)
    source = open_input(path, replace(choice, list_column=lists), wanted)
    needed = int(detector.n_features_in_)
    if source.n_features != needed and source.n_rows != 0:
        where = f", the numbers in the column of lists {lists}" if lists and source.list_column is None else ""
        raise CommandError(f"{path} has {source.n_features} features, but the model was fitted to {needed}{where}")
    if wanted and source.names is None:
        note(f"{path} has no names of columns, so they are taken to be those of the model, in its order", quiet)
    return source


def checked_blocks(source: RowSource, on_nan: OnNan, size: int = BLOCK_ROWS) -> Iterator[Block]:
    """Yield rows and their ids in one pass; rows that are not finite raise an error or are marked."""
    for block in source.marked_blocks(size, with_ids=True):
        if on_nan == "error" and not block.finite.all():
            raise not_finite(int(block.indices[~block.finite][0]), source.origin)
        yield block


@dataclass(frozen=True, eq=False)
class Kept:
    """The kept rows, after others are dropped."""

    rows: RowSource
    indices: NDArray[np.int64]  # (k,)
    n_dropped: int


def kept_rows(source: RowSource, on_nan: OnNan, quiet: bool = True) -> Kept:
    """Return the finite rows, if others are to be dropped; only their indices are in memory."""
    source.load()
    if on_nan == "error":  # which reading raises
        return Kept(source, np.arange(len(source)), 0)
    indices = np.concatenate([block.indices[block.finite] for block in source.marked_blocks(BLOCK_ROWS)])
    n_dropped = len(source) - len(indices)
    if not len(indices):
        raise nothing_left(source)
    if n_dropped:
        note(f"{n_dropped} rows of {source.origin} with NaN or infinite entries are left out", quiet)
    return Kept(Subset(source, indices) if n_dropped else source, indices, n_dropped)


def nothing_left(source: RowSource) -> CommandError:
    """Return the error to raise if no row is finite."""
    return CommandError(f"all rows of {source.origin} hold NaN or infinite entries, so that none is left")


def labels_of(path: str, kept: Kept) -> NDArray[Any]:
    """Return the labels of the kept rows from a file."""
    labels, n_rows = read_labels(path), len(kept.indices) + kept.n_dropped
    if len(labels) != n_rows:
        raise CommandError(f"{path} has {len(labels)} labels, but {kept.rows.origin} has {n_rows} rows")
    return np.asarray(labels[kept.indices])
