"""``pyod-quadric score``: scores and labels of rows, in memory that does not grow with them."""

import argparse
import sys
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from tqdm import tqdm

from pyod_quadric.cli.errors import USAGE, CommandError
from pyod_quadric.cli.options import add_input, add_output, add_quiet, choice, load_model, note, open_for_model
from pyod_quadric.cli.outputs import SUFFIXES, check_output, open_writer
from pyod_quadric.cli.tables import BLOCK_ROWS, Block, checked_blocks
from pyod_quadric.detector import QuadricDetector

HELP = "write outlier scores and labels of rows"
COLUMNS: dict[str, DTypeLike] = {"row": np.int64, "score": np.float64, "label": np.int64}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("model", metavar="MODEL", help="a model file")
    add_input(parser, on_nan=("error", "drop", "score-nan"))
    add_output(
        parser,
        "where the scores go: a .csv or .parquet file with the columns row (from 0 on), score and label (1 for outliers), or "
        "a .npy file of scores alone; by default CSV to the standard output",
    )
    parser.add_argument("--labels-output", metavar="FILE", help="a .npy file for the labels")
    parser.add_argument("--batch-size", type=int, default=BLOCK_ROWS, help="rows in memory at once (default: %(default)s)")
    add_quiet(parser)


def run(arguments: argparse.Namespace) -> None:
    """Read, score and write block by block."""
    if arguments.batch_size < 1:
        raise CommandError(f"--batch-size must be 1 or more, got {arguments.batch_size}", USAGE)
    inputs = (arguments.model, arguments.input)
    if arguments.output:
        check_output(arguments.output, arguments.force, inputs, SUFFIXES)
    if arguments.labels_output:
        if arguments.labels_output == arguments.output:
            raise CommandError("--output and --labels-output must be different files", USAGE)
        check_output(arguments.labels_output, arguments.force, inputs, (".npy",))
    detector, table = open_for_model(load_model(arguments.model), arguments.input, choice(arguments), arguments.quiet)
    # No bar where there is no terminal, nor where it would run through the scores.
    hidden = arguments.quiet or (arguments.output is None and sys.stdout.isatty()) or None
    n_rows = n_scored = n_outliers = 0
    with ExitStack() as files, tqdm(total=table.n_rows, unit=" rows", disable=hidden) as bar:
        writers = [files.enter_context(open_writer(arguments.output, COLUMNS, arguments.force, npy="score"))]
        if arguments.labels_output:
            writers.append(files.enter_context(open_writer(arguments.labels_output, COLUMNS, arguments.force, npy="label")))
        for block in checked_blocks(table, arguments.on_nan, arguments.batch_size):
            n_rows += len(block.rows)
            bar.update(len(block.rows))
            columns = scored(detector, block.only(block.finite) if arguments.on_nan == "drop" else block)
            for writer in writers:
                writer.write(columns)
            n_scored += int(block.finite.sum())
            n_outliers += int((columns["label"] == 1).sum())
        if n_scored == 0 and arguments.on_nan == "drop":  # before the files are put in place
            raise CommandError(f"all rows of {arguments.input} hold NaN or infinite entries, so that none is left")
    if n_scored < n_rows:
        note(f"{n_rows - n_scored} of {n_rows} rows hold NaN or infinite entries and have no score", arguments.quiet)
    note(f"{n_outliers} of {n_scored} rows are above the threshold {detector.threshold_:.6g}", arguments.quiet)


def scored(detector: QuadricDetector, block: Block) -> dict[str, NDArray[Any]]:
    """Return row numbers, scores and labels of a block; rows that are not finite have the score NaN and the label -1."""
    scores, labels = np.full(len(block.rows), np.nan), np.full(len(block.rows), -1)
    if block.finite.any():
        scores[block.finite] = detector.decision_function(block.rows[block.finite])
        labels[block.finite] = scores[block.finite] > detector.threshold_  # as PyOD's predict does
    return {"row": block.numbers, "score": scores, "label": labels}
