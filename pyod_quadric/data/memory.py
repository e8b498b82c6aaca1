"""Rows in memory, in any container: lists, tensors, columns of tables, data sets, arrays of other packages.

Containers are recognised by their protocol, not by their type: ``__array__`` gives an array, DLPack gives a tensor if the data
are on another device, and a column of lists is an array of objects, which are stacked.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Parameter
from torch.utils.data import Dataset
from torch.utils.dlpack import from_dlpack

from pyod_quadric.data.columns import listed
from pyod_quadric.data.sources import working_type

ON_CPU = 1  # DLPack's number


def in_memory(source: Any) -> Any:
    """Return rows as an array or a tensor; a table of numbers is returned unchanged, since its columns have names.

    Parameters
    ----------
    source : array-like of shape (n, d), or n rows of d numbers each in a list, a column or a table with one column
        Rows may be lists, arrays or tensors; a missing row becomes a row of NaN.

    Examples
    --------
    >>> import torch
    >>> in_memory([torch.zeros(2), torch.ones(2)])
    tensor([[0., 0.],
            [1., 1.]])
    >>> in_memory([[0.0, 1.0], [2.0]])
    Traceback (most recent call last):
    ...
    ValueError: all rows must have as many numbers as the first one, 2, but row 1 has 1
    """
    _refuse_what_has_no_rows(source)
    if isinstance(source, Tensor):
        return _with_values(source)
    source = _without_format(source)
    if isinstance(source, np.ma.MaskedArray):
        numbers: Any = source if source.dtype.kind == "f" else source.astype(np.float64)
        return numbers.filled(np.nan)
    if _is_elsewhere(source):
        return from_dlpack(source)
    if is_table(source):
        return _rows_of_table(source)
    if isinstance(source, Sequence) and not isinstance(source, str | bytes):
        return _stacked(source)
    return _stacked_if_lists(np.asanyarray(source)) if hasattr(source, "__array__") else source


def is_table(source: object) -> bool:
    """Return whether this has named columns, like a data frame."""
    return hasattr(source, "__array__") and hasattr(source, "columns")


def names_of(table: Any) -> list[str]:
    """Return the names of the columns of a table."""
    return [str(name) for name in getattr(table, "column_names", table.columns)]


def dtype_of(source: Any) -> np.dtype[Any] | None:
    """Return the type in which rows in memory are read; None if it cannot be told."""
    stored = [_first_row(source).dtype if is_table(source) else getattr(source, "dtype", None)]
    if stored == [np.dtype(object)] and is_table(source):  # columns of numbers that may be missing, as pandas has them
        stored = [getattr(kind, "numpy_dtype", kind) for kind in getattr(source, "dtypes", stored)]
    if not all(isinstance(kind, np.dtype) for kind in stored):
        return None
    try:
        return working_type(np.result_type(*stored))
    except (ValueError, TypeError):  # about which scikit-learn knows more
        return None


def _refuse_what_has_no_rows(source: Any) -> None:
    if _is_sparse(source):
        raise TypeError(
            "rows must be dense, but these are sparse: reduce them to some hundred columns before, by scikit-learn's "
            "TruncatedSVD in a pipeline, or make them dense (X.toarray(), X.to_dense(), X.sparse.to_dense()) if memory allows"
        )
    if isinstance(source, Mapping):
        keys = listed([str(key) for key in source])
        raise TypeError(f"rows must be an array, a table or a column, but this has entries by name: {keys}; give one of them")
    if isinstance(source, Dataset) and not hasattr(source, "with_format"):
        raise TypeError("a torch Dataset gives its rows one by one; give DataLoader(dataset, batch_size=1024), or its tensor")
    if not hasattr(source, "__array__") and hasattr(source, "collect"):
        raise TypeError(f"rows must be in memory, but a {type(source).__name__} is a query; give its result, X.collect()")


def _is_sparse(source: Any) -> bool:
    """Return whether this is a sparse tensor, a sparse matrix, or a data frame of sparse columns."""
    if isinstance(source, Tensor):
        return source.layout in SPARSE
    return (hasattr(source, "nnz") and hasattr(source, "todense")) or hasattr(getattr(source, "sparse", None), "to_dense")


SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def _with_values(tensor: Tensor) -> Tensor:
    if tensor.is_nested:
        stacked: Tensor = _stacked(list(tensor.unbind()))
        return stacked
    if tensor.is_meta and type(tensor) in (Tensor, Parameter):  # others may have values of their own
        raise ValueError("the tensor is on the meta device, where tensors have a shape but no values; give one with values")
    return tensor.detach()


def _without_format(source: Any) -> Any:
    """Return the table of a data set of Hugging Face, or the column of one; a float32 would become a Python float otherwise."""
    if hasattr(source, "with_format") and hasattr(source, "__len__"):
        return source.with_format("arrow")[:]
    data: Any = getattr(source, "source", None)
    name = getattr(source, "column_name", None)
    if hasattr(data, "with_format") and isinstance(name, str):
        return source[:] if data.format["type"] else data.with_format("arrow", columns=[name])[:][name]
    return source


def _is_elsewhere(source: Any) -> bool:
    """Return whether an array is on a device of its own, or known to DLPack alone."""
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        return False
    if hasattr(source, "__arrow_c_array__"):  # older Arrow cannot say where lists are
        return False
    return not hasattr(source, "__array__") or int(source.__dlpack_device__()[0]) != ON_CPU


def _first_row(table: Any) -> NDArray[Any]:
    return np.asarray(table.head(1) if hasattr(table, "head") else table[:1])


def _rows_of_table(table: Any) -> Any:
    first, names = _first_row(table), names_of(table)
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"rows have more than one column of the name {listed(twice)}; names must differ")
    if first.dtype != object or first.ndim != 2:
        return table
    if len(names) == 1:
        column = np.asarray(table).ravel()
        return _stacked(column) if _are_rows(column) else table
    others = {name: _what(entry) for name, entry in zip(names, first.ravel(), strict=False)}
    found = [f"{name} ({what})" for name, what in others.items() if what]
    if found:
        raise ValueError(
            f"the columns of a table must hold numbers, but not so {listed(found)}; leave these out, or give one column of "
            "lists alone, such as X['embedding']"
        )
    return table


def _what(entry: Any) -> str:
    """Say what an entry of a table is, if it is no number."""
    if _are_rows([entry]):
        return "lists"
    if entry is None or type(entry).__name__ == "NAType":
        return ""
    try:
        float(entry)
    except (TypeError, ValueError):
        return "text" if isinstance(entry, str) else type(entry).__name__
    return ""


def _stacked_if_lists(array: NDArray[Any]) -> Any:
    """Return an array (n, d) in place of one of n objects that are rows."""
    is_column = array.dtype == object and (array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1))
    return _stacked(array.ravel()) if is_column and _are_rows(array.ravel()) else array


def _are_rows(objects: Any) -> bool:
    """Return whether objects are rows, by the first that is there."""
    first = next((entry for entry in objects if entry is not None), None)
    return isinstance(first, Sequence | np.ndarray | Tensor) and not isinstance(first, str | bytes)


def _stacked(rows: Any) -> Any:
    """Return rows (d,) one below the other (n, d), of what is no list of rows an array."""
    rows = list(rows)
    first: Any = next((row for row in rows if row is not None), None)
    if not _are_rows([first]):
        return np.asarray(rows)
    if not isinstance(first, Sequence) and first.ndim > 1:
        raise ValueError("these are batches of rows in a list, not rows: put them together, by torch.cat or numpy.concatenate")
    if any(row is None for row in rows):
        missing = _missing_like(first)
        rows = [missing if row is None else row for row in rows]
    try:
        if all(isinstance(row, Tensor) for row in rows):
            return torch.stack([row.detach().to(rows[0].device) for row in rows])
        return np.asarray(rows)
    except (ValueError, RuntimeError):
        _check_lengths(rows)
        raise


def _missing_like(row: Any) -> Any:
    """Return a row of NaN."""
    if isinstance(row, Tensor):
        return torch.full_like(row, torch.nan, dtype=row.dtype if row.is_floating_point() else torch.float64)
    return np.full(len(row), np.nan, row.dtype if isinstance(row, np.ndarray) and row.dtype.kind == "f" else np.float64)


def _check_lengths(rows: list[Any]) -> None:
    """Raise a ValueError if rows differ in length."""
    lengths = [np.shape(row)[0] if _are_rows([row]) and np.ndim(row) else 1 for row in rows]
    other = next((place for place, length in enumerate(lengths) if length != lengths[0]), None)
    if other is not None:
        raise ValueError(
            f"all rows must have as many numbers as the first one, {lengths[0]}, but row {other} has {lengths[other]}"
        )
