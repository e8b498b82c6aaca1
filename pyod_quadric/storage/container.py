"""The envelope of model files: a safetensors file whose header holds a JSON document, a version and a checksum.

The checksum is a SHA-256 of the whole file, in which its own place counts as zeros. It notices damage, not malice: whoever
changes a file can change that, too. Sizes are compared with the length of the file before anything is read or allocated.
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


def packed(document: Mapping[str, Any], tensors: dict[str, Tensor]) -> bytes:
    """Return the content of a file.

    Examples
    --------
    >>> import torch
    >>> document, tensors = unpacked(packed({"name": "value"}, {"ones": torch.ones(2)}))
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


def unpacked(raw: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the document and the tensors of a file's content, or raise a ValueError if there is anything wrong with it."""
    document = _document(_header(raw, len(raw)))
    place, checksum = _checksum(raw)
    if raw[place : place + len(checksum)] != checksum:
        raise ValueError("the file is damaged: its checksum does not fit its content")
    try:
        return document, load_tensors(raw)
    except (safetensors.SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise ValueError(f"the tensors of the file cannot be read: {error}") from error


def read_file(path: str | PathLike[str]) -> bytes:
    """Return the content of a file, of which no more than the header is read unless its length is what the header says."""
    with Path(path).open("rb") as file:
        length = fstat(file.fileno()).st_size
        first = file.read(8)
        _document(_header(first + file.read(min(int.from_bytes(first, "little"), MOST_HEADER)), length))
        file.seek(0)
        return file.read(length)


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


def _header(start: bytes, length: int) -> dict[str, Any]:
    """Return the header of a file of some length that starts with these bytes."""
    size = int.from_bytes(start[:8], "little")
    if len(start) < 8 or size > min(MOST_HEADER, length - 8):
        raise ValueError(f"the file is no detector's, or it was cut off: it has {length} bytes, and a header of {size}")
    try:
        header = json.loads(start[8 : 8 + size].decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the file is no detector's, or its header is damaged: {error}") from error
    if not isinstance(header, dict):
        raise ValueError("the file is no detector's, or its header is damaged: it is no JSON object")
    ends = [_end(entry) for name, entry in header.items() if name != "__metadata__"]
    if 8 + size + max(ends, default=0) != length or length > MOST_BYTES:
        raise ValueError(
            f"the file was cut off, or something was added: it has {length} bytes, and its header speaks of "
            f"{8 + size + max(ends, default=0)}; at most {MOST_BYTES} can be read"
        )
    return header


def _end(entry: Any) -> int:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or type(offsets[1]) is not int:
        raise ValueError("the header of the file is damaged: a tensor has no place")
    return offsets[1]


def _document(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON document in a header of this format and of a version that is known."""
    metadata = header.get("__metadata__")
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
