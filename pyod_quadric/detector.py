"""The detector: PyOD's interface to the fit and the model."""

import copy
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pyod.models.base import BaseDetector
from scipy.stats import false_discovery_control
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from pyod_quadric._version import __version__
from pyod_quadric.allowed import Number, Whole, checked
from pyod_quadric.data.groups import group_keys
from pyod_quadric.data.memory import dtype_of, in_memory
from pyod_quadric.data.rows import Rows, is_large, large_rows, rows_of
from pyod_quadric.data.sources import check_finite
from pyod_quadric.data.stream import Reservoir
from pyod_quadric.fitting.fit import fit_model, seed_of
from pyod_quadric.fitting.folds import NotYetError
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.model.blocks import BATCH_ROWS, in_blocks
from pyod_quadric.model.calibration import Calibration, DriftResult, drift_of, far_out, posterior_of, spread_of
from pyod_quadric.model.folder import model_file, save_folder
from pyod_quadric.model.model import HISTORY_NAMES
from pyod_quadric.model.module import ScoreModule, onnx_bytes
from pyod_quadric.model.pickled import from_plain, to_plain
from pyod_quadric.model.saved import FittedState, from_content, to_bytes
from pyod_quadric.parallel.devices import device_of
from pyod_quadric.parallel.peers import together
from pyod_quadric.parallel.ranks import on_first_rank, process_rank
from pyod_quadric.parallel.threads import share_of_cores
from pyod_quadric.parameters import (
    LEAST_ROWS,
    ConstraintName,
    Distance,
    InnerProduct,
    OptimizerName,
    Parameters,
    Score,
    TrainingOptions,
    declarations,
)
from pyod_quadric.progress import reported
from pyod_quadric.storage.atomic import write_atomically
from pyod_quadric.storage.container import read_container

# Where a detector has what a fit left behind, by the names of a file.
ATTRIBUTES = {
    "model": "model_",
    "decision_scores": "decision_scores_",
    "labels": "labels_",
    "row_weights": "row_weights_",
    "groups": "groups_",
    "threshold": "threshold_",
    "mean_score": "_mu",
    "std_score": "_sigma",
    "history": "history_",
    "versions": "versions_",
}
MOST_COMPARED = 1000  # training rows, to see whether all score alike
UNSAVED = ("_rows", "_table")  # pickles should not hold the training rows, nor what follows from the rest
RATE = (Number(above=0, below=1),)
CHECKPOINT_OPTIONS = ("checkpoint", "checkpoint_steps", "checkpoint_minutes")


