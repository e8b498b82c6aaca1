"""``pyod-quadric report``: an HTML report about rows, in memory that hardly grows with them."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.cli.errors import USAGE, CommandError
from pyod_quadric.cli.inputs import Kept, checked_blocks, choice_of, groups_of, load_model, open_for_model, with_groups
from pyod_quadric.cli.outputs import check_output, note, whole_file
from pyod_quadric.data.sources import Block, RowSource, Subset
from pyod_quadric.progress import count, reported, stage
from pyod_quadric.report.findings import findings
from pyod_quadric.report.page import library, page


def run(arguments: argparse.Namespace) -> None:
    """Read the rows in one pass, and write the page."""
    for option, n, least in (("top", arguments.top, 1), ("points", arguments.points, 2)):
        if n < least:
            raise CommandError(f"--{option} must be {least} or more, got {n}", USAGE)
    if arguments.input == "-" and arguments.group_column:
        raise CommandError("groups of rows on the standard input are given in a file of their own, by --groups", USAGE)
    inputs = tuple(path for path in (arguments.model, arguments.input, arguments.groups) if path)
    check_output(arguments.output, arguments.force, inputs, (".html",))
    library()
    detector = load_model(arguments.model)
    source = open_for_model(detector, arguments.input, with_groups(choice_of(arguments), arguments), arguments.quiet)
    n_rows = 0
    with reported(not arguments.quiet and sys.stderr.isatty()), stage("scores"), count(source.n_rows, "rows") as done:

        def blocks() -> Iterator[Block]:
            nonlocal n_rows
            for block in checked_blocks(source, arguments.on_nan):
                n_rows += len(block.rows)
                done.advance(len(block.rows))
                yield block

        def groups(indices: NDArray[np.int64]) -> Any:
            rows: RowSource = source if len(indices) == n_rows else Subset(source, indices)
            return groups_of(Kept(rows, indices, n_rows - len(indices)), arguments)

        given = arguments.groups or arguments.group_column
        found = findings(
            detector,
            blocks(),
            names=source.names,
            groups=groups if given else None,
            top=arguments.top,
            points=arguments.points,
        )
    with whole_file(arguments.output, arguments.force) as file:
        file.write(page(found, arguments.title, source.id_column or "id"))
    size = Path(arguments.output).stat().st_size / 1e6
    note(f"{len(found.scores)} rows are in {arguments.output}, a page of {size:.1f} MB", arguments.quiet)
