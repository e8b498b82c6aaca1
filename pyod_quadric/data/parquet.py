"""Parquet files as rows: columns of numbers, or one column of lists of numbers, as embeddings often are.

A pass takes pages as they come (before pyarrow 24 it holds a row group), and rows here and there are taken from one row group
at a time. ``pyarrow.dataset`` serves neither better: by default it reads ahead into ten times the memory, and without that it
is slower, and needs twice as much.
"""

from collections.abc import Iterator
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.data.arrow import as_floats, as_labels, import_pyarrow, index_names, is_list, is_number
from pyod_quadric.data.columns import Choice
from pyod_quadric.data.disk import OnDisk, damage_named
from pyod_quadric.data.sources import Index, rechunked

PAGE_BYTES = 2**16  # of a column at once in a pass


class ParquetFile(OnDisk):
    """The numbers in a Parquet file, which is open only while it is read; the last row group is kept in memory.

    What is missing is NaN. An index that pandas has stored is no feature.

    Parameters
    ----------
    path : path
    choice : Choice, optional
        The columns; all by default.
    wanted : list of str, optional
        The features that a model was fitted to.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow.parquet
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pyarrow.parquet.write_table(pyarrow.table({"a": [1, 2], "b": [0.5, None]}), f"{folder}/rows.parquet")
    ...     rows = ParquetFile(f"{folder}/rows.parquet")
    ...     rows.names, rows[:].tolist()
    (['a', 'b'], [[1.0, 0.5], [2.0, nan]])
    """

    decodes_groups = True

    def __init__(self, path: str | PathLike[str], choice: Choice | None = None, wanted: list[str] | None = None) -> None:
        super().__init__(path)
        self._arrow = import_pyarrow(f"reading {path}")
        choice = choice or Choice()
        choice.check_effect(path, columns=True, labels=True)
        choice.check_header(path)
        self._metadata: Any = None
        self._decoded: tuple[int, list[NDArray[Any]]] | None = None
        with damage_named(path), self._open() as file:
            metadata, schema = file.metadata, file.schema_arrow
        self._starts = np.cumsum([0, *(metadata.row_group(k).num_rows for k in range(metadata.num_row_groups))])
        self._label = choice.label_column
        self._columns = self._features(schema, choice, wanted)
        kinds = [schema.field(name).type for name in self._columns]
        self._is_list = len(kinds) == 1 and is_list(kinds[0])
        if self._is_list:
            kinds = [kinds[0].value_type]
        for name, kind in zip(self._columns, kinds, strict=True):
            if not is_number(kind):
                raise ValueError(f"the column {name} of {path} holds {kind}, not numbers; leave it out by drop=...")
        stored = np.result_type(*(kind.to_pandas_dtype() for kind in kinds))
        n_features = self._width() if self._is_list else len(kinds)
        names = None if self._is_list else self._columns  # the numbers of a list have no names
        self._describe(metadata.num_rows, n_features, stored, names, str(path))

    def _features(self, schema: Any, choice: Choice, wanted: list[str] | None) -> list[str]:
        names = [name for name in schema.names if name not in index_names(schema)]
        chosen = choice.columns or []
        is_embedding = len(chosen) == 1 and chosen[0] in names and is_list(schema.field(chosen[0]).type)
        return choice.features(self.path, names, None if is_embedding else wanted)

    @property
    def labels(self) -> NDArray[Any] | None:
        """The labels (n,), if there is a column of them."""
        if self._label is None:
            return None
        with self._unchanged(f"the column {self._label}"), self._open() as file:
            return as_labels(file.read([self._label]).column(0))

    def __getitem__(self, index: Index) -> NDArray[Any]:
        indices = np.arange(*index.indices(self.shape[0])) if isinstance(index, slice) else index
        rows = np.empty((len(indices), self.n_features), self.dtype)
        groups = np.searchsorted(self._starts, indices, side="right") - 1
        for group in np.unique(groups):
            chosen = groups == group
            here = indices[chosen] - self._starts[group]
            columns = self._group(int(group))
            rows[chosen] = columns[0][here] if self._is_list else np.stack([column[here] for column in columns], axis=1)
        return rows

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """Go through all rows once; some pages of each column are in memory, however large the row groups are."""
        return rechunked(self._batches(size), size, np.concatenate)

    def _batches(self, size: int) -> Iterator[NDArray[Any]]:
        with self._unchanged("a part"), self._open(buffer_size=PAGE_BYTES, pre_buffer=False) as file:
            for batch in file.iter_batches(size, columns=self._columns, use_threads=False):
                columns = [self._numbers(column) for column in batch.columns]
                yield np.array(columns[0]) if self._is_list else np.stack(columns, axis=1)

    def release(self) -> None:
        """Forget the last row group, and where the others are."""
        self._decoded = self._metadata = None

    def _group(self, number: int) -> list[NDArray[Any]]:
        kept = self._decoded
        if kept is None or kept[0] != number:
            self._decoded = kept = None  # two at a time would be one too many
            with self._unchanged(f"row group {number}"), self._open(metadata=self._metadata) as file:
                self._metadata = file.metadata  # which takes long to read anew
                columns = [self._numbers(column) for column in file.read_row_group(number, self._columns).columns]
            self._decoded = kept = number, columns
        return kept[1]

    def _numbers(self, column: Any) -> NDArray[Any]:
        """Return the numbers (n,) of a column, or (n, d) of one of lists."""
        if not self._is_list:
            return as_floats(column, self.dtype)
        compute = self._arrow.compute
        if not compute.all(compute.equal(compute.list_value_length(column), self.n_features), skip_nulls=False).as_py():
            what = f"the lists in {self._columns[0]} must all have {self.n_features} numbers, as the first one has"
            raise ValueError(what)
        return as_floats(compute.list_flatten(column), self.dtype).reshape(-1, self.n_features)

    def _width(self) -> int:
        """Return the length of the first list."""
        with damage_named(self.path), self._open(buffer_size=PAGE_BYTES, pre_buffer=False) as file:
            first = next(file.iter_batches(batch_size=1, columns=self._columns), None)
        return 0 if first is None else len(first.column(0)[0].as_py() or ())

    def _open(self, **options: Any) -> Any:
        return self._arrow.parquet.ParquetFile(self.path, **options)
