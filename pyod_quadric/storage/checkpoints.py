"""Checkpoints that survive a kill at any moment.

A checkpoint is written to a temporary file, flushed to disk and renamed into place; the old one is kept as ``<name>.previous``.
A checksum detects damage, and then the previous file is used. The container holds numbers and names, and no code.
"""

import os
import warnings
from pathlib import Path
from typing import Any

from torch import Tensor

from pyod_quadric.storage.atomic import write_atomically
from pyod_quadric.storage.container import Format, check_container, encoded_parts, read_container

CHECKPOINT = Format("pyod-quadric checkpoint", "run", "a checkpoint of this program")


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint of tensors and JSON values atomically, and keep the previous one."""
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    content = encoded_parts({name: value for name, value in state.items() if name not in tensors}, tensors, CHECKPOINT)
    keep = _previous(path) if _is_sound(path) else None  # a damaged file must not take the place of a sound one
    write_atomically(path, content, keep=keep)


def read_checkpoint(path: Path) -> dict[str, Any] | None:
    """Return the newest undamaged checkpoint, or None if there are no files.

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


def _is_sound(path: Path) -> bool:
    try:
        check_container(path.read_bytes(), CHECKPOINT)
    except (ValueError, FileNotFoundError):
        return False
    return True


def _read_one(path: Path) -> dict[str, Any]:
    try:
        document, tensors = read_container(path, CHECKPOINT)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    return document | tensors


def _previous(path: Path) -> Path:
    """Return where the checkpoint before is: beside the file that a link leads to."""
    target = Path(os.path.realpath(path))
    return target.with_name(target.name + ".previous")
