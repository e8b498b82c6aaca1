"""Files that are whole or not there: written beside the old one, flushed to disk, and renamed into place."""

import os
from collections.abc import Iterable
from pathlib import Path


def write_atomically(path: Path, parts: Iterable[bytes | memoryview], keep: Path | None = None) -> None:
    """Write a file that takes the place of an old one at once; a failure on the way leaves the old one, and nothing else.

    Parameters
    ----------
    path : Path
    parts : iterable of bytes
        What to write, one after another.
    keep : Path, optional
        Where the old file goes. Between the two renames there is no file of the first name.

    Raises
    ------
    OSError
        Of the kind that the system gives, with the name of the file: the disk is full, the folder cannot be written to.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory:
    ...     path = Path(directory) / "file"
    ...     write_atomically(path, [b"one ", b"two"])
    ...     path.read_bytes()
    b'one two'
    """
    temporary = path.with_name(path.name + ".writing")
    try:
        with temporary.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        if keep is not None:
            path.replace(keep)
        temporary.replace(path)
    except OSError as error:  # writing itself does not say where
        what = f"{error.strerror}; it could not be written, and what was there before is as it was"
        raise OSError(error.errno, what, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    _flush_directory(path.parent)


def _flush_directory(directory: Path) -> None:
    """Make a rename durable, where the system lets a directory be opened."""
    if os.name == "posix":
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
