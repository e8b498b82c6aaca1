"""What a fitted detector does: it scores rows, explains scores, and becomes a module or a graph for others."""

import json
from collections.abc import Callable
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pyod.models.base import BaseDetector
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from pyod_quadric.data.rows import Rows, is_large, large_rows, rows_of
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.model.model import Model
from pyod_quadric.model.module import ScoreModule, onnx_bytes
from pyod_quadric.parallel.devices import device_of, moved
from pyod_quadric.parallel.ranks import n_ranks, sum_over_ranks
from pyod_quadric.parallel.threads import share_of_cores
from pyod_quadric.storage.atomic import write_atomically

BATCH_ROWS = 4096  # of one block of scoring; more gain nothing


class ScoringDetector(BaseDetector):  # type: ignore[misc]  # PyOD has no types
    """A detector of PyOD with a model; how it comes by that is up to those that inherit from it."""

    def decision_function(self, X: ArrayLike, batch_size: int | None = None) -> NDArray[np.float64]:
        """Return the outlier scores (n,) of rows (n, d), higher for more abnormal ones.

        Parameters
        ----------
        X : array-like of shape (n, d)
        batch_size : int, optional
            How many rows to score at once; memory grows with it, scores do not change.
        """
        rows = self._checked(X)
        return self._in_blocks(self.model_.score, rows, BATCH_ROWS if batch_size is None else batch_size)

    def quadric_distances(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the distance (n, n_quadrics_) of rows (n, d) to each quadric, in working coordinates."""
        rows = self._checked(X)
        return self._in_blocks(self.model_.quadric_distances, rows)

    def explain(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return what each feature adds to the score of each row: (n, d), not negative, rows sum to the score.

        A quadric's share is split by the squared entries of its gradient, the direction in which the quadric is nearest; the
        linear part by the squared standardised deviations ``C^(-1/2) (x - mean)``.
        """
        rows = self._checked(X)
        return self._in_blocks(self.model_.contributions, rows)

    def project(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the nearest point of the learnt manifold for each row (n, d): the row without its noise.

        See :meth:`pyod_quadric.model.model.Model.project`. Rows are normalised before, if the detector does so.
        """
        rows = self._checked(X)
        return self._in_blocks(self.model_.project, rows)

    def explain_outlier(
        self,
        ind: int,
        columns: list[int] | None = None,
        cutoffs: list[float] | None = None,
        feature_names: list[str] | None = None,
        file_name: str | None = None,
        file_type: str | None = None,
        X: ArrayLike | None = None,
    ) -> Any:
        """Plot what each feature adds to the score of one training row, as PyOD's COPOD and ECOD do.

        Parameters
        ----------
        ind : int
            The number of the row.
        columns : list of int, optional
            The features to show; all by default.
        cutoffs : list of float, optional
            Quantiles of the training rows to draw as bands; 1 - contamination and 0.99 by default.
        feature_names : list of str, optional
            Names of the features shown; those of the DataFrame that was fitted, if there was one.
        file_name, file_type : str, optional
            Where to save the figure, ``file_name.file_type`` (png by default).
        X : array-like of shape (n, d), optional
            The training rows; needed only after loading, since files do not hold them.

        Returns
        -------
        matplotlib.axes.Axes
        """
        from pyod_quadric.plotting import plot_contributions

        check_is_fitted(self, "model_")
        rows = self._training_rows() if X is None else self._checked(X)
        chosen = np.sort(np.random.default_rng(0).permutation(rows.n_rows)[:2000])  # enough for the bands
        contributions, others = (
            self._in_blocks(self.model_.contributions, rows_of(rows.read(numbers))) for numbers in (np.array([ind]), chosen)
        )
        if feature_names is None:
            names = list(getattr(self, "feature_names_in_", []))
            feature_names = [names[column] for column in columns] if names and columns is not None else names or None
        share = np.mean(self.labels_) if hasattr(self.contamination, "fit") else self.contamination
        return plot_contributions(
            contributions[0],
            others,
            columns=columns,
            cutoffs=[1 - float(share), 0.99] if cutoffs is None else cutoffs,
            feature_names=feature_names,
            title=f"Row {ind} ({'outlier' if self.labels_[ind] else 'inlier'}): what each feature adds to the score",
            path=None if file_name is None else f"{file_name}.{file_type or 'png'}",
        )

    def to_module(self) -> ScoreModule:
        """Return the fitted score as a torch module, from raw rows (n, d) to :meth:`decision_function`'s scores (n,).

        Preprocessing is included, gradients flow through it, and its numbers are buffers, so that it can follow an encoder. It
        computes in float64 unless ``float()`` makes it faster and less exact; see :class:`pyod_quadric.export.ScoreModule`.

        Examples
        --------
        >>> import numpy as np
        >>> import torch
        >>> from pyod_quadric import QuadricDetector
        >>> rows = np.random.default_rng(0).normal(size=(100, 3))
        >>> detector = QuadricDetector().fit(rows)
        >>> model = torch.nn.Sequential(torch.nn.Linear(5, 3), detector.to_module())
        >>> model(torch.zeros(2, 5)).shape
        torch.Size([2])
        """
        check_is_fitted(self, "model_")
        return ScoreModule(self.model_)

    def to_onnx(self, path: str | PathLike[str], *, dtype: torch.dtype = torch.float32) -> None:
        """Write the fitted score as an ONNX graph, with the packages of the ``onnx`` extra.

        The graph, of opset 18, takes ``rows`` (n, d) of a given type, for any n, and gives ``scores`` (n,), computed in
        float64. The properties of the file have ``threshold_`` (as "threshold": higher scores are those of outliers), the names
        of the features as JSON, if there are any ("feature_names"), and ``versions_``.

        Parameters
        ----------
        path : path
        dtype : torch.dtype, default=torch.float32
            The type of the rows.
        """
        module = self.to_module()
        metadata = {"threshold": repr(float(self.threshold_)), **self.versions_}
        if hasattr(self, "feature_names_in_"):
            metadata["feature_names"] = json.dumps(list(self.feature_names_in_))
        write_atomically(Path(path), [onnx_bytes(module, metadata, dtype)])

    @property
    def input_quadrics_(self) -> Quadrics | None:
        """The quadrics as polynomials of the (normalised) input: m matrices of size d × d, made anew each time."""
        check_is_fitted(self, "model_")
        return self.model_.in_input_space()

    def _set_model(self, model: Model) -> None:
        self.model_ = model
        self.quadrics_ = model.quadrics
        self.n_quadrics_ = 0 if model.quadrics is None else len(model.quadrics)
        self.quadric_weights_ = None if model.weights is None else model.weights.numpy()

    def _training_rows(self) -> Rows:
        if not hasattr(self, "_rows"):
            raise ValueError("copies and files of a detector do not hold its training rows; fit again, or give them as X")
        rows: Rows = self._rows
        return rows

    def _checked(self, X: ArrayLike) -> Rows:
        """Return rows that the fitted model can take."""
        check_is_fitted(self, "model_")
        return self._validated(X)

    def _validated(self, X: ArrayLike, reset: bool = False, least: int = 1) -> Rows:
        """Return rows of floats, after a look at their number, shape, values and names, which a reset remembers."""
        dtype = getattr(X, "dtype", None)
        small = isinstance(dtype, np.dtype) and dtype.kind == "f" and dtype.itemsize <= 4  # float16, too, as in files
        types = [np.float32] if small else [np.float64, np.float32]
        if not is_large(X):
            return rows_of(validate_data(self, X, reset=reset, dtype=types, ensure_min_samples=least))
        known = None if reset else getattr(self, "feature_names_in_", None)
        rows = large_rows(X, None if known is None else list(known))  # scikit-learn would look at all of them at once
        if rows.n_rows < least:
            raise ValueError(f"at least {least} rows are needed, got {rows.n_rows}")
        if reset:
            self.__dict__.pop("feature_names_in_", None)
            self.n_features_in_ = rows.n_features
            if rows.names is not None:
                self.feature_names_in_ = np.array(rows.names, dtype=object)
        elif rows.n_features != self.n_features_in_:
            raise ValueError(f"rows must have {self.n_features_in_} features, as those of the fit, got {rows.n_features}")
        return rows

    def _in_blocks(self, function: Callable[[Tensor], Tensor], rows: Rows, size: Any = BATCH_ROWS) -> NDArray[np.float64]:
        """Apply a function of the model to all rows on the device, a block at a time."""
        if not isinstance(size, Integral) or int(size) < 1:
            raise ValueError(f"batch_size must be a whole number from 1 on, got {size!r}")
        results: NDArray[np.float64] | None = None  # for all rows at once: many small ones would leave holes in the memory
        start = 0
        with share_of_cores():
            for block in moved(rows.blocks(int(size)), device_of(self.device)):
                values = function(block).double().cpu().numpy()
                if results is None:
                    results = np.empty((rows.n_rows, *values.shape[1:]))
                results[start : start + len(values)] = values
                start += len(values)
        assert results is not None  # there is at least one row
        return results

    def _training_scores(self, rows: Rows) -> NDArray[np.float64]:
        if n_ranks() == 1:
            return self._in_blocks(self.model_.score, rows)
        device = device_of(self.device)
        scores = torch.zeros(rows.n_rows, dtype=torch.float64, device=device)
        for place, block in rows.placed_blocks(BATCH_ROWS):
            scores[place] = self.model_.score(block.to(device))
        sum_over_ranks(scores)
        return scores.cpu().numpy()
