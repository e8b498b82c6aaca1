"""Fitting a model in passes over the rows: what to normalise, the rows' weights, the linear part, the quadrics, their weights.

Everything is made from moments of some folds of the rows, so what a fold's rows look like to a model that has not seen them
costs no further pass. The passes are: norms of the rows, if they may be normalised; copies; moments of the rows; then in a few
rounds, features of degree 2 in few coordinates, held-out scores of all rows, which give weights to rows, and weighted moments;
at last weighted features in more coordinates. A sample of rows decides the weights of the quadrics. Memory holds a block of
rows, the sample, the rows that are kept as neighbours, and a few numbers for each row.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import Tensor

from pyod_quadric.data.rows import Rows, check_shared, check_shares
from pyod_quadric.fitting.components import as_of_new_rows, coordinates_for, cross_coordinates, shared_spreads
from pyod_quadric.fitting.copies import copies_of
from pyod_quadric.fitting.cross_fit import (
    CrossCoordinates,
    CrossFitted,
    Sample,
    WeightedQuadrics,
    as_of_all_rows,
    closed_form,
    held_out_scores,
    models_of,
    quadric_evidence,
)
from pyod_quadric.fitting.folds import FoldedRows, NotYetError, folded_rows, folds_of
from pyod_quadric.fitting.neighbors import FLOOR_NEIGHBORS, cross_neighbors
from pyod_quadric.fitting.preparation import MOST_BLOCK_ROWS, prepared_rows
from pyod_quadric.fitting.relatives import warn_of_relatives
from pyod_quadric.fitting.row_weights import all_ones, settled_row_weights
from pyod_quadric.geometry.packing import packed_size
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.model.coordinates import WorkingCoordinates
from pyod_quadric.model.linear import FLOOR, FLOOR_NORMALIZED
from pyod_quadric.model.model import Model, clamped
from pyod_quadric.model.neighbors import Neighbors
from pyod_quadric.model.norms import Norms
from pyod_quadric.parallel.ranks import from_first_rank, on_first_rank
from pyod_quadric.parameters import LEAST_ROWS, Parameters, TrainingOptions
from pyod_quadric.progress import stage
from pyod_quadric.training.loop import Trained, train
from pyod_quadric.training.starts import SPECTRAL_FEATURES, random_quadrics

MOST_RANDOM = 100  # quadrics from a random start, as in the paper
LEAST_FOR_QUADRICS = 12  # from so many rows on, quadrics are in two coordinates, where there are as many
MOST_QUADRICS = 400  # in closed form: more of them cost time in every score, and add nothing


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model, with scores and weights of the training rows and the history of the training.

    Parameters
    ----------
    model : Model
        Fitted to all rows.
    scores : ndarray of shape (n,)
        The score of each row by a model that has not seen it.
    row_weights : ndarray of shape (n,)
        The weight of each row in the fit.
    history : dict of lists
        The history of the training; empty for a closed form.
    """

    model: Model
    scores: NDArray[np.float64]
    row_weights: NDArray[np.float64]
    history: dict[str, list[float]]


