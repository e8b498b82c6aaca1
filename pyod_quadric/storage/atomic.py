"""Files that are whole or not there: written beside the old one, flushed to disk, and renamed into place."""

import glob
import os
import stat
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

if sys.platform != "win32":
    import fcntl


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, overwrite: bool = True, keep: Path | None = None) -> Iterator[IO[bytes]]:
    """Open a file that takes its place when the block ends, and is gone if the block raises.

    Links are followed, and a file that was there keeps its mode. Each writer has a temporary file of its own. What a killed
    writer has left beside the file is removed by the next one.

    Parameters
    ----------
    path : path
    overwrite : bool, default=True
        Whether the file may take the place of another one.
    keep : Path, optional
        Where the old file goes. Between the two renames there is no file of the first name.

    Raises
    ------
    FileExistsError
        If there is a file that must not be overwritten.
    OSError
        Of the kind that the system gives, with the name of the file: the disk is full, the folder cannot be written to.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory:
    ...     with atomic_file(f"{directory}/file") as file:
    ...         n_bytes = file.write(b"text")
    ...     Path(f"{directory}/file").read_bytes()
    b'text'
    """
    target = Path(os.path.realpath(path))
    with _named(path):
        _remove_abandoned(target)
        temporary, file = _open_beside(target)
    try:
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        yield file
        with _named(path):
            file.flush()
            os.fsync(file.fileno())
        if target.exists() and not overwrite:
            raise FileExistsError(f"{path} is there already")
        with _named(path):
            if keep is not None:
                target.replace(keep)
            temporary.replace(target)
    finally:
        with suppress(OSError):  # what a full disk has not taken before
            file.close()
        temporary.unlink(missing_ok=True)
    _flush_directory(target.parent)


def write_atomically(path: Path, parts: Iterable[bytes | memoryview], keep: Path | None = None) -> None:
    """Write a file at once, as :func:`atomic_file` does.

    Parameters
    ----------
    path : Path
    parts : iterable of bytes
        What to write, one after another.
    keep : Path, optional
        Where the old file goes.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory:
    ...     path = Path(directory) / "file"
    ...     write_atomically(path, [b"one ", b"two"])
    ...     path.read_bytes()
    b'one two'
    """
    with atomic_file(path, keep=keep) as file, _named(path):
        for part in parts:
            file.write(part)


@contextmanager
def _named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say which file could not be written: the system does not."""
    try:
        yield
    except OSError as error:
        what = f"{error.strerror}; it could not be written, and what was there before is as it was"
        raise OSError(error.errno, what, str(path)) from error


def _open_beside(target: Path) -> tuple[Path, IO[bytes]]:
    while True:
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        file = temporary.open("x+b")
        if sys.platform == "win32" or _locked(file.fileno(), wait=True) is False or temporary.exists():
            return temporary, file
        file.close()  # another writer took it for abandoned before it was locked


def _remove_abandoned(target: Path) -> None:
    """Remove temporary files that nobody holds a lock on: their writers were killed."""
    if sys.platform == "win32":
        return
    for path in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 32}.part"):
        with suppress(OSError), path.open("rb") as file:
            if _locked(file.fileno(), wait=False):
                path.unlink()


def _locked(handle: int, *, wait: bool) -> bool:
    """Return whether this process holds the lock of a file now."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # somebody else holds it, or the file system has no locks
        return False
    return True


def _flush_directory(directory: Path) -> None:
    """Make a rename durable, where the system lets a directory be opened."""
    if os.name == "posix":
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
