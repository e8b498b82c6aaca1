"""``pyod-quadric compare`` prints what :func:`pyod_quadric.compare_constraints` finds."""

import argparse
import json
from typing import Any

from tqdm import tqdm

from pyod_quadric.cli.errors import USAGE, CommandError
from pyod_quadric.cli.inputs import choice_of, kept_rows, labels_of, open_input
from pyod_quadric.cli.outputs import check_output, markdown_table, note, whole_file
from pyod_quadric.cli.parser import COMPARED
from pyod_quadric.fitting.comparison import Comparison, compare_constraints, n_steps

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
    settings |= {"learning_rates": arguments.lr, "train_default": arguments.train_default}
    n_all = n_steps(arguments.lr, arguments.train_default)
    with tqdm(total=n_all, unit="fit", disable=arguments.quiet or None) as bar:  # None hides it off a terminal
        found = compare_constraints(data.rows, labels, **settings, progress=bar.update)
    if arguments.json:
        print(json.dumps(found.figures(), indent=2))
    else:
        print(as_text(found, arguments.lr))
    if arguments.output:
        with whole_file(arguments.output, arguments.force) as file:
            picture_of(found).savefig(file, format="png", dpi=120)
        note(f"written to {arguments.output}", arguments.quiet or arguments.json)


def as_text(found: Comparison, rates: list[float]) -> str:
    """Return a table of detectors and one of the two ways to train, and what they mean."""
    detectors = found.figures()["detectors"].values()
    header = ["detector", *([] if found.roc_auc is None else ["ROC-AUC"]), "rank correlation with the default", "seconds"]
    rows = [
        [
            figures["words"],
            *([] if found.roc_auc is None else [f"{figures['roc_auc']:.4f}"]),
            f"{figures['rank_correlation_with_default']:.3f}",
            f"{figures['seconds']:.2f}",
        ]
        for figures in detectors
    ]
    lines = [
        markdown_table(header, rows),
        "Each is fitted to all rows, and each row is scored by a model that has not seen it; labels take no part in a fit.",
        "Quadrics alone score by their mean distance; the default detector adds a linear part and neighbours to its quadrics.",
        "",
        *_training(found),
        f"quadrics alone: rank correlation {found.rank_correlation:.4f}, top tenth {found.common_top_tenth:.1%} in common",
        found.conditions,
    ]
    if len(rates) > 1 and {run.lr for run in found.runs.values()} & {min(rates), max(rates)}:
        lines.append("a best learning rate is at the end of those tried: more of them by --lr may be better")
    return "\n".join(lines)


def _training(found: Comparison) -> list[str]:
    columns = found.figures()["training"]
    forms = {"orthonormality_error": ".1e", "seconds": ".2f", "learning_rate": "g"}
    rows = [
        [name.replace("_", " "), *(f"{column[name]:{forms.get(name, '.5f')}}" for column in columns.values())]
        for name in next(iter(columns.values()))
    ]
    return [markdown_table(["training", *(NAMES[name] for name in columns)], rows)]


def picture_of(found: Comparison) -> Any:
    """Return the picture, or say what it needs."""
    try:
        from pyod_quadric.plotting import plot_comparison
    except ImportError as error:
        raise CommandError("pictures need matplotlib: pip install 'pyod-quadric[plot]'") from error
    return plot_comparison(found)
