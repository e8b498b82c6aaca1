"""Fitting a model in passes over the rows: what to normalise, the linear part, the quadrics, their weights, the rows' weights.

Everything is made from moments of three folds of the rows, so what a fold's rows look like to a model that has not seen them
costs no further pass. The passes are: moments of the rows (and of the normalised rows, if that is an option); then in a few
rounds, features of degree 2 in few coordinates, held-out scores of all rows, which give weights to rows, and weighted moments;
at last weighted features in more coordinates. A sample of rows decides the weights of the quadrics. Memory holds a block of
rows, the sample, and one number for each row.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyod_quadric._packing import packed_size
from pyod_quadric.batches import Rows
from pyod_quadric.constraints import FrameInnerProduct
from pyod_quadric.distributed import from_first_rank, sum_over_ranks
from pyod_quadric.evidence import elliptical_references, evidence_weights
from pyod_quadric.initial import SPECTRAL_FEATURES, check_n_quadrics, starting_quadrics
from pyod_quadric.lengths import CONSISTENCY, Lengths, row_norms
from pyod_quadric.linear import LinearPart, cross_validated
from pyod_quadric.model import DISTANCE_FUNCTIONS, Model
from pyod_quadric.moments import Moments, moments_of_folds, sum_of_moments
from pyod_quadric.objective import Distance
from pyod_quadric.preprocessing import WorkingCoordinates, normalized
from pyod_quadric.quadrics import BLOCK_NUMBERS, Quadrics
from pyod_quadric.spectral import add_feature_products, coefficient_solution, hs_solution
from pyod_quadric.training import TrainingOptions, train

Score = Literal["combined", "quadrics", "linear", "mean_distance"]
Init = Literal["auto", "spectral", "random"]

N_FOLDS = 3
# Rows for each coefficient of a matrix, and the most principal coordinates whatever the number of rows.
ROWS_PER_COEFFICIENT = 4
MOST_COMPONENTS = 50
MOST_COMPONENTS_FIRST = 20  # in the round that only weighs rows
MOST_RANDOM = 100  # quadrics from a random start, as in the paper
MOST_BLOCK_ROWS = 8192
# Rows that decide the weights of quadrics, and references to compare them with.
N_EVIDENCE = 4000
N_REFERENCES = 1000
# The share of the median variance that is added to all; normalised rows have one unit for all features, and bear more.
FLOOR, FLOOR_NORMALIZED = 0.1, 1.0
# Norms are dropped only if they hold less than this share of the variance, and the origin is outside the cloud.
NORM_SHARE = 0.1
NORM_FEATURES = 32  # and only in embeddings: of a few features the norm is one too many to lose
# Rows lose weight from so many robust standard deviations of the logarithm of the score on, with this power of the score. A
# row's pull on the quadrics grows with its squared score, so from the power 2 on it is bounded, and above that it vanishes.
CUT = 2.0
POWER = 4.0
# Rounds of weighing rows: so many at most, or until the weights change by less than this on average.
MOST_ROUNDS = 6
SETTLED = 0.003


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What to fit. The parameters are those of :class:`pyod_quadric.QuadricDetector`; ``training`` holds how to train."""

    n_quadrics: int | Literal["auto"] = "auto"
    n_components: int | float | Literal["auto"] | None = "auto"
    normalize: bool | Literal["auto"] = "auto"
    score: Score = "combined"
    distance: Distance = "second_order"
    init: Init | Quadrics = "auto"
    robust: bool = True
    seed: int = 0
    training: TrainingOptions = field(default_factory=lambda: TrainingOptions(epoch_num=0))


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model, how much each row counted, and the history of its training (empty for a closed form)."""

    model: Model
    row_weights: NDArray[np.float64]  # (n,)
    history: dict[str, list[float]]


def fit_model(rows: Rows, options: FitOptions, device: torch.device) -> Fitted:
    """Fit a model to rows, whose computations are on a device.

    Examples
    --------
    >>> import numpy as np, torch
    >>> angle = np.linspace(0, 6, 200)
    >>> circle = Rows(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    >>> model = fit_model(circle, FitOptions(), torch.device("cpu")).model
    >>> inside, on = model.score(torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    >>> bool(inside > 10 * on)
    True
    """
    n = rows.n_rows
    if n < 3:
        raise ValueError(f"at least 3 rows are needed to learn what is normal, got {n}")
    rng = np.random.default_rng(options.seed)
    folds = torch.from_numpy(rng.permutation(np.arange(n) % N_FOLDS)).to(device)
    view, moments = _choose_view(_View(rows, device, folds), options)
    fit = _Fit(view, options, rng)
    weights = torch.ones(n, dtype=torch.float64, device=device)
    for _ in range(MOST_ROUNDS if options.robust else 0):
        earlier, weights = weights, fit.row_weights(moments, weights)
        moments = view.moments(weights)
        if float((weights - earlier).abs().mean()) < SETTLED:
            break
    model, history = fit.model(moments, weights)
    return Fitted(from_first_rank(model, device).on_cpu(), weights.cpu().numpy(), history)


@dataclass(frozen=True, eq=False)
class _View:
    """The rows as the fit sees them: on a device, normalised or not, and in coordinates of their span if that is smaller."""

    rows: Rows
    device: torch.device
    folds: Tensor  # (n,), which fold each row is in
    normalize: bool = False
    origin: Tensor | None = None  # (d,)
    basis: Tensor | None = None  # (r, d), orthonormal

    @property
    def dtype(self) -> torch.dtype:
        """The type of the rows: their own, or float64 in coordinates of their span."""
        return self.rows.dtype if self.basis is None else torch.float64

    def in_span(self) -> "_View":
        """Return the same rows in coordinates of their span, if there are no more rows than features."""
        if self.rows.n_rows > self.rows.n_features:
            return self
        everything = self.read(np.arange(self.rows.n_rows)).double()
        origin = everything.mean(dim=0)
        _, lengths, axes = torch.linalg.svd(everything - origin, full_matrices=False)
        kept = lengths > torch.finfo(self.rows.dtype).eps * lengths[0]
        origin, basis = from_first_rank((origin, axes[kept]), self.device)
        return replace(self, origin=origin, basis=basis)

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Go through this process's share of all rows; gives where they stand, and the rows."""
        for place, block in self.rows.placed_blocks(self._block_rows()):
            yield place, self._seen(block)

    def _block_rows(self) -> int:
        return min(MOST_BLOCK_ROWS, max(1, BLOCK_NUMBERS // self.rows.n_features))

    def read(self, numbers: NDArray[np.int64]) -> Tensor:
        """Return some rows by number."""
        return self._seen(self.rows.read(numbers))

    def norms(self) -> Tensor:
        """Return the norms (n,) of the rows as they are, from one pass."""
        norms = torch.zeros(self.rows.n_rows, dtype=torch.float64, device=self.device)
        for place, block in self.rows.placed_blocks(self._block_rows()):
            norms[place] = row_norms(block.to(self.device))
        sum_over_ranks(norms)
        return norms

    def moments(self, weights: Tensor) -> list[Moments]:
        """Return the weighted moments of each fold, from one pass."""
        return moments_of_folds(self.blocks(), Moments.none(self.read(np.arange(1))), self.folds, N_FOLDS, weights)

    def lifted(self, part: LinearPart) -> LinearPart:
        """Express a linear part of the view in (normalised) input coordinates."""
        if self.basis is None or self.origin is None:
            return part
        return replace(part, mean=self.origin + part.mean @ self.basis, axes=part.axes @ self.basis)

    def lifted_coordinates(self, coordinates: WorkingCoordinates) -> WorkingCoordinates:
        """Express working coordinates of the view as a map from the input."""
        if self.basis is not None and self.origin is not None:
            mean = self.origin + coordinates.mean @ self.basis
            coordinates = replace(coordinates, mean=mean, matrix=coordinates.matrix @ self.basis)
        return replace(coordinates, normalize=self.normalize)

    def _seen(self, rows: Tensor) -> Tensor:
        rows = rows.to(self.device)
        if self.normalize:
            rows = normalized(rows)
        return rows if self.basis is None or self.origin is None else (rows.double() - self.origin) @ self.basis.T


def _choose_view(plain: _View, options: FitOptions) -> tuple[_View, list[Moments]]:
    """Return the view, normalised if that is asked for or better, and the moments of its folds.

    It is better if the norms hold little of the variance, so that little can be lost; if the origin is outside the cloud, since
    the norm of centred rows is their distance from the mean; and if held-out normalised rows have the larger Gaussian
    likelihood, with the Jacobian of the normalisation, as in the choice of a Box-Cox transformation.
    """

    def look(normalize: bool) -> tuple[_View, list[Moments]]:
        view = replace(plain, normalize=normalize)
        view = view if options.n_components is None else view.in_span()
        moments = view.moments(torch.ones(len(view.folds), dtype=torch.float64, device=view.device))
        total = sum_of_moments(moments)
        if not total.scatter.isfinite().all():
            raise ValueError("the squares of the rows are too large for float64; give rows in a larger unit")
        if not _is_spread(total):
            rows = "normalised rows" if normalize else "rows"
            raise ValueError(f"all {rows} are equal, so nothing can be learnt from them; give rows that differ")
        return view, moments

    if options.normalize != "auto":
        return look(bool(options.normalize))
    raw = look(normalize=False)
    d = plain.rows.n_features
    if d < NORM_FEATURES:
        return raw
    norms = plain.norms()
    spread, size = float(sum_of_moments(raw[1]).covariance().trace()), float(norms.square().mean())
    if not norms.min() > 0 or norms.var(correction=0) >= NORM_SHARE * spread:
        return raw
    if size - spread <= NORM_SHARE * size:
        return raw
    unit = look(normalize=True)
    volumes = [view.lifted(cross_validated(moments, d, FLOOR)[0]).log_determinant() for view, moments in (raw, unit)]
    return unit if volumes[1] + 2 * d * float(norms.log().mean()) < volumes[0] else raw


def _is_spread(moments: Moments) -> bool:
    """Return whether rows differ by more than rounding."""
    rounding = torch.finfo(torch.float64).eps ** 2 * len(moments.mean) * float(moments.mean.square().sum())
    return float(moments.covariance().trace()) > rounding


class _CrossFitted(NamedTuple):
    """The same thing fitted to all rows, and for each fold to the others; without the latter where nobody asks for them."""

    whole: Quadrics
    held_out: list[Quadrics]

    def some(self, index: slice | Tensor) -> "_CrossFitted":
        """Return some of the quadrics."""
        return _CrossFitted(self.whole[index], [quadrics[index] for quadrics in self.held_out])


class _Fit:
    """A fit in rounds, and what stays the same in all of them."""

    def __init__(self, view: _View, options: FitOptions, rng: np.random.Generator) -> None:
        self.view, self.options, self.rng = view, options, rng
        numbers = np.sort(rng.permutation(view.rows.n_rows)[:N_EVIDENCE])
        self.numbers, self.sample = torch.from_numpy(numbers).to(view.device), view.read(numbers)
        self.floor = FLOOR_NORMALIZED if view.normalize else FLOOR

    def row_weights(self, moments: list[Moments], weights: Tensor) -> Tensor:
        """Return weights of rows, from a first round in closed form: 1, and less for those that are far from the others."""
        linear = self._cross_validated(moments)
        coordinates = self._coordinates(moments, linear[0], weights, "auto", MOST_COMPONENTS_FIRST)
        quadrics = self._closed_form(coordinates, weights, "hs", held_out=True)
        evidence = self._evidence(coordinates, quadrics, weights)
        kept = evidence > 0
        scores = torch.zeros_like(weights)
        for place, block in self.view.blocks():
            for fold in range(N_FOLDS):
                chosen = self.view.folds[place] == fold
                score = linear[1][fold].squared_distances(block[chosen]).double()
                if kept.any():
                    working = coordinates.transform(block[chosen])
                    score += self._distances(working, quadrics.held_out[fold][kept]).double().square() @ evidence[kept]
                scores[place][chosen] = score
        sum_over_ranks(scores)  # each process has filled in its own
        logs = scores.clamp(min=torch.finfo(scores.dtype).tiny).log()
        middle = logs.median()
        cut = middle + CUT * CONSISTENCY * (logs - middle).abs().median()
        return (POWER * (cut - logs)).clamp(max=0).exp()

    def model(self, moments: list[Moments], weights: Tensor) -> tuple[Model, dict[str, list[float]]]:
        """Return the model for weighted rows, and the history of its training."""
        options = self.options
        linear = self._cross_validated(moments)[0]
        coordinates = self._coordinates(moments, linear, weights, options.n_components, MOST_COMPONENTS)
        lifted = self.view.lifted_coordinates(coordinates)
        linear_part = self.view.lifted(linear) if options.score in ("combined", "linear") else None
        lengths = Lengths.of(self.view.norms()) if linear_part and self.view.normalize else None
        if options.score == "linear":
            return Model(lifted, None, None, linear_part, lengths, options.distance), {}
        quadrics = self._start(coordinates, weights)
        quadrics, history = self._trained(quadrics, lifted, weights)
        if options.score == "mean_distance":
            return Model(lifted, quadrics.whole, distance=options.distance), history
        evidence = self._evidence(coordinates, quadrics, weights)
        kept = evidence > 0
        chosen = quadrics.whole[kept] if kept.any() else None
        return Model(lifted, chosen, evidence[kept], linear_part, lengths, options.distance), history

    def _cross_validated(self, moments: list[Moments]) -> tuple[LinearPart, list[LinearPart]]:
        return from_first_rank(cross_validated(moments, self.view.rows.n_features, self.floor), self.view.device)

    def _coordinates(
        self,
        moments: list[Moments],
        linear: LinearPart,
        weights: Tensor,
        n_components: int | float | Literal["auto"] | None,
        most: int,
    ) -> WorkingCoordinates:
        """Return the coordinates of the quadrics: principal ones of unit held-out variance, or the input's with one scale."""
        total = sum_of_moments(moments)
        if n_components is None:
            scale = total.covariance().diagonal().mean().sqrt()
            return WorkingCoordinates(total.mean, torch.eye(len(total.mean)).to(total.mean) / scale, False, linear.variances)
        k = self._n_components(n_components, linear, most)
        matrix = linear.axes[:k] / linear.variances[:k].sqrt()[:, None]
        # The sign of an axis is open. The sample decides it, by its third moment, so that it turns with the rows.
        third = weights[self.numbers] @ ((self.sample.double() - linear.mean) @ matrix.T).pow(3)
        signs = torch.where(third < 0, -1.0, 1.0)
        return WorkingCoordinates(linear.mean, matrix * signs[:, None], False, linear.variances)

    def _n_components(self, n_components: int | float | Literal["auto"], linear: LinearPart, most: int) -> int:
        rank, d = len(linear.axes), self.view.rows.n_features
        if n_components == "auto":
            n_coefficients = self.view.rows.n_rows / ROWS_PER_COEFFICIENT
            return max(1, min(rank, most, int((math.sqrt(8 * n_coefficients + 1) - 1) / 2)))
        if isinstance(n_components, int):
            if not 1 <= n_components <= d:
                raise ValueError(f"n_components must be from 1 to the number of features, {d}, got {n_components}")
            return min(rank, n_components)
        if not 0 < n_components <= 1:
            raise ValueError(f"n_components as a share of the variance must be above 0 and at most 1, got {n_components}")
        shares = linear.variances.cumsum(0) / linear.variances.sum()
        return min(rank, int((shares < n_components - 1e-12).sum()) + 1)

    def _start(self, coordinates: WorkingCoordinates, weights: Tensor) -> _CrossFitted:
        """Return the quadrics to start from: given, random, or in closed form."""
        options, k = self.options, len(coordinates.matrix)
        m, init = options.n_quadrics, options.init
        if isinstance(m, int):
            check_n_quadrics(m, k)
        if isinstance(init, Quadrics) or init == "random" or (init == "auto" and k > SPECTRAL_FEATURES):
            auto = len(init) if isinstance(init, Quadrics) else min(MOST_RANDOM, max(1, packed_size(k) // 2))
            return self._given_or_random("random" if init == "auto" else init, m if isinstance(m, int) else auto, k)
        if k > SPECTRAL_FEATURES:
            raise ValueError(
                f"the closed form in {k} coordinates would take too long: set n_components to {SPECTRAL_FEATURES} or less, or "
                "init='random'"
            )
        needs_evidence = options.score != "mean_distance"
        solutions = self._closed_form(coordinates, weights, options.training.inner_product, held_out=needs_evidence)
        if isinstance(m, int):
            return solutions.some(slice(m))
        if not needs_evidence:
            return solutions.some(slice(max(1, packed_size(k) // 2)))
        if not options.training.epoch_num:
            return solutions
        # Only what tells the rows from others is worth training; if nothing does, training may still find something.
        kept = self._evidence(coordinates, solutions, weights) > 0
        return solutions.some(kept if kept.any() else slice(1))

    def _given_or_random(self, init: Init | Quadrics, m: int, k: int) -> _CrossFitted:
        if init == "random" and not self.options.training.epoch_num:
            raise ValueError("quadrics at random have learnt nothing: set epoch_num to train them, or init='spectral'")
        generator = torch.Generator().manual_seed(self.options.seed)
        start = starting_quadrics(init, [], m, k, generator, self.view.rows.dtype).to(device=self.view.device)
        return _CrossFitted(start, [start] * N_FOLDS)

    def _closed_form(
        self, coordinates: WorkingCoordinates, weights: Tensor, inner_product: FrameInnerProduct, held_out: bool
    ) -> _CrossFitted:
        """Return all orthonormal solutions of the closed form, in ascending order of mean squared value."""
        size = packed_size(len(coordinates.matrix) + 1)
        products = [torch.zeros(size, size, dtype=torch.float64, device=self.view.device) for _ in range(N_FOLDS)]
        for place, block in self.view.blocks():
            working = coordinates.transform(block)
            for fold in range(N_FOLDS):
                chosen = self.view.folds[place] == fold
                add_feature_products(products[fold], working[chosen], weights[place][chosen])
        sum_over_ranks(*products)
        total = torch.stack(products).sum(dim=0)
        k = len(coordinates.matrix)
        solve = hs_solution if inner_product == "hs" else coefficient_solution

        def solution(summed: Tensor) -> Quadrics:
            return solve(summed / summed[-1, -1], packed_size(k)).to(dtype=self.view.dtype)

        folds = [solution(total - product) for product in products] if held_out else []
        return from_first_rank(_CrossFitted(solution(total), folds), self.view.device)

    def _trained(
        self, start: _CrossFitted, lifted: WorkingCoordinates, weights: Tensor
    ) -> tuple[_CrossFitted, dict[str, list[float]]]:
        """Train all rows' quadrics, and those of each fold by the others if they are needed for evidence."""
        options, rows = self.options.training, self.view.rows
        if not options.epoch_num:
            return start, {}
        trained = train(rows, start.whole, options, lifted, weights.cpu().numpy() if self.options.robust else None)
        held_out = []
        for fold, quadrics in enumerate(start.held_out if self.options.score != "mean_distance" else []):
            checkpoint = f"{options.checkpoint}.fold{fold}" if options.checkpoint else None
            others = (weights * (self.view.folds != fold)).cpu().numpy()
            quiet = replace(options, checkpoint=checkpoint, verbose=0)
            held_out.append(train(rows, quadrics, quiet, lifted, others).quadrics)
        return _CrossFitted(trained.quadrics, held_out), trained.history

    def _evidence(self, coordinates: WorkingCoordinates, quadrics: _CrossFitted, weights: Tensor) -> Tensor:
        """Return the weights of the quadrics, from a sample of rows, each seen by quadrics that have not seen it."""
        rows, row_weights = coordinates.transform(self.sample), weights[self.numbers]
        folds = self.view.folds[self.numbers]
        held_out = rows.new_empty(len(rows), len(quadrics.whole))
        for fold in range(N_FOLDS):
            held_out[folds == fold] = self._distances(rows[folds == fold], quadrics.held_out[fold])
        references = elliptical_references(rows, row_weights, N_REFERENCES, self.rng)
        reference = self._distances(references, quadrics.whole)
        evidence = evidence_weights(held_out.square(), reference.square(), row_weights, self.view.rows.n_features)
        return from_first_rank(evidence, self.view.device)

    def _distances(self, points: Tensor, quadrics: Quadrics) -> Tensor:
        return DISTANCE_FUNCTIONS[self.options.distance](points.to(quadrics.dtype), quadrics)
