"""Parses the command line, imports the command that it names, and runs it; exit codes."""

import contextlib
import errno
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from pyod_quadric.cli.errors import BROKEN_PIPE, FAILED, INTERRUPTED, SIGNALLED, USAGE, CommandError, printable, with_flags
from pyod_quadric.cli.parser import build_parser
from pyod_quadric.data.columns import ChoiceError
from pyod_quadric.progress import clear
from pyod_quadric.storage.atomic import remove_unfinished


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
            remove_unfinished()  # should it have come while a file was opened or closed
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
    end_by_signals()
    code = main()
    # Threads that are still there would make Python abort at its end: one that was interrupted in a foreign library, or
    # one of gloo that has not let go of its last tensor (pytorch/pytorch#179291).
    if code == INTERRUPTED or os.environ.get("WORLD_SIZE", "1") != "1":
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def end_by_signals() -> None:
    """Let SIGTERM and SIGHUP end this process at once, with the exit code of shells and without unfinished files.

    An exception does not suffice, since a callback of a foreign library or a destructor may swallow it. Ignored signals stay
    ignored, as ``nohup`` needs it.
    """
    mine = os.getpid()

    def end(number: int, _: object) -> None:
        if os.getpid() == mine:  # files of a forked process are its parent's
            remove_unfinished()
            with contextlib.suppress(OSError):  # the terminal may be gone
                os.write(2, f"pyod-quadric: ended by {signal.Signals(number).name}\n".encode())
        os._exit(SIGNALLED + number)

    for name in ("SIGTERM", "SIGHUP"):  # systems have one or both
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)


def _status(error: Exception) -> int:
    if isinstance(error, CommandError):
        return error.status
    return USAGE if isinstance(error, ChoiceError) else FAILED


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            error.filename = "the standard output"  # files that are written name themselves
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif isinstance(error, CommandError | ValueError | OSError | ImportError | FloatingPointError):
        text = with_flags(str(error))  # written for whoever reads it
    elif isinstance(error, MemoryError):
        text = f"there is not enough memory: {error}"
    else:
        text = f"{type(error).__name__}: {error} (--debug shows where)"
    return printable(" ".join(text.split()))


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    clear()  # a bar that is there
    print(f"pyod-quadric: warning: {printable(' '.join(str(message).split()))}", file=sys.stderr)
