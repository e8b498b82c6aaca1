"""The door to pyarrow, which comes with the extra ``tables`` and is imported when a table is opened."""

import json
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray


def import_pyarrow(what: str) -> ModuleType:
    """Return pyarrow, with its modules for files, or say how to install it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"{what} needs pyarrow: pip install 'pyod-quadric[tables]'") from error
    return pyarrow  # type: ignore[no-any-return]


def index_names(schema: Any) -> set[str]:
    """Return the names of columns that are the index of a pandas DataFrame."""
    stored = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
    return {name for name in stored.get("index_columns", []) if isinstance(name, str)}


def is_list(kind: Any) -> bool:
    """Return whether an arrow type is one of lists of numbers."""
    from pyarrow import types

    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(is_list and is_number(kind.value_type))


def is_number(kind: Any) -> bool:
    """Return whether an arrow type is one of numbers."""
    from pyarrow import types

    return bool(types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind))


def as_floats(column: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the numbers of a column, with NaN for what is missing."""
    from pyarrow import types

    # Only floats have a NaN for what is missing.
    floats = column if types.is_floating(column.type) else column.cast("float64", safe=False)
    numbers = floats.to_numpy(zero_copy_only=False) if hasattr(floats, "buffers") else floats.to_numpy()
    return np.asarray(numbers, dtype)


def as_labels(column: Any) -> NDArray[Any]:
    """Return the values (n,) of a column."""
    return np.asarray(column.to_pylist())
