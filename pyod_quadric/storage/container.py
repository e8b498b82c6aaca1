"""The container of files: a safetensors file whose header holds a JSON document, a version and a checksum.

The checksum is the SHA-256 of the whole file, with zeros in place of the checksum. It detects damage, not malice, since an
attacker can compute it, too. So files are untrusted input: sizes are bounded before anything is read or parsed, safetensors
validates the tensors against the header, and the reader validates the values.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fstat
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor


@dataclass(frozen=True)
class Format:
    """A kind of file.

    Parameters
    ----------
    name : str
        As the file has it.
    key : str
        Of the document in the header.
    described : str
        What the file is, and in ``hint`` where such files come from, for those who give another one.
    version : int
        The newest that is known.
    """

    name: str
    key: str
    described: str
    hint: str = ""
    version: int = 1


WRITTEN_BY = "; those are written by QuadricDetector.save"
DETECTOR = Format("pyod-quadric detector", "detector", "one of a QuadricDetector", WRITTEN_BY)
FORMAT, FORMAT_VERSION = DETECTOR.name, DETECTOR.version
MOST_HEADER = 2**25  # bytes: a million names of features
# Values in the header, by the signs before them. A value of three bytes takes up to a hundred in memory, so a header with more
# of them is refused before it is parsed. Signs in names count, too: a million names may have one each.
MOST_VALUES, SIGNS = 2**21, b",:[{"
MOST_BYTES = 2**34  # a larger file is no model, or one that would fill the memory of most machines
CHECKSUM_KEY, CHECKSUM_LENGTH = b'"sha256":"', 64  # inside of JSON strings such quotes have a backslash

Content = tuple[dict[str, Any], dict[str, Tensor]]  # the document, and the tensors by name


def encode(document: Mapping[str, Any], tensors: dict[str, Tensor], kind: Format = DETECTOR) -> bytes:
    """Return the bytes of a file.

    Raises
    ------
    ValueError
        If the document is larger than :func:`decode` would read.

    Examples
    --------
    >>> import torch
    >>> document, tensors = decode(encode({"name": "value"}, {"ones": torch.ones(2)}))
    >>> document, tensors["ones"]
    ({'name': 'value'}, tensor([1., 1.]))
    """
    return b"".join(encoded_parts(document, tensors, kind))


def encoded_parts(document: Mapping[str, Any], tensors: dict[str, Tensor], kind: Format = DETECTOR) -> tuple[bytes, memoryview]:
    """Return the same bytes in two parts, so that large tensors are not copied again."""
    metadata = {
        "format": kind.name,
        "format_version": str(kind.version),
        kind.key: json.dumps(document, allow_nan=False),
        "sha256": "0" * CHECKSUM_LENGTH,
    }
    raw = memoryview(save_tensors(tensors, metadata))
    end = 8 + int.from_bytes(raw[:8], "little")
    header, numbers = _sorted_header(bytes(raw[8:end])), raw[end:]
    _check_values(header[8 : _header_end(header[:8], len(header) + len(numbers), kind)])
    place, checksum = _checksum(header, numbers)
    return header[:place] + checksum + header[place + len(checksum) :], numbers


def decode(raw: bytes, kind: Format = DETECTOR) -> Content:
    """Return the document and tensors in the bytes of a file, or raise a ValueError if anything is wrong."""
    return _document(raw[8 : _header_end(raw[:8], len(raw), kind)], kind), _tensors(raw, kind)


def read_container(path: str | PathLike[str], kind: Format = DETECTOR) -> Content:
    """Return the document and tensors of a file, or raise a ValueError; of foreign files only a header is read."""
    with Path(path).open("rb") as file:
        length = fstat(file.fileno()).st_size
        first = file.read(8)
        header = file.read(_header_end(first, length, kind) - 8)
        document = _document(header, kind)
        return document, _tensors(first + header + file.read(length), kind)


def check_container(raw: bytes, kind: Format = DETECTOR) -> None:
    """Raise a ValueError unless the checksum of a file is right."""
    _header_end(raw[:8], len(raw), kind)
    place, checksum = _checksum(raw)
    if raw[place : place + len(checksum)] != checksum:
        raise ValueError("the file is damaged: its checksum does not fit its content")


def with_checksum(raw: bytes) -> bytes:
    """Return the bytes of a file with their checksum."""
    place, checksum = _checksum(raw)
    return raw[:place] + checksum + raw[place + len(checksum) :]


def _header_end(first: bytes, length: int, kind: Format) -> int:
    """Return where the header ends in a file of some length that begins with 8 bytes."""
    size = int.from_bytes(first, "little")
    if len(first) < 8 or size > length - 8:
        raise ValueError(f"the file is not {kind.described}, or it was cut off: it has {length} bytes, and a header of {size}")
    if size > MOST_HEADER:
        raise ValueError(f"the file has a header of {size} bytes, but at most {MOST_HEADER} can be read")
    if length > MOST_BYTES:
        raise ValueError(f"the file has {length} bytes, but at most {MOST_BYTES} can be read")
    return 8 + size


def _check_values(header: bytes) -> None:
    found = sum(header.count(sign) for sign in SIGNS)
    if found > MOST_VALUES:
        raise ValueError(
            f"the header of the file has {found} values, by the signs before them, but at most {MOST_VALUES} are read"
        )


def _tensors(raw: bytes, kind: Format) -> dict[str, Tensor]:
    check_container(raw, kind)
    try:
        return load_tensors(raw)
    except (safetensors.SafetensorError, AssertionError, KeyError, ValueError, RuntimeError) as error:
        raise ValueError(f"the tensors of the file cannot be read: {error}") from error


def _sorted_header(header: bytes) -> bytes:
    """Return the beginning of a safetensors file with its header in order, so that the same detector gives the same file."""
    text = json.dumps(json.loads(header), sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors are aligned, for those who map them into memory
    return len(text).to_bytes(8, "little") + text


def _checksum(raw: bytes, rest: bytes | memoryview = b"") -> tuple[int, bytes]:
    """Return the place of the checksum in the content of a file, which may be in two parts, and what should be there."""
    end = 8 + int.from_bytes(raw[:8], "little")
    place = raw.find(CHECKSUM_KEY, 0, end) + len(CHECKSUM_KEY)
    after = place + CHECKSUM_LENGTH
    if raw.count(CHECKSUM_KEY, 0, end) != 1 or raw[after : after + 1] != b'"':
        raise ValueError("the file is damaged: it has no checksum")
    digest = hashlib.sha256(raw[:place] + b"0" * CHECKSUM_LENGTH)
    digest.update(memoryview(raw)[after:])
    digest.update(rest)
    return place, digest.hexdigest().encode()


def _document(header: bytes, kind: Format) -> dict[str, Any]:
    """Return the JSON document in a header of this format and of a version that is known."""
    _check_values(header)
    try:
        entries = json.loads(header.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the file is not {kind.described}, or its header is damaged: {error}") from error
    metadata = entries.get("__metadata__") if isinstance(entries, dict) else None
    if not isinstance(metadata, dict) or metadata.get("format") != kind.name:
        raise ValueError(f"the file is not {kind.described}{kind.hint}")
    version = metadata.get("format_version")
    if not isinstance(version, str) or not version.isascii() or not version.isdigit() or len(version) > 9 or version == "0":
        raise ValueError(f"the file is damaged: the version of its format is {str(version)[:20]!r}")
    if int(version) > kind.version:
        raise ValueError(
            f"the file is a model of a newer format: {version}, where this version of pyod-quadric knows {kind.version}; "
            "install a newer one to read it"
        )
    try:
        document = json.loads(metadata[kind.key])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the file is damaged: what it says of the {kind.key} cannot be read") from error
    if not isinstance(document, dict):
        raise ValueError(f"the file is damaged: what it says of the {kind.key} is no JSON object")
    return document
