"""Fitted detectors as files of numbers and names, without code.

The result of a fit is a :class:`FittedState`, and :data:`LAYOUT` declares the type, shape and range of each of its values. The
file follows this table: tensors by name, and a JSON document with the parameters and everything else. Files are untrusted
input: names, types, shapes and ranges of values are validated before use.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pyod_quadric.allowed import MOST_COUNT, Flag, Number, Text, Whole, Words
from pyod_quadric.data.stream import CAPACITY, Reservoir
from pyod_quadric.geometry.packing import packed_size
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.model.calibration import spread_of
from pyod_quadric.model.model import HISTORY_NAMES, MOST_SCORE, Model
from pyod_quadric.model.norms import LEAST_SPREAD
from pyod_quadric.parameters import LEAST_ROWS, Distance
from pyod_quadric.storage.container import Content, encode
from pyod_quadric.storage.layout import Array, Layout, as_tensor, check_values, put_together, taken_apart

EXACT = (torch.float64,)
SURROGATES = re.compile("[\ud800-\udfff]")  # halves of letters, which no encoding has
# Bounds that no fit comes near, within which nothing overflows that depends on the model alone. Numbers in the unit of the data
# may be as large as those; coordinates have unit spread, and quadrics in them a norm of about 1.
MOST_DATA = 1e300
MOST_BACK = 1e307  # the same, multiplied by scales
MOST_COEFFICIENT = 1e20
MOST_PROTOTYPE = 1e15
MOST_WEIGHT = 1e37  # rows of float32 are multiplied by it
MOST_LOGARITHM = 1000.0  # of a norm
MOST_TEXT, MOST_TEXTS = 10_000, 2**20


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedState:
    """The fitted state of a detector.

    Parameters
    ----------
    model : Model
    decision_scores, labels, row_weights : ndarray of shape (n,)
        The values of the training rows.
    groups : ndarray of shape (n,), optional
        The keys of their groups.
    threshold, mean_score, std_score : float
    history : dict of lists
        One entry for each epoch; NaN if not measured.
    versions : dict of str
    feature_names : list of str, optional
    list_column : str, optional
        The column of lists that held the rows.
    stream : Reservoir, optional
        The sample of a stream, from which it can resume.
    """

    model: Model
    decision_scores: NDArray[np.float64]
    labels: NDArray[np.int_]
    row_weights: NDArray[np.float64]
    threshold: float
    mean_score: float
    std_score: float
    history: dict[str, list[float]]
    versions: dict[str, str]
    groups: NDArray[np.int64] | None = None
    feature_names: list[str] | None = None
    list_column: str | None = None
    stream: Reservoir | None = None


class Texts:
    """Values that are lists or dictionaries of texts."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def accepts(self, value: Any) -> bool:
        """Return whether the value consists of texts that can be saved again."""
        texts = [*value, *value.values()] if isinstance(value, dict) else value
        return isinstance(value, self._kind) and len(texts) <= MOST_TEXTS and all(map(_is_text, texts))

    def plain(self, value: Any) -> Any:
        """Return the value unchanged."""
        return value

    def parse(self, text: str) -> Any:
        """Raise an error, since such values cannot be typed on the command line."""
        raise ValueError(text)

    def __str__(self) -> str:
        return f"a {self._kind.__name__} of texts"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MOST_TEXT and (value.isascii() or not SURROGATES.search(value))


def _within(dimensions: tuple[str, ...], most: float, **others: Any) -> Array:
    return Array(dimensions, least=-most, most=most, **others)


def _quadrics(name: str, m: str, k: str) -> dict[str, Array]:
    shapes = {"quadratic": (m, k, k), "linear": (m, k), "constant": (m,)}
    return {f"{name}.{part}": _within(shape, MOST_COEFFICIENT) for part, shape in shapes.items()}


def _coordinates(name: str, k: str) -> dict[str, Array]:
    mean, matrix = (f"{name}.{part}" for part in ("mean", "matrix"))
    # With nothing but tiny numbers there would be no way back.
    return {mean: _within(("d",), MOST_DATA), matrix: _within((k, "d"), MOST_DATA, largest=1 / MOST_DATA)}


