"""``pyod-quadric explain``: what each feature adds to the scores of some rows."""

import argparse
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pyod_quadric.cli.errors import USAGE, CommandError
from pyod_quadric.cli.options import add_input, add_output, add_quiet, choice, load_model, open_for_model
from pyod_quadric.cli.outputs import SUFFIXES, check_output, open_writer, whole_file
from pyod_quadric.cli.score import COLUMNS, scored
from pyod_quadric.cli.tables import Block, Table, checked_blocks
from pyod_quadric.detector import QuadricDetector

HELP = "write what each feature adds to the scores of given rows, or of the top outliers"
MOST_ROWS = 100_000


def row_numbers(text: str) -> list[int]:
    """Return row numbers from a list of numbers and ranges, whose ends belong to them.

    Examples
    --------
    >>> row_numbers("7,2-4")
    [7, 2, 3, 4]
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        start, stop = int(first), int(last or first)
        if not 0 <= stop - start < MOST_ROWS:
            raise argparse.ArgumentTypeError(f"a range must rise, and have at most {MOST_ROWS} rows, got {part}")
        numbers += range(start, stop + 1)
    return list(dict.fromkeys(numbers))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("model", metavar="MODEL", help="a model file")
    add_input(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--rows", type=row_numbers, metavar="3,7-9", help="the rows to explain, counted from 0")
    which.add_argument("--top", type=int, default=10, metavar="N", help="the rows with the highest scores (default: 10)")
    parser.add_argument("--largest", type=int, metavar="N", help="a line for each of the N features that add most to a row")
    add_output(
        parser,
        "a .csv or .parquet file with the columns row, score, label and all features, or row, score, label, feature and "
        "contribution with --largest, or a .npy file of contributions (n, d); by default CSV to the standard output",
    )
    add_quiet(parser)


def run(arguments: argparse.Namespace) -> None:
    """Find the rows, explain them, and write the result."""
    for option, n in (("top", arguments.top), ("largest", arguments.largest)):
        if n is not None and n < 1:
            raise CommandError(f"--{option} must be 1 or more, got {n}", USAGE)
    if arguments.output:
        check_output(arguments.output, arguments.force, (arguments.model, arguments.input), SUFFIXES)
    model = load_model(arguments.model)
    detector, table = open_for_model(model, arguments.input, choice(arguments), arguments.quiet)
    if arguments.rows is None:
        rows = top_rows(detector, table, arguments.on_nan, arguments.top)
    else:
        rows = given_rows(table, arguments.on_nan, arguments.rows)
    contributions = detector.explain(rows.rows)
    if arguments.output and arguments.output.lower().endswith(".npy"):
        with whole_file(arguments.output, arguments.force) as file:
            np.save(file, contributions)
        return
    found = getattr(model, "feature_names_in_", None)
    names = [f"feature_{place}" for place in range(table.n_features)] if found is None else [str(name) for name in found]
    columns = scored(detector, rows)
    columns |= _longest(contributions, names, arguments.largest, columns) if arguments.largest else _wide(contributions, names)
    types: dict[str, DTypeLike] = {name: column.dtype for name, column in columns.items()}
    with open_writer(arguments.output, types, arguments.force, npy="") as writer:
        writer.write(columns)


def top_rows(detector: QuadricDetector, table: Table, on_nan: Any, n: int) -> Block:
    """Return the rows with the highest scores, highest first, in one pass that holds no more than a block and them."""
    best: Block | None = None
    scores = np.empty(0)
    for block in checked_blocks(table, on_nan):
        kept = block.only(block.finite)
        together = kept if best is None else best.joined(kept)
        scores = np.append(scores, scored(detector, kept)["score"])
        order = np.argsort(-scores, kind="stable")[:n]
        best, scores = together.only(order), scores[order]
    if best is None or not len(best.rows):
        raise CommandError(f"all rows of {table.path} hold NaN or infinite entries, so that none is left")
    return best


def given_rows(table: Table, on_nan: Any, numbers: list[int]) -> Block:
    """Return rows by number, in that order; those that are not finite are left out, or raise."""
    found: Block | None = None
    n_rows = 0
    for block in checked_blocks(table, "drop"):
        n_rows += len(block.rows)
        chosen = block.only(np.isin(block.numbers, numbers))
        found = chosen if found is None else found.joined(chosen)
    beyond = [number for number in numbers if number >= n_rows]
    if beyond or found is None:
        raise CommandError(f"{table.path} has {n_rows} rows, 0 to {n_rows - 1}, so there is no row {beyond[0]}")
    places = {int(number): place for place, number in enumerate(found.numbers)}
    order = [places[number] for number in numbers if found.finite[places[number]] or on_nan == "error"]
    wanted = found.only(np.array(order, dtype=np.int64))
    if not wanted.finite.all() or not order:
        number = wanted.numbers[~wanted.finite][0] if order else numbers[0]
        raise CommandError(f"row {number} of {table.path} (counted from 0) holds NaN or infinite entries")
    return wanted


def _wide(contributions: NDArray[np.float64], names: list[str]) -> dict[str, NDArray[Any]]:
    shown = [f"feature {name}" if name in COLUMNS else name for name in names]  # a feature may be called "score", too
    return dict(zip(shown, contributions.T, strict=True))


def _longest(
    contributions: NDArray[np.float64], names: list[str], n: int, columns: dict[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Return a line for each row and each of its n largest contributions."""
    order = np.argsort(-contributions, axis=1, kind="stable")[:, :n]  # (r, n)
    repeated = {name: np.repeat(column, order.shape[1]) for name, column in columns.items()}
    largest = np.take_along_axis(contributions, order, axis=1)
    return repeated | {"feature": np.array(names)[order].ravel(), "contribution": largest.ravel()}
