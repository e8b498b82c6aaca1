"""``pyod-quadric robustness``: the gain of a similarity of embeddings by the outlier scores of a model."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.cli.errors import USAGE, CommandError
from pyod_quadric.cli.inputs import choice_of, kept_rows, labels_of, load_model, open_for_model
from pyod_quadric.cli.outputs import markdown_table
from pyod_quadric.data.columns import Choice
from pyod_quadric.data.files import TABLES
from pyod_quadric.similarity.protocol import half_half_protocol


def run(arguments: argparse.Namespace) -> None:
    """Score embeddings and distractors, measure, and print a table."""
    if (arguments.labels is None) == (arguments.label_column is None):
        raise CommandError("identities are needed: give either --labels or --label-column", USAGE)
    if arguments.repeats < 1:
        raise CommandError(f"--repeats must be 1 or more, got {arguments.repeats}", USAGE)
    model = load_model(arguments.model)
    source = open_for_model(model, arguments.embeddings, choice_of(arguments), arguments.quiet)
    images = kept_rows(source, arguments.on_nan, arguments.quiet)
    scores = model.decision_function(images.rows)
    labels = images.rows.labels if arguments.labels is None else labels_of(arguments.labels, images)
    distractors = distractor_scores = None
    if arguments.distractors is not None:
        others = open_for_model(model, arguments.distractors, _same_columns(arguments, source.names), arguments.quiet)
        distractors = kept_rows(others, arguments.on_nan, arguments.quiet).rows
        distractor_scores = model.decision_function(distractors)
    result = half_half_protocol(
        images.rows,
        np.asarray(labels),
        scores,
        distractors,
        distractor_scores,
        n_repeats=arguments.repeats,
        seed=arguments.random_state,
        false_positive_rate=arguments.false_positive_rate,
        similarity=arguments.similarity,
    )
    rates = result.summary()
    gain = [after.full_ir - before.full_ir for before, after in zip(result.before, result.after, strict=True)]
    if arguments.json:
        figures: dict[str, Any] = {name: {"mean": mean, "std": std} for name, (mean, std) in rates.items()}
        cutoffs = [None if np.isinf(cutoff) else float(cutoff) for cutoff in result.cutoffs]
        print(json.dumps({**figures, "gain_in_full_ir": gain, "cutoffs": cutoffs}, indent=2))
        return
    shown = {name: f"{mean:.4f} ± {std:.4f}" for name, (mean, std) in rates.items()}
    rows = [[when, shown[f"ir_{when}"], shown[f"full_ir_{when}"]] for when in ("before", "after")]
    print(markdown_table(["", "IR", "Full IR (with distractors)"], rows))
    print(f"gain in Full IR {np.mean(gain):+.4f} ± {np.std(gain):.4f}; {_cutoffs(result.cutoffs)}")
    print(
        f"{len(scores)} embeddings, {0 if distractors is None else len(distractors)} distractors; the cutoff is chosen on half"
    )
    print(f"of the identities and measured on the other, {arguments.repeats} times, mean ± standard deviation")


def _same_columns(arguments: argparse.Namespace, names: list[str] | None) -> Choice:
    """Return what to take from the file of distractors: the columns of the embeddings, if it has any columns."""
    suffix = Path(arguments.distractors).suffix.lower()
    return Choice(
        columns=names if suffix in TABLES else None,
        array=arguments.array if suffix == ".npz" else None,
        header=not arguments.no_header or suffix not in (".csv", ".tsv"),
    )


def _cutoffs(cutoffs: NDArray[np.float64]) -> str:
    finite = cutoffs[np.isfinite(cutoffs)]
    if not len(finite):
        return "no cutoff was worth it in any half"
    text = f"cutoffs of the score {finite.min():.6g} to {finite.max():.6g}"
    return text if len(finite) == len(cutoffs) else f"{text}, and none in {len(cutoffs) - len(finite)} of {len(cutoffs)} halves"
