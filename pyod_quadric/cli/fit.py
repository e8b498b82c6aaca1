"""``pyod-quadric fit``: from rows to a model file."""

import argparse
import inspect
import math
import sys
import time
from pathlib import Path
from typing import Any, get_args

import numpy as np

from pyod_quadric.cli.errors import CommandError
from pyod_quadric.cli.options import add_input, add_output, add_quiet, choice, note
from pyod_quadric.cli.outputs import check_output
from pyod_quadric.cli.tables import open_table, read_all
from pyod_quadric.detector import QuadricDetector
from pyod_quadric.geometry.distances import DISTANCE_FUNCTIONS
from pyod_quadric.parallel.group import process_group
from pyod_quadric.parallel.ranks import on_first_rank, rank
from pyod_quadric.parameters import ConstraintName, Init, InnerProduct, Loss, OptimizerName, Score

HELP = "learn what is normal from rows, and write a model file"
PARAMETERS = inspect.signature(QuadricDetector).parameters


def whole_or(*words: str) -> Any:
    """Return a parser of whole numbers, or of some words."""

    def parse(text: str) -> int | str:
        return text if text in words else int(text)

    parse.__name__ = " or ".join(["whole number", *words])  # argparse names it in errors
    return parse


def components(text: str) -> int | float | str | None:
    """Return a number of coordinates, a share of the variance, "auto", or None for "none".

    Examples
    --------
    >>> components("20"), components("0.9"), components("auto"), components("none")
    (20, 0.9, 'auto', None)
    """
    if text in ("auto", "none"):
        return None if text == "none" else text
    return int(text) if text.isdigit() else float(text)


def one_of(answers: dict[str, Any]) -> Any:
    """Return a parser of words that stand for values."""

    def parse(text: str) -> Any:
        if text not in answers:
            raise ValueError(text)
        return answers[text]

    parse.__name__ = " or ".join(answers)
    return parse


YES_NO: dict[str, Any] = {"yes": True, "no": False}
YES_NO_AUTO = {**YES_NO, "auto": "auto"}

# How each parameter of the detector is given; --verbose and --quiet decide the one that is not here.
OPTIONS: dict[str, dict[str, Any]] = {
    "contamination": {"type": float, "help": "the share of outliers among the rows, which decides the threshold"},
    "n_quadrics": {"type": whole_or("auto"), "help": "how many quadrics"},
    "n_components": {
        "type": components,
        "help": "coordinates of the quadrics: so many, a share of the variance, auto or none",
    },
    "normalize": {
        "type": one_of(YES_NO_AUTO),
        "metavar": "{yes,no,auto}",
        "help": "whether to divide rows by their norm",
    },
    "score_function": {"choices": get_args(Score), "help": "what the score is made of"},
    "robust": {"type": one_of(YES_NO), "metavar": "{yes,no}", "help": "whether rows far from the others count less"},
    "distance": {"choices": tuple(DISTANCE_FUNCTIONS), "help": "how far a point is from a quadric"},
    "init": {"choices": get_args(Init), "help": "where the quadrics start"},
    "epoch_num": {"type": int, "help": "epochs of training; 0 is the closed form alone"},
    "constraint": {"choices": get_args(ConstraintName), "help": "how training holds orthonormality"},
    "orthonormality_weight": {"type": float, "help": "the weight of the penalty"},
    "inner_product": {"choices": get_args(InnerProduct), "help": "what is orthonormal"},
    "loss": {"choices": get_args(Loss), "help": "what training minimises, if not the distance"},
    "optimizer_name": {"choices": get_args(OptimizerName), "help": "the optimiser"},
    "lr": {"type": float, "help": "the learning rate"},
    "batch_size": {"type": int, "help": "rows of a step"},
    "validation_fraction": {"type": float, "help": "the share of rows that training holds out"},
    "patience": {"type": int, "help": "stop after so many epochs without a smaller held-out loss"},
    "checkpoint": {"metavar": "FILE", "help": "where training keeps its state, to go on after a kill"},
    "device": {"help": "where to compute, such as cuda:0; by default CUDA if there is any"},
    "window": {"type": int, "help": "rows that a stream remembers, where the model is to go on learning; kept in the file"},
    "random_state": {"type": int, "help": "the seed of everything random"},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_input(parser)
    add_output(parser, "the model file", required=True)
    add_quiet(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each epoch, in place of a progress bar")
    group = parser.add_argument_group("parameters of the detector")
    group.add_argument("--paper", choices=("full", "base", "sub"), help="start from the settings of the paper")
    add_parameters(group, list(OPTIONS))


def add_parameters(group: Any, chosen: list[str], **defaults: Any) -> None:
    """Add parameters of the detector; those that are not given are not set, and are shown with these defaults."""
    for name in chosen:
        default = defaults.get(name, PARAMETERS[name].default)
        text = "none" if default is None else {True: "yes", False: "no"}[default] if isinstance(default, bool) else default
        settings = {"metavar": "VALUE"} | OPTIONS[name] if "choices" not in OPTIONS[name] else dict(OPTIONS[name])
        settings["help"] += f" (default: {text})"
        group.add_argument(f"--{name.replace('_', '-')}", default=argparse.SUPPRESS, **settings)


def parameters(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters of the detector that were given."""
    return {name: value for name, value in vars(arguments).items() if name in OPTIONS}


def run(arguments: argparse.Namespace) -> None:
    """Fit, save, and print a summary; of several processes, the first one writes."""
    with process_group():
        on_first_rank(lambda: check_output(arguments.output, arguments.force, (arguments.input,)))
        if rank() > 0:
            arguments.quiet = True
        _fit(arguments)


def _fit(arguments: argparse.Namespace) -> None:
    verbose = 0 if arguments.quiet else 2 if arguments.verbose else int(sys.stderr.isatty())  # bars are for terminals
    make = QuadricDetector if arguments.paper is None else lambda **given: QuadricDetector.from_paper(arguments.paper, **given)
    detector = make(verbose=verbose, **parameters(arguments))
    table = open_table(arguments.input, choice(arguments))
    data, n_dropped = read_all(table, arguments.on_nan)
    if n_dropped:
        note(f"{n_dropped} rows with NaN or infinite entries are left out", arguments.quiet)
    started = time.monotonic()
    detector.fit(data.rows)
    seconds = time.monotonic() - started
    if table.names is not None:
        detector.feature_names_in_ = np.array(table.names, dtype=object)
    detector.set_params(verbose=0)
    if rank() > 0:
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
