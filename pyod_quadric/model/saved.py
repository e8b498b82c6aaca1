"""Files of fitted detectors, which hold numbers and names and no code.

A file has the tensors of :data:`SHAPES` and a JSON document of everything else, put together by
:mod:`pyod_quadric.storage.container`.

Nothing in a file is believed. Names, types and shapes are compared with what this version writes, and numbers with what a fit
can give, so that what was read can be scored with.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyod_quadric.data.stream import Reservoir
from pyod_quadric.geometry.distances import DISTANCE_FUNCTIONS
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.model.coordinates import WorkingCoordinates
from pyod_quadric.model.linear import LinearPart
from pyod_quadric.model.model import HISTORY_NAMES, MOST_SCORE, Model
from pyod_quadric.model.norms import Lengths
from pyod_quadric.storage.container import packed, unpacked

MOST_COUNT = 2**53  # rows of a stream

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
    return packed(document, {name: tensor.detach().cpu().contiguous() for name, tensor in _tensors(saved).items()})


def from_bytes(raw: bytes) -> Saved:
    """Return what a file's content says, or raise a ValueError if there is anything wrong with it."""
    document, tensors = unpacked(raw)
    _check_shapes(tensors)
    _check_numbers(tensors)
    # The file's memory need not be aligned, on which rounding may depend.
    return _saved(document, {name: tensor.clone() for name, tensor in tensors.items()})


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
