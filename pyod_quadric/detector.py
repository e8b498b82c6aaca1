"""The detector: its parameters, how it learns, and its files."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from pyod_quadric._version import __version__
from pyod_quadric.data.rows import Rows, rows_of
from pyod_quadric.data.stream import Reservoir
from pyod_quadric.fitting.fit import Fitted, fit_model
from pyod_quadric.fitting.folds import N_FOLDS
from pyod_quadric.fitting.parameters import as_int, check_sizes, fit_options, seed_of
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.model.model import HISTORY_NAMES
from pyod_quadric.model.saved import Saved, from_bytes, to_bytes
from pyod_quadric.parallel.devices import device_of
from pyod_quadric.parallel.ranks import on_first_rank
from pyod_quadric.parallel.threads import share_of_cores
from pyod_quadric.parameters import Distance, Loss
from pyod_quadric.scoring import ScoringDetector
from pyod_quadric.storage.atomic import write_atomically
from pyod_quadric.storage.container import read_file
from pyod_quadric.training.constraints import FrameInnerProduct, OptimizerName
from pyod_quadric.training.options import ConstraintName, FitOptions, Score


class QuadricDetector(ScoringDetector):
    """Outlier detection by the distance to an intersection of quadrics.

    Rows are seen in two ways at once. The *linear part* is a Mahalanobis distance whose variances are those of held-out rows: a
    Gaussian model that does not overfit. The *quadrics* are polynomials of degree 2, orthonormal in the Hilbert-Schmidt inner
    product, that are small on the rows; each counts as much as held-out rows show that it knows more than the linear part. With
    few rows the detector is a good linear one, with many the quadrics lead.

    Everything is in closed form by default; ``epoch_num`` adds training by gradient descent, with orthonormality held by a
    penalty or on the Stiefel manifold. :meth:`from_paper` has the settings of the paper.

    Scores do not change when the data are rotated, reflected, shifted or scaled; where rows are normalised (see ``normalize``)
    the origin counts, and shifts change them.

    Parameters
    ----------
    contamination : float in (0, 0.5] or thresholder, default=0.1
        The share of outliers in the training rows, which decides ``threshold_``; or an object of pythresh that decides it.
    n_quadrics : int or "auto", default="auto"
        How many quadrics: "auto" tries all that are orthonormal in the closed form and keeps those with evidence. For
        ``score_function="mean_distance"`` it is half of all, and from a random start at most 100.
    n_components : int, float, "auto" or None, default="auto"
        The coordinates of the quadrics: so many principal ones, or as many as hold this share of the variance, whitened. "auto"
        is the largest k with k (k + 1) / 2 at most a quarter of the rows, at most 50. None takes the input's own coordinates,
        centred and with one scale.
    normalize : bool or "auto", default="auto"
        Whether to divide rows by their norm. "auto" does so from 32 features on where the norms hold less than a tenth of the
        variance, the mean a twentieth of the squared norms, and held-out rows are more likely that way. Set it to True for
        embeddings that are compared by cosines: around the origin, short ones are in the middle and seem normal otherwise.
        The logarithm of the norm then counts as one more direction of the linear part.
    score_function : {"combined", "quadrics", "linear", "mean_distance"}, default="combined"
        Squared distances of both parts, of one of them, or the paper's mean of the distances to all quadrics.
    robust : bool, default=True
        Whether rows that are far from the others count less, from a first fit by which held-out rows are scored.
    distance : {"second_order", "first_order", "algebraic"}, default="second_order"
        How far a point is from a quadric.
    init : {"auto", "spectral", "random"} or Quadrics, default="auto"
        Where the quadrics start: in closed form (up to 100 coordinates), at random, or given, in working coordinates.
    epoch_num : int, default=0
        How many times to go through the rows in training; 0 gives the closed form alone. With scores other than "mean_distance"
        each fold is trained as well, so that trained quadrics are judged by held-out rows, too.
    constraint : {"penalty", "stiefel"}, default="penalty"
        How training holds orthonormality: by a soft penalty and torch's optimisers, or on the Stiefel manifold with geoopt's.
    orthonormality_weight : float, default=1.0
        The weight of the penalty.
    inner_product : {"hs", "coefficient"}, default="hs"
        What is orthonormal: the matrices, or all monomial coefficients (the paper's base problem, which is not equivariant).
    loss : {"second_order", "first_order", "algebraic", "squared_algebraic"}, optional
        What training minimises, if it is not the ``distance``.
    optimizer_name : {"sgd", "adam"}, default="sgd"
    lr : float, default=0.001
    batch_size : int, default=1024
    validation_fraction : float, default=0.0
        The share of rows that training holds out to report ``held_out_loss``.
    patience : int, optional
        Stop training after so many epochs without a smaller held-out loss.
    checkpoint : path, optional
        Where training keeps its state; a run that was killed goes on from there.
    device : str, optional
        Where to compute, "cuda:0" say; by default on a CUDA device if there is one, else on the CPU. Fitted numbers are kept
        on the CPU.
    window : int, optional
        :meth:`partial_fit` learns from the latest so many rows of a stream and forgets older ones, to follow data that drift.
        By default it remembers all alike, by a uniform sample.
    random_state : int, RandomState or None, default=42
        Decides the folds, the references and the order of rows in training. No global generator is used.
    verbose : {0, 1, 2}, default=0
        Nothing, a progress bar of the training, or a line for each epoch.

    Attributes
    ----------
    decision_scores_, labels_, threshold_
        PyOD's, of the training rows.
    n_quadrics_ : int
        How many quadrics have a say.
    quadrics_ : Quadrics or None
        In working coordinates.
    quadric_weights_ : ndarray of shape (n_quadrics_,) or None
        Of their squared distances in the score; None for the mean of the distances.
    row_weights_ : ndarray of shape (n,)
        How much each training row counted.
    history_ : dict of lists
        ``loss``, ``held_out_loss``, ``orthonormality_error`` and ``seconds`` for each epoch.
    model_ : pyod_quadric.model.model.Model
        Everything that a score needs.
    versions_ : dict of str
        ``torch_version`` and ``pyod_quadric_version``; PyOD's ``save(detector, path, metadata=detector.versions_)`` keeps them
        beside those that it writes down itself.
    n_features_in_, feature_names_in_
        scikit-learn's.

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
        contamination: float = 0.1,
        n_quadrics: int | Literal["auto"] = "auto",
        n_components: int | float | Literal["auto"] | None = "auto",
        normalize: bool | Literal["auto"] = "auto",
        score_function: Score = "combined",
        robust: bool = True,
        distance: Distance = "second_order",
        init: Literal["auto", "spectral", "random"] | Quadrics = "auto",
        epoch_num: int = 0,
        constraint: ConstraintName = "penalty",
        orthonormality_weight: float = 1.0,
        inner_product: FrameInnerProduct = "hs",
        loss: Loss | None = None,
        optimizer_name: OptimizerName = "sgd",
        lr: float = 0.001,
        batch_size: int = 1024,
        validation_fraction: float = 0.0,
        patience: int | None = None,
        checkpoint: str | PathLike[str] | None = None,
        device: str | None = None,
        window: int | None = None,
        random_state: int | np.random.RandomState | None = 42,
        verbose: int = 0,
    ) -> None:
        self.contamination = contamination
        self.n_quadrics = n_quadrics
        self.n_components = n_components
        self.normalize = normalize
        self.score_function = score_function
        self.robust = robust
        self.distance = distance
        self.init = init
        self.epoch_num = epoch_num
        self.constraint = constraint
        self.orthonormality_weight = orthonormality_weight
        self.inner_product = inner_product
        self.loss = loss
        self.optimizer_name = optimizer_name
        self.lr = lr
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.checkpoint = checkpoint
        self.device = device
        self.window = window
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def from_paper(cls, variant: Literal["full", "base", "sub"] = "full", **changes: Any) -> Self:
        """Return a detector with the settings of Pavutnitskiy et al. (2022), whose score is the mean of the order-2 distances.

        Rows are normalised; there is no change of coordinates but centring and one scale, no linear part, no row weights; SGD
        from a random start, with a penalty of weight 1.

        Parameters
        ----------
        variant : {"full", "base", "sub"}
            Q-FULL: 100 quadrics that minimise the order-2 distance, orthonormal in the Hilbert-Schmidt inner product. Q-BASE:
            100 that minimise squared values, orthonormal in their coefficients. Q-SUB: Q-FULL with 30, for fewer rows.
        **changes
            Parameters of :class:`QuadricDetector` to change, such as ``epoch_num``, about which the paper says nothing.

        Examples
        --------
        >>> QuadricDetector.from_paper("sub").n_quadrics
        30
        """
        settings: dict[str, Any] = {
            "n_quadrics": 100,
            "n_components": None,
            "normalize": True,
            "score_function": "mean_distance",
            "robust": False,
            "init": "random",
            "epoch_num": 20,
            "lr": 0.01,
        }
        variants: dict[str, dict[str, Any]] = {
            "full": {},
            "base": {"inner_product": "coefficient", "loss": "squared_algebraic"},
            "sub": {"n_quadrics": 30},
        }
        if variant not in variants:
            raise ValueError(f"variant must be one of {list(variants)}, got {variant!r}")
        return cls(**(settings | variants[variant] | changes))

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn what is normal from rows (n, d). ``y`` is ignored. If this fails, an earlier fit stays as it was."""
        with self._unless_it_fails(), share_of_cores():
            self.__dict__.pop("_reservoir", None)
            self._fit(self._validated(X, reset=True, least=N_FOLDS), self._options())
        return self

    def partial_fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn from further rows of a stream.

        A uniform sample of at most 20,000 rows of all that were given is kept, and everything is fitted to it anew whenever the
        rows have become a tenth more. With ``window`` it is the latest so many rows, and whenever a tenth of them is new.
        Scores, labels and threshold of the training are those of the sample. The first fit needs three rows; fewer are kept
        until others come. After :meth:`fit` the stream goes on from its rows, as they are then, and after a change of
        ``window`` from those that were kept. There are no checkpoints: :meth:`save` keeps a stream. If this fails, an earlier
        fit stays as it was.

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
        with self._unless_it_fails(), share_of_cores():
            self._partial_fit(X)
        return self

    def save(self, path: str | PathLike[str], *, sample: bool | None = None) -> None:
        """Write the fitted detector to a file that holds numbers and names and no code; see :mod:`pyod_quadric.model.saved`.

        The file takes the place of an old one at once, when it is complete. The training rows are not in it, so that
        :meth:`explain_outlier` needs them again. Neither is what belongs to this machine: ``checkpoint`` is None after loading,
        and ``device`` too, unless it is "cpu". What would need code to be loaded cannot be saved: a thresholder as
        ``contamination``, a RandomState as ``random_state``.

        Parameters
        ----------
        path : path
        sample : bool, optional
            Whether to save the sample of rows with which :meth:`partial_fit` goes on after loading. By default it is saved of
            streams; True saves it after :meth:`fit`, too, and False of no detector, so that there are no rows in the file.

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
        check_is_fitted(self, "model_")
        reservoir: Reservoir | None = getattr(self, "_reservoir", None)
        if sample and reservoir is None:
            reservoir = self._stream()
        machine = {"checkpoint": None, "device": "cpu" if self.device == "cpu" else None}
        saved = Saved(
            parameters=self.get_params(deep=False) | machine,
            model=self.model_,
            decision_scores=self.decision_scores_,
            labels=self.labels_,
            row_weights=self.row_weights_,
            threshold=self.threshold_,
            mean_score=self._mu,
            std_score=self._sigma,
            history=self.history_,
            versions=self.versions_,
            feature_names=list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None,
            reservoir=None if sample is False else reservoir,
        )
        content = to_bytes(saved)
        self._options()  # raises where a loaded detector could not be fitted again
        write_atomically(Path(path), [content])

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a detector that :meth:`save` has written; nothing in the file is run.

        Raises
        ------
        ValueError
            If the file is damaged, was written by another program or by a newer format, or if anything in it is not as
            :meth:`save` writes it.
        """
        try:
            return cls._from_saved(from_bytes(read_file(path)))
        except ValueError as error:
            raise ValueError(f"{path} cannot be loaded: {error}") from error

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_rows"}  # files should not hold the training rows

    @contextmanager
    def _unless_it_fails(self) -> Iterator[None]:
        """Put everything back as it was, if what is done inside raises."""
        earlier = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(earlier)
            raise

    def _fit(self, rows: Rows, options: FitOptions) -> None:
        fitted: Fitted = fit_model(rows, options, device_of(self.device))
        self._set_model(fitted.model)
        self.row_weights_ = fitted.row_weights
        self.history_ = {name: fitted.history.get(name, []) for name in HISTORY_NAMES}
        self.versions_ = {"torch_version": str(torch.__version__), "pyod_quadric_version": __version__}
        self._set_n_classes(None)
        self._rows = rows
        self.decision_scores_ = self._training_scores(rows)
        if np.ptp(self.decision_scores_) <= 8 * torch.finfo(rows.dtype).eps * np.max(self.decision_scores_):
            warnings.warn("all training rows have the same score, so none can be told from the others", stacklevel=3)
        self._process_decision_scores()

    @classmethod
    def _from_saved(cls, saved: Saved) -> Self:
        unknown = saved.parameters.keys() - cls().get_params(deep=False).keys()
        if unknown:
            raise ValueError(f"{sorted(unknown)} are no parameters of {cls.__name__}")
        if saved.parameters.get("checkpoint") is not None or saved.parameters.get("device") not in (None, "cpu"):
            raise ValueError("a file must not choose where this machine computes or writes: checkpoint and device")
        detector = cls(**saved.parameters)
        try:
            detector._options()
        except (TypeError, OverflowError) as error:
            raise ValueError(str(error)) from error
        detector._set_model(saved.model)
        detector.row_weights_ = saved.row_weights
        detector.history_ = saved.history
        detector.versions_ = saved.versions
        detector.decision_scores_, detector.labels_ = saved.decision_scores, saved.labels
        detector.threshold_ = np.float64(saved.threshold)
        detector._mu, detector._sigma = np.float64(saved.mean_score), np.float64(saved.std_score)
        detector._set_n_classes(None)
        detector.n_features_in_ = len(saved.model.coordinates.mean)
        if saved.feature_names is not None:
            detector.feature_names_in_ = np.array(saved.feature_names, dtype=object)
        if saved.reservoir is not None:
            detector._reservoir = saved.reservoir
        return detector

    def _partial_fit(self, X: ArrayLike) -> None:
        check_sizes(self.get_params(deep=False))
        is_fitted = hasattr(self, "model_")
        rows = self._validated(X, reset=not is_fitted and not hasattr(self, "_reservoir"))
        self._reservoir = self._stream(self._shared_seed).with_rows(rows)
        if self._reservoir.has_grown() if is_fitted else self._reservoir.n_seen >= N_FOLDS:
            self._reservoir = self._reservoir.used()
            options = self._options()
            # A checkpoint belongs to one fit, and here are many short ones.
            self._fit(rows_of(self._reservoir.sample()), replace(options, training=replace(options.training, checkpoint=None)))

    def _stream(self, seed: Callable[[], int] | None = None) -> Reservoir:
        """Return what is kept of the rows so far; after a change of the window, as if there had been no others."""
        earlier: Reservoir | None = getattr(self, "_reservoir", None)
        if earlier is not None and earlier.window == self.window:
            return earlier
        stream = Reservoir(seed() if seed else seed_of(self.random_state), window=as_int(self.window))
        if earlier is not None:
            return stream.with_rows(rows_of(earlier.sample())).used()
        return stream.with_rows(self._training_rows()).used() if hasattr(self, "model_") else stream

    def _shared_seed(self) -> int:
        """Return a seed for all processes of a group, so that they keep the same sample."""
        return on_first_rank(lambda: seed_of(self.random_state))

    def _options(self) -> FitOptions:
        return fit_options(self.get_params(deep=False))
