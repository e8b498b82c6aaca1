"""The parser of the command line, and its exit codes."""

import argparse
import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from pyod_quadric._version import __version__
from pyod_quadric.cli import compare, explain, fit, info, robustness, score
from pyod_quadric.cli.errors import BROKEN_PIPE, FAILED, INTERRUPTED, CommandError

COMMANDS = {
    "fit": fit,
    "score": score,
    "explain": explain,
    "compare": compare,
    "robustness": robustness,
    "info": info,
}
DESCRIPTION = "Outlier detection by the distance to an intersection of quadrics."
EPILOG = """\
examples:
  pyod-quadric fit rows.npy --output model.safetensors
  pyod-quadric score model.safetensors new.csv --output scores.csv
  pyod-quadric explain model.safetensors new.csv --top 5 --largest 3

exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        "pyod-quadric", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"pyod-quadric {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.HELP, description=f"{module.HELP[0].upper()}{module.HELP[1:]}.")
        command.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
        module.add_arguments(command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default those of the process.

    Examples
    --------
    >>> main(["info", "a-model-that-is-not-there"])
    1
    """
    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as ending:  # argparse has printed help, or what is wrong
        return int(ending.code or 0)
    with warnings.catch_warnings():
        if not arguments.debug:
            warnings.showwarning = _show_warning
        try:
            COMMANDS[arguments.command].run(arguments)
            sys.stdout.flush()
        except KeyboardInterrupt:
            print("pyod-quadric: interrupted", file=sys.stderr)
            return INTERRUPTED
        except BrokenPipeError:
            # Whoever read has enough. What is left in the buffer must not be written when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
        except Exception as error:
            if arguments.debug:
                traceback.print_exc()
            print(f"pyod-quadric: error: {_one_line(error)}", file=sys.stderr)
            return error.status if isinstance(error, CommandError) else FAILED
    return 0


def run() -> None:
    """Run the command of this process, and end it."""
    code = main()
    if code == INTERRUPTED:
        # A thread of pyarrow may still wait for the standard input, and Python would abort when it takes that away from it.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif isinstance(error, CommandError | ValueError | FloatingPointError):
        text = str(error)  # written for whoever reads it
    elif isinstance(error, MemoryError):
        text = f"there is not enough memory: {error}"
    else:
        text = f"{type(error).__name__}: {error} (--debug shows where)"
    return " ".join(text.split())


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"pyod-quadric: warning: {' '.join(str(message).split())}", file=sys.stderr)