def fit_model(
    rows: Rows, parameters: Parameters, device: torch.device, seed: int = 0, groups: NDArray[np.int64] | None = None
) -> Fitted:
    """Fit a model to rows, computing on a device.

    Parameters
    ----------
    rows : Rows
    parameters : Parameters
    device : torch.device
    seed : int
        The seed of the folds, the samples and the order of rows in training.
    groups : ndarray of shape (n,), optional
        The group of each row, by :func:`pyod_quadric.data.groups.group_keys`; rows of one group are in one fold.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from pyod_quadric.data.rows import rows_of
    >>> angle = np.linspace(0, 6, 200)
    >>> circle = rows_of(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    >>> model = fit_model(circle, Parameters(), torch.device("cpu")).model
    >>> inside, on = model.score(torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    >>> bool(inside > 10 * on)
    True
    """
    n = rows.n_rows
    if n < LEAST_ROWS:
        raise ValueError(f"at least {LEAST_ROWS} rows are needed to learn what is normal, got {n}")
    check_shared(rows)
    check_shares(rows, MOST_BLOCK_ROWS)
    parameters, seed = on_first_rank(lambda: (parameters, seed))  # a random_state of None gives each process another seed
    rng = np.random.default_rng(seed)
    prepared = prepared_rows(rows, parameters, device)
    copies = copies_of(prepared.rows, device) if groups is None else None
    together = copies if groups is None else groups
    n_folds, folds = folds_of(n, together, parameters.n_folds, rng, parameters.training() is not None)
    n_distinct = n if copies is None else int(copies.max()) + 1
    norms, in_span = prepared.norms, parameters.n_components is not None
    folded, moments = folded_rows(prepared, from_first_rank(folds, device).to(device), n_folds, n_distinct, device, in_span)
    sample = Sample.drawn(folded, rng)
    if groups is None and parameters.n_folds is not None:
        warn_of_relatives(folded, sample, moments, copies)
    floor = FLOOR if norms is None else FLOOR_NORMALIZED
    row_weights = all_ones(folded)
    if parameters.robust:
        row_weights, moments = settled_row_weights(folded, sample, moments, floor, parameters.distance)

    spreads = shared_spreads(folded, moments)
    linear, held_out = spreads.parts(floor)
    working = coordinates_for(folded, sample, moments, linear, row_weights, parameters.n_components)
    coordinates = CrossCoordinates.shared(working, n_folds)
    if groups is not None and parameters.n_components is not None and isinstance(parameters.init, str):
        coordinates = cross_coordinates(working, held_out, sample, row_weights)
    history: dict[str, list[float]] = {}
    quadrics: list[WeightedQuadrics] = [(None, None)] * (1 + n_folds)  # of all rows, and of the complement of each fold
    if parameters.has_quadrics():
        job = _QuadricFit(folded, sample, coordinates, row_weights, parameters, parameters.training(seed), together)
        quadrics, history = job.run()
    has_linear_part = parameters.has_linear_part()
    parts = [linear, *held_out] if has_linear_part else [None] * len(quadrics)
    for_held_out = coordinates.held_out
    if coordinates.are_shared():
        for_held_out = [as_of_new_rows(working, linear, moments, floor)] * n_folds
    whole, *others = models_of([working, *for_held_out][: len(quadrics)], parts, quadrics, parameters.distance)
    if parameters.has_neighbors():
        units = spreads.parts(FLOOR_NEIGHBORS, tight_share=0.0)
        with stage("neighbours"):
            grouped = groups is not None
            near = cross_neighbors(folded, sample, units, held_out, row_weights, parameters.n_prototypes, rng, grouped)
        whole, *others = (_with_neighbors(*three) for three in zip([whole, *others], *near, strict=True))
    scores = held_out_scores(folded, others or [whole] * n_folds)
    model = replace(whole, coordinates=folded.lifted_coordinates(working), normalize=norms is not None, scales=prepared.scales)
    if model.linear_part is not None:
        model = replace(model, linear_part=folded.lifted(model.linear_part))
    if (kept := model.neighbors) is not None:
        model = replace(model, neighbors=replace(kept, coordinates=folded.lifted_coordinates(kept.coordinates)))
    if has_linear_part and norms is not None:
        of_norms = Norms.of(norms, scores)
        model, scores = replace(model, norms=of_norms), clamped(scores + of_norms.scores_of(norms))
    return Fitted(from_first_rank(model, device).on_cpu(), scores.cpu().numpy(), row_weights.cpu().numpy(), history)


def _with_neighbors(model: Model, neighbors: Neighbors, linear_share: float) -> Model:
    part = model.linear_part
    return replace(model, neighbors=neighbors, linear_part=None if part is None else part.weighted(linear_share))


