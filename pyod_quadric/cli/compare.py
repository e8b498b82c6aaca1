"""``pyod-quadric compare``: penalty against manifold on given rows, by :func:`pyod_quadric.compare_constraints`."""

import argparse
import json
from typing import Any

import numpy as np
from tqdm import tqdm

from pyod_quadric.cli.errors import USAGE, CommandError
from pyod_quadric.cli.fit import add_parameters
from pyod_quadric.cli.options import add_input, add_output, add_quiet, choice, markdown_table, note
from pyod_quadric.cli.outputs import check_output, whole_file
from pyod_quadric.cli.robustness import labels_of
from pyod_quadric.cli.tables import open_table, read_all
from pyod_quadric.fitting.comparison import Comparison, compare_constraints

HELP = "compare the penalty with the Stiefel manifold in training on given rows"
DEFAULTS: dict[str, Any] = {"n_quadrics": "auto", "n_components": "auto", "epoch_num": 20, "batch_size": 256}
SHARED = ["n_quadrics", "n_components", "init", "epoch_num", "batch_size", "optimizer_name", "random_state"]
NAMES = {"penalty": "penalty", "stiefel": "manifold"}
RATES = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_input(parser)
    parser.add_argument("--labels", metavar="FILE", help="1 for outliers and 0 for others, for the ROC-AUC; or --label-column")
    add_output(parser, "a .png picture of the held-out losses, the orthonormality errors and the scores")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    add_quiet(parser)
    group = parser.add_argument_group("training")
    tried = ",".join(f"{rate:g}" for rate in RATES)
    group.add_argument("--lr", type=rates, default=RATES, metavar="A,B,...", help=f"learning rates to try (default: {tried})")
    add_parameters(group, SHARED, **DEFAULTS)


def rates(text: str) -> list[float]:
    """Return learning rates that are separated by commas."""
    return [float(rate) for rate in text.split(",")]


def run(arguments: argparse.Namespace) -> None:
    """Train, print a table, and write a picture."""
    if arguments.labels and arguments.label_column:
        raise CommandError("labels are given twice: by --labels and by --label-column", USAGE)
    if getattr(arguments, "epoch_num", 1) < 1:
        raise CommandError(f"--epoch-num must be 1 or more here, got {arguments.epoch_num}", USAGE)
    if arguments.output:
        inputs = tuple(path for path in (arguments.input, arguments.labels) if path)
        check_output(arguments.output, arguments.force, inputs, (".png",))
    data, n_dropped = read_all(open_table(arguments.input, choice(arguments)), arguments.on_nan)
    if n_dropped:
        note(f"{n_dropped} rows with NaN or infinite entries are left out", arguments.quiet)
    labels = data.labels if arguments.labels is None else labels_of(arguments.labels, data, n_dropped, arguments.input)
    settings = {name: value for name, value in vars(arguments).items() if name in SHARED}
    with tqdm(total=2 * len(arguments.lr), unit="run", disable=arguments.quiet or None) as bar:  # None hides it off a terminal
        found = compare_constraints(np.asarray(data.rows), labels, **settings, learning_rates=arguments.lr, progress=bar.update)
    if arguments.json:
        print(json.dumps(found.figures(), indent=2))
    else:
        print(as_text(found, arguments.lr))
    if arguments.output:
        with whole_file(arguments.output, arguments.force) as file:
            picture_of(found).savefig(file, format="png", dpi=120)
        note(f"written to {arguments.output}", arguments.quiet or arguments.json)


def as_text(found: Comparison, rates: list[float]) -> str:
    """Return a table with a column for each way to train, and what it means."""
    figures = found.figures()
    columns = {name: figures[name] for name in found.runs}
    forms = {"orthonormality_error": ".1e", "seconds": ".2f", "learning_rate": "g"}
    rows = [
        [name.replace("_", " "), *(f"{column[name]:{forms.get(name, '.5f')}}" for column in columns.values())]
        for name in next(iter(columns.values()))
        if all(column[name] is not None for column in columns.values())
    ]
    lines = [
        markdown_table(["", *(NAMES[name] for name in columns)], rows),
        f"scores of all rows: rank correlation {found.rank_correlation:.4f}, top tenth {found.common_top_tenth:.1%} in common",
        found.conditions,
    ]
    if len(rates) > 1 and {run.lr for run in found.runs.values()} & {min(rates), max(rates)}:
        lines.append("a best learning rate is at the end of those tried: more of them by --lr may be better")
    return "\n".join(lines)


def picture_of(found: Comparison) -> Any:
    """Return the picture, or say what it needs."""
    try:
        from pyod_quadric.plotting import plot_comparison
    except ImportError as error:
        raise CommandError("pictures need matplotlib: pip install 'pyod-quadric[plot]'") from error
    return plot_comparison(found)
