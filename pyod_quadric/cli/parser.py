"""The parser of all commands. It imports nothing heavy, so help and usage errors appear at once.

The options of ``fit`` follow from the declarations in :mod:`pyod_quadric.parameters`.
"""

import argparse
from collections.abc import Callable
from dataclasses import Field
from typing import Any

from pyod_quadric._version import __version__
from pyod_quadric.allowed import Flag, Kind, Nothing, Number, PathName, Text, Whole, Words, parsed
from pyod_quadric.parameters import RARELY_USED, Parameters, declarations, training_declaration

DESCRIPTION = "Outlier detection by the distance to an intersection of quadrics."
EPILOG = """\
examples:
  pyod-quadric fit rows.npy --output model.safetensors
  pyod-quadric score model.safetensors new.csv --output scores.csv
  pyod-quadric explain model.safetensors new.csv --top 5 --largest 3

exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted
"""
INPUTS = ".npy, .npz, .csv, .tsv, .jsonl, .ndjson or .parquet"
SCORE_ROWS = 4096  # at once
MOST_ROWS = 100_000  # of a range to explain, and to draw by default
# Not typed: those that are options one by one, what partial_fit alone needs, and what --verbose and --quiet decide.
NOT_TYPED = ("training_options", "window", "verbose")
FLAT = {name: entry for name, entry in declarations(Parameters).items() if name not in NOT_TYPED}
RARE = {name: training_declaration(name) for name in RARELY_USED}
COMPARED = ("n_quadrics", "n_components", "init", "epoch_num", "batch_size", "optimizer_name", "random_state")
COMPARE_DEFAULTS: dict[str, Any] = {"n_quadrics": "auto", "n_components": "auto", "epoch_num": 20, "batch_size": 256}
RATES = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands.

    Examples
    --------
    >>> build_parser().parse_args(["info", "model.safetensors"]).command
    'info'
    """
    parser = argparse.ArgumentParser(
        "pyod-quadric", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"pyod-quadric {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (words, add_arguments) in COMMANDS.items():
        command = commands.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
        command.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
        add_arguments(command)
    return parser


def _add_fit(parser: argparse.ArgumentParser) -> None:
    _add_input(parser)
    _add_groups(parser)
    _add_output(parser, "the model file", required=True)
    _add_quiet(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each epoch, in place of a progress bar")
    group = parser.add_argument_group("parameters of the detector")
    group.add_argument("--paper", choices=("full", "base", "sub"), help="start from the settings of the paper")
    _add_parameters(group, FLAT)
    _add_parameters(parser.add_argument_group("rarely used options of training"), RARE)


def _add_score(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a model file")
    _add_input(parser, on_nan=("error", "drop", "score-nan"))
    _add_output(
        parser,
        "where the scores go: a .csv, .jsonl or .parquet file with the columns row (from 0 on), score and label (1 for "
        "outliers), or a .npy file of scores alone; by default, or by -, text to the standard output",
    )
    _add_format(parser)
    parser.add_argument("--p-values", action="store_true", help="a further column, p_value; not in a .npy file")
    rates = parser.add_mutually_exclusive_group()
    rates.add_argument(
        "--false-positive-rate",
        "--fpr",
        type=share,
        metavar="SHARE",
        help="label this share of new inliers, not by the threshold",
    )
    rates.add_argument(
        "--false-discovery-rate",
        "--fdr",
        type=share,
        metavar="SHARE",
        help="label as many rows as possible, of which on average at most this share are inliers; holds all scores",
    )
    parser.add_argument("--labels-output", metavar="FILE", help="a .npy file for the labels")
    parser.add_argument("--batch-size", type=int, default=SCORE_ROWS, help="rows in memory at once (default: %(default)s)")
    _add_quiet(parser)


def _add_drift(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a model file")
    _add_input(parser)
    _add_groups(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")
    _add_quiet(parser)


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a model file")
    _add_input(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--rows", type=row_numbers, metavar="3,7-9", help="the rows to explain, counted from 0")
    which.add_argument("--top", type=int, default=10, metavar="N", help="the rows with the highest scores (default: 10)")
    parser.add_argument("--largest", type=int, metavar="N", help="a line for each of the N features that add most to a row")
    _add_output(
        parser,
        "a .csv, .jsonl or .parquet file with the columns row, score, label and all features, or row, score, label, feature "
        "and contribution with --largest, or a .npy file of contributions (n, d); by default, or by -, text to the standard "
        "output",
    )
    _add_format(parser)
    _add_quiet(parser)


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a model file")
    _add_input(parser)
    _add_groups(parser)
    _add_output(parser, "the page, a .html file that needs no other file and no network", required=True)
    parser.add_argument("--title", default="Outlier report", help="of the page (default: %(default)s)")
    parser.add_argument("--top", type=int, default=20, metavar="N", help="outliers to explain (default: %(default)s)")
    parser.add_argument(
        "--points",
        type=int,
        default=MOST_ROWS,
        metavar="N",
        help="rows to draw and list at most, outliers first (default: %(default)s)",
    )
    _add_quiet(parser)


def _add_compare(parser: argparse.ArgumentParser) -> None:
    _add_input(parser)
    parser.add_argument("--labels", metavar="FILE", help="1 for outliers and 0 for others, for the ROC-AUC; no fit sees them")
    _add_output(parser, "a .png picture of the detectors, the held-out losses, the orthonormality errors and the scores")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    _add_quiet(parser)
    group = parser.add_argument_group("training")
    tried = ",".join(f"{rate:g}" for rate in RATES)
    group.add_argument("--lr", type=rates, default=RATES, metavar="A,B,...", help=f"learning rates to try (default: {tried})")
    group.add_argument(
        "--train-default",
        action="store_true",
        help="train the quadrics of the default detector, too, which may take many times as long as everything else",
    )
    _add_parameters(group, {name: FLAT[name] for name in COMPARED}, COMPARE_DEFAULTS)


def _add_robustness(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--embeddings", required=True, metavar="FILE", help=f"embeddings of identities in a {INPUTS} file")
    parser.add_argument("--labels", metavar="FILE", help="their identities, an array or a table with one column")
    parser.add_argument("--model", required=True, metavar="FILE", help="a model file, fitted to other rows")
    parser.add_argument("--distractors", metavar="FILE", help="embeddings of other identities")
    parser.add_argument(
        "--false-positive-rate", type=float, default=1e-5, metavar="SHARE", help="of different pairs (default: %(default)s)"
    )
    parser.add_argument("--similarity", choices=("cosine", "euclidean"), default="cosine", help="(default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=10, metavar="N", help="random halves (default: %(default)s)")
    parser.add_argument("--random-state", type=int, default=0, metavar="SEED", help="decides the halves (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="as JSON")
    _add_input(parser, name=None)
    _add_quiet(parser)


def _add_info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a model file")
    parser.add_argument("--json", action="store_true", help="as JSON")


# What each command does, and its arguments; the command itself is the module of the same name.
COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "fit": ("fit a detector to rows, and write a model file", _add_fit),
    "score": ("write outlier scores and labels of rows", _add_score),
    "drift": ("test whether a whole batch of rows is like the rows of the fit", _add_drift),
    "explain": ("write what each feature adds to the scores of given rows, or of the top outliers", _add_explain),
    "report": ("write a page to look at: scores, a map of the rows, the top outliers, calibration, drift", _add_report),
    "compare": (
        "compare the default detector, its parts, and training with the penalty and on the Stiefel manifold",
        _add_compare,
    ),
    "robustness": (
        "measure the identification rate of a similarity, with and without outliers",
        _add_robustness,
    ),
    "info": ("say what is in a model file", _add_info),
}


def _add_input(
    parser: argparse.ArgumentParser, on_nan: tuple[str, ...] = ("error", "drop"), name: str | None = "INPUT"
) -> None:
    """Add a file of rows and how to read it."""
    group = parser.add_argument_group("input")
    if name:
        parser.add_argument(
            "input", metavar=name, help=f"rows in a {INPUTS} file or a folder of them; - is CSV or JSON lines on stdin"
        )
    group.add_argument("--columns", type=names, metavar="A,B,...", help="the features of a table; by default all its columns")
    group.add_argument("--drop", type=names, default=[], metavar="A,B,...", help="columns of a table to leave out")
    group.add_argument("--label-column", metavar="NAME", help="the column of the labels, not a feature; in .npz an array")
    group.add_argument(
        "--id-column",
        metavar="NAME",
        help="the column that identifies rows, not a feature; results repeat it; in .npz an array",
    )
    group.add_argument("--array", metavar="NAME", help="the rows in an .npz file; by default X, or the only array")
    group.add_argument("--no-header", action="store_true", help="the first line of a .csv file holds numbers, not names")
    meanings = {
        "error": "stop at them",
        "drop": "leave them out",
        "score-nan": "give them the score nan and the label -1",
    }
    explained = "; ".join(f"{choice}: {meanings[choice]}" for choice in on_nan)
    group.add_argument("--on-nan", choices=on_nan, default="error", help=f"rows with NaN or infinite entries ({explained})")


def _add_groups(parser: argparse.ArgumentParser) -> None:
    """Add the groups of rows."""
    groups = parser.add_mutually_exclusive_group()
    groups.add_argument(
        "--group-column", metavar="NAME", help="the column with the person, document or machine of each row, not a feature"
    )
    groups.add_argument("--groups", metavar="FILE", help="the same in a file of its own, an array or a table with one column")


def _add_output(parser: argparse.ArgumentParser, help_text: str, required: bool = False) -> None:
    """Add a file to write."""
    parser.add_argument("-o", "--output", metavar="FILE", required=required, help=help_text)
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


def _add_format(parser: argparse.ArgumentParser) -> None:
    """Add the kind of text on the standard output."""
    parser.add_argument("--format", choices=("csv", "jsonl"), help="of the standard output (default: csv)")


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add the option that silences notes and progress."""
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar, no notes, no summary")


