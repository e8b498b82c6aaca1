"""Scores of blocks of rows on many workers, without sending the model.

A :class:`BatchScorer`, a path and a checksum, is sent with each block. A worker reads the file when its first block arrives,
and keeps the model for the next blocks. All workers must see the file.
"""

import hashlib
import sys
import threading
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyod_quadric.detector import QuadricDetector

if TYPE_CHECKING:
    import dask.array

MOST_MODELS = 4  # that a process keeps

_lock = threading.Lock()


@dataclass(frozen=True)
class BatchScorer:
    """A function from a batch of rows to its scores, small enough to be sent with each of them; see :func:`batch_scorer`.

    Parameters
    ----------
    path : str
        A model file, at the same path for all workers.
    checksum : str
        The checksum of the file. A worker that finds another one raises a ValueError.
    """

    path: str
    checksum: str

    def __call__(self, rows: ArrayLike) -> Any:
        """Return the outlier scores (n,) of rows (n, d): an array, or for pandas a Series with the same index.

        pandas input may be a DataFrame, or a Series whose entries are rows, such as a column of lists from Spark.
        """
        pandas = sys.modules.get("pandas")  # whoever has a DataFrame has imported it
        if pandas is None or not isinstance(rows, pandas.DataFrame | pandas.Series):
            return self._scores(rows)
        of_rows = isinstance(rows, pandas.Series) and len(rows) > 0
        return pandas.Series(self._scores(np.stack(rows.tolist()) if of_rows else rows), index=rows.index)

    def _scores(self, rows: ArrayLike) -> NDArray[np.float64]:
        model = self._model()
        return model.decision_function(rows) if np.shape(rows)[0] else np.empty(0)

    def _model(self) -> QuadricDetector:
        found = Path(self.path).stat()
        with _lock:  # so that threads of a worker wait for the one that reads
            return _loaded(self.path, self.checksum, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=MOST_MODELS)
def _loaded(path: str, checksum: str, *_: int) -> QuadricDetector:
    """Return the model in a file of this checksum; time and size of the file are for the cache."""
    content = _checksum(path)
    if content != checksum:
        raise ValueError(
            f"{path} is not the model file that the scorer was made for: its checksum is {content}, not {checksum}; make a new "
            "scorer, or give all workers the same file"
        )
    detector: QuadricDetector = QuadricDetector.load(path)
    return detector


def batch_scorer(path: str | PathLike[str]) -> BatchScorer:
    """Return a function that scores batches of rows by a model file, for workers of any cluster.

    The function takes arrays, pandas DataFrames and Series of rows. It pickles to less than a kilobyte, and reads the file once
    in each process. A process keeps the last four models, and reads a file again when it has changed.

    Parameters
    ----------
    path : path
        A file of :meth:`QuadricDetector.save`, at the same path for all workers.

    Examples
    --------
    >>> import numpy as np, pickle
    >>> from tempfile import TemporaryDirectory
    >>> rows = np.random.default_rng(0).normal(size=(100, 3))
    >>> detector = QuadricDetector().fit(rows)
    >>> with TemporaryDirectory() as folder:
    ...     detector.save(f"{folder}/model.safetensors")
    ...     scorer = batch_scorer(f"{folder}/model.safetensors")
    ...     scores = pickle.loads(pickle.dumps(scorer))(rows)
    >>> bool((scores == detector.decision_function(rows)).all())
    True
    """
    absolute = str(Path(path).absolute())
    scorer = BatchScorer(absolute, _checksum(absolute))
    scorer._model()  # a file that is no model should be noticed here and not by all workers
    return scorer


def score_dask(rows: "dask.array.Array", path: str | PathLike[str]) -> "dask.array.Array":
    """Return the scores (n,) of a Dask array (n, d) by a model file. They are lazy, and computed where the blocks are.

    Parameters
    ----------
    rows : dask.array.Array of shape (n, d)
        Blocks that hold only some of the features are merged first.
    path : path
        As for :func:`batch_scorer`.

    Examples
    --------
    >>> import pytest
    >>> da = pytest.importorskip("dask.array")
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> rows = np.random.default_rng(0).normal(size=(100, 3))
    >>> detector = QuadricDetector().fit(rows)
    >>> with TemporaryDirectory() as folder:
    ...     detector.save(f"{folder}/model.safetensors")
    ...     blocks = da.from_array(rows, chunks=(30, 3))
    ...     scores = score_dask(blocks, f"{folder}/model.safetensors").compute()
    >>> bool(np.allclose(scores, detector.decision_function(rows)))
    True
    """
    scorer = batch_scorer(path)
    needed = int(scorer._model().n_features_in_)
    if rows.ndim != 2 or rows.shape[1] != needed:
        raise ValueError(f"rows must have shape (n, {needed}), as those of the fit, got {tuple(rows.shape)}")
    untyped: Any = rows  # Dask has types for some functions only
    whole_rows = untyped.rechunk({1: -1})
    scores: dask.array.Array = whole_rows.map_blocks(scorer, dtype=np.float64, drop_axis=1, meta=np.empty(0))
    return scores


def _checksum(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
