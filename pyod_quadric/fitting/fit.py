"""Fitting a model in passes over the rows: what to normalise, the linear part, the quadrics, their weights, the rows' weights.

Everything is made from moments of three folds of the rows, so what a fold's rows look like to a model that has not seen them
costs no further pass. The passes are: moments of the rows (and of the normalised rows, if that is an option); then in a few
rounds, features of degree 2 in few coordinates, held-out scores of all rows, which give weights to rows, and weighted moments;
at last weighted features in more coordinates. A sample of rows decides the weights of the quadrics. Memory holds a block of
rows, the sample, and one number for each row.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyod_quadric.data.rows import Rows, check_shared, check_shares
from pyod_quadric.fitting.evidence import elliptical_references, evidence_weights
from pyod_quadric.fitting.folds import MOST_BLOCK_ROWS, N_FOLDS, View, choose_view
from pyod_quadric.geometry.distances import DISTANCE_FUNCTIONS
from pyod_quadric.geometry.packing import packed_size
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.model.closed_form import add_feature_products, coefficient_solution, hs_solution
from pyod_quadric.model.coordinates import WorkingCoordinates
from pyod_quadric.model.linear import FLOOR, FLOOR_NORMALIZED, LinearPart, cross_validated
from pyod_quadric.model.model import Model
from pyod_quadric.model.moments import Moments, sum_of_moments
from pyod_quadric.model.norms import CONSISTENCY, Lengths
from pyod_quadric.parallel.ranks import from_first_rank, on_first_rank, sum_over_ranks
from pyod_quadric.training.constraints import FrameInnerProduct
from pyod_quadric.training.loop import train
from pyod_quadric.training.options import FitOptions, Init
from pyod_quadric.training.starts import SPECTRAL_FEATURES, check_n_quadrics, starting_quadrics

# Rows for each coefficient of a matrix, and the most principal coordinates whatever the number of rows.
ROWS_PER_COEFFICIENT = 4
MOST_COMPONENTS = 50
MOST_COMPONENTS_FIRST = 20  # in the round that only weighs rows
MOST_RANDOM = 100  # quadrics from a random start, as in the paper
# Rows that decide the weights of quadrics, and references to compare them with.
N_EVIDENCE = 4000
N_REFERENCES = 1000
# Rows lose weight from so many robust standard deviations of the logarithm of the score on, with this power of the score. A
# row's pull on the quadrics grows with its squared score, so from the power 2 on it is bounded, and above that it vanishes.
CUT = 2.0
POWER = 4.0
# Rounds of weighing rows: so many at most, or until the weights change by less than this on average.
MOST_ROUNDS = 6
SETTLED = 0.003


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
    >>> from pyod_quadric.data.rows import rows_of
    >>> angle = np.linspace(0, 6, 200)
    >>> circle = rows_of(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    >>> model = fit_model(circle, FitOptions(), torch.device("cpu")).model
    >>> inside, on = model.score(torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    >>> bool(inside > 10 * on)
    True
    """
    n = rows.n_rows
    if n < 3:
        raise ValueError(f"at least 3 rows are needed to learn what is normal, got {n}")
    check_shared(rows)
    check_shares(rows, MOST_BLOCK_ROWS)
    options = on_first_rank(lambda: options)  # a random_state of None gives each process another seed, for one
    rng = np.random.default_rng(options.seed)
    folds = torch.from_numpy(rng.permutation(np.arange(n) % N_FOLDS)).to(device)
    view, moments = choose_view(View(rows, device, folds), options)
    fit = _Fit(view, options, rng)
    weights = torch.ones(n, dtype=torch.float64, device=device)
    for _ in range(MOST_ROUNDS if options.robust and not fit.most_are_equal() else 0):
        earlier, weights = weights, fit.row_weights(moments, weights)
        moments = view.moments(weights)
        if float((weights - earlier).abs().mean()) < SETTLED:
            break
    model, history = fit.model(moments, weights)
    return Fitted(from_first_rank(model, device).on_cpu(), weights.cpu().numpy(), history)


class _CrossFitted(NamedTuple):
    """The same thing fitted to all rows, and for each fold to the others; without the latter where nobody asks for them."""

    whole: Quadrics
    held_out: list[Quadrics]

    def some(self, index: slice | Tensor) -> "_CrossFitted":
        """Return some of the quadrics."""
        return _CrossFitted(self.whole[index], [quadrics[index] for quadrics in self.held_out])


class _Fit:
    """A fit in rounds, and what stays the same in all of them."""

    def __init__(self, view: View, options: FitOptions, rng: np.random.Generator) -> None:
        self.view, self.options, self.rng = view, options, rng
        numbers = np.sort(rng.permutation(view.rows.n_rows)[:N_EVIDENCE])
        self.numbers, self.sample = torch.from_numpy(numbers).to(view.device), view.read(numbers)
        self.floor = FLOOR_NORMALIZED if view.normalize else FLOOR

    def most_are_equal(self) -> bool:
        """Return whether more than half of the rows are the same one, from which everything else is infinitely far."""
        rows = self.view.rows.read(self.numbers.cpu().numpy())
        return bool((rows == rows.median(dim=0).values).all(dim=1).double().mean() > 0.5)

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
