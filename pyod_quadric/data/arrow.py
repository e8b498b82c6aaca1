"""Access to pyarrow, which comes with the extra ``tables`` and is imported only when a table is opened."""

import json
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.data.columns import Choice, no_numbers


def import_pyarrow(what: str) -> ModuleType:
    """Return pyarrow with its file modules, or raise an ImportError that says how to install it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.json
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"{what} needs pyarrow: pip install 'pyod-quadric[tables]'") from error
    return pyarrow  # type: ignore[no-any-return]


def as_file(arrow: Any, text: bytes) -> Any:
    """Return text as a file in pyarrow's own memory, to be parsed.

    Threads of pyarrow may let go of a file when the call that reads it is over. If it is an object of Python, and Python is
    about to end, that aborts the process.
    """
    memory = arrow.allocate_buffer(len(text))
    memoryview(memory).cast("B")[:] = text
    return arrow.BufferReader(memory)


def index_names(schema: Any) -> set[str]:
    """Return the columns that hold the index of a pandas DataFrame, by its metadata; none if that cannot be parsed."""
    try:
        stored = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
    except (ValueError, RecursionError):
        return set()
    found = stored.get("index_columns") if isinstance(stored, dict) else None
    return {name for name in found if isinstance(name, str)} if isinstance(found, list) else set()


def features_in(schema: Any, choice: Choice, wanted: list[str] | None, path: object) -> list[str]:
    """Return the names of the features of a typed table: its numeric columns, or its one column of lists.

    Parameters
    ----------
    schema : pyarrow.Schema
    choice : Choice
    wanted : list of str, optional
        The features that a model was fitted to.
    path : object
        The name of the table in error messages.
    """
    no_features = index_names(schema) - {choice.id_column, choice.label_column}
    kinds = {field.name: field.type for field in schema}
    names = [name for name in schema.names if name not in no_features]
    lists = [name for name in names if is_list(kinds[name])]
    known = choice.list_column
    if choice.columns is None and wanted is None and known is not None and known in lists:
        choice = replace(choice, columns=[known])
    is_embedding = choice.columns is not None and len(choice.columns) == 1 and choice.columns[0] in lists
    found = choice.features(path, names, None if is_embedding else wanted)
    if len(found) > 1 and (beside := [name for name in found if name in lists]):
        raise ValueError(
            f"{path} has the column of lists {beside[0]} beside others; take it alone by columns={beside[0]}, or leave it out "
            f"by drop={','.join(beside)}"
        )
    texts = {name: str(kinds[name]) for name in found if not is_number(kinds[name]) and name not in lists}
    if texts:
        raise no_numbers(path, texts)
    return found


def is_list(kind: Any) -> bool:
    """Return whether an Arrow type is a list of numbers."""
    from pyarrow import types

    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(is_list and is_number(kind.value_type))


def is_number(kind: Any) -> bool:
    """Return whether an Arrow type is numeric or boolean."""
    from pyarrow import types

    return bool(types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind))


def as_floats(column: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the numbers of a column, with NaN for missing values."""
    from pyarrow import types

    # Only floats have a NaN for what is missing.
    floats = column if types.is_floating(column.type) else column.cast("float64", safe=False)
    numbers = floats.to_numpy(zero_copy_only=False) if hasattr(floats, "buffers") else floats.to_numpy()
    return np.asarray(numbers, dtype)


def as_rows(column: Any, name: str, width: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the numbers (n, width) of a column of lists, which must all have this length."""
    from pyarrow import compute

    if not compute.all(compute.equal(compute.list_value_length(column), width), skip_nulls=False).as_py():
        raise ValueError(f"the lists in {name} must all have {width} numbers, as the first one has")
    return as_floats(compute.list_flatten(column), dtype).reshape(-1, width)


def id_type(kind: Any) -> np.dtype[Any]:
    """Return the type of row ids from a column: its own if it is numeric, else text."""
    from pyarrow import types

    is_numeric = types.is_integer(kind) or types.is_floating(kind)
    return np.dtype(kind.to_pandas_dtype() if is_numeric else str)


def as_ids(column: Any) -> NDArray[Any]:
    """Return the values (n,) of a column as ids: numbers, or Python strings and None."""
    if id_type(column.type).kind != "U" and not column.null_count:
        return np.asarray(column)
    ids = np.empty(len(column), dtype=object)
    is_text = id_type(column.type).kind == "U"
    ids[:] = [value if value is None or not is_text else str(value) for value in column.to_pylist()]
    return ids


def as_labels(column: Any, path: object) -> NDArray[Any]:
    """Return the values (n,) of a column of labels."""
    from pyarrow import types

    if types.is_nested(column.type):
        raise ValueError(f"{path} must hold labels of shape (n,), numbers or texts, but their column holds {column.type}")
    return np.asarray(column.to_pylist())
