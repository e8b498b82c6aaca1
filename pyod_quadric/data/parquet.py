"""Parquet files as rows: columns of numbers, or one column of lists of numbers, as embeddings often are."""

import json
from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.data.disk import Index, OnDisk

Select = Callable[[list[str]], list[str]]  # from the names of all columns to those of the features


class ParquetFile(OnDisk):
    """The numbers in a Parquet file, which is open only while it is read; the last row group is kept in memory.

    What is missing is NaN.

    Parameters
    ----------
    path : path
    select : callable, optional
        Chooses the columns, and their order, by their names; all by default, but for an index that pandas has stored.
    """

    in_groups = True

    def __init__(self, path: str | PathLike[str], select: Select | None = None) -> None:
        super().__init__(path)
        with _opened(self.path) as file:
            metadata, schema = file.metadata, file.schema_arrow
        names = [name for name in schema.names if name not in index_names(schema)]
        self.names = select(names) if select else names
        self._starts = np.cumsum([0, *(metadata.row_group(k).num_rows for k in range(metadata.num_row_groups))])
        self._decoded: tuple[int, NDArray[Any]] | None = None
        self._columns = list(self.names)
        kinds = [schema.field(name).type for name in self._columns]
        self._is_list = len(kinds) == 1 and is_list(kinds[0])
        if self._is_list:
            self.names, kinds = None, [kinds[0].value_type]  # the numbers of a list have no names
        for name, kind in zip(self._columns, kinds, strict=True):
            if not is_number(kind):
                raise ValueError(f"the column {name} holds {kind}, not numbers; leave it out")
        together = np.result_type(*(kind.to_pandas_dtype() for kind in kinds))
        self.dtype = together if together.kind == "f" else np.dtype(np.float64)  # integers have no NaN for what is missing
        self.shape = (metadata.num_rows, self._width() if self._is_list else len(self._columns))

    def __getitem__(self, index: Index) -> NDArray[Any]:
        numbers = np.arange(*index.indices(self.shape[0])) if isinstance(index, slice) else index
        rows = np.empty((len(numbers), self.shape[1]), self.dtype)
        groups = np.searchsorted(self._starts, numbers, side="right") - 1
        for group in np.unique(groups):
            chosen = groups == group
            rows[chosen] = self._group(int(group))[numbers[chosen] - self._starts[group]]
        return rows

    def release(self) -> None:
        """Forget the last row group."""
        self._decoded = None

    def _group(self, number: int) -> NDArray[Any]:
        kept = self._decoded
        if kept is None or kept[0] != number:
            self._decoded = kept = None  # two at a time would be one too many
            with self._unchanged(f"row group {number}"), _opened(self.path) as file:
                columns = [self._numbers(column) for column in file.read_row_group(number, self._columns).columns]
            rows = columns[0].reshape(-1, self.shape[1]) if self._is_list else np.stack(columns, axis=1)
            self._decoded = kept = number, rows
        return kept[1]

    def _numbers(self, column: Any) -> NDArray[Any]:
        """Return the numbers of a column, one after the other, with NaN for what is missing."""
        import pyarrow

        if self._is_list:
            lengths = pyarrow.compute.list_value_length(column).to_numpy()
            if not (lengths == self.shape[1]).all():
                raise ValueError(f"the lists in {self._columns[0]} must all have {self.shape[1]} numbers, as the first one has")
            column = pyarrow.compute.list_flatten(column)
        numbers: NDArray[Any] = column.cast(pyarrow.from_numpy_dtype(self.dtype), safe=False).to_numpy()
        return numbers

    def _width(self) -> int:
        """Return the length of the first list."""
        with _opened(self.path) as file:
            first = next(file.iter_batches(batch_size=1, columns=self._columns), None)
        return 0 if first is None or first.column(0)[0].as_py() is None else len(first.column(0)[0].as_py())


def _opened(path: Any) -> Any:
    try:
        import pyarrow.compute  # of the extra "tables"; needed for these files only
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"reading {path} needs pyarrow: pip install 'pyod-quadric[tables]'") from error
    return pyarrow.parquet.ParquetFile(path)


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
