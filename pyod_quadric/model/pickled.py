"""Attributes of detectors in plain types, for pickle, joblib and skops.

NumPy arrays replace tensors, and dictionaries replace the classes of this package. So a pickle loads without the device it was
made on, and skops, which asks whether each class is trusted, asks only for the detector.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyod_quadric.data.stream import Reservoir
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.model.model import Model
from pyod_quadric.model.saved import LAYOUT, OPTIONAL
from pyod_quadric.storage.layout import Array, Layout, as_tensor, check_values, put_together, taken_apart

# The attributes that are classes of ours: the fitted model, given quadrics, the sample of a stream.
MODEL, INIT, STREAM = "model_", "init", "_stream"


def _layout(before: str) -> Layout:
    return {name.removeprefix(before): kind for name, kind in LAYOUT.items() if name.startswith(before)}


MODEL_LAYOUT, INIT_LAYOUT = _layout("model."), _layout("init.")
MODEL_OPTIONAL = [name.removeprefix("model.") for name in OPTIONAL if name.startswith("model.")]


def to_plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a detector, with objects of this package as dictionaries of arrays, numbers and texts."""
    plain = dict(attributes)
    if isinstance(plain.get(MODEL), Model):
        plain[MODEL] = _arrays(plain[MODEL], MODEL_LAYOUT)
    if isinstance(plain.get(INIT), Quadrics):
        plain[INIT] = _arrays(plain[INIT], INIT_LAYOUT)
    if isinstance(plain.get(STREAM), Reservoir):
        plain[STREAM] = dict(vars(plain[STREAM]))
    return plain


def from_plain(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return what :func:`to_plain` was given, or raise a ValueError for numbers that no fit can give."""
    attributes = dict(plain)
    if isinstance(attributes.get(MODEL), dict):
        attributes[MODEL] = put_together(Model, check_values(_tensors(attributes[MODEL]), MODEL_LAYOUT, MODEL_OPTIONAL))
    if isinstance(attributes.get(INIT), dict):
        attributes[INIT] = put_together(Quadrics, check_values(_tensors(attributes[INIT]), INIT_LAYOUT, ()))
    if isinstance(attributes.get(STREAM), dict):
        attributes[STREAM] = Reservoir(**attributes[STREAM])
    return attributes


def _arrays(thing: Any, layout: Layout) -> dict[str, Any]:
    found = taken_apart(thing, layout)
    kinds = ((name, value, layout[name]) for name, value in found.items())
    return {name: as_tensor(value, kind).numpy() if isinstance(kind, Array) else value for name, value, kind in kinds}


def _tensors(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _tensor(value) if isinstance(value, np.ndarray) else value for name, value in values.items()}


def _tensor(array: np.ndarray[Any, Any]) -> Tensor:
    """Return a tensor with memory of its own, aligned as torch has it, on which rounding may depend."""
    return torch.tensor(array)
