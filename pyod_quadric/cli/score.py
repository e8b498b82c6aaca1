"""``pyod-quadric score``: scores and labels of rows, in memory that does not grow with them."""

import argparse
import sys
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from tqdm import tqdm

from pyod_quadric.cli.errors import USAGE, CommandError
from pyod_quadric.cli.inputs import checked_blocks, choice_of, load_model, nothing_left, open_for_model
from pyod_quadric.cli.outputs import SUFFIXES, check_output, note, open_writer
from pyod_quadric.data.sources import ArraySource, Block
from pyod_quadric.detector import QuadricDetector

COLUMNS: dict[str, DTypeLike] = {"row": np.int64, "score": np.float64, "label": np.int64}


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
    detector = load_model(arguments.model)
    source = open_for_model(detector, arguments.input, choice_of(arguments), arguments.quiet)
    # No bar where there is no terminal, nor where it would run through the scores.
    hidden = arguments.quiet or (arguments.output is None and sys.stdout.isatty()) or None
    n_rows = n_scored = n_outliers = 0
    with ExitStack() as files, tqdm(total=source.n_rows, unit=" rows", disable=hidden) as bar:
        writers = [files.enter_context(open_writer(arguments.output, COLUMNS, arguments.force, npy="score"))]
        if arguments.labels_output:
            writers.append(files.enter_context(open_writer(arguments.labels_output, COLUMNS, arguments.force, npy="label")))
        for block in checked_blocks(source, arguments.on_nan, arguments.batch_size):
            n_rows += len(block.rows)
            bar.update(len(block.rows))
            columns = scored(detector, block, source.names)
            if arguments.on_nan == "drop":
                columns = {name: column[block.finite] for name, column in columns.items()}
            for writer in writers:
                writer.write(columns)
            n_scored += int(block.finite.sum())
            n_outliers += int((columns["label"] == 1).sum())
        if n_scored == 0 and arguments.on_nan == "drop":  # before the files are put in place
            raise nothing_left(source)
    if n_scored < n_rows:
        note(f"{n_rows - n_scored} of {n_rows} rows hold NaN or infinite entries and have no score", arguments.quiet)
    note(f"{n_outliers} of {n_scored} rows are above the threshold {detector.threshold_:.6g}", arguments.quiet)


def scored(detector: QuadricDetector, block: Block, names: list[str] | None) -> dict[str, NDArray[Any]]:
    """Return indices, scores and labels of a block; rows that are not finite have the score NaN and the label -1."""
    scores, labels = np.full(len(block.rows), np.nan), np.full(len(block.rows), -1)
    if block.finite.any():
        scores[block.finite] = detector.decision_function(ArraySource(block.rows[block.finite], names))
        labels[block.finite] = scores[block.finite] > detector.threshold_  # as PyOD's predict does
    return {"row": block.indices, "score": scores, "label": labels}
