"""The layout of a file: the names of its values, and the type and range of each.

A layout is a table from dotted names to kinds: :class:`Array` for tensors, the kinds of :mod:`pyod_quadric.allowed` for
everything else. By the same table a dataclass is written, the untrusted values of a file are validated, and the dataclass is
built again.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor

from pyod_quadric.allowed import Kind, checked

T = TypeVar("T")


@dataclass(frozen=True)
class Array:
    """Tensors of a shape, of some types, with entries in some range.

    Parameters
    ----------
    dimensions : tuple of str
        The name of each dimension; those of one name have the same size in the whole file.
    dtypes : tuple of torch.dtype
        The types that are allowed; the first one is written.
    least, above, most : float
        Bounds of the entries.
    largest : float
        A lower bound of the largest absolute value.
    finite : bool
        Whether NaN and infinity are refused; bounds are for finite entries.
    empty : bool
        Whether there may be no entries.
    """

    dimensions: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32)
    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    largest: float = 0
    finite: bool = True
    empty: bool = False


Layout = Mapping[str, Array | Kind]


def taken_apart(thing: Any, layout: Layout) -> dict[str, Any]:
    """Return the values of a dataclass by their dotted names, without those that are None.

    Examples
    --------
    >>> @dataclass
    ... class Line:
    ...     slope: float
    >>> taken_apart(Line(2.0), {"slope": None})
    {'slope': 2.0}
    """
    found: dict[str, Any] = {}
    for name in layout:
        value = thing
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
        if value is not None:
            found[name] = value
    return found


def put_together(kind: type[T], values: Mapping[str, Any], before: str = "") -> T:
    """Return a dataclass from values by their dotted names; missing values are None or the default."""
    given: dict[str, Any] = {}
    hints = get_type_hints(kind)
    for field in fields(kind):  # type: ignore[arg-type]  # a dataclass
        name, inner = f"{before}{field.name}", _without_none(hints[field.name])
        if name in values:
            given[field.name] = values[name]
        elif get_origin(inner) is dict:
            given[field.name] = {
                other.removeprefix(f"{name}."): values[other] for other in values if other.startswith(f"{name}.")
            }
        elif is_dataclass(inner) and any(other.startswith(f"{name}.") for other in values):
            given[field.name] = put_together(inner, values, f"{name}.")  # type: ignore[arg-type]  # a class, not an object
        elif NoneType in get_args(hints[field.name]):
            given[field.name] = None
    return kind(**given)


def check_values(
    values: Mapping[str, Any],
    layout: Layout,
    optional: Collection[str] = (),
    owner: str = "a detector",
    sizes: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return the values of a file, or raise a ValueError unless names, types, shapes and entries are those of a layout.

    Parameters
    ----------
    values : dict
        By dotted names.
    layout : dict
    optional : collection of str
        Prefixes of names whose values are all present or all missing.
    owner : str
        The owner of the values, for error messages.
    sizes : dict, optional
        The known sizes of dimensions.
    """
    differing = values.keys() - layout.keys()  # of which there may be very many
    expected = {} if differing else {name: kind for name, kind in layout.items() if _is_expected(name, values, optional)}
    differing = differing or values.keys() ^ expected.keys()
    if differing:
        raise ValueError(f"what is in the file is not what {owner} has: {sorted(differing)!s:.300}")
    found = dict(sizes or {})
    return {
        name: _checked_array(name, values[name], kind, found) if isinstance(kind, Array) else _checked(name, values[name], kind)
        for name, kind in expected.items()
    }


def _is_expected(name: str, values: Mapping[str, Any], optional: Collection[str]) -> bool:
    """Return whether a value must be there; of several beginnings that fit its name, the longest decides."""
    beginnings = [beginning for beginning in optional if f"{name}.".startswith(f"{beginning}.")]
    if not beginnings:
        return True
    longest = max(beginnings, key=len)
    return any(f"{other}.".startswith(f"{longest}.") for other in values)


def _checked(name: str, value: Any, kind: Kind) -> Any:
    return checked(f"{name} of the file", value, (kind,))


def _checked_array(name: str, tensor: Any, array: Array, sizes: dict[str, int]) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} of the file must be a tensor, got {type(tensor).__name__}")
    agree = len(array.dimensions) == tensor.ndim and all(
        sizes.setdefault(dimension, size) == size for dimension, size in zip(array.dimensions, tensor.shape, strict=True)
    )
    if not agree or tensor.dtype not in array.dtypes or (tensor.numel() == 0 and not array.empty):
        raise ValueError(
            f"{name} of the file does not fit its other tensors: it is {tensor.dtype} of shape {tuple(tensor.shape)}"
        )
    if tensor.numel() and array.finite:
        least, most = float(tensor.min()), float(tensor.max())
        sound = math.isfinite(least) and math.isfinite(most) and max(-least, most) >= array.largest
        if not (sound and least >= array.least and least > array.above and most <= array.most):
            raise ValueError(f"{name} of the file has numbers that no fit gives, from {least:.3g} to {most:.3g}")
    return tensor


def as_tensor(value: Any, array: Array) -> Tensor:
    """Return an array or tensor as a file holds it: on the CPU, contiguous, of an allowed type."""
    if isinstance(value, list | int | float):
        return torch.tensor(value, dtype=array.dtypes[0])
    tensor = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
    dtype = tensor.dtype if tensor.dtype in array.dtypes else array.dtypes[0]
    return tensor.detach().to("cpu", dtype).contiguous()


def _without_none(hint: Any) -> Any:
    """Return the type X of ``X | None``, and any other type as it is."""
    if get_origin(hint) in (Union, UnionType):
        rest = [inner for inner in get_args(hint) if inner is not NoneType]
        return rest[0] if len(rest) == 1 else hint
    return hint