def _add_parameters(group: Any, entries: dict[str, Field[Any]], defaults: dict[str, Any] | None = None) -> None:
    """Add declared parameters; those that are not given are not set."""
    for name, entry in entries.items():
        kinds = entry.metadata["kinds"]
        default = (defaults or {}).get(name, entry.default)
        group.add_argument(
            f"--{name.replace('_', '-')}",
            default=argparse.SUPPRESS,
            type=value_of(kinds),
            metavar=metavar(kinds),
            help=f"{entry.metadata['words']} (default: {as_typed(default)})".replace("%", "%%"),
        )


def value_of(kinds: tuple[Kind, ...]) -> Callable[[str], Any]:
    """Return what turns a text into a value of one of the kinds; any text is the last of them.

    Examples
    --------
    >>> value_of((Flag(), Words("auto")))("yes")
    True
    """

    def parse(text: str) -> Any:
        try:
            return parsed(text, tuple(sorted(kinds, key=lambda kind: isinstance(kind, Text))))
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error}; got {text}") from error

    return parse


def metavar(kinds: tuple[Kind, ...]) -> str:
    """Return the placeholder, in help texts, for values of some kinds.

    Examples
    --------
    >>> metavar((Words("auto"), Whole(1))), metavar((Flag(),))
    ('{auto,N}', '{yes,no}')
    """
    typed: list[str] = []
    for kind in kinds:
        match kind:
            case Words():
                typed += kind.words
            case Flag():
                typed += ["yes", "no"]
            case Nothing():
                typed.append("none")
            case PathName():
                typed.append("FILE")
            case Text():
                typed.append("NAME")
            case Whole():
                typed.append("N")
            case Number():
                typed.append("X")
    return typed[0] if len(typed) == 1 else f"{{{','.join(typed)}}}"


