"""Errors of a fit in several processes if one of them does not take part, fails, or ends.

The others cannot continue without it. They wait at most for the timeout of the process group, and the error names the process.
Processes exchange their status through the store of the group, which works when collective operations, which need all
processes, do not.
"""

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from pyod_quadric._version import __version__
from pyod_quadric.parallel.ranks import n_ranks, process_rank

ANSWER = 10.0  # seconds in which the others say that they have failed, too
_numbers = itertools.count()  # of joint work, the same in all processes


class PeerError(RuntimeError):
    """Another process of the group did not take part, failed, or ended."""


@contextmanager
def together(what: str) -> Iterator[None]:
    """Start joint work when all processes have arrived; name the process that is missing or fails.

    Parameters
    ----------
    what : str
        The name of the work in error messages.

    Raises
    ------
    PeerError
        If a process does not arrive within the timeout of the group, or ends later.

    Examples
    --------
    >>> with together("fit"):
    ...     pass
    """
    if n_ranks() == 1:
        yield
        return
    store: Any = dist.distributed_c10d._get_default_store()  # there is no public way to it
    number = next(_numbers)
    come, gone = ([f"pyod_quadric/{number}/{word}/{rank}" for rank in range(n_ranks())] for word in ("came", "left"))
    store.set(come[process_rank()], f"{what} of pyod-quadric {__version__}")
    missing = _missing(store, come, store.timeout.total_seconds())
    if missing:
        raise PeerError(f"process {_listed(missing)} did not call {what} within {store.timeout.total_seconds():g} s; all must")
    try:
        called = [store.get(key).decode() for key in come]
    except RuntimeError as error:
        raise PeerError(f"{what} cannot begin: the process that held the store of the group has ended") from error
    if len({*called}) > 1:
        raise PeerError(
            "all processes must call the same, but process " + ", ".join(f"{k} called {c}" for k, c in enumerate(called))
        )
    try:
        yield
    except PeerError:
        raise
    except BaseException as error:
        with suppress(RuntimeError):  # the store has gone with the process that held it
            store.set(gone[process_rank()], "" if _is_of_the_group(error) else repr(error))
        if not _is_of_the_group(error):
            raise
        silent = _missing(store, gone, ANSWER)
        said = {rank: store.get(key).decode() for rank, key in enumerate(gone) if rank not in silent}
        causes = [f"process {rank} failed with {text}" for rank, text in said.items() if text]
        if silent:
            causes.append(f"process {_listed(silent)} has ended, or does not answer")
        raise PeerError(f"{what} cannot go on: {'; '.join(causes) or 'the connection broke'}") from error


def _missing(store: Any, keys: list[str], seconds: float) -> list[int]:
    """Wait for keys; return the numbers of those that did not come in time."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            store.wait(keys, timedelta(seconds=min(1.0, seconds)))  # in short waits, between which signals are heard
            return []
        except RuntimeError:
            if time.monotonic() > deadline:
                return [rank for rank, key in enumerate(keys) if not _has(store, key)]


def _has(store: Any, key: str) -> bool:
    try:
        return bool(store.check([key]))
    except RuntimeError:  # the process that held the store has ended
        return False


def _is_of_the_group(error: BaseException) -> bool:
    """Say whether an error is one of the connection with others; that of gloo has no type of its own."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))
