"""Progress and timings of long computations.

A fit is a sequence of stages. Computations announce their stage and count their parts, without an argument for it.
Announcements have no effect unless a report is open in the same context (see :mod:`contextvars`; threads do not share reports).
A report adds up the seconds of each stage. If it is shown, it prints a line for the current stage, with a bar and the remaining
time if the number of parts is known.

tqdm is imported when the first line is shown. Its process lock and its monitor thread are not used, since they would fix the
start method of multiprocessing.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from time import monotonic
from typing import Any, TypeVar

T = TypeVar("T")

KEPT_SECONDS = 0.5  # of a stage whose line stays when it is over
UNCOUNTED = "{desc} [{elapsed}]"
USUAL_SIZE = {"ncols": 80, "nrows": 24}  # of a terminal


class Count:
    """The number of parts done, of a known or unknown total; shown on a line if there is one.

    Parameters
    ----------
    line : tqdm or None
    """

    def __init__(self, line: Any = None) -> None:
        self._line = line
        self.n_done = 0

    def advance(self, n: int = 1) -> None:
        """Count further parts as done."""
        self.n_done += n
        if self._line is not None:
            self._line.update(n)

    def note(self, **words: Any) -> None:
        """Show something beside the bar."""
        if self._line is not None:
            self._line.set_postfix(words, refresh=False)


class _Report:
    """The stages of a computation: those that are open, and the seconds of those that are over."""

    def __init__(self, shown: bool) -> None:
        self.timings: dict[str, float] = {}
        self._shown, self._open = shown, list[str]()
        self._line: Any = None  # of tqdm

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Open a stage; one inside of another is a part of it."""
        is_outer, started = not self._open, monotonic()
        self._open.append(name)
        if is_outer and self._shown:
            self._line = _line_class()(desc=name, bar_format=UNCOUNTED, leave=False, **_size())
        elif not is_outer:
            self._rename()
        kept = False
        try:
            yield
            kept = monotonic() - started >= KEPT_SECONDS
        finally:
            self._open.pop()
            seconds = monotonic() - started
            if is_outer:
                self.timings[name] = self.timings.get(name, 0.0) + seconds
                self._end(f"{name}: {seconds:.1f} s", kept)
            else:
                self._rename()

    @contextmanager
    def count(self, total: int | None, unit: str, n_done: int) -> Iterator[Count]:
        """Count parts of the current stage; inside of another count, that goes on afterwards."""
        line = self._line
        if line is None:
            yield Count()
            return
        names = ("total", "unit", "bar_format", "n", "initial", "start_t", "postfix")
        earlier = {name: getattr(line, name) for name in names}
        line.total, line.unit, line.bar_format = total, unit, None
        line.reset(total)  # a bar in a notebook learns of it only so
        line.n = line.initial = line.last_print_n = n_done
        try:
            yield Count(line)
        finally:
            line.refresh()  # the last parts, too
            note = line.postfix
            for name, value in earlier.items():
                setattr(line, name, value)
            line.postfix, line.last_print_n = earlier["postfix"] or note, line.n

    def clear(self) -> None:
        """Clear the line."""
        if self._line is not None:
            self._line.clear()

    def _rename(self) -> None:
        if self._line is not None:
            self._line.set_description_str(", ".join(self._open))

    def _end(self, text: str, kept: bool) -> None:
        """Close the line; it stays if the stage took a while, or has something to say."""
        line, self._line = self._line, None
        if line is None:
            return
        line.total, line.n, line.bar_format = None, 0, "{desc}{postfix}"
        line.desc, line.leave = text, kept or bool(line.postfix)
        line.close()


_current: ContextVar[_Report | None] = ContextVar("report", default=None)


@contextmanager
def reported(shown: bool = False) -> Iterator[dict[str, float]]:
    """Open a report; yield a dictionary of the seconds of each stage, filled as stages end.

    Parameters
    ----------
    shown : bool, default=False
        Whether to show progress, on the standard error or in the notebook.

    Examples
    --------
    >>> with reported() as timings:
    ...     with stage("thinking"):
    ...         found = 6 * 7
    >>> list(timings)
    ['thinking']
    """
    report = _Report(shown)
    token = _current.set(report)
    try:
        yield report.timings
    finally:
        _current.reset(token)


def is_reported() -> bool:
    """Return whether a report is open."""
    return _current.get() is not None


def clear() -> None:
    """Clear the line before something else is printed; it returns with the next part."""
    report = _current.get()
    if report is not None:
        report.clear()


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Mark the block, or the decorated function, as a stage."""
    report = _current.get()
    if report is None:
        yield
        return
    with report.stage(name):
        yield


@contextmanager
def count(total: int | None, unit: str, n_done: int = 0) -> Iterator[Count]:
    """Count the parts of the current stage.

    Parameters
    ----------
    total : int or None
        The number of parts, if it is known.
    unit : str
        The name of the parts.
    n_done : int, default=0
        The number of parts done earlier.
    """
    report = _current.get()
    if report is None:
        yield Count()
        return
    with report.count(total, unit, n_done) as counted_parts:
        yield counted_parts


def counted(parts: Iterable[T], total: int | None, unit: str, size: Callable[[T], int] = lambda part: 1) -> Iterator[T]:
    """Yield parts, and count each when the next one is requested.

    Examples
    --------
    >>> list(counted("abc", 3, "letter"))
    ['a', 'b', 'c']
    """
    with count(total, unit) as done:
        for part in parts:
            yield part
            done.advance(size(part))


def _size() -> dict[str, int]:
    """Return a size for terminals of size 0, which containers have, and on which tqdm writes nothing; others it asks itself."""
    try:
        return {} if os.get_terminal_size(sys.stderr.fileno()).columns else USUAL_SIZE
    except (AttributeError, OSError, ValueError):  # no terminal, or no file at all
        return {}


@cache
def _line_class() -> Any:
    from tqdm.auto import tqdm

    class Line(tqdm):  # type: ignore[misc]  # tqdm has no types
        """A line with a lock of its own, for threads alone, and without a thread that watches it."""

        monitor_interval = 0

    Line.set_lock(threading.RLock())
    return Line
