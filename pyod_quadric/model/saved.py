"""Fitted detectors as files, which hold numbers and names and no code.

What a fit leaves behind is a :class:`FittedState`, and :data:`LAYOUT` declares what each of its values may be. The file follows
from that table: tensors of these names, and a JSON document with the parameters and everything else. Files are untrusted input:
names, types, shapes and ranges of values are all checked before use.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pyod_quadric.allowed import Flag, Number, Text, Whole, Words
from pyod_quadric.data.stream import Reservoir
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.model.model import HISTORY_NAMES, MOST_SCORE, Model
from pyod_quadric.parameters import Distance
from pyod_quadric.storage.container import Content, encode
from pyod_quadric.storage.layout import Array, Layout, as_tensor, check_values, put_together, taken_apart

EXACT = (torch.float64,)
MOST_COUNT = 2**53  # rows of a stream


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedState:
    """Everything that a fit has given a detector.

    Parameters
    ----------
    model : Model
    decision_scores, labels, row_weights : ndarray of shape (n,)
        Of the training rows.
    groups : ndarray of shape (n,), optional
        The keys of their groups.
    threshold, mean_score, std_score : float
    history : dict of lists
        One entry an epoch, NaN for what was not measured.
    versions : dict of str
    feature_names : list of str, optional
    list_column : str, optional
        The column of lists that held the rows.
    stream : Reservoir, optional
        The sample of a stream, so that it can go on.
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
    """Lists of texts, or dictionaries of them."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def accepts(self, value: Any) -> bool:
        """Return whether these are texts."""
        texts = [*value, *value.values()] if isinstance(value, dict) else value
        return isinstance(value, self._kind) and all(isinstance(text, str) for text in texts)

    def plain(self, value: Any) -> Any:
        """Return them as they are."""
        return value

    def parse(self, text: str) -> Any:
        """Refuse: they cannot be typed."""
        raise ValueError(text)

    def __str__(self) -> str:
        return f"a {self._kind.__name__} of texts"


def _quadrics(name: str, m: str, k: str) -> dict[str, Array]:
    return {f"{name}.quadratic": Array((m, k, k)), f"{name}.linear": Array((m, k)), f"{name}.constant": Array((m,))}


# Dimensions: d features, k coordinates, m quadrics, r axes, p neighbours in c coordinates, n training rows.
LAYOUT: Layout = {
    "model.coordinates.mean": Array(("d",)),
    "model.coordinates.matrix": Array(("k", "d")),
    **_quadrics("model.quadrics", "m", "k"),
    "model.quadric_weights": Array(("m",), least=0, empty=True),
    "model.linear_part.mean": Array(("d",)),
    "model.linear_part.axes": Array(("r", "d")),
    "model.linear_part.variances": Array(("r",), above=0),
    "model.linear_part.complement": Number(above=0),
    "model.norms.median": Number(),
    "model.norms.spread": Number(above=0),
    "model.norms.weight": Number(least=0),
    "model.neighbors.coordinates.mean": Array(("d",)),
    "model.neighbors.coordinates.matrix": Array(("c", "d")),
    "model.neighbors.prototypes": Array(("p", "c")),
    "model.neighbors.weight": Number(least=0),
    "model.scales": Array(("d",), above=0),
    "model.distance": Words(Distance),
    "model.normalize": Flag(),
    "decision_scores": Array(("n",), EXACT, least=0, most=MOST_SCORE),
    "labels": Array(("n",), (torch.uint8,), most=1),
    "row_weights": Array(("n",), EXACT, least=0),
    "groups": Array(("n",), (torch.int64,)),
    "threshold": Number(),
    "mean_score": Number(),
    "std_score": Number(least=0),
    **{f"history.{name}": Array(("epochs",), EXACT, finite=False, empty=True) for name in HISTORY_NAMES},
    "versions": Texts(dict),
    "feature_names": Texts(list),
    "list_column": Text(),
    "stream.rows": Array(("sample", "d")),
    "stream.groups": Array(("sample",), (torch.int64,)),
    **{f"stream.{name}": Whole(0, MOST_COUNT) for name in ("seed", "capacity", "n_seen", "n_used", "window")},
    **_quadrics("init", "given", "j"),  # of the parameters, the only one with tensors
}
# What is there together or not at all.
OPTIONAL = (
    *("model.quadrics", "model.quadric_weights", "model.linear_part", "model.norms", "model.neighbors", "model.scales"),
    *("groups", "feature_names", "list_column", "stream", "stream.window", "stream.groups", "init"),
)
AS_NUMPY = ("decision_scores", "row_weights", "groups", "stream.rows", "stream.groups")


def to_bytes(state: FittedState, parameters: Mapping[str, Any]) -> bytes:
    """Return the content of a file with a fitted state and the parameters of its detector."""
    init = parameters.get("init")
    values = taken_apart(state, {name: kind for name, kind in LAYOUT.items() if not name.startswith("init.")})
    if isinstance(init, Quadrics):
        values |= {f"init.{name}": getattr(init, name) for name in ("quadratic", "linear", "constant")}
    document = {name: _plain(name, value) for name, value in values.items() if not isinstance(LAYOUT[name], Array)}
    tensors = {
        name: as_tensor(values[name], kind) for name, kind in LAYOUT.items() if isinstance(kind, Array) and name in values
    }
    given = {name: _plain(name, value) for name, value in parameters.items() if not isinstance(value, Quadrics)}
    return encode({"parameters": given, "values": document}, tensors)


def from_content(content: Content) -> tuple[FittedState, dict[str, Any]]:
    """Return the fitted state and the parameters in a file, or raise a ValueError if there is anything wrong with them."""
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
    if model.quadrics is not None:
        model.quadrics.to(dtype=torch.float32)  # raises if rows of float32 could not be scored
    elif model.quadric_weights is not None and len(model.quadric_weights):  # where no quadric has a say, there are none of both
        raise ValueError(f"the file has weights of {len(model.quadric_weights)} quadrics, but no quadrics")
    if state.feature_names is not None and len(state.feature_names) != d:
        raise ValueError(f"feature_names of the file must be {d} texts, got {len(state.feature_names)}")
    if stream is not None:
        n_rows, most = len(stream.sample()), stream.capacity if stream.window is None else stream.window
        if stream.n_used > stream.n_seen or n_rows != min(most, stream.n_seen):
            raise ValueError(f"the sample of a stream in the file has {n_rows} rows, which does not fit its counts")


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
