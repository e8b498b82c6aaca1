"""``pyod-quadric score``: scores and labels of rows, in bounded memory.

A false discovery rate concerns all rows together, so their scores are held until the last one is known.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.stats import false_discovery_control

from pyod_quadric.cli.errors import USAGE, CommandError
from pyod_quadric.cli.inputs import checked_blocks, choice_of, load_model, nothing_left, open_for_model
from pyod_quadric.cli.outputs import SUFFIXES, check_output, note, open_writer
from pyod_quadric.data.sources import ArraySource, Block, RowSource
from pyod_quadric.detector import QuadricDetector
from pyod_quadric.progress import count, reported, stage

COLUMNS = ("row", "score", "label", "p_value")
Columns = dict[str, NDArray[Any]]


def run(arguments: argparse.Namespace) -> None:
    """Read, score and write block by block."""
    if arguments.batch_size < 1:
        raise CommandError(f"--batch-size must be 1 or more, got {arguments.batch_size}", USAGE)
    inputs = (arguments.model, arguments.input)
    arguments.output = file_to_write(arguments)
    if arguments.output:
        check_output(arguments.output, arguments.force, inputs, SUFFIXES)
    if arguments.labels_output:
        if arguments.labels_output == arguments.output:
            raise CommandError("--output and --labels-output must be different files", USAGE)
        check_output(arguments.labels_output, arguments.force, inputs, (".npy",))
    if is_array(arguments.output) and (arguments.p_values or arguments.id_column):
        option = "--p-values" if arguments.p_values else "--id-column"
        raise CommandError(f"{option} has no effect on a .npy file, which holds scores alone; write a table", USAGE)
    detector = load_model(arguments.model)
    source = open_for_model(detector, arguments.input, choice_of(arguments), arguments.quiet)
    types = types_of(source) | ({"p_value": np.float64} if arguments.p_values else {})
    # No bar where there is no terminal, nor where it would run through the scores.
    shown = not arguments.quiet and sys.stderr.isatty() and not (arguments.output is None and sys.stdout.isatty())
    n_rows = n_scored = n_outliers = 0
    with reported(shown), stage("scores"), count(source.n_rows, "rows") as done, ExitStack() as files:
        writers = [files.enter_context(open_writer(arguments.output, types, arguments.force, "score", arguments.format))]
        if arguments.labels_output:
            writers.append(files.enter_context(open_writer(arguments.labels_output, types, arguments.force, "label")))

        def blocks() -> Iterator[Columns]:
            nonlocal n_rows, n_scored
            for block in checked_blocks(source, arguments.on_nan, arguments.batch_size):
                n_rows += len(block.rows)
                n_scored += int(block.finite.sum())
                done.advance(len(block.rows))
                columns = scored(detector, block, source)
                if arguments.on_nan == "drop":
                    columns = {name: column[block.finite] for name, column in columns.items()}
                yield columns

        rates = arguments.false_positive_rate, arguments.false_discovery_rate
        decided = labelled(detector, blocks(), *rates) if arguments.p_values or any(rates) else blocks()
        for columns in decided:
            n_outliers += int((columns["label"] == 1).sum())
            for writer in writers:
                writer.write({name: columns[name] for name in types})
        if n_scored == 0 and arguments.on_nan == "drop":  # before the files are put in place
            raise nothing_left(source)
    if n_scored < n_rows:
        note(f"{n_rows - n_scored} of {n_rows} rows hold NaN or infinite entries and have no score", arguments.quiet)
    note(f"{n_outliers} of {n_scored} rows are {_rule(detector, arguments)}", arguments.quiet)


def _rule(detector: QuadricDetector, arguments: argparse.Namespace) -> str:
    if arguments.false_positive_rate is not None:
        return f"outliers at a false positive rate of {arguments.false_positive_rate:g}"
    if arguments.false_discovery_rate is not None:
        return f"outliers at a false discovery rate of {arguments.false_discovery_rate:g}"
    return f"above the threshold {detector.threshold_:.6g}"


def labelled(
    detector: QuadricDetector, blocks: Iterator[Columns], false_positive_rate: float | None, false_discovery_rate: float | None
) -> Iterator[Columns]:
    """Yield blocks of columns with p-values, and with labels by a rate if there is one."""
    if false_discovery_rate is not None:
        everything = list(blocks)
        blocks = iter(
            [{name: np.concatenate([part[name] for part in everything]) for name in everything[0]}] if everything else []
        )
    for columns in blocks:
        has_score = ~np.isnan(columns["score"])
        p_values = np.full(len(has_score), np.nan)
        p_values[has_score] = detector.p_values_of(columns["score"][has_score])
        rate, compared = false_positive_rate, p_values
        if false_discovery_rate is not None and has_score.any():
            rate, compared = false_discovery_rate, np.full_like(p_values, np.nan)
            compared[has_score] = false_discovery_control(p_values[has_score])
        labels = columns["label"] if rate is None else np.where(has_score, compared <= rate, -1)
        yield columns | {"label": labels, "p_value": p_values}


def scored(detector: QuadricDetector, block: Block, source: RowSource) -> Columns:
    """Return indices, ids, scores and labels of a block; rows that are not finite get the score NaN and the label -1."""
    scores, labels = np.full(len(block.rows), np.nan), np.full(len(block.rows), -1)
    if block.finite.any():
        scores[block.finite] = detector.decision_function(ArraySource(block.rows[block.finite], source.names))
        labels[block.finite] = scores[block.finite] > detector.threshold_  # as PyOD's predict does
    ids = {} if block.ids is None else {id_name(source): block.ids}
    return {"row": block.indices, **ids, "score": scores, "label": labels}


def types_of(source: RowSource) -> dict[str, DTypeLike]:
    """Return the columns of a result and their types."""
    ids = {} if source.id_column is None else {id_name(source): source.id_type}
    return {"row": np.int64, **ids, "score": np.float64, "label": np.int64}


def id_name(source: RowSource) -> str:
    """Return the name of the id column in a result, different from its other columns."""
    taken = (*COLUMNS, "feature", "contribution")
    return f"id {source.id_column}" if source.id_column in taken else str(source.id_column)


def file_to_write(arguments: argparse.Namespace) -> str | None:
    """Return the file to which a result goes, or None for the standard output."""
    path: str | None = None if arguments.output == "-" else arguments.output
    if path is not None and arguments.format is not None:
        raise CommandError(f"--format has no effect on {path}, whose name says what it is; leave it out", USAGE)
    return path


def is_array(path: str | None) -> bool:
    """Return whether a file is to hold only one column."""
    return path is not None and path.lower().endswith(".npy")
