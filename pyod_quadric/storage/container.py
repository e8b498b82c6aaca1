"""The container of model files: a safetensors file whose header holds a JSON document, a version and a checksum.

The checksum is a SHA-256 of the whole file, in which its own place counts as zeros. It notices damage, not malice: whoever
changes a file can change that, too. What the header says of tensors is checked by safetensors.
"""

import hashlib
import json
from collections.abc import Mapping
from os import PathLike, fstat
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

FORMAT, FORMAT_VERSION = "pyod-quadric detector", 1
MOST_HEADER = 2**25  # bytes: a million names of features
MOST_BYTES = 2**34  # a larger file is no model, or one that would fill the memory of most machines
CHECKSUM_KEY, CHECKSUM_LENGTH = b'"sha256":"', 64  # inside of JSON strings such quotes have a backslash

Content = tuple[dict[str, Any], dict[str, Tensor]]  # the document, and the tensors by name


def encode(document: Mapping[str, Any], tensors: dict[str, Tensor]) -> bytes:
    """Return the content of a file.

    Examples
    --------
    >>> import torch
    >>> document, tensors = decode(encode({"name": "value"}, {"ones": torch.ones(2)}))
    >>> document, tensors["ones"]
    ({'name': 'value'}, tensor([1., 1.]))
    """
    metadata = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "detector": json.dumps(document, allow_nan=False),
        "sha256": "0" * CHECKSUM_LENGTH,
    }
    return with_checksum(_sorted_header(save_tensors(tensors, metadata)))


def decode(raw: bytes) -> Content:
    """Return what a file's content holds, or raise a ValueError if there is anything wrong with it."""
    return _document(raw[8 : _header_end(raw[:8], len(raw))]), _tensors(raw)


def read_container(path: str | PathLike[str]) -> Content:
    """Return what a file holds, or raise a ValueError; of the files of other programs no more than a header is read."""
    with Path(path).open("rb") as file:
        length = fstat(file.fileno()).st_size
        first = file.read(8)
        header = file.read(_header_end(first, length) - 8)
        return _document(header), _tensors(first + header + file.read())


def _header_end(first: bytes, length: int) -> int:
    """Return where the header ends in a file of some length that begins with 8 bytes."""
    size = int.from_bytes(first, "little")
    if len(first) < 8 or size > min(MOST_HEADER, length - 8):
        raise ValueError(f"the file is no detector's, or it was cut off: it has {length} bytes, and a header of {size}")
    if length > MOST_BYTES:
        raise ValueError(f"the file has {length} bytes, but at most {MOST_BYTES} can be read")
    return 8 + size


def _tensors(raw: bytes) -> dict[str, Tensor]:
    place, checksum = _checksum(raw)
    if raw[place : place + len(checksum)] != checksum:
        raise ValueError("the file is damaged: its checksum does not fit its content")
    try:
        return load_tensors(raw)
    except (safetensors.SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise ValueError(f"the tensors of the file cannot be read: {error}") from error


def with_checksum(raw: bytes) -> bytes:
    """Return the content of a file with the checksum that belongs to it."""
    place, checksum = _checksum(raw)
    return raw[:place] + checksum + raw[place + len(checksum) :]


def _sorted_header(raw: bytes) -> bytes:
    """Return a safetensors file with its header in order, so that the same detector gives the same file."""
    end = 8 + int.from_bytes(raw[:8], "little")
    text = json.dumps(json.loads(raw[8:end]), sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors are aligned, for those who map them into memory
    return len(text).to_bytes(8, "little") + text + raw[end:]


def _checksum(raw: bytes) -> tuple[int, bytes]:
    """Return the place of the checksum in the content of a file, and what should be there."""
    end = 8 + int.from_bytes(raw[:8], "little")
    place = raw.find(CHECKSUM_KEY, 0, end) + len(CHECKSUM_KEY)
    after = place + CHECKSUM_LENGTH
    if raw.count(CHECKSUM_KEY, 0, end) != 1 or raw[after : after + 1] != b'"':
        raise ValueError("the file is damaged: it has no checksum")
    digest = hashlib.sha256(raw[:place] + b"0" * CHECKSUM_LENGTH)
    digest.update(memoryview(raw)[after:])
    return place, digest.hexdigest().encode()


def _document(header: bytes) -> dict[str, Any]:
    """Return the JSON document in a header of this format and of a version that is known."""
    try:
        entries = json.loads(header.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the file is no detector's, or its header is damaged: {error}") from error
    metadata = entries.get("__metadata__") if isinstance(entries, dict) else None
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise ValueError("the file is not one of a QuadricDetector; those are written by QuadricDetector.save")
    version = metadata.get("format_version")
    if not isinstance(version, str) or not version.isascii() or not version.isdigit() or len(version) > 9 or version == "0":
        raise ValueError(f"the file is damaged: the version of its format is {str(version)[:20]!r}")
    if int(version) > FORMAT_VERSION:
        raise ValueError(
            f"the file is a model of a newer format: {version}, where this version of pyod-quadric knows {FORMAT_VERSION}; "
            "install a newer one to read it"
        )
    try:
        document = json.loads(metadata["detector"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError("the file is damaged: what it says of the detector cannot be read") from error
    if not isinstance(document, dict):
        raise ValueError("the file is damaged: what it says of the detector is no JSON object")
    return document
