"""What several commands have in common."""

import argparse
import copy
import sys
from pathlib import Path
from typing import Any

from pyod_quadric.cli.columns import Choice
from pyod_quadric.cli.errors import CommandError
from pyod_quadric.cli.tables import Table, open_table
from pyod_quadric.detector import QuadricDetector

INPUTS = ".npy, .npz, .csv, .tsv or .parquet"


def add_input(parser: argparse.ArgumentParser, on_nan: tuple[str, ...] = ("error", "drop"), name: str | None = "INPUT") -> None:
    """Add a file of rows and how to read it."""
    group = parser.add_argument_group("input")
    if name:
        parser.add_argument("input", metavar=name, help=f"rows in a {INPUTS} file or a folder of them; - is CSV on stdin")
    group.add_argument("--columns", type=names, metavar="A,B,...", help="the features of a table; by default all its columns")
    group.add_argument("--drop", type=names, default=[], metavar="A,B,...", help="columns of a table that are no features")
    group.add_argument("--label-column", metavar="NAME", help="the column of the labels, which is no feature; in .npz an array")
    group.add_argument("--array", metavar="NAME", help="the rows in an .npz file; by default X, or the only array")
    group.add_argument("--no-header", action="store_true", help="the first line of a .csv file holds numbers, not names")
    meanings = {
        "error": "stop at them",
        "drop": "leave them out",
        "score-nan": "give them the score nan and the label -1",
    }
    explained = "; ".join(f"{choice}: {meanings[choice]}" for choice in on_nan)
    group.add_argument("--on-nan", choices=on_nan, default="error", help=f"rows with NaN or infinite entries ({explained})")


def add_output(parser: argparse.ArgumentParser, help_text: str, required: bool = False) -> None:
    """Add a file to write."""
    parser.add_argument("-o", "--output", metavar="FILE", required=required, help=help_text)
    parser.add_argument("--force", action="store_true", help="overwrite files that are there")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add the wish for silence."""
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar, no notes, no summary")


def names(text: str) -> list[str]:
    """Return names that are separated by commas.

    Examples
    --------
    >>> names("a, b")
    ['a', 'b']
    """
    return [name.strip() for name in text.split(",")]


def choice(arguments: argparse.Namespace) -> Choice:
    """Return what the arguments say about columns."""
    return Choice(
        columns=arguments.columns,
        drop=tuple(arguments.drop),
        label_column=arguments.label_column,
        array=arguments.array,
        header=not arguments.no_header,
    )


def load_model(path: str) -> QuadricDetector:
    """Read a model file."""
    if not Path(path).is_file():
        raise CommandError(f"there is no model file {path}")
    detector: QuadricDetector = QuadricDetector.load(path)
    return detector


def open_for_model(detector: QuadricDetector, path: str, choice: Choice, quiet: bool = True) -> tuple[QuadricDetector, Table]:
    """Open rows for a model, and return it as one that takes arrays, after a look at the names of their columns."""
    wanted = [str(name) for name in getattr(detector, "feature_names_in_", [])] or None
    table = open_table(path, choice, wanted)
    needed = int(detector.n_features_in_)
    if table.n_features != needed and table.n_rows != 0:
        raise CommandError(f"{path} has {table.n_features} features, but the model was fitted to {needed}")
    if wanted and table.names is None:
        note(f"{path} has no names of columns, so they are taken to be those of the model, in its order", quiet)
    bare = copy.copy(detector)
    bare.__dict__.pop("feature_names_in_", None)  # the names were compared here, and blocks of rows have none
    return bare, table


def note(text: str, quiet: bool) -> None:
    """Say something that is no result."""
    if not quiet:
        print(f"pyod-quadric: {text}", file=sys.stderr)


def markdown_table(header: list[str], rows: list[list[Any]]) -> str:
    """Return a table whose columns stand below each other.

    Examples
    --------
    >>> print(markdown_table(["a", "bcd"], [[1, 2]]))
    | a | bcd |
    |---|-----|
    | 1 | 2   |
    """
    texts = [header, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in texts]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
