"""Checkpoints that survive being killed at any moment.

A checkpoint is written beside the old one, flushed to disk and renamed into place, and the old one is kept as
``<name>.previous``. Every file begins with a checksum of its content, so damage is noticed; then the previous file serves.
Reading executes no code: torch loads tensors and plain containers only.
"""

import hashlib
import io
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import torch

from pyod_quadric.storage.atomic import write_atomically

MAGIC = b"pyod-quadric checkpoint 1\n"
HEADER = len(MAGIC) + 64 + 1  # with the SHA-256 in hexadecimal and a line break


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint atomically, keeping the one before."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()  # a view would keep the buffer from being freed in a cycle, as Python 3.13 says out loud
    head = MAGIC + hashlib.sha256(content).hexdigest().encode() + b"\n"
    keep = _previous(path) if _is_sound(path) else None  # a damaged file must not take the place of a sound one
    write_atomically(path, [head, content], keep=keep)


def read_checkpoint(path: Path) -> dict[str, Any] | None:
    """Return the newest sound checkpoint, or None if there is none at all.

    Raises
    ------
    ValueError
        If there are files, but all are damaged.
    """
    damage = []
    for candidate in (path, _previous(path)):
        try:
            state = _read_one(candidate)
        except FileNotFoundError:
            continue
        except ValueError as error:
            damage.append(str(error))
            continue
        if damage:
            warnings.warn(f"{damage[0]}; going on from {candidate.name}", stacklevel=2)
        return state
    if damage:
        raise ValueError("; ".join(damage) + "; use another file name to start anew")
    return None


def _content(path: Path) -> memoryview:
    raw = path.read_bytes()
    checksum, content = raw[len(MAGIC) : HEADER - 1], memoryview(raw)[HEADER:]
    if not raw.startswith(MAGIC):
        raise ValueError(f"{path} is not a checkpoint of this program, or its beginning is damaged")
    if hashlib.sha256(content).hexdigest().encode() != checksum:
        raise ValueError(f"{path} is damaged: its checksum does not fit its content")
    return content


def _is_sound(path: Path) -> bool:
    try:
        _content(path)
    except (ValueError, FileNotFoundError):
        return False
    return True


def _read_one(path: Path) -> dict[str, Any]:
    content = _content(path)
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    return state


def _previous(path: Path) -> Path:
    """Return where the checkpoint before is: beside the file that a link leads to."""
    target = Path(os.path.realpath(path))
    return target.with_name(target.name + ".previous")
