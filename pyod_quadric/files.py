"""Files of fitted detectors, which hold numbers and names and no code.

A file is a safetensors file: the tensors of :data:`SHAPES`, and in its header a JSON document of everything else. The header
names the version of the format and a SHA-256 of the whole file, in which the place of the checksum itself counts as zeros.

Nothing in a file is believed. Sizes are compared with the length of the file before anything is read or allocated, names,
types and shapes with what this version writes, and numbers with what a fit can give, so that what was read can be scored with.
A checksum notices damage, not malice: whoever changes a file can change that, too.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from os import PathLike, fstat
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from numpy.typing import NDArray
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from pyod_quadric.lengths import Lengths
from pyod_quadric.linear import LinearPart
from pyod_quadric.model import DISTANCE_FUNCTIONS, MOST_SCORE, Model
from pyod_quadric.preprocessing import WorkingCoordinates
from pyod_quadric.quadrics import Quadrics
from pyod_quadric.reservoir import Reservoir
from pyod_quadric.training import HISTORY_NAMES

FORMAT, FORMAT_VERSION = "pyod-quadric detector", 1
MOST_HEADER = 2**25  # bytes: a million names of features
MOST_BYTES = 2**34  # a larger file is no model, or one that would fill the memory of most machines
MOST_COUNT = 2**53  # rows of a stream
CHECKSUM_KEY, CHECKSUM_LENGTH = b'"sha256":"', 64  # inside of JSON strings such quotes have a backslash

FLOATS = (torch.float32, torch.float64)
# Dimensions of the same name have the same size: d features, k coordinates, m quadrics, r axes, n training rows.
SHAPES: dict[str, tuple[str, ...]] = {
    "coordinates.mean": ("d",),
    "coordinates.matrix": ("k", "d"),
    "coordinates.variances": ("variances",),
    "decision_scores": ("n",),
    "labels": ("n",),
    "row_weights": ("n",),
    **{f"history.{name}": (name,) for name in HISTORY_NAMES},
}
# Groups that are there together or not at all.
OPTIONAL_SHAPES: dict[str, dict[str, tuple[str, ...]]] = {
    "quadrics": {"quadrics.quadratic": ("m", "k", "k"), "quadrics.linear": ("m", "k"), "quadrics.constant": ("m",)},
    "weights": {"weights": ("m",)},
    "linear": {"linear.mean": ("d",), "linear.axes": ("r", "d"), "linear.variances": ("r",)},
    "init": {"init.quadratic": ("given", "j", "j"), "init.linear": ("given", "j"), "init.constant": ("given",)},
    "reservoir": {"reservoir.rows": ("sample", "d")},
}
DTYPES = {"labels": (torch.uint8,), "decision_scores": (torch.float64,), "row_weights": (torch.float64,)}
HISTORIES = {f"history.{name}" for name in HISTORY_NAMES}  # have NaN for what was not measured
MAY_BE_EMPTY = {*HISTORIES, "weights"}
NOT_NEGATIVE = {"weights", "row_weights", "decision_scores", "coordinates.variances"}
COUNTS = ("seed", "capacity", "n_seen", "n_used")  # of a reservoir
PARAMETER_TYPES = (bool, int, float, str, type(None))


@dataclass(frozen=True, eq=False, kw_only=True)
class Saved:
    """Everything that a file holds of a fitted detector.

    Parameters
    ----------
    parameters : dict
        Those of the constructor: numbers, strings, None, and Quadrics as ``init``.
    model : Model
    decision_scores, labels, row_weights : ndarray of shape (n,)
    threshold, mean_score, std_score : float
    history : dict of lists
    versions : dict of str
    feature_names : list of str, optional
    reservoir : Reservoir, optional
        The sample of a stream, so that it can go on.
    """

    parameters: dict[str, Any]
    model: Model
    decision_scores: NDArray[np.float64]
    labels: NDArray[np.int_]
    row_weights: NDArray[np.float64]
    threshold: float
    mean_score: float
    std_score: float
    history: dict[str, list[float]]
    versions: dict[str, str]
    feature_names: list[str] | None = None
    reservoir: Reservoir | None = None


def to_bytes(saved: Saved) -> bytes:
    """Return the content of a file."""
    document = {
        "parameters": {
            name: _plain(name, value) for name, value in saved.parameters.items() if not isinstance(value, Quadrics)
        },
        "normalize": saved.model.coordinates.normalize,
        "distance": saved.model.distance,
        "complement": None if saved.model.linear is None else saved.model.linear.complement,
        "lengths": None if saved.model.lengths is None else asdict(saved.model.lengths),
        "threshold": float(saved.threshold),
        "mean_score": float(saved.mean_score),
        "std_score": float(saved.std_score),
        "versions": saved.versions,
        "feature_names": saved.feature_names,
        "reservoir": None if saved.reservoir is None else {n: getattr(saved.reservoir, n) for n in (*COUNTS, "window")},
    }
    metadata = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "detector": json.dumps(document, allow_nan=False),
        "sha256": "0" * CHECKSUM_LENGTH,
    }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in _tensors(saved).items()}
    return with_checksum(_sorted_header(save_tensors(tensors, metadata)))


def from_bytes(raw: bytes) -> Saved:
    """Return what a file's content says, or raise a ValueError if there is anything wrong with it."""
    document = _document(_header(raw, len(raw)))
    place, checksum = _checksum(raw)
    if raw[place : place + len(checksum)] != checksum:
        raise ValueError("the file is damaged: its checksum does not fit its content")
    try:
        tensors = load_tensors(raw)
    except (safetensors.SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise ValueError(f"the tensors of the file cannot be read: {error}") from error
    _check_shapes(tensors)
    _check_numbers(tensors)
    # The file's memory need not be aligned, on which rounding may depend.
    return _saved(document, {name: tensor.clone() for name, tensor in tensors.items()})


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


def read_file(path: str | PathLike[str]) -> bytes:
    """Return the content of a file, of which no more than the header is read unless its length is what the header says."""
    with Path(path).open("rb") as file:
        length = fstat(file.fileno()).st_size
        first = file.read(8)
        _document(_header(first + file.read(min(int.from_bytes(first, "little"), MOST_HEADER)), length))
        file.seek(0)
        return file.read(length)


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


def _plain(name: str, value: Any) -> bool | int | float | str | None:
    """Return a parameter as JSON has it, or raise a ValueError."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real) and math.isfinite(value):
        return float(value)
    if value is None or isinstance(value, str):
        return value
    raise ValueError(
        f"files hold no code, so {name} must be a finite number, a string or None to be saved, got {type(value).__name__}; "
        f"change it with set_params({name}=...), or use joblib for files that only you will load"
    )


def _tensors(saved: Saved) -> dict[str, Tensor]:
    model, init, reservoir = saved.model, saved.parameters.get("init"), saved.reservoir
    tensors = {
        "coordinates.mean": model.coordinates.mean,
        "coordinates.matrix": model.coordinates.matrix,
        "coordinates.variances": model.coordinates.variances,
        "decision_scores": torch.as_tensor(saved.decision_scores, dtype=torch.float64),
        "labels": torch.as_tensor(saved.labels, dtype=torch.uint8),
        "row_weights": torch.as_tensor(saved.row_weights, dtype=torch.float64),
    }
    for name in HISTORY_NAMES:
        tensors[f"history.{name}"] = torch.tensor(saved.history[name], dtype=torch.float64)
    for place, quadrics in (("quadrics", model.quadrics), ("init", init)):
        if isinstance(quadrics, Quadrics):
            for part in ("quadratic", "linear", "constant"):
                tensors[f"{place}.{part}"] = getattr(quadrics, part)
    if model.weights is not None:
        tensors["weights"] = model.weights
    if model.linear is not None:
        for part in ("mean", "axes", "variances"):
            tensors[f"linear.{part}"] = getattr(model.linear, part)
    if reservoir is not None:
        tensors["reservoir.rows"] = torch.from_numpy(reservoir.sample())
    return tensors


def _check_shapes(tensors: Mapping[str, Tensor]) -> None:
    """Raise a ValueError unless the names, types and shapes of tensors are those of a detector."""
    expected = dict(SHAPES)
    for group in OPTIONAL_SHAPES.values():
        if not group.keys().isdisjoint(tensors):
            expected |= group
    if tensors.keys() != expected.keys():
        raise ValueError(f"the tensors of the file are not those of a detector: {sorted(tensors.keys() ^ expected.keys())}")
    sizes: dict[str, int] = {}
    for name, dimensions in expected.items():
        tensor = tensors[name]
        agree = len(dimensions) == tensor.ndim and all(
            sizes.setdefault(dimension, size) == size for dimension, size in zip(dimensions, tensor.shape, strict=True)
        )
        if not agree or tensor.dtype not in DTYPES.get(name, FLOATS) or (tensor.numel() == 0 and name not in MAY_BE_EMPTY):
            raise ValueError(
                f"{name} of the file does not fit its other tensors: it is {tensor.dtype} of shape {tuple(tensor.shape)}"
            )


def _check_numbers(tensors: Mapping[str, Tensor]) -> None:
    """Raise a ValueError for numbers with which one could not score, or that no fit gives."""
    for name, tensor in tensors.items():
        if name in HISTORIES or tensor.numel() == 0:
            continue
        least, most = float(tensor.min()), float(tensor.max())
        sound = math.isfinite(least) and math.isfinite(most)
        sound &= name not in NOT_NEGATIVE or least >= 0
        sound &= name != "decision_scores" or most <= MOST_SCORE
        sound &= name != "labels" or most <= 1
        sound &= name != "linear.variances" or least > 0
        if not sound:
            raise ValueError(f"{name} of the file has numbers that no fit gives, from {least:.3g} to {most:.3g}")


def _saved(document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Saved:
    init = _quadrics(tensors, "init")
    parameters = _typed(document, "parameters", dict)
    for name, value in parameters.items():
        if not isinstance(value, PARAMETER_TYPES) or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"the parameter {name!r:.40} of the file is neither a finite number nor a string nor None")
    names = _typed(document, "feature_names", list | None)
    n_features = len(tensors["coordinates.mean"])
    if names is not None and (len(names) != n_features or not all(isinstance(name, str) for name in names)):
        raise ValueError(f"feature_names of the file must be {n_features} strings")
    versions = _typed(document, "versions", dict)
    if not all(isinstance(version, str) for version in versions.values()):
        raise ValueError("versions of the file must be strings")
    return Saved(
        parameters=parameters if init is None else parameters | {"init": init},
        model=_model(document, tensors),
        decision_scores=tensors["decision_scores"].numpy(),
        labels=tensors["labels"].numpy().astype(int),
        row_weights=tensors["row_weights"].numpy(),
        threshold=_number(document, "threshold"),
        mean_score=_number(document, "mean_score"),
        std_score=_number(document, "std_score"),
        history={name: tensors[f"history.{name}"].tolist() for name in HISTORY_NAMES},
        versions=versions,
        feature_names=names,
        reservoir=_reservoir(_typed(document, "reservoir", dict | None), tensors),
    )


def _model(document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Model:
    coordinates = WorkingCoordinates(
        tensors["coordinates.mean"],
        tensors["coordinates.matrix"],
        _typed(document, "normalize", bool),
        tensors["coordinates.variances"],
    )
    quadrics, weights = _quadrics(tensors, "quadrics"), tensors.get("weights")
    if quadrics is not None:
        quadrics.to(dtype=torch.float32)  # raises if rows of float32 could not be scored
    elif weights is not None and len(weights):  # where no quadric has a say, there are none of both
        raise ValueError(f"the file has weights of {len(weights)} quadrics, but no quadrics")
    distance = _typed(document, "distance", str)
    if distance not in DISTANCE_FUNCTIONS:
        raise ValueError(f"the distance of the file must be one of {tuple(DISTANCE_FUNCTIONS)}, got {distance!r:.40}")
    linear = None
    if "linear.mean" in tensors:
        complement = _number(document, "complement")
        if not complement > 0:
            raise ValueError(f"the complement of the file must be a positive variance, got {complement}")
        linear = LinearPart(tensors["linear.mean"], tensors["linear.axes"], tensors["linear.variances"], complement)
    return Model(coordinates, quadrics, weights, linear, _lengths(_typed(document, "lengths", dict | None)), distance)


def _lengths(document: dict[str, Any] | None) -> Lengths | None:
    if document is None:
        return None
    lengths = Lengths(_number(document, "middle"), _number(document, "spread"))
    if not lengths.spread > 0:
        raise ValueError(f"the spread of lengths in the file must be positive, got {lengths.spread}")
    return lengths


def _quadrics(tensors: Mapping[str, Tensor], place: str) -> Quadrics | None:
    if f"{place}.linear" not in tensors:
        return None
    return Quadrics(tensors[f"{place}.quadratic"], tensors[f"{place}.linear"], tensors[f"{place}.constant"])


def _reservoir(counts: dict[str, Any] | None, tensors: Mapping[str, Tensor]) -> Reservoir | None:
    if (counts is None) != ("reservoir.rows" not in tensors):
        raise ValueError("the file has half of the sample of a stream: its rows, or how many there were")
    if counts is None:
        return None
    rows, window = tensors["reservoir.rows"].numpy(), counts.get("window")
    numbers = [count for name, count in counts.items() if name != "window" or window is not None]
    sound = counts.keys() == {*COUNTS, "window"} and all(type(count) is int and 0 <= count <= MOST_COUNT for count in numbers)
    most = "capacity" if window is None else "window"
    sound = sound and counts["n_used"] <= counts["n_seen"] and len(rows) == min(counts[most], counts["n_seen"])
    if not sound:
        raise ValueError(f"the sample of a stream in the file has {len(rows)} rows, to which {counts!s:.200} does not fit")
    return Reservoir(rows=rows, **counts)


def _typed(document: Mapping[str, Any], name: str, kind: Any) -> Any:
    value = document.get(name)
    if not isinstance(value, kind):
        raise ValueError(f"{name} of the file must be {getattr(kind, '__name__', kind)}, got {value!s:.40}")
    return value


def _number(document: Mapping[str, Any], name: str) -> float:
    value = document.get(name)
    if type(value) is not float or not math.isfinite(value):
        raise ValueError(f"{name} of the file must be a finite number, got {value!s:.40}")
    return value
