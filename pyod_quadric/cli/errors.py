"""Errors that end a command, and their messages."""

from pyod_quadric.data.columns import printable as printable

FAILED = 1  # the job: files, data, training
USAGE = 2  # the command line itself, as argparse has it
INTERRUPTED = 130  # as shells say it of SIGINT
BROKEN_PIPE = 141  # and of SIGPIPE
SIGNALLED = 128  # and, with the number of the signal added, of any other
# What the library says to those who write Python, and what is typed instead.
FLAGS = {
    "columns=...": "--columns",
    "drop=...": "--drop",
    "drop=": "--drop ",
    "columns=": "--columns ",
    "label_column=...": "--label-column",
    "id_column=...": "--id-column",
    "array=...": "--array",
    "header=False": "--no-header",
    "leave such rows out by finite_rows(...), or impute what is missing": "--on-nan decides about such rows",
}


class CommandError(Exception):
    """A failure whose message explains it to the user.

    Parameters
    ----------
    message : str
    status : int, default=1
        The exit code.

    Examples
    --------
    >>> CommandError("there is no file rows.npy").status
    1
    """

    def __init__(self, message: str, status: int = FAILED) -> None:
        super().__init__(message)
        self.status = status


def with_flags(message: str) -> str:
    """Return a message of the library with the options of the command line in place of arguments in Python.

    Examples
    --------
    >>> with_flags("rows.npz has the arrays a, b; choose one by array=...")
    'rows.npz has the arrays a, b; choose one by --array'
    """
    for python, flag in FLAGS.items():
        message = message.replace(python, flag)
    return message