# Dimensions: d features, k coordinates, m quadrics, r axes, p neighbours in c coordinates, n training rows.
LAYOUT: Layout = {
    **_coordinates("model.coordinates", "k"),
    **_quadrics("model.quadrics", "m", "k"),
    "model.quadric_weights": Array(("m",), least=0, most=MOST_WEIGHT, empty=True),
    "model.linear_part.mean": _within(("d",), MOST_DATA),
    "model.linear_part.axes": _within(("r", "d"), 1.01),
    "model.linear_part.variances": Array(("r",), above=0),
    "model.linear_part.complement": Number(above=0),
    "model.norms.median": Number(least=-MOST_LOGARITHM, most=MOST_LOGARITHM),
    "model.norms.spread": Number(least=LEAST_SPREAD, most=MOST_LOGARITHM),
    "model.norms.weight": Number(least=0, most=MOST_SCORE),
    **_coordinates("model.neighbors.coordinates", "c"),
    "model.neighbors.prototypes": _within(("p", "c"), MOST_PROTOTYPE),
    "model.neighbors.weight": Number(least=0, most=MOST_WEIGHT),
    "model.scales": Array(("d",), above=0, least=1 / MOST_BACK, most=MOST_BACK),
    "model.distance": Words(Distance),
    "model.normalize": Flag(),
    "decision_scores": Array(("n",), EXACT, least=0, most=MOST_SCORE),
    "labels": Array(("n",), (torch.uint8,), most=1),
    "row_weights": Array(("n",), EXACT, least=0, most=1),
    "groups": Array(("n",), (torch.int64,)),
    "threshold": Number(),
    "mean_score": Number(least=0),
    "std_score": Number(above=0),
    **{f"history.{name}": Array(("epochs",), EXACT, finite=False, empty=True) for name in HISTORY_NAMES},
    "versions": Texts(dict),
    "feature_names": Texts(list),
    "list_column": Text(),
    "stream.rows": Array(("sample", "d")),
    "stream.groups": Array(("sample",), (torch.int64,)),
    "stream.capacity": Whole(LEAST_ROWS, CAPACITY),
    "stream.window": Whole(LEAST_ROWS),
    **{f"stream.{name}": Whole(0, MOST_COUNT) for name in ("seed", "n_seen", "n_used")},
    **_quadrics("init", "given", "j"),  # of the parameters, the only one with tensors
}
# What is there together or not at all.
OPTIONAL = (
    *("model.quadrics", "model.quadric_weights", "model.linear_part", "model.norms", "model.neighbors", "model.scales"),
    *("groups", "feature_names", "list_column", "stream", "stream.window", "stream.groups", "init"),
)
AS_NUMPY = ("decision_scores", "row_weights", "groups", "stream.rows", "stream.groups")