@dataclass(frozen=True, eq=False)
class _QuadricFit:
    """The fit of the quadrics: a start, training if it is asked for, and evidence."""

    folded: FoldedRows
    sample: Sample
    coordinates: CrossCoordinates  # of the folded rows
    row_weights: Tensor
    parameters: Parameters
    training: TrainingOptions | None
    groups: NDArray[np.int64] | None

    def run(self) -> tuple[list[WeightedQuadrics], dict[str, list[float]]]:
        """Return the quadrics of all rows and then those of each fold, with their weights, and the history of the training."""
        start = self._start()
        quadrics, history = (start, {}) if self.training is None else self._trained(start, self.training)
        if not self._needs_evidence():
            return quadrics.weighted(None), history
        weights = self._evidence(quadrics)
        self._check_evidence(weights[0])
        self._warn_of_pruning(int((weights[0] > 0).sum()))
        if (weights[0] > 0).any():
            weights = as_of_all_rows(
                self.sample, self.coordinates, quadrics, weights, self.row_weights, self.parameters.distance
            )
        return quadrics.weighted(weights), history

    def _check_evidence(self, weights: Tensor) -> None:
        """Raise an error if quadrics alone are asked for, and rows are too few to speak for any."""
        n = self.folded.n_distinct
        if self.parameters.score_function == "quadrics" and n < LEAST_FOR_QUADRICS and not (weights > 0).any():
            raise NotYetError(
                f"score_function='quadrics' has nothing to score by: {n} different rows came, which speak for no quadric; give "
                f"at least {LEAST_FOR_QUADRICS} rows, or a score_function with other parts, such as 'combined'"
            )

    def _warn_of_pruning(self, n_kept: int) -> None:
        """Warn if quadrics that somebody has asked for have no say."""
        init, asked = self.parameters.init, self.parameters.n_quadrics
        n_asked = len(init) if isinstance(init, Quadrics) else 0 if asked == "auto" else asked
        if n_kept < n_asked:
            warnings.warn(
                f"{n_kept or 'none'} of the {n_asked} quadrics that were asked for count in the score; held-out rows are no "
                "nearer to the others than a Gaussian cloud is, so that these would add noise. n_quadrics='auto' asks for "
                "those that count, score_function='mean_distance' takes all",
                stacklevel=5,
            )

    def _check_number(self, m: int, k: int) -> None:
        """Raise a ValueError if so many quadrics cannot be orthonormal, in terms of the rows that were given."""
        if m <= packed_size(k):
            return
        n, d = self.folded.rows.n_rows, self.folded.rows.n_features
        if m > packed_size(d):
            remedy = "ask for fewer"
        else:
            needed = next(more for more in range(k, d + 1) if packed_size(more) >= m)
            remedy = f"set n_components to {needed} or more, if {n} rows are enough for it, or leave n_quadrics at 'auto'"
        raise ValueError(
            f"n_quadrics must be at most k (k + 1) / 2 = {packed_size(k)}, as many as can be orthonormal in k = {k} "
            f"coordinates (n_components), which were taken for {n} rows of {d} features; got {m}: {remedy}"
        )

    def _check_given(self, init: Quadrics, m: int | Literal["auto"], k: int) -> None:
        """Raise a ValueError unless the quadrics to start from are as many as asked for, in working coordinates."""
        if m not in ("auto", len(init)):
            raise ValueError(f"init holds {len(init)} quadrics, but n_quadrics asks for {m}; leave n_quadrics at 'auto'")
        if init.n_features == k:
            return
        n, d = self.folded.rows.n_rows, self.folded.rows.n_features
        remedy = "n_components=None" if init.n_features == d else f"n_components={init.n_features}"
        raise ValueError(
            f"init holds quadrics in {init.n_features} coordinates, but they must be in the {k} working coordinates "
            f"(n_components) that were taken for {n} rows of {d} features; {remedy} would take as many as init has"
        )

    def _needs_evidence(self) -> bool:
        return self.parameters.score_function != "mean_distance"

    def _holds_out(self) -> bool:
        return self.parameters.n_folds is not None

    def _start(self) -> CrossFitted:
        """Return the quadrics to start from: given, random, or in closed form."""
        init, m, k = self.parameters.init, self.parameters.n_quadrics, len(self.coordinates.whole.matrix)
        if m != "auto":
            self._check_number(m, k)
        if isinstance(init, Quadrics):
            self._check_given(init, m, k)
            return self._everywhere(init)
        if init == "random" or (init == "auto" and k > SPECTRAL_FEATURES):
            return self._random(min(MOST_RANDOM, max(1, packed_size(k) // 2)) if m == "auto" else m, k)
        if k > SPECTRAL_FEATURES:
            raise ValueError(
                f"the closed form in {k} coordinates would take too long: set n_components to {SPECTRAL_FEATURES} or less, or "
                "init='random'"
            )
        return self._closed_form(k)

    def _random(self, m: int, k: int) -> CrossFitted:
        if self.training is None:
            raise ValueError(
                f"the closed form in {k} coordinates would take too long, and quadrics at random have learnt nothing: set "
                f"n_components to {SPECTRAL_FEATURES} or less, or epoch_num to train them"
            )
        generator = torch.Generator().manual_seed(self.training.seed)
        return self._everywhere(random_quadrics(m, k, generator, self.folded.rows.dtype))

    def _everywhere(self, quadrics: Quadrics) -> CrossFitted:
        start = quadrics.to(dtype=self.folded.rows.dtype, device=self.folded.device)
        return CrossFitted(start, [start] * self.folded.n_folds if self._holds_out() else [])

    def _closed_form(self, k: int) -> CrossFitted:
        asked, most = self.parameters.n_quadrics, packed_size(k) if self._needs_evidence() else max(1, packed_size(k) // 2)
        m = min(MOST_QUADRICS, most) if asked == "auto" else asked
        inner_product = self.parameters.inner_product
        solutions = closed_form(self.folded, self.coordinates, self.row_weights, inner_product, self._holds_out(), m)
        if self.training is None or asked != "auto" or not self._needs_evidence():
            return solutions
        # Only what tells the rows from others is worth training; if nothing does, training may still find something.
        kept = self._evidence(solutions)[0] > 0
        return solutions.some(kept if kept.any() else slice(1))

    def _evidence(self, quadrics: CrossFitted) -> list[Tensor]:
        d, distance = self.folded.rows.n_features, self.parameters.distance
        return quadric_evidence(self.sample, self.coordinates, quadrics, self.row_weights, distance, d)

    @stage("training")
    def _trained(self, start: CrossFitted, training: TrainingOptions) -> tuple[CrossFitted, dict[str, list[float]]]:
        """Train all rows' quadrics, and those of each fold by the others."""
        whole = self._train(start.whole, training, self.coordinates.whole, self.row_weights if self.parameters.robust else None)
        held_out = []
        for fold, quadrics in enumerate(start.held_out):
            checkpoint = f"{training.checkpoint}.fold{fold}" if training.checkpoint else None
            quiet = replace(training, checkpoint=checkpoint, verbose=0)
            own, weights = self.coordinates.held_out[fold], self.row_weights * (self.folded.folds != fold)
            with stage(f"without fold {fold + 1} of {len(start.held_out)}"):
                held_out.append(self._train(quadrics, quiet, own, weights).quadrics)
        return CrossFitted(whole.quadrics, held_out), whole.history

    def _train(
        self, start: Quadrics, training: TrainingOptions, coordinates: WorkingCoordinates, row_weights: Tensor | None
    ) -> Trained:
        weights = None if row_weights is None else row_weights.cpu().numpy()
        return train(self.folded.rows, start, training, self.folded.lifted_coordinates(coordinates), weights, self.groups)


def seed_of(random_state: int | np.random.RandomState | None) -> int:
    """Return a seed from scikit-learn's ``random_state``; None and a RandomState give a new one each time."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    return int(check_random_state(random_state).randint(2**31 - 1))
