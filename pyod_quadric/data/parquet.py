"""Rows in Parquet files: numeric columns, or one column of lists of numbers, as embeddings are often stored.

A pass reads page by page (before pyarrow 24, row group by row group). Random access decodes one row group at a time.
``pyarrow.dataset`` is no better for either: by default it reads ahead and takes ten times the memory, and without reading ahead
it is slower and takes twice the memory.
"""

from collections.abc import Iterator
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.data.arrow import as_floats, as_ids, as_labels, as_rows, features_in, id_type, import_pyarrow, is_list
from pyod_quadric.data.columns import Choice
from pyod_quadric.data.disk import OnDisk, damage_named
from pyod_quadric.data.sources import Identified, Index, rechunked

PAGE_BYTES = 2**16  # of a column at once in a pass


class ParquetFile(OnDisk):
    """The numbers in a Parquet file, which is open only while it is read; the last decoded row group stays in memory.

    Missing values are NaN. An index stored by pandas is not a feature.

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
        self._columns = features_in(schema, choice, wanted, path)
        kinds = [schema.field(name).type for name in self._columns]
        self._is_list = len(kinds) == 1 and is_list(kinds[0])
        if self._is_list:
            kinds, self.list_column = [kinds[0].value_type], self._columns[0]
        if choice.id_column is not None:
            self.id_column, self.id_type = choice.id_column, id_type(schema.field(choice.id_column).type)
        stored = np.result_type(*(kind.to_pandas_dtype() for kind in kinds))
        n_features = self._width() if self._is_list else len(kinds)
        names = None if self._is_list else self._columns  # the numbers of a list have no names
        self._describe(metadata.num_rows, n_features, stored, names, str(path))

    @property
    def labels(self) -> NDArray[Any] | None:
        """The labels (n,), if a label column was chosen."""
        if self._label is None:
            return None
        with self._unchanged(f"the column {self._label}"), self._open() as file:
            return as_labels(file.read([self._label]).column(0), self.path)

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
        """Yield all rows in one pass; memory holds some pages of each column, however large the row groups are."""
        return rechunked((part.rows for part in self._parts(size, None)), size, np.concatenate)

    def identified_blocks(self, size: int) -> Iterator[Identified]:
        """Yield all rows in one pass, with their ids if an id column was chosen."""
        return rechunked(self._parts(size, self.id_column), size, Identified.joined)

    def _parts(self, size: int, ids: str | None) -> Iterator[Identified]:
        columns = [*self._columns, *([] if ids is None else [ids])]
        with self._unchanged("a part"), self._open(buffer_size=PAGE_BYTES, pre_buffer=False) as file:
            for batch in file.iter_batches(size, columns=columns, use_threads=False):
                features = [self._numbers(batch.column(name)) for name in self._columns]
                rows = np.array(features[0]) if self._is_list else np.stack(features, axis=1)
                yield Identified(rows, None if ids is None else as_ids(batch.column(ids)))

    def release(self) -> None:
        """Drop the last row group and the metadata from memory."""
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
        if self.list_column is None:
            return as_floats(column, self.dtype)
        return as_rows(column, self.list_column, self.n_features, self.dtype)

    def _width(self) -> int:
        """Return the length of the first list."""
        with damage_named(self.path), self._open(buffer_size=PAGE_BYTES, pre_buffer=False) as file:
            first = next(file.iter_batches(batch_size=1, columns=self._columns), None)
        return 0 if first is None else len(first.column(0)[0].as_py() or ())

    def _open(self, **options: Any) -> Any:
        return self._arrow.parquet.ParquetFile(self.path, **options)
