"""``pyod-quadric compare``: penalty against manifold on given rows.

Both train the same start on the same batches. One row in ten is held out; coordinates and start are learnt without those rows.
Each has the learning rate that is best for its own held-out loss. A penalty leaves the quadrics a little off orthonormal, and
quadrics that lean towards each other have a smaller loss, so its loss is also given after they are made orthonormal.
"""

import argparse
import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from pyod_quadric.cli.duel import CONSTRAINTS, Duel, Outcome, draw
from pyod_quadric.cli.errors import USAGE, CommandError
from pyod_quadric.cli.inputs import choice_of, kept_rows, labels_of, open_input
from pyod_quadric.cli.outputs import check_output, markdown_table, note, whole_file
from pyod_quadric.cli.parser import COMPARE_DEFAULTS, COMPARED
from pyod_quadric.training.options import ConstraintName


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
    outliers = None if labels is None else zeros_and_ones(labels)
    settings = COMPARE_DEFAULTS | {name: value for name, value in vars(arguments).items() if name in COMPARED}
    duel = Duel(data.rows, settings)
    n_runs = len(CONSTRAINTS) * len(arguments.lr)
    with tqdm(total=n_runs, unit="run", disable=arguments.quiet or None) as bar:  # None hides it where there is no terminal
        outcomes = {name: duel.best(name, arguments.lr, bar.update) for name in CONSTRAINTS}
    figures = {name: figures_of(outcome, outliers) for name, outcome in outcomes.items()}
    agreement = agreement_of(*(outcome.scores for outcome in outcomes.values()))
    if arguments.json:
        print(json.dumps({**figures, "agreement": agreement, "conditions": duel.conditions()}, indent=2))
    else:
        print(as_table(figures))
        correlation, common = agreement["rank_correlation"], agreement["common_top_tenth"]
        print(f"scores of all rows: rank correlation {correlation:.4f}, {common:.1%} of the top tenth in common")
        print(duel.conditions())
        rates_of_both = {outcome.lr for outcome in outcomes.values()}
        if len(arguments.lr) > 1 and rates_of_both & {min(arguments.lr), max(arguments.lr)}:
            print("a best learning rate is at the end of those tried: more of them by --lr may be better")
    if arguments.output:
        with whole_file(arguments.output, arguments.force) as file:
            draw(outcomes, agreement["rank_correlation"]).savefig(file, format="png", dpi=120)
        note(f"written to {arguments.output}", arguments.quiet or arguments.json)


def zeros_and_ones(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Return labels as 0 and 1, both of which must be there."""
    try:
        numbers = labels.astype(np.float64)
    except (ValueError, TypeError):
        numbers = np.full(len(labels), np.nan)
    if set(np.unique(numbers)) != {0.0, 1.0}:
        raise CommandError("labels must be 1 for outliers and 0 for others, and some of each are needed for a ROC-AUC")
    return numbers.astype(np.int64)


def figures_of(outcome: Outcome, outliers: NDArray[np.int64] | None) -> dict[str, float | None]:
    """Return the figures of one way to train."""
    from sklearn.metrics import roc_auc_score

    return {
        "learning_rate": outcome.lr,
        "held_out_loss_at_start": outcome.losses[0],
        "held_out_loss": outcome.losses[-1],
        "held_out_loss_made_orthonormal": outcome.orthonormal_loss,
        "orthonormality_error": outcome.errors[-1],
        "seconds": outcome.seconds[-1],
        "roc_auc": None if outliers is None else float(roc_auc_score(outliers, outcome.scores)),
    }


def agreement_of(first: NDArray[np.float64], second: NDArray[np.float64]) -> dict[str, float]:
    """Return the rank correlation of two scores, and the share of their top tenths that is in both."""
    from scipy.stats import spearmanr

    n_top = math.ceil(len(first) / 10)
    tops = [set(np.argsort(-scores, kind="stable")[:n_top].tolist()) for scores in (first, second)]
    return {
        "rank_correlation": float(spearmanr(first, second).statistic),
        "common_top_tenth": len(tops[0] & tops[1]) / n_top,
    }


def as_table(figures: dict[ConstraintName, dict[str, float | None]]) -> str:
    """Return a table with a column for each way to train."""
    forms = {"orthonormality_error": ".1e", "seconds": ".2f", "learning_rate": "g"}
    rows = [
        [name.replace("_", " "), *(f"{column[name]:{forms.get(name, '.5f')}}" for column in figures.values())]
        for name in next(iter(figures.values()))
        if all(column[name] is not None for column in figures.values())
    ]
    return markdown_table(["", *(CONSTRAINTS[name] for name in figures)], rows)
