"""``pyod-quadric robustness``: what a model's outlier scores gain for a similarity of embeddings."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.cli.arrow import SUFFIXES
from pyod_quadric.cli.columns import Choice
from pyod_quadric.cli.errors import USAGE, CommandError
from pyod_quadric.cli.options import INPUTS, add_input, add_quiet, choice, load_model, markdown_table, note, open_for_model
from pyod_quadric.cli.tables import Block, read_all, read_labels
from pyod_quadric.detector import QuadricDetector
from pyod_quadric.similarity.protocol import half_half_protocol

HELP = "measure the identification rate before and after the similarities of outliers are taken away"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("--embeddings", required=True, metavar="FILE", help=f"embeddings of identities in a {INPUTS} file")
    parser.add_argument("--labels", metavar="FILE", help="their identities, an array or a table with one column")
    parser.add_argument("--model", required=True, metavar="FILE", help="a model file, fitted to other rows")
    parser.add_argument("--distractors", metavar="FILE", help="embeddings of nobody among the identities")
    parser.add_argument(
        "--false-positive-rate", type=float, default=1e-5, metavar="SHARE", help="of different pairs (default: %(default)s)"
    )
    parser.add_argument("--similarity", choices=("cosine", "euclidean"), default="cosine", help="(default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=10, metavar="N", help="random halves (default: %(default)s)")
    parser.add_argument("--random-state", type=int, default=0, metavar="SEED", help="decides the halves (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="as JSON")
    add_input(parser, name=None)
    add_quiet(parser)


def run(arguments: argparse.Namespace) -> None:
    """Score embeddings and distractors, measure, and print a table."""
    if (arguments.labels is None) == (arguments.label_column is None):
        raise CommandError("identities are needed: give either --labels or --label-column", USAGE)
    if arguments.repeats < 1:
        raise CommandError(f"--repeats must be 1 or more, got {arguments.repeats}", USAGE)
    model = load_model(arguments.model)
    images, n_dropped, scores, names = _scored(model, arguments.embeddings, choice(arguments), arguments)
    labels = images.labels
    if arguments.labels is not None:
        labels = labels_of(arguments.labels, images, n_dropped, arguments.embeddings)
    distractors = distractor_scores = None
    if arguments.distractors is not None:
        named = names if Path(arguments.distractors).suffix.lower() in SUFFIXES else None  # arrays have no names
        same = Choice(columns=named, array=arguments.array, header=not arguments.no_header)
        others, _, distractor_scores, _ = _scored(model, arguments.distractors, same, arguments)
        distractors = others.rows
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


def labels_of(path: str, kept: Block, n_dropped: int, rows_path: str) -> NDArray[Any]:
    """Return the labels in a file of the rows that were kept."""
    labels, n_rows = read_labels(path), len(kept.numbers) + n_dropped
    if len(labels) != n_rows:
        raise CommandError(f"{path} has {len(labels)} labels, but {rows_path} has {n_rows} rows")
    return np.asarray(labels[kept.numbers])


def _scored(
    model: QuadricDetector, path: str, columns: Choice, arguments: argparse.Namespace
) -> tuple[Block, int, NDArray[np.float64], list[str] | None]:
    """Return rows, how many were left out, their scores, and the names of their columns."""
    detector, table = open_for_model(model, path, columns, arguments.quiet)
    data, n_dropped = read_all(table, arguments.on_nan)
    if n_dropped:
        note(f"{n_dropped} rows of {path} with NaN or infinite entries are left out", arguments.quiet)
    return data, n_dropped, detector.decision_function(data.rows), table.names


def _cutoffs(cutoffs: NDArray[np.float64]) -> str:
    finite = cutoffs[np.isfinite(cutoffs)]
    if not len(finite):
        return "no cutoff was worth it in any half"
    text = f"cutoffs of the score {finite.min():.6g} to {finite.max():.6g}"
    return text if len(finite) == len(cutoffs) else f"{text}, and none in {len(cutoffs) - len(finite)} of {len(cutoffs)} halves"
