"""``pyod-quadric fit``: from rows to a model file."""

import argparse
import math
import sys
import time
from pathlib import Path

from pyod_quadric.cli.errors import CommandError
from pyod_quadric.cli.inputs import choice_of, groups_of, kept_rows, open_input, with_groups
from pyod_quadric.cli.outputs import check_output
from pyod_quadric.cli.parser import parameters_in
from pyod_quadric.detector import QuadricDetector
from pyod_quadric.parallel.group import process_group
from pyod_quadric.parallel.ranks import on_first_rank, process_rank


def run(arguments: argparse.Namespace) -> None:
    """Fit, save, and print a summary; of several processes, the first one writes."""
    with process_group():
        on_first_rank(lambda: check_output(arguments.output, arguments.force, (arguments.input,)))
        if process_rank() > 0:
            arguments.quiet = True
        _fit(arguments)


def _fit(arguments: argparse.Namespace) -> None:
    verbose = 0 if arguments.quiet else 2 if arguments.verbose else int(sys.stderr.isatty())  # bars are for terminals
    make = QuadricDetector if arguments.paper is None else lambda **given: QuadricDetector.from_paper(arguments.paper, **given)
    detector = make(verbose=verbose, **parameters_in(arguments))
    source = open_input(arguments.input, with_groups(choice_of(arguments), arguments))
    kept = kept_rows(source, arguments.on_nan, arguments.quiet)
    groups = groups_of(kept, arguments)
    started = time.monotonic()
    detector.fit(kept.rows, groups=groups)
    seconds = time.monotonic() - started
    detector.set_params(verbose=0)
    if process_rank() > 0:
        return
    if Path(arguments.output).exists() and not arguments.force:  # since it was checked
        raise CommandError(f"{arguments.output} is there already; --force overwrites it")
    detector.save(arguments.output)
    if not arguments.quiet:
        print(summary(detector, seconds))
        print(f"written to {arguments.output} ({Path(arguments.output).stat().st_size / 1e6:.2f} MB)")


def summary(detector: QuadricDetector, seconds: float) -> str:
    """Return a few lines about a fit."""
    n_rows, n_outliers = len(detector.labels_), int(detector.labels_.sum())
    lines = [
        f"fitted to {n_rows} rows of {detector.n_features_in_} features in {seconds:.1f} s",
        f"{detector.n_quadrics_} quadrics in {len(detector.model_.coordinates.matrix)} coordinates",
        f"threshold {detector.threshold_:.6g}, above which {n_outliers} of the rows are ({n_outliers / n_rows:.1%})",
    ]
    if detector.history_["loss"]:
        last = {name.replace("_", " "): values[-1] for name, values in detector.history_.items()}
        shown = ", ".join(f"{name} {value:.4g}" for name, value in last.items() if not math.isnan(value))
        lines.append(f"trained for {len(detector.history_['loss'])} epochs: {shown}")
    return "\n".join(lines)
