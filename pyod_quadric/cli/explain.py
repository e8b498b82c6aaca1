"""``pyod-quadric explain``: what each feature adds to the scores of some rows."""

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.cli.errors import USAGE, CommandError
from pyod_quadric.cli.inputs import OnNan, checked_blocks, choice_of, load_model, nothing_left, open_for_model
from pyod_quadric.cli.outputs import SUFFIXES, check_output, open_writer, whole_file
from pyod_quadric.cli.score import COLUMNS, file_to_write, is_array, scored, types_of
from pyod_quadric.data.sources import ArraySource, Block, RowSource, not_finite
from pyod_quadric.detector import QuadricDetector


def run(arguments: argparse.Namespace) -> None:
    """Find the rows, explain them, and write the result."""
    for option, n in (("top", arguments.top), ("largest", arguments.largest)):
        if n is not None and n < 1:
            raise CommandError(f"--{option} must be 1 or more, got {n}", USAGE)
    arguments.output = file_to_write(arguments)
    if arguments.output:
        check_output(arguments.output, arguments.force, (arguments.model, arguments.input), SUFFIXES)
    for option in ("largest", "id_column"):
        if is_array(arguments.output) and getattr(arguments, option) is not None:
            typed = option.replace("_", "-")
            raise CommandError(f"--{typed} has no effect on a .npy file, which holds all contributions; leave it out", USAGE)
    detector = load_model(arguments.model)
    source = open_for_model(detector, arguments.input, choice_of(arguments), arguments.quiet)
    if arguments.rows is None:
        rows = top_rows(detector, source, arguments.on_nan, arguments.top)
    else:
        rows = given_rows(source, arguments.on_nan, arguments.rows)
    contributions = detector.explain(ArraySource(rows.rows, source.names))
    if is_array(arguments.output):
        with whole_file(arguments.output, arguments.force) as file:
            np.save(file, contributions)
        return
    found = getattr(detector, "feature_names_in_", None)
    names = [f"feature_{number}" for number in range(source.n_features)] if found is None else [str(name) for name in found]
    columns = scored(detector, rows, source)
    columns |= _longest(contributions, names, arguments.largest, columns) if arguments.largest else _wide(contributions, names)
    types = {name: column.dtype for name, column in columns.items()} | types_of(source)
    with open_writer(arguments.output, types, arguments.force, "", arguments.format) as writer:
        writer.write(columns)


def top_rows(detector: QuadricDetector, source: RowSource, on_nan: OnNan, n: int) -> Block:
    """Return the rows with the highest scores, highest first, in one pass; memory holds these rows and one block."""
    best = _no_rows(source)
    scores = np.empty(0)
    for block in checked_blocks(source, on_nan):
        kept = block.only(block.finite)
        scores = np.append(scores, scored(detector, kept, source)["score"])
        order = np.argsort(-scores, kind="stable")[:n]
        best, scores = best.followed_by(kept).only(order), scores[order]
    if not len(best.rows):
        raise nothing_left(source)
    return best


def given_rows(source: RowSource, on_nan: OnNan, wanted: list[int]) -> Block:
    """Return rows by index, in that order; those that are not finite are left out, or raise."""
    found, n_rows = _no_rows(source), 0
    for block in checked_blocks(source, "drop"):
        n_rows += len(block.rows)
        found = found.followed_by(block.only(np.isin(block.indices, wanted)))
    beyond = [index for index in wanted if index >= n_rows]
    if beyond:
        raise CommandError(f"{source.origin} has {n_rows} rows, 0 to {n_rows - 1}, so there is no row {beyond[0]}")
    where = {int(index): number for number, index in enumerate(found.indices)}
    order = [where[index] for index in wanted if found.finite[where[index]] or on_nan == "error"]
    chosen = found.only(np.array(order, dtype=np.int64))
    if not chosen.finite.all() or not order:
        raise not_finite(int(chosen.indices[~chosen.finite][0]) if order else wanted[0], source.origin)
    return chosen


def _no_rows(source: RowSource) -> Block:
    ids = None if source.id_column is None else np.empty(0, source.id_type)
    return Block(np.empty(0, np.int64), np.empty((0, source.n_features), source.dtype), np.empty(0, bool), ids)


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
