"""Parses the command line, imports the command that it names, and runs it; exit codes."""

import contextlib
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from pyod_quadric.cli.errors import BROKEN_PIPE, FAILED, INTERRUPTED, TERMINATED, USAGE, CommandError, printable, with_flags
from pyod_quadric.cli.parser import build_parser
from pyod_quadric.data.columns import ChoiceError


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
            import_module(f"pyod_quadric.cli.{arguments.command}").run(arguments)
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
            return _status(error)
    return 0


def run() -> None:
    """Run the command of this process, and end it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # an exception, so that no half file is left
    code = main()
    # Threads that are still there would make Python abort at its end: one of pyarrow that waits for the standard
    # input after an interruption, or one of gloo that has not let go of its last tensor (pytorch/pytorch#179291).
    if code == INTERRUPTED or os.environ.get("WORLD_SIZE", "1") != "1":
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _status(error: Exception) -> int:
    if isinstance(error, CommandError):
        return error.status
    return USAGE if isinstance(error, ChoiceError) else FAILED


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif isinstance(error, CommandError | ValueError | OSError | ImportError | FloatingPointError):
        text = with_flags(str(error))  # written for whoever reads it
    elif isinstance(error, MemoryError):
        text = f"there is not enough memory: {error}"
    else:
        text = f"{type(error).__name__}: {error} (--debug shows where)"
    return printable(" ".join(text.split()))


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"pyod-quadric: warning: {printable(' '.join(str(message).split()))}", file=sys.stderr)