def as_typed(value: Any) -> str:
    """Return a value as it is typed on the command line.

    Examples
    --------
    >>> as_typed(None), as_typed(True), as_typed(0.1)
    ('none', 'yes', '0.1')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def parameters_in(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters of the detector that were given.

    Examples
    --------
    >>> line = ["fit", "rows.npy", "-o", "model", "--lr", "0.1", "--momentum", "0.5"]
    >>> parameters_in(build_parser().parse_args(line))
    {'lr': 0.1, 'training_options': {'momentum': 0.5}}
    """
    given = vars(arguments)
    flat = {name: given[name] for name in FLAT if name in given}
    rare = {name: given[name] for name in RARE if name in given}
    return flat | {"training_options": rare} if rare else flat


def names(text: str) -> list[str]:
    """Return names that are separated by commas.

    Examples
    --------
    >>> names("a, b")
    ['a', 'b']
    """
    return [name.strip() for name in text.split(",")]


def share(text: str) -> float:
    """Return a number between 0 and 1.

    Examples
    --------
    >>> share("0.05")
    0.05
    """
    number = float(text)
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {text}")
    return number


def rates(text: str) -> list[float]:
    """Return learning rates that are separated by commas."""
    return [float(rate) for rate in text.split(",")]


def row_numbers(text: str) -> list[int]:
    """Return the indices of rows from a list of numbers and ranges, ends included.

    Examples
    --------
    >>> row_numbers("7,2-4")
    [7, 2, 3, 4]
    """
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        start, stop = int(first), int(last or first)
        if not 0 <= stop - start < MOST_ROWS:
            raise argparse.ArgumentTypeError(f"a range must rise, and have at most {MOST_ROWS} rows, got {part}")
        found += range(start, stop + 1)
    return list(dict.fromkeys(found))