class QuadricDetector(BaseDetector):  # type: ignore[misc]  # PyOD has no types
    """Outlier detection by the distance to an intersection of quadrics.

    The score of a row is the sum of three parts, all of them squared distances in the unit of held-out rows:

    - The *linear part* is a Mahalanobis distance. Its variances come from held-out rows, so it does not overfit.
    - The *quadrics* are polynomials of degree 2 that are small on the training rows, and orthonormal in the Hilbert-Schmidt
      inner product. Each is weighted by how much better than the linear part it describes held-out rows.
    - The *neighbours* are training rows that were kept. The distance to the nearest three shows how near a row is to clusters
      and topics, which the shape of the whole cloud does not. The less the linear part agrees with them on held-out rows, as
      where rows are in many clusters, the less it counts, and the more they do.

    Everything is in closed form by default. Setting a parameter of training (``constraint``, ``epoch_num``, ``lr`` and so on)
    adds gradient descent, which holds the quadrics orthonormal by a penalty or on the Stiefel manifold. :meth:`from_paper` has
    the settings of the paper.

    Scores do not change when all rows are rotated, reflected, shifted or scaled together. Where rows are normalised (see
    ``normalize``) the origin counts, so shifts change them.

    Parameters
    ----------
    contamination : float in (0, 0.5], "auto" or thresholder, default=0.1
        The share of outliers in the training rows. It decides ``threshold_`` and ``labels_``, not the scores. An object of
        pythresh may decide instead. "auto" puts the threshold three robust standard deviations above the median of the
        logarithms of the held-out scores. It flags rows that are far out, and does not estimate the share of outliers: of rows
        without outliers it flagged 3 % on average over 36 data sets (0 to 17 %). See
        :func:`pyod_quadric.model.calibration.far_out`.
    n_quadrics : int or "auto", default="auto"
        The number of quadrics. "auto" tries all orthonormal ones of the closed form, at most 400, and keeps those with
        evidence. For ``score_function="mean_distance"`` it takes half of all, at most 400, and from a random start at most 100.
    n_components : int, float, "auto" or None, default="auto"
        The number of principal coordinates, whitened, in which the quadrics live; or the share of the variance that these
        should hold. "auto" takes the largest k with at least four rows for each of the k (k + 1) / 2 entries of a matrix, up
        to k = 50, or at least eight, up to k = 100; see :func:`pyod_quadric.fitting.components.auto_components`. None takes the
        input's own coordinates, centred and divided by one number.
    normalize : bool or "auto", default="auto"
        Whether to divide rows by their norms. Set it to True for embeddings that are compared by cosines. Otherwise short rows
        seem normal, because they lie around the origin. A norm that is more than two deviations from the usual one then adds
        to the score. "auto" normalises if all of these hold: there are at least 32 features; the norms carry less than 20 % of
        the variance; the mean carries more than 1 % of the mean squared norm, or rows lie near a sphere around the origin; and
        the distance from the mean depends on the norm (by ranks) far less once rows are normalised.
    standardize : bool or "auto", default="auto"
        Whether to divide columns by their spread; rotations then change the scores. "auto" does so if one spread is more than
        a million times the lower quartile of all. An example is a time in milliseconds beside sensors: without division only
        the time would count.
    score_function : {"combined", "linear", "quadrics", "neighbors", "linear+quadrics", "linear+neighbors", \
"quadrics+neighbors", "mean_distance"}, default="combined"
        The sum of all three parts, some of them, or the paper's mean of the distances to all quadrics.
    n_prototypes : int, default=10000
        The largest number of training rows to keep as neighbours; they are drawn at random if there are more. Time and memory
        of scoring grow with it. The model and its files hold these rows, in principal coordinates; "linear+quadrics" keeps
        none. Outliers among the rows, as ``robust`` sees them, are not kept.
    n_folds : int, "auto" or None, default="auto"
        The number of folds that hold out training rows. More folds make decisions about new rows more exact where rows are few,
        and take longer; training is repeated for each. "auto" is 20,000 divided by the number of rows, or of groups, but at
        least 5 (3 if quadrics are trained) and at most 10. None trains once and scores training rows in-sample, so thresholds
        and p-values are too low, especially with few rows. Only ``score_function="mean_distance"`` allows it.
    robust : bool, default=True
        Whether rows that are far from the others count less. A first fit scores held-out rows to find them.
    distance : {"second_order", "first_order", "algebraic"}, default="second_order"
        The distance from a row to a quadric.
    inner_product : {"hs", "coefficient"}, default="hs"
        What is orthonormal: the matrices, or all monomial coefficients (the paper's base problem, which is not equivariant).
    init : {"auto", "spectral", "random"} or Quadrics, default="auto"
        Where the quadrics start: in closed form (up to 100 coordinates), at random, or at given ones in working coordinates.
        A random start is always trained.
    constraint : {"penalty", "stiefel"}, optional
        Train the quadrics, and hold them orthonormal by a soft penalty, with torch's optimisers, or on the Stiefel manifold,
        with geoopt's. If another parameter asks for training, "penalty" is the default.
    epoch_num : int, optional
        The number of passes over the rows in training: 20 if any parameter asks for training, else 0, which leaves the closed
        form. With scores other than "mean_distance" each fold is trained as well, so that held-out rows judge trained
        quadrics, too.
    lr : float, optional
        The learning rate of training: 0.01 from a random start, else 0.001.
    batch_size : int, optional
        The number of rows in a training step, 1024 by default.
    optimizer_name : {"sgd", "adam"}, optional
        The optimiser of training, "sgd" by default.
    training_options : dict, optional
        Options that are rarely changed, by their names in :class:`pyod_quadric.TrainingOptions`: ``orthonormality_weight``,
        ``momentum``, ``schedule``, ``validation_fraction``, ``patience``, ``checkpoint``, ``checkpoint_steps``,
        ``checkpoint_minutes``. ``loss`` names what training minimises instead of the ``distance``; "squared_algebraic" is
        allowed here.
    device : str, optional
        Where to compute, such as "cuda:0"; by default on a CUDA device if there is one, else on the CPU. The fitted model is
        kept on the CPU.
    window : int, optional
        The number of latest rows of a stream from which :meth:`partial_fit` learns. Older rows are forgotten, so that the
        detector follows drift. By default it learns from a uniform sample of all rows so far.
    random_state : int, RandomState or None, default=42
        Seed of the folds, the reference points and the order of rows in training. No global generator is used.
    verbose : {0, 1, 2}, default=0
        What to print: nothing; the current stage of the fit, with a progress bar; or a line for each epoch of training.

    Raises
    ------
    ValueError
        From :meth:`fit`, if a value is not allowed, or if parameters contradict each other: training together with
        ``epoch_num=0``, or with ``score_function="linear"``, which has no quadrics.

    Warns
    -----
    UserWarning
        From :meth:`fit`, if a parameter has no effect, such as ``n_quadrics`` with ``score_function="linear"``.

    Attributes
    ----------
    decision_scores_ : ndarray of shape (n,)
        The out-of-fold scores of the training rows: each is scored by a model that has not seen it. New rows of the same kind
        score alike, so ``threshold_``, ``labels_``, :meth:`predict_proba` and :meth:`predict_pvalue` hold for new rows.
        ``decision_function(X_train)`` is lower, because that model has seen the rows.
    labels_, threshold_
        As in every detector of PyOD, from ``decision_scores_``.
    groups_ : ndarray of shape (n,) or None
        A number for the group of each training row: a hash of its name.
    n_quadrics_ : int
        The number of quadrics in the score.
    quadrics_ : Quadrics or None
        The quadrics in working coordinates.
    quadric_weights_ : ndarray of shape (m,) or None
        The weights of the squared distances in the score; None if the score is the mean of the distances.
    row_weights_ : ndarray of shape (n,)
        The weights of the training rows in the fit, from 0 to 1.
    history_ : dict of lists
        ``loss``, ``held_out_loss``, ``orthonormality_error`` and ``seconds`` for each epoch of training.
    timings_ : dict of float
        The seconds of each stage of the latest fit, in order, such as "row weights", "closed form", "training" and "held-out
        scores". Files of :meth:`save` do not hold them, so that equal fits give equal files.
    model_ : pyod_quadric.model.Model
        Everything that a score needs.
    versions_ : dict of str
        ``torch_version`` and ``pyod_quadric_version``. PyOD's ``save(detector, path, metadata=detector.versions_)`` keeps them
        with the versions that it records itself.
    n_features_in_, feature_names_in_
        As in every estimator of scikit-learn.
    list_column_ : str
        The name of the column of lists that held the rows, if a file had one. Other files are searched for this name.

    Examples
    --------
    >>> import numpy as np
    >>> from pyod_quadric import QuadricDetector
    >>> angle = np.linspace(0, 6, 200)
    >>> circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    >>> detector = QuadricDetector(contamination=0.01).fit(circle)
    >>> detector.predict([[0.0, 0.0], [0.6, 0.8]])
    array([1, 0])
    """

    def __init__(
        self,
        *,
        contamination: float | Literal["auto"] = 0.1,
        n_quadrics: int | Literal["auto"] = "auto",
        n_components: int | float | Literal["auto"] | None = "auto",
        normalize: bool | Literal["auto"] = "auto",
        standardize: bool | Literal["auto"] = "auto",
        score_function: Score = "combined",
        n_prototypes: int = 10_000,
        n_folds: int | Literal["auto"] | None = "auto",
        robust: bool = True,
        distance: Distance = "second_order",
        inner_product: InnerProduct = "hs",
        init: Literal["auto", "spectral", "random"] | Quadrics = "auto",
        constraint: ConstraintName | None = None,
        epoch_num: int | None = None,
        lr: float | None = None,
        batch_size: int | None = None,
        optimizer_name: OptimizerName | None = None,
        training_options: dict[str, Any] | None = None,
        device: str | None = None,
        window: int | None = None,
        random_state: int | np.random.RandomState | None = 42,
        verbose: int = 0,
    ) -> None:
        self.contamination = contamination
        self.n_quadrics = n_quadrics
        self.n_components = n_components
        self.normalize = normalize
        self.standardize = standardize
        self.score_function = score_function
        self.n_prototypes = n_prototypes
        self.n_folds = n_folds
        self.robust = robust
        self.distance = distance
        self.inner_product = inner_product
        self.init = init
        self.constraint = constraint
        self.epoch_num = epoch_num
        self.lr = lr
        self.batch_size = batch_size
        self.optimizer_name = optimizer_name
        self.training_options = training_options
        self.device = device
        self.window = window
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def from_paper(cls, variant: Literal["full", "base", "sub"] = "full", **changes: Any) -> Self:
        """Return a detector with the settings of Pavutnitskiy et al. (2022), whose score is the mean of the order-2 distances.

        Rows are normalised, centred and divided by one number. SGD trains the quadrics from a random start, with a penalty of
        weight 1. There is no linear part, and all rows count the same.

        Parameters
        ----------
        variant : {"full", "base", "sub"}
            "full" is Q-FULL: 100 quadrics that minimise the order-2 distance, orthonormal in the Hilbert-Schmidt inner
            product. "base" is Q-BASE: 100 quadrics that minimise squared values, orthonormal in their coefficients. "sub" is
            Q-SUB: Q-FULL with 30 quadrics, for fewer rows.
        **changes
            Parameters of :class:`QuadricDetector` to change, such as ``epoch_num``, which the paper does not state.
            ``training_options`` are added to those of the variant.

        Examples
        --------
        >>> QuadricDetector.from_paper("sub").n_quadrics
        30
        """
        settings: dict[str, Any] = {
            "n_quadrics": 100,
            "n_components": None,
            "normalize": True,
            "standardize": False,
            "score_function": "mean_distance",
            "robust": False,
            "init": "random",
            "epoch_num": 20,
            "lr": 0.01,
        }
        variants: dict[str, dict[str, Any]] = {
            "full": {},
            "base": {"inner_product": "coefficient", "training_options": {"loss": "squared_algebraic"}},
            "sub": {"n_quadrics": 30},
        }
        if variant not in variants:
            raise ValueError(f"variant must be one of {list(variants)}, got {variant!r}")
        chosen = settings | variants[variant]
        if "training_options" in changes and "training_options" in chosen:
            changes["training_options"] = chosen["training_options"] | (changes["training_options"] or {})
        return cls(**(chosen | changes))

    def fit(self, X: ArrayLike, y: object = None, *, groups: ArrayLike | None = None) -> Self:
        """Fit the detector to rows. A fit that fails leaves an earlier one unchanged.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : ignored
        groups : array-like of shape (n,), optional
            The person, document or machine that each row belongs to, as numbers or texts. Rows of one group are held out
            together, so that decisions hold for rows of *new* groups. Without ``groups``, such rows seem more alike than rows
            of new groups will be, and many of those are flagged.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> people = np.repeat(np.arange(100), 5)
        >>> faces = rng.normal(size=(100, 8))
        >>> rows = faces[people] + 0.1 * rng.normal(size=(500, 8))
        >>> others = rng.normal(size=(1000, 8))
        >>> detector = QuadricDetector(contamination=0.05).fit(rows, groups=people)
        >>> bool(detector.predict(others).mean() < 0.1)
        True
        """
        with self._unless_it_fails(), together("fit"), share_of_cores(), self._reported() as timings:
            self.__dict__.pop("_stream", None)
            parameters = self._parameters()
            rows = self._validated(X, reset=True, least=LEAST_ROWS)
            self._fit(rows, parameters, None if groups is None else group_keys(groups, rows.n_rows))
            self.timings_ = timings
        return self

    def partial_fit(self, X: ArrayLike, y: object = None, *, groups: ArrayLike | None = None) -> Self:
        """Learn from further rows of a stream.

        The detector keeps a uniform sample of at most 20,000 of all rows so far, and fits to it again whenever the number of
        rows has grown by a tenth. With ``window`` it keeps the latest ``window`` rows, and fits again whenever a tenth of them
        is new. ``decision_scores_``, ``labels_`` and ``threshold_`` are those of the kept rows.

        The first fit needs three rows that are not all equal. Rows from which nothing can be learnt yet are kept until more
        come, and an earlier fit stays as it is. After :meth:`fit` the stream continues with the rows of that fit, as they are
        at that time; after a change of ``window``, with the rows that were kept. There are no checkpoints: :meth:`save` keeps
        a stream. A call that fails leaves an earlier fit as it was.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : ignored
        groups : array-like of shape (n,), optional
            As in :meth:`fit`, for all chunks of a stream or for none. Rows with the same name are one group, in whichever
            chunk they come.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> detector = QuadricDetector(window=200)
        >>> for shift in range(5):
        ...     detector = detector.partial_fit(shift + rng.normal(size=(100, 2)))
        >>> len(detector.decision_scores_), detector.predict([[0.0, 0.0], [3.5, 3.5]])
        (200, array([1, 0]))
        """
        with self._unless_it_fails(), together("partial_fit"), share_of_cores(), self._reported() as timings:
            if self._partial_fit(X, groups):
                self.timings_ = timings
        return self

    def decision_function(self, X: ArrayLike, batch_size: int | None = None) -> NDArray[np.float64]:
        """Return the outlier scores (n,) of rows (n, d), higher for more abnormal ones.

        Training rows score lower here than in ``decision_scores_``, because this model has seen them.

        Parameters
        ----------
        X : array-like of shape (n, d)
        batch_size : int, optional
            The number of rows to score at a time. Memory grows with it; scores do not change.
        """
        rows = self._checked(X)
        size = BATCH_ROWS if batch_size is None else checked("batch_size", batch_size, (Whole(1),))
        return self._in_blocks(self.model_.score, rows, size)

    def predict(
        self,
        X: ArrayLike,
        return_confidence: bool = False,
        *,
        false_positive_rate: float | None = None,
        false_discovery_rate: float | None = None,
    ) -> Any:
        """Return labels (n,): 1 for outliers, 0 for inliers.

        By default, rows with a score above ``threshold_`` are outliers. It follows from ``contamination``.

        Parameters
        ----------
        X : array-like of shape (n, d)
        return_confidence : bool, default=False
            Whether to return PyOD's confidence (n,) as well, which concerns ``threshold_`` alone.
        false_positive_rate : float in (0, 1), optional
            Flag this share of new inliers instead: rows whose p-value is at most this rate.
        false_discovery_rate : float in (0, 1), optional
            Flag as many rows as possible, so that on average at most this share of the flagged rows are inliers, by the
            procedure of Benjamini and Hochberg. It looks at all rows of the call together.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> detector = QuadricDetector().fit(rng.normal(size=(2000, 3)))
        >>> new = rng.normal(size=(1000, 3))
        >>> rates = (0.01, 0.1)
        >>> [round(float(detector.predict(new, false_positive_rate=rate).mean()), 2) for rate in rates]
        [0.01, 0.12]
        >>> int(detector.predict(new, false_discovery_rate=0.05).sum())
        0
        """
        if false_positive_rate is None and false_discovery_rate is None:
            return BaseDetector.predict(self._with_number(), self._checked(X), return_confidence)
        if return_confidence or None not in (false_positive_rate, false_discovery_rate):
            raise ValueError(
                "give one of return_confidence, false_positive_rate and false_discovery_rate, since each decides alone"
            )
        p_values = self.predict_pvalue(X)
        if false_positive_rate is not None:
            return (p_values <= checked("false_positive_rate", false_positive_rate, RATE)).astype(int)
        rate = checked("false_discovery_rate", false_discovery_rate, RATE)
        return (false_discovery_control(p_values) <= rate).astype(int)

    def predict_pvalue(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the p-values (n,) of rows (n, d): the share of normal rows that would score at least as high.

        A normal row has a p-value of at most 0.05 with probability 0.05. That assumes that new rows and training rows are
        exchangeable (with ``groups``: new and old groups), and that leaving out a fold changes little: a model of the other
        folds scores a training row, the model of all rows scores a new one. Proper cross-conformal p-values would need the
        models of all folds at scoring time, and are at most ``a`` with probability up to ``2 a`` (Barber et al. 2021).

        Outliers among the training rows make p-values larger. The smallest p-value is ``1 / (n + 1)``. Beyond the thousand
        highest training scores, p-values are rounded up by at most a hundredth.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> detector = QuadricDetector().fit(rng.normal(size=(999, 3)))
        >>> detector.predict_pvalue([[9.0, 9.0, 9.0], [0.0, 0.0, 0.0]]).round(2)
        array([0.  , 0.95])
        """
        return self.p_values_of(self.decision_function(X))

    def p_values_of(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the p-values (n,) of scores (n,) from :meth:`decision_function`."""
        check_is_fitted(self, "model_")
        return self._calibration().p_values_of(torch.as_tensor(scores, dtype=torch.float64)).numpy()

    def predict_proba(self, X: ArrayLike, method: str = "linear", return_confidence: bool = False) -> Any:
        """Return the probabilities (n, 2) that each row is an inlier and an outlier.

        Parameters
        ----------
        X : array-like of shape (n, d)
        method : {"linear", "unify", "posterior"}, default="linear"
            "linear" and "unify" are PyOD's, and map scores to [0, 1]. "posterior" applies Bayes' theorem to the p-value, under
            the assumption that the ``contamination`` is the share of outliers among new rows. See
            :func:`pyod_quadric.model.calibration.posterior_of`.
        return_confidence : bool, default=False
            Whether to return PyOD's confidence (n,) as well.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> detector = QuadricDetector(contamination=0.1).fit(rng.normal(size=(999, 3)))
        >>> rows = [[9.0, 9.0, 9.0], [0.0, 0.0, 0.0]]
        >>> detector.predict_proba(rows, method="posterior").round(2)
        array([[0.3 , 0.7 ],
               [0.95, 0.05]])
        """
        if method not in ("linear", "unify", "posterior"):
            raise ValueError(f"method must be 'linear', 'unify' or 'posterior', got {method!r}")
        if method != "posterior":
            return BaseDetector.predict_proba(self._with_number(), self._checked(X), method, return_confidence)
        outlier = posterior_of(self.predict_pvalue(X), self._share_of_outliers())
        both = np.stack([1 - outlier, outlier], axis=1)
        return (both, self.predict_confidence(X)) if return_confidence else both

    def predict_confidence(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return PyOD's confidence (n,) in the labels of rows (n, d): how often other training rows would lead to the same."""
        confidence: NDArray[np.float64] = BaseDetector.predict_confidence(self._with_number(), self._checked(X))
        return confidence

    def predict_with_rejection(self, X: ArrayLike, *args: Any, **options: Any) -> Any:
        """Return labels (n,) as :meth:`predict` does, -2 where PyOD's confidence is low; see ``BaseDetector``."""
        detector: Any = self._with_number()
        labels = BaseDetector.predict_with_rejection(detector, self._checked(X), *args, **options)
        self.rejection_threshold_ = detector.rejection_threshold_
        return labels

    def compute_rejection_stats(self, *args: Any, **options: Any) -> Any:
        """Return how many labels PyOD rejects, and what that costs at most; see ``BaseDetector``."""
        return BaseDetector.compute_rejection_stats(self._with_number(), *args, **options)

    def drift_test(self, X: ArrayLike, *, groups: ArrayLike | None = None) -> DriftResult:
        """Test whether a whole batch of rows is like the training rows; if not, the data have drifted.

        The two-sample Kolmogorov-Smirnov test compares the scores of the batch with ``decision_scores_``. Differences of up to
        0.02 between the distributions do not count, so that a large batch is not called drifted for next to nothing. After a
        fit with groups, give the groups of the batch as well; groups are compared by their mean p-values, because rows of one
        group depend on each other.

        Parameters
        ----------
        X : array-like of shape (m, d)
            Give at least about 50 rows.
        groups : array-like of shape (m,), optional
            The group of each row, if the fit has groups.

        Returns
        -------
        DriftResult
            A ``statistic`` from 0 (no difference) to 1, and its ``pvalue``.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> detector = QuadricDetector().fit(rng.normal(size=(1000, 3)))
        >>> same, shifted = rng.normal(size=(2, 200, 3)) + np.array([0.0, 1.0])[:, None, None]
        >>> [bool(detector.drift_test(batch).pvalue < 0.01) for batch in (same, shifted)]
        [False, True]
        """
        self._check_groups(groups)
        return self.drift_of_scores(self.decision_function(X), groups=groups)

    def drift_of_scores(self, scores: NDArray[np.float64], *, groups: ArrayLike | None = None) -> DriftResult:
        """Return the result of :meth:`drift_test` for scores (m,) from :meth:`decision_function`."""
        self._check_groups(groups)
        if groups is None or self.groups_ is None:
            return drift_of(scores, self.decision_scores_)
        keys, training = group_keys(groups, len(scores)), self.p_values_of(self.decision_scores_)
        return drift_of(_group_means(self.p_values_of(scores), keys), _group_means(training, self.groups_))

    def quadric_distances(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the distances (n, m) of rows (n, d) to each of m quadrics, in working coordinates."""
        rows = self._checked(X)
        return self._in_blocks(self.model_.quadric_distances, rows)

    def explain(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return what each feature adds to the score of each row, shape (n, d). No entry is negative; rows sum to the score.

        The squared entries of a quadric's gradient, which points to the quadric, split what the quadric adds. The squared
        standardised deviations ``C^(-1/2) (x - mean)`` split the linear part.

        Examples
        --------
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(500, 4))
        >>> detector = QuadricDetector().fit(rows)
        >>> int(detector.explain([[0.1, 0.2, 9.0, 0.1]])[0].argmax())
        2
        """
        rows = self._checked(X)
        return self._in_blocks(self.model_.contributions, rows)

    def project(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the nearest point of the learnt manifold for each row, shape (n, d): the row without its noise.

        Rows are normalised first, if the detector normalises. See :meth:`pyod_quadric.model.Model.project`.

        Examples
        --------
        >>> import numpy as np
        >>> angle = np.linspace(0, 6, 200)
        >>> circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        >>> QuadricDetector().fit(circle).project([[1.5, 2.0]]).round(1)
        array([[0.6, 0.8]])
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
            The index of the row, from 0.
        columns : list of int, optional
            The features to show; all by default.
        cutoffs : list of float, optional
            Quantiles of the training rows to draw; ``1 - contamination`` and 0.99 by default.
        feature_names : list of str, optional
            Names of the features shown; by default those of the fitted DataFrame, if there was one.
        file_name, file_type : str, optional
            Where to save the figure, ``file_name.file_type`` (png by default). A saved figure is closed; otherwise it stays
            open, so that notebooks show it.
        X : array-like of shape (n, d), optional
            The training rows. They are needed after loading, because files do not hold them.

        Returns
        -------
        matplotlib.axes.Axes
        """
        from pyod_quadric.plotting import plot_contributions

        check_is_fitted(self, "model_")
        rows = self._training_rows() if X is None else self._checked(X)
        chosen = np.sort(np.random.default_rng(0).permutation(rows.n_rows)[:2000])  # enough for the bands
        contributions, others = (
            self._in_blocks(self.model_.contributions, rows_of(rows.read(indices))) for indices in (np.array([ind]), chosen)
        )
        if feature_names is None:
            names = list(getattr(self, "feature_names_in_", []))
            feature_names = [names[column] for column in columns] if names and columns is not None else names or None
        return plot_contributions(
            contributions[0],
            others,
            columns=columns,
            cutoffs=[1 - self._share_of_outliers(), 0.99] if cutoffs is None else cutoffs,
            feature_names=feature_names,
            title=f"Row {ind} ({'outlier' if self.labels_[ind] else 'inlier'}): what each feature adds to the score",
            path=None if file_name is None else f"{file_name}.{file_type or 'png'}",
        )

    def save(self, path: str | PathLike[str], *, sample: bool | None = None) -> None:
        """Write the fitted detector to a file that holds numbers and names but no code.

        The file replaces an old one in one step, when it is complete. It holds the training rows that are kept as neighbours
        (see ``n_prototypes``) and no others, so :meth:`explain_outlier` needs the training rows again after loading. It leaves
        out what belongs to this machine: ``checkpoint``, and ``device`` unless it is "cpu". A thresholder as ``contamination``
        and a RandomState as ``random_state`` cannot be saved, since loading them would need code.

        Parameters
        ----------
        path : path
        sample : bool, optional
            Whether to save the sample of rows with which :meth:`partial_fit` resumes after loading. By default streams save
            it. True saves it after :meth:`fit`, too; False saves it in no case.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(100, 3))
        >>> detector = QuadricDetector().fit(rows)
        >>> with TemporaryDirectory() as directory:
        ...     detector.save(f"{directory}/model.safetensors")
        ...     loaded = QuadricDetector.load(f"{directory}/model.safetensors")
        >>> bool((loaded.decision_function(rows) == detector.decision_function(rows)).all())
        True
        """
        write_atomically(Path(path), [to_bytes(*self._saved(sample))])

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a detector from a file of :meth:`save`. The file is untrusted input: it is validated, and nothing in it is run.

        Raises
        ------
        ValueError
            If the file is damaged, comes from another program or has a newer format, or if anything in it differs from what
            :meth:`save` would write.
        """
        try:
            return cls._from_state(*from_content(read_container(path)))
        except ValueError as error:
            raise ValueError(f"{path} cannot be loaded: {error}") from error

    def save_pretrained(self, folder: str | PathLike[str]) -> None:
        """Write the fitted detector as a folder for a model hub: the file of :meth:`save`, a configuration, and a model card.

        ``model.safetensors`` holds the detector, without the sample of a stream. ``config.json`` describes it. ``README.md`` is
        a model card with front matter, the figures of the fit, and gaps for what only you know; an existing card is kept.
        Nothing is uploaded: use ``huggingface_hub.upload_folder``.

        Parameters
        ----------
        folder : path
            Created if it does not exist.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> import numpy as np
        >>> detector = QuadricDetector().fit(np.random.default_rng(0).normal(size=(100, 3)))
        >>> with TemporaryDirectory() as folder:
        ...     detector.save_pretrained(folder)
        ...     files = sorted(path.name for path in Path(folder).iterdir())
        ...     loaded = QuadricDetector.from_pretrained(folder)
        >>> files, loaded.n_features_in_
        (['README.md', 'config.json', 'model.safetensors'], 3)
        """
        save_folder(folder, *self._saved(sample=False), detector=type(self).__name__)

    @classmethod
    def from_pretrained(cls, folder: str | PathLike[str]) -> Self:
        """Read a detector from a local folder of :meth:`save_pretrained`; nothing in it is run.

        Parameters
        ----------
        folder : path
            For a model on a hub, pass what ``huggingface_hub.snapshot_download("OWNER/NAME")`` returns.
        """
        return cls.load(model_file(folder))

    def to_module(self, *, p_values: bool = False) -> ScoreModule:
        """Return the fitted score as a torch module, from raw rows (n, d) to :meth:`decision_function`'s scores (n,).

        The module includes all preprocessing, gradients flow through it, and its numbers are buffers, so it can follow an
        encoder. It computes in float64; ``float()`` makes it faster and less exact. See
        :class:`pyod_quadric.export.ScoreModule`.

        Parameters
        ----------
        p_values : bool, default=False
            Whether the module returns a pair: scores, and the p-values (n,) of :meth:`predict_pvalue`.

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
        return ScoreModule(self.model_, self._calibration() if p_values else None)

    def to_onnx(self, path: str | PathLike[str], *, dtype: torch.dtype = torch.float32) -> None:
        """Write the fitted score as an ONNX graph. Needs the extra ``onnx``.

        The graph, of opset 18, takes ``rows`` (n, d) for any n, and returns ``scores`` (n,) and ``p_values`` (n,), computed in
        float64. The properties of the file hold ``threshold_`` as "threshold" (rows with higher scores are outliers), the names
        of the features, if there are any, as JSON in "feature_names", and ``versions_``.

        Parameters
        ----------
        path : path
        dtype : torch.dtype, default=torch.float32
            The type of the rows.
        """
        module = self.to_module(p_values=True)
        metadata = {"threshold": repr(float(self.threshold_)), **self.versions_}
        if hasattr(self, "feature_names_in_"):
            metadata["feature_names"] = json.dumps(list(self.feature_names_in_))
        write_atomically(Path(path), [onnx_bytes(module, metadata, dtype)])

    @property
    def input_quadrics_(self) -> Quadrics | None:
        """The quadrics as polynomials of the (normalised) input, with m matrices of size d × d, computed on each access."""
        check_is_fitted(self, "model_")
        return self.model_.in_input_space()

    @property
    def quadrics_(self) -> Quadrics | None:
        """The quadrics in working coordinates."""
        return self.model_.quadrics

    @property
    def n_quadrics_(self) -> int:
        """The number of quadrics in the score."""
        return 0 if self.model_.quadrics is None else len(self.model_.quadrics)

    @property
    def quadric_weights_(self) -> NDArray[np.float64] | None:
        """The weights of the squared distances in the score; None if the score is the mean of the distances."""
        weights = self.model_.quadric_weights
        return None if weights is None else weights.numpy()

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return to_plain({name: value for name, value in state.items() if name not in UNSAVED})

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(from_plain(state))

    @contextmanager
    def _unless_it_fails(self) -> Iterator[None]:
        """Put everything back as it was, if what is done inside raises."""
        earlier = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self.__dict__ = earlier  # in one step, which a second interruption cannot halve
            raise

    def _reported(self) -> AbstractContextManager[dict[str, float]]:
        """Write down the seconds of each stage of a fit, and show the first process's if that is asked for."""
        return reported(self.verbose == 1 and process_rank() == 0)

    def _parameters(self) -> Parameters:
        return Parameters(**self.get_params(deep=False))

    def _fit(self, rows: Rows, parameters: Parameters, groups: NDArray[np.int64] | None) -> None:
        fitted = fit_model(rows, parameters, device_of(self.device), seed_of(self.random_state), groups)
        self.groups_ = None if groups is None else groups.copy()  # a stream has its own
        self.model_ = fitted.model
        self.row_weights_ = fitted.row_weights
        self.history_ = {name: fitted.history.get(name, []) for name in HISTORY_NAMES}
        self.versions_ = {"torch_version": str(torch.__version__), "pyod_quadric_version": __version__}
        self._rows = rows
        self.decision_scores_ = fitted.scores
        some = self._in_blocks(self.model_.score, rows_of(rows.read(slice(MOST_COMPARED))))
        if np.ptp(some) <= 8 * torch.finfo(rows.dtype).eps * np.max(some):
            warnings.warn("all training rows have the same score, so none can be told from the others", stacklevel=3)
        self._set_n_classes(None)
        self._process_decision_scores()

    def _saved(self, sample: bool | None) -> tuple[FittedState, dict[str, Any]]:
        """Return what a file holds: the fitted state, and the parameters without what belongs to this machine."""
        check_is_fitted(self, "model_")
        Parameters.silent(**self.get_params(deep=False))  # raises where a loaded detector could not be fitted again
        stream: Reservoir | None = getattr(self, "_stream", None)
        if sample and stream is None:
            stream = self._continued_stream()
        here = {"device": "cpu" if self.device == "cpu" else None, **self._without_checkpoint()}
        return self._state(None if sample is False else stream), self.get_params(deep=False) | here

    def _state(self, stream: Reservoir | None) -> FittedState:
        names = [str(name) for name in self.feature_names_in_] if hasattr(self, "feature_names_in_") else None
        fitted = {name: getattr(self, attribute) for name, attribute in ATTRIBUTES.items()}
        return FittedState(**fitted, feature_names=names, list_column=getattr(self, "list_column_", None), stream=stream)

    @classmethod
    def _from_state(cls, state: FittedState, parameters: dict[str, Any]) -> Self:
        unknown = parameters.keys() - declarations(Parameters).keys()
        if unknown:
            raise ValueError(f"{sorted(unknown)!s:.300} are no parameters of {cls.__name__}")
        rare = parameters.get("training_options") or {}
        if parameters.get("device") not in (None, "cpu") or (isinstance(rare, dict) and "checkpoint" in rare):
            raise ValueError("a file must not choose where this machine computes or writes: checkpoint and device")
        Parameters.silent(**parameters)
        detector = cls(**parameters)
        for name, attribute in ATTRIBUTES.items():
            value = getattr(state, name)
            setattr(detector, attribute, np.float64(value) if isinstance(value, float) else value)
        detector._set_n_classes(None)
        detector.timings_ = {}
        detector.n_features_in_ = len(state.model.coordinates.mean)
        if state.feature_names is not None:
            detector.feature_names_in_ = np.array(state.feature_names, dtype=object)
        if state.list_column is not None:
            detector.list_column_ = state.list_column
        if state.stream is not None:
            detector._stream = state.stream
        return detector

    def _check_groups(self, groups: ArrayLike | None) -> None:
        check_is_fitted(self, "model_")
        if (self.groups_ is None) != (groups is None):
            raise ValueError(
                "the batch has groups, but the fit has none; leave them out"
                if self.groups_ is None
                else "the fit has groups, so the batch needs them, too: give groups=..., a name for each row"
            )

    def _calibration(self) -> Calibration:
        """Return the table of p-values, made once for a fit, since sorting the training scores may cost more than a score."""
        known: tuple[NDArray[np.float64], Calibration] | None = self.__dict__.get("_table")
        if known is None or known[0] is not self.decision_scores_:
            known = self._table = (self.decision_scores_, Calibration.of(self.decision_scores_))
        return known[1]

    def _share_of_outliers(self) -> float:
        """Return the contamination, or the share that a thresholder or "auto" has found, which must not be none."""
        if isinstance(self.contamination, float | int):
            return float(self.contamination)
        return max(float(np.mean(self.labels_)), 1 / (len(self.labels_) + 1))

    def _process_decision_scores(self) -> Self:
        scores = self.decision_scores_
        if self.contamination == "auto":
            self.threshold_ = np.float64(far_out(scores))
            self.labels_ = (scores > self.threshold_).astype(int)
            self._mu = np.mean(scores)
        else:
            super()._process_decision_scores()
        self._sigma = np.float64(spread_of(scores))  # PyOD divides by it
        return self

    def _with_number(self) -> Self:
        """Return a detector for methods of PyOD that calculate with the contamination: this one, or a shallow copy."""
        check_is_fitted(self, "model_")
        if self.contamination != "auto":
            return self
        detector = copy.copy(self)
        detector.contamination = min(0.5, self._share_of_outliers())
        return detector

    def _partial_fit(self, X: ArrayLike, groups: ArrayLike | None) -> bool:
        """Learn from further rows, and return whether they are enough for another fit."""
        parameters = self._parameters()
        rows = self._validated(X, reset=not hasattr(self, "model_") and not hasattr(self, "_stream"))
        keys = None if groups is None else group_keys(groups, rows.n_rows)
        self._stream = self._continued_stream().with_rows(rows, keys)
        if self._stream.n_seen < LEAST_ROWS or not self._stream.has_grown() or self._stream.is_one_row():
            return False
        changes = self._without_checkpoint()  # which belongs to one fit, and here are many short ones
        if changes:
            warnings.warn("partial_fit writes no checkpoint: save keeps a stream", stacklevel=3)
        try:
            self._fit(rows_of(self._stream.sample()), replace(parameters, **changes), self._stream.groups)
        except NotYetError:  # before anything was changed
            return False
        self._stream = self._stream.used()
        return True

    def _continued_stream(self) -> Reservoir:
        """Return what is kept of the rows so far; after a change of the window, as if there had been no others."""
        earlier: Reservoir | None = getattr(self, "_stream", None)
        if earlier is not None and earlier.window == self.window:
            return earlier
        seed = on_first_rank(lambda: seed_of(self.random_state))  # all processes of a group keep the same sample
        stream = Reservoir(seed, window=None if self.window is None else int(self.window))
        if earlier is not None:
            return stream.with_rows(rows_of(earlier.sample()), earlier.groups).used()
        return stream.with_rows(self._training_rows(), self.groups_).used() if hasattr(self, "model_") else stream

    def _without_checkpoint(self) -> dict[str, Any]:
        """Return the parameters that change if training keeps no checkpoint; it may have been all that asked for training."""
        given = self.training_options or {}
        rare = {name: value for name, value in given.items() if name not in CHECKPOINT_OPTIONS}
        if rare == given:
            return {}
        n_epochs = TrainingOptions().epoch_num if self.epoch_num is None else self.epoch_num
        return {"training_options": rare or None, "epoch_num": n_epochs}

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
        if reset:
            self.__dict__.pop("list_column_", None)
        given = X if is_large(X) else in_memory(X)
        if not is_large(given):
            # scikit-learn would make float64 of float16, and of some tables of float32.
            types = [np.float32] if dtype_of(given) == np.float32 else [np.float64, np.float32]
            checks = {"dtype": types, "ensure_min_samples": least, "ensure_all_finite": False}
            array = validate_data(self, given, reset=reset, **checks)
            check_finite(array)
            return rows_of(array)
        known = None if reset else getattr(self, "feature_names_in_", None)
        # scikit-learn would look at all of them at once.
        rows = large_rows(given, None if known is None else list(known), getattr(self, "list_column_", None))
        if rows.n_rows < least:
            raise ValueError(f"at least {least} rows are needed, got {rows.n_rows}")
        if reset:
            self.__dict__.pop("feature_names_in_", None)
            self.n_features_in_ = rows.n_features
            if rows.names is not None:
                self.feature_names_in_ = np.array(rows.names, dtype=object)
            if rows.list_column is not None:
                self.list_column_ = rows.list_column
        elif rows.n_features != self.n_features_in_:
            raise ValueError(f"rows must have {self.n_features_in_} features, as those of the fit, got {rows.n_features}")
        return rows

    def _in_blocks(self, function: Callable[[Tensor], Tensor], rows: Rows, size: int = BATCH_ROWS) -> NDArray[np.float64]:
        with share_of_cores():
            return in_blocks(function, rows, device_of(self.device), size)


def _group_means(values: NDArray[np.float64], keys: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean value of each group."""
    places, counts = np.unique(keys, return_inverse=True, return_counts=True)[1:]
    return np.bincount(places, values) / counts
