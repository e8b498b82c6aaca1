"""What ends a command."""

FAILED = 1  # the job: files, data, training
USAGE = 2  # the command line itself, as argparse has it
INTERRUPTED = 130  # as shells say it of SIGINT
BROKEN_PIPE = 141  # and of SIGPIPE


class CommandError(Exception):
    """A failure that its message explains to whoever typed the command.

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


def listed(names: list[str], most: int = 20) -> str:
    """Return names as text, not all of them if there are many.

    Examples
    --------
    >>> listed(["a", "b", "c"], most=2)
    'a, b, ... (3 in all)'
    """
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[:most])}, ... ({len(names)} in all)"