def to_bytes(state: FittedState, parameters: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file with a fitted state and the parameters of its detector."""
    init = parameters.get("init")
    values = taken_apart(state, {name: kind for name, kind in LAYOUT.items() if not name.startswith("init.")})
    if isinstance(init, Quadrics):
        values |= {f"init.{name}": getattr(init, name) for name in ("quadratic", "linear", "constant")}
    document = {name: _plain(name, value) for name, value in values.items() if not isinstance(LAYOUT[name], Array)}
    tensors = {
        name: as_tensor(values[name], kind) for name, kind in LAYOUT.items() if isinstance(kind, Array) and name in values
    }
    given = {name: _plain(name, value) for name, value in parameters.items() if not isinstance(value, Quadrics)}
    check_values({**document, **tensors}, LAYOUT, OPTIONAL)  # what would be refused at loading is refused here
    _check_together(state)
    return encode({"parameters": given, "values": document}, tensors)


def from_content(content: Content) -> tuple[FittedState, dict[str, Any]]:
    """Return the fitted state and the parameters from a file, or raise a ValueError if anything in it is invalid."""
    document, tensors = content
    parameters, plain = (document.get(name) for name in ("parameters", "values"))
    if not isinstance(parameters, dict) or not isinstance(plain, dict):
        raise ValueError("the file is damaged: it has no parameters, or no values")
    if not plain.keys().isdisjoint(tensors):
        raise ValueError("the file is damaged: a value is there twice")
    values = check_values({**plain, **tensors}, LAYOUT, OPTIONAL)
    # The file's memory need not be aligned, on which rounding may depend.
    values |= {name: tensor.clone() for name, tensor in tensors.items()}
    values |= {name: values[name].numpy() for name in tensors if name in AS_NUMPY}
    values |= {name: values[name].tolist() for name in tensors if name.startswith("history.")}
    values["labels"] = values["labels"].numpy().astype(int)
    state = put_together(FittedState, values)
    _check_together(state)
    init = {"init": put_together(Quadrics, values, "init.")} if "init.linear" in values else {}
    return state, parameters | init


def _check_together(state: FittedState) -> None:
    """Raise a ValueError for values that are sound one by one, but not together."""
    model, stream, d = state.model, state.stream, len(state.model.coordinates.mean)
    k, quadrics = len(model.coordinates.matrix), model.quadrics
    if quadrics is not None:
        quadrics.to(dtype=torch.float32)  # raises if rows of float32 could not be scored
    elif model.quadric_weights is not None and len(model.quadric_weights):  # where no quadric has a say, there are none of both
        raise ValueError(f"the file has weights of {len(model.quadric_weights)} quadrics, but no quadrics")
    for what, count, most in (
        ("coordinates", k, d),
        ("quadrics", 0 if quadrics is None else len(quadrics), packed_size(k)),
        ("axes of the linear part", 0 if model.linear_part is None else len(model.linear_part.axes), d),
        ("coordinates of neighbours", 0 if model.neighbors is None else len(model.neighbors.coordinates.matrix), d),
    ):
        if count > most:
            raise ValueError(f"the file has {count} {what}, but there can be at most {most}")
    _check_scales(model)
    # PyOD makes probabilities of them, and they are no numbers of their own.
    for name, found, expected in (
        ("mean_score", state.mean_score, float(np.mean(state.decision_scores))),
        ("std_score", state.std_score, spread_of(state.decision_scores)),
    ):
        if not math.isclose(found, expected, rel_tol=1e-6):
            raise ValueError(f"{name} of the file is {found:.6g}, but its decision_scores have {expected:.6g}")
    if state.feature_names is not None and len(state.feature_names) != d:
        raise ValueError(f"feature_names of the file must be {d} texts, got {len(state.feature_names)}")
    if stream is not None:
        n_rows, most = len(stream.sample()), stream.capacity if stream.window is None else stream.window
        if stream.n_used > stream.n_seen or n_rows != min(most, stream.n_seen):
            raise ValueError(f"the sample of a stream in the file has {n_rows} rows, which does not fit its counts")


def _check_scales(model: Model) -> None:
    """Raise a ValueError unless the way back from working coordinates ends at finite numbers."""
    matrix, mean = model.coordinates.matrix.double(), model.coordinates.mean.double()
    scales = torch.ones_like(mean) if model.scales is None else model.scales.double()
    farthest = torch.stack([(mean * scales).abs().max(), scales.max() / matrix.abs().max()]).max()
    if not farthest <= MOST_BACK:
        raise ValueError("model.scales of the file do not go with its coordinates: there is no way back to the rows")


def _plain(name: str, value: Any) -> Any:
    """Return a value as JSON has it, or raise a ValueError."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real) and math.isfinite(value):
        return float(value)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {key: _plain(name, inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(name, inner) for inner in value]
    raise ValueError(
        f"files hold no code, so {name} must be a finite number, a string or None to be saved, got {type(value).__name__}; "
        f"change it with set_params({name}=...), or use joblib for files that only you will load"
    )
