"""``pyod-quadric compare``: penalty against manifold on given rows, by :func:`pyod_quadric.compare_constraints`."""

import argparse
import json
from typing import Any

from tqdm import tqdm

from pyod_quadric.cli.errors import USAGE, CommandError
from pyod_quadric.cli.inputs import choice_of, kept_rows, labels_of, open_input
from pyod_quadric.cli.outputs import check_output, markdown_table, note, whole_file
from pyod_quadric.cli.parser import COMPARED
from pyod_quadric.fitting.comparison import Comparison, compare_constraints

NAMES = {"penalty": "penalty", "stiefel": "manifold"}


def run(arguments: argparse.Namespace) -> None:
    """Train, print a table, and write a picture."""
    if arguments.labels and arguments.label_column:
        raise CommandError("labels are given twice: by --labels and by --label-column", USAGE)
    if getattr(arguments, "epoch_num", 1) < 1:
        raise CommandError(f"--epoch-num must be 1 or more here, got {arguments.epoch_num}", USAGE)
    if arguments.output:
        inputs = tuple(path for path in (arguments.input, arguments.labels) if path)
        check_output(arguments.output, arguments.force, inputs, (".png",))
    data = kept_rows(open_input(arguments.input, choice_of(arguments)), arguments.on_nan, arguments.quiet)
    labels = data.rows.labels if arguments.labels is None else labels_of(arguments.labels, data)
    settings = {name: value for name, value in vars(arguments).items() if name in COMPARED}
    with tqdm(total=2 * len(arguments.lr), unit="run", disable=arguments.quiet or None) as bar:  # None hides it off a terminal
        found = compare_constraints(data.rows, labels, **settings, learning_rates=arguments.lr, progress=bar.update)
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
