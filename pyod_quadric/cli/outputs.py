"""Output files: complete or absent, and replacing others only with ``--force``."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from numpy.typing import DTypeLike

from pyod_quadric.cli.errors import USAGE, CommandError, printable
from pyod_quadric.data.writers import TEXT, Writer, text_writer, writer_of
from pyod_quadric.storage.atomic import atomic_file

SUFFIXES = (".npy", ".parquet", *TEXT)


def check_output(path: str, force: bool, inputs: tuple[str, ...] = (), suffixes: tuple[str, ...] = ()) -> None:
    """Raise a CommandError if a file cannot or must not be written, before any work is done for it."""
    target = Path(path)
    if suffixes and target.suffix.lower() not in suffixes:
        raise CommandError(f"the output {path} must end with {' or '.join(suffixes)}", USAGE)
    if not target.parent.is_dir():
        raise CommandError(f"{path} cannot be written: there is no folder {target.parent}")
    if target.is_dir():
        raise CommandError(f"{path} cannot be written: it is a folder")
    if target.exists():
        if not target.is_file():
            raise CommandError(f"{path} cannot be written: it is a device or a pipe, and no file")
        if any(Path(other).exists() and target.samefile(other) for other in inputs):
            raise CommandError(f"{path} is an input of this command, and is not overwritten")
        if not force:
            raise CommandError(f"{path} is there already; --force overwrites it")
    try:
        tempfile.TemporaryFile(dir=target.parent).close()
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def whole_file(path: str, force: bool) -> Iterator[IO[bytes]]:
    """Open a file that appears when it is complete, and replaces another one only if ``force`` is set."""
    try:
        with atomic_file(path, overwrite=force) as file:
            yield file
    except FileExistsError as error:
        raise CommandError(f"{path} is there already; --force overwrites it") from error


@contextmanager
def open_writer(
    path: str | None, types: dict[str, DTypeLike], force: bool, npy: str, text: str | None = None
) -> Iterator[Writer]:
    """Open a writer of columns: to a file, by its suffix, or as text to the standard output.

    Parameters
    ----------
    path : str, optional
    types : dict
        The columns and their types.
    force : bool
        Whether to replace a file.
    npy : str
        The column that a ``.npy`` file holds.
    text : {"csv", "jsonl"}, optional
        The format on the standard output, CSV by default.
    """
    if path is None:
        yield text_writer(sys.stdout, f".{text or 'csv'}", list(types))
        return
    with whole_file(path, force) as file:
        writer = writer_of(file, Path(path).suffix.lower(), types, npy)
        yield writer
        writer.close()


def note(text: str, quiet: bool) -> None:
    """Print a note on the standard error, unless quiet."""
    if not quiet:
        print(f"pyod-quadric: {printable(text)}", file=sys.stderr)


def markdown_table(header: list[str], rows: list[list[Any]]) -> str:
    """Return a Markdown table with aligned columns.

    Examples
    --------
    >>> print(markdown_table(["a", "bcd"], [[1, 2]]))
    | a | bcd |
    |---|-----|
    | 1 | 2   |
    """
    texts = [header, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in texts]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
