"""Atomic files: written to a temporary file, flushed to disk, and renamed into place."""

import errno
import glob
import hashlib
import io
import os
import stat
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

if sys.platform != "win32":
    import fcntl

SHOWN = 40  # letters of its name in that of a temporary file, which may not be longer than the file system allows
_unfinished: set[Path] = set()  # what this process is writing


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, overwrite: bool = True, keep: Path | None = None) -> Iterator[IO[bytes]]:
    """Open a file that is renamed into place when the block ends, and removed if the block raises.

    Links are followed, and an existing file keeps its mode. Each writer has its own temporary file, so several may write to one
    path: the last one wins, and readers find a complete file. The next writer removes the temporary file of a killed one.

    Parameters
    ----------
    path : path
    overwrite : bool, default=True
        Whether the file may replace an existing one.
    keep : Path, optional
        A path on the same file system to which the old file is moved.

    Raises
    ------
    FileExistsError
        If the file exists and must not be overwritten.
    OSError
        The error of the system, with the name of the file: the disk is full, the folder is not writable, or the path is a
        device.

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
        mode = _mode_of(target)
        _remove_abandoned(target)
        temporary, file = _open_beside(target, mode, path)
    try:
        yield file
        with _named(path):
            file.flush()
            os.fsync(file.fileno())
        if sys.platform == "win32":  # where a file that is open cannot be renamed
            file.close()
        if not overwrite and not _is_first(temporary, target):
            raise FileExistsError(f"{path} is there already")
        with _named(path):
            if keep is not None:
                _keep(target, keep)
            temporary.replace(target)
    finally:
        with suppress(OSError):  # what a full disk has not taken before
            file.close()
        _remove(temporary)
    _flush_directory(target.parent)


def write_atomically(path: Path, parts: Iterable[bytes | memoryview], keep: Path | None = None) -> None:
    """Write a file atomically, by :func:`atomic_file`.

    Parameters
    ----------
    path : Path
    parts : iterable of bytes
        The bytes to write, one part after another.
    keep : Path, optional
        A path to which the old file is moved.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory:
    ...     path = Path(directory) / "file"
    ...     write_atomically(path, [b"one ", b"two"])
    ...     path.read_bytes()
    b'one two'
    """
    with atomic_file(path, keep=keep) as file:
        for part in parts:
            file.write(part)


def remove_unfinished() -> None:
    """Remove the unfinished files of this process, which is about to end without leaving its blocks.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory, suppress(FileNotFoundError), atomic_file(f"{directory}/file"):
    ...     remove_unfinished()
    ...     list(Path(directory).iterdir())
    []
    """
    for path in list(_unfinished):
        with suppress(OSError):
            path.unlink()


class _Part(io.FileIO):
    """A temporary file whose errors have the name of the file that it is to become."""

    def __init__(self, temporary: Path, mode: int | None, path: str | os.PathLike[str]) -> None:
        self._path = path
        # What nobody else may read is not readable for a moment, either.
        super().__init__(temporary, "x+", opener=lambda name, flags: os.open(name, flags, 0o666 if mode is None else mode))

    def write(self, data: Any, /) -> int:
        with _named(self._path):
            return super().write(data)


@contextmanager
def _named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say which file could not be written: the system does not."""
    try:
        yield
    except OSError as error:
        if error.filename == str(path):  # it has been said
            raise
        what = f"{error.strerror}; it could not be written, and what was there before is as it was"
        raise OSError(error.errno, what, str(path)) from error


def _mode_of(target: Path) -> int | None:
    """Return the permissions of a file, if there is one, and raise for what is no file."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):  # a rename would put a file in the place of the device
        raise OSError(errno.EINVAL, "it is a device or a pipe, and no file")
    return stat.S_IMODE(mode)


def _open_beside(target: Path, mode: int | None, path: str | os.PathLike[str]) -> tuple[Path, IO[bytes]]:
    while True:
        temporary = target.with_name(f"{_beginning(target)}{uuid.uuid4().hex}.part")
        _unfinished.add(temporary)
        try:
            file = io.BufferedRandom(_Part(temporary, mode, path))
            if sys.platform == "win32" or _locked(file.fileno(), wait=True) is False or temporary.exists():
                if mode is not None:
                    temporary.chmod(mode)
                return temporary, file
            file.close()  # another writer took it for abandoned before it was locked
        except BaseException:
            _remove(temporary)
            raise
        _unfinished.discard(temporary)


def _beginning(target: Path) -> str:
    """Return what the names of all temporary files for a file begin with; of long names only the hash is whole."""
    digest = hashlib.blake2b(os.fsencode(target.name), digest_size=8).hexdigest()
    return f".{target.name[:SHOWN]}.{digest}."


def _remove_abandoned(target: Path) -> None:
    """Remove temporary files that nobody holds a lock on: their writers were killed."""
    if sys.platform == "win32":
        return
    for path in target.parent.glob(f"{glob.escape(_beginning(target))}{'[0-9a-f]' * 32}.part"):
        with suppress(OSError), path.open("rb") as file:
            if _locked(file.fileno(), wait=False):
                path.unlink()


def _remove(temporary: Path) -> None:
    temporary.unlink(missing_ok=True)
    _unfinished.discard(temporary)


def _locked(handle: int, *, wait: bool) -> bool:
    """Return whether this process holds the lock of a file now."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # somebody else holds it, or the file system has no locks
        return False
    return True


def _is_first(temporary: Path, target: Path) -> bool:
    """Put a file where there must be none, and return whether there was none."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError:  # the file system has no links
        return not target.exists()
    return True


def _keep(target: Path, keep: Path) -> None:
    """Let the old file stay under a second name; the first one is there at all times."""
    keep.unlink(missing_ok=True)
    try:
        os.link(target, keep)
    except (FileNotFoundError, FileExistsError):  # there is none, or another writer has been faster
        return
    except OSError:  # the file system has no links
        with suppress(FileNotFoundError):
            target.replace(keep)


def _flush_directory(directory: Path) -> None:
    """Make a rename durable, where the system lets a directory be opened and flushed."""
    if os.name == "posix":
        with suppress(OSError):
            handle = os.open(directory, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
