"""The rows without NaN or infinite entries, from any source."""

from typing import Any

import numpy as np
from torch import Tensor

from pyod_quadric.data.files import open_rows
from pyod_quadric.data.memory import in_memory, is_table, names_of
from pyod_quadric.data.rows import Rows, TensorRows, are_paths, is_loader
from pyod_quadric.data.sources import ArraySource, RowSource, Subset

BLOCK_ROWS = 4096


def finite_rows(rows: Any) -> Subset:
    """Return the rows without NaN or infinite entries, and their ``indices`` among all rows.

    ``.npy`` and Parquet files are read again when rows are needed, and only the indices are held in memory.

    Parameters
    ----------
    rows : array-like of shape (n, d), Tensor, table, column of lists, or path
        Anything that :meth:`QuadricDetector.fit` takes, except loaders.

    Returns
    -------
    Subset
        The k complete rows (k, d), for ``fit``, ``decision_function`` and other methods. Its attribute ``indices`` (k,) holds
        their positions among all rows.

    Examples
    --------
    Fit to the complete rows and score them; incomplete rows get NaN:

    >>> import numpy as np
    >>> from pyod_quadric import QuadricDetector, finite_rows
    >>> rows = np.random.default_rng(0).normal(size=(100, 3))
    >>> rows[[3, 50], 1] = np.nan
    >>> known = finite_rows(rows)
    >>> detector = QuadricDetector().fit(known)
    >>> scores = np.full(len(rows), np.nan)
    >>> scores[known.indices] = detector.decision_function(known)
    >>> np.flatnonzero(np.isnan(scores)).tolist()
    [3, 50]
    """
    source = _source(rows)
    source.load()
    indices = [block.indices[block.finite] for block in source.marked_blocks(BLOCK_ROWS)]
    found = np.concatenate(indices)
    if not len(found):
        raise ValueError(f"all rows of {source.origin or 'the array'} hold NaN or infinite entries, so that none is left")
    return Subset(source, found)


def _source(rows: Any) -> RowSource:
    if isinstance(rows, RowSource):
        return rows
    if are_paths(rows):
        return open_rows(rows)
    if isinstance(rows, Rows) or is_loader(rows):
        raise TypeError("rows of a loader cannot be left out: they are known by their place; leave them out of the batches")
    found = in_memory(rows)
    if isinstance(found, Tensor):
        return ArraySource(found.to(TensorRows(found).dtype).cpu().numpy())
    return ArraySource(np.asarray(found), names_of(found) if is_table(found) else None)
