"""The fitted model: quadrics in working coordinates, their weights, the linear part and the neighbours.

The score of a point is a squared distance in units of the spread of held-out rows,

    S(x) = (x - mean)ᵀ C⁻¹ (x - mean) + Σₖ wₖ dₖ(x)² + w |x - neighbours|²,

with a term for the linear part, one for the quadrics and one for the nearest rows of the fit; each is optional. If rows are
normalised, an unusual norm adds to the score. Without weights the score is the mean of the dₖ, as in the paper. By default d is
the order-2 distance.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pyod_quadric.data.rows import normalized, scaled, within_reach
from pyod_quadric.geometry.distances import DISTANCE_FUNCTIONS
from pyod_quadric.geometry.projection import nearest_on_intersection
from pyod_quadric.geometry.quadrics import BLOCK_NUMBERS, Quadrics
from pyod_quadric.model.coordinates import WorkingCoordinates
from pyod_quadric.model.linear import LinearPart
from pyod_quadric.model.neighbors import Neighbors
from pyod_quadric.model.norms import Norms
from pyod_quadric.parallel.devices import on_device
from pyod_quadric.parameters import Distance

HISTORY_NAMES = ("loss", "held_out_loss", "orthonormality_error", "seconds")  # what training writes down after each epoch
FARTHEST_UNIT = 1e150  # from 1, whose square is a number
MOST_SCORE = 1e150  # so that squares of scores can be added up
MOST_SINGLE = 1e30  # of scaled rows, with room for what is multiplied by it in float32


def clamped(scores: Tensor) -> Tensor:
    """Return scores clamped to finite numbers: first-order distances are infinite at zero gradients, weights may be large."""
    return scores.nan_to_num(nan=MOST_SCORE).clamp(max=MOST_SCORE)


def far(dtype: torch.dtype) -> Tensor:
    """Return the number of deviations (1,) to which farther points are moved, so that squares do not overflow."""
    return torch.tensor([torch.finfo(dtype).max ** 0.4], dtype=dtype)


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted manifold, and scores of points by their distance from it.

    Parameters
    ----------
    coordinates : WorkingCoordinates
        The map from (normalised) input to the coordinates of the quadrics.
    quadrics : Quadrics, optional
        The m quadrics, in working coordinates.
    quadric_weights : Tensor of shape (m,), optional
        The weights of the squared distances; None for the mean of the distances.
    linear_part : LinearPart, optional
        In (normalised) input coordinates.
    norms : Norms, optional
        The usual norms of rows before normalisation.
    neighbors : Neighbors, optional
        The kept rows of the fit.
    scales : Tensor of shape (d,), optional
        The divisors of the features, applied first.
    distance : {"second_order", "first_order", "algebraic"}
        The distance d.
    normalize : bool
        Whether points are then divided by their norms.

    Examples
    --------
    >>> import torch
    >>> from pyod_quadric import Quadrics, WorkingCoordinates
    >>> circle = Quadrics(torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0]))
    >>> identity = WorkingCoordinates(torch.zeros(2), torch.eye(2))
    >>> Model(identity, circle).score(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    tensor([0.0000, 0.8409], dtype=torch.float64)
    """

    coordinates: WorkingCoordinates
    quadrics: Quadrics | None
    quadric_weights: Tensor | None = None
    linear_part: LinearPart | None = None
    norms: Norms | None = None
    neighbors: Neighbors | None = None
    scales: Tensor | None = None
    distance: Distance = "second_order"
    normalize: bool = False

    def score(self, points: Tensor) -> Tensor:
        """Return the outlier scores (n,) of points (n, d) in float64, computed in the type and on the device of the points."""
        score = points.new_zeros(len(points), dtype=torch.float64)
        if self.norms is not None:
            score += self.norms.scores(self._scaled(points))
        points = self.prepared(points)
        if self.linear_part is not None:
            score += self.linear_part.squared_distances(points)
        if self.neighbors is not None:
            score += self.neighbors.scores(points)
        if self.quadrics is not None:
            score += self._combined(self._distances(points)).sum(dim=1)
        return clamped(score)

    def quadric_distances(self, points: Tensor) -> Tensor:
        """Return the distances (n, m) of points (n, d) to each quadric, in working coordinates."""
        if self.quadrics is None:
            return points.new_zeros(len(points), 0)
        return self._distances(self.prepared(points))

    def contributions(self, points: Tensor) -> Tensor:
        """Return what each feature adds to the score, (n, d): nonnegative entries whose rows sum to the score.

        The gradient points from a point to a quadric, so feature i gets the share ``(∂ᵢ f)² / ‖∇f‖²`` of what the quadric adds.
        Of the linear part and of the neighbours a feature gets its squared standardised difference; see
        :meth:`LinearPart.contributions` and :meth:`Neighbors.contributions`.
        """
        total = points.new_zeros(points.shape, dtype=torch.float64)
        scores = self.score(points)
        if self.norms is not None:
            total += self.norms.contributions(self._scaled(points))
        points = self.prepared(points)
        if self.linear_part is not None:
            total += self.linear_part.contributions(points)
        if self.neighbors is not None:
            total += self.neighbors.contributions(points)
        if self.quadrics is not None:
            size = max(1, BLOCK_NUMBERS // (len(self.quadrics) * points.shape[1]))
            for rows, out in zip(torch.split(points, size), torch.split(total, size), strict=True):
                out += self._quadric_contributions(rows)
        return _adding_up(total, scores)

    def _quadric_contributions(self, points: Tensor) -> Tensor:
        added = clamped(self._combined(self._distances(points).double()))  # (n, m)
        gradients = self._quadrics_like(points).gradients(self.coordinates.transform(points))  # (n, m, k)
        # Shares do not depend on the length of the gradient, nor on the unit, and squares of either might overflow.
        lengths = torch.linalg.vector_norm(gradients, dim=2, keepdim=True)
        directions = gradients / torch.where(lengths > 0, lengths, 1)
        matrix = (self.coordinates.matrix * self.least_deviation).to(points)
        squared = (directions @ matrix).square()  # (n, m, d), by input features
        sums = squared.sum(dim=2)
        # Where a gradient vanishes, no direction leads to the quadric sooner than another.
        flat = sums == 0
        shares = torch.where(flat, 0, added / torch.where(flat, 1, sums))
        even = torch.where(flat, added, 0).sum(dim=1, keepdim=True) / points.shape[1]
        return torch.einsum("nm,nmd->nd", shares, squared.double()) + even

    def project(self, points: Tensor) -> Tensor:
        """Return the nearest point of the manifold (n, d) for each of the points (n, d), in float64.

        Nearest is meant in working coordinates. Without weights the result lies on the intersection of the quadrics. With
        weights there may be more quadrics than can intersect; the result then minimises the squared distance to the point plus
        the quadrics' part of the score. With a linear part the manifold lies in the subspace of the working coordinates, and
        the component orthogonal to it is dropped.
        """
        points = self.prepared(points.double())
        back = torch.linalg.pinv(self.coordinates.matrix.to(points)).T  # (k, d)
        working = nearest = self.coordinates.transform(points)
        if self.quadrics is not None:
            nearest = nearest_on_intersection(working, self.quadrics.to(device=points.device), self.quadric_weights)
        mean = self.coordinates.mean.to(points)
        projected: Tensor = mean + nearest @ back
        if self.linear_part is None and len(back) < len(mean):
            projected += points - mean - working @ back
        return projected if self.scales is None else scaled(projected, 1 / self.scales.to(projected))

    def on_cpu(self) -> "Model":
        """Return a copy with all numbers on the CPU, in memory of their own, so that files hold nothing else."""
        copied: Model = on_device(self, torch.device("cpu"), copy=True)
        return copied

    def prepared(self, points: Tensor) -> Tensor:
        """Return prepared points (n, d): scaled and normalised if the model says so, and moved into reach.

        Points so far from the mean that squares would overflow are moved to the largest safe distance, in their direction.
        Every method uses these points.
        """
        points = self._scaled(points)
        points = normalized(points) if self.normalize else points
        reach = far(points.dtype).double() * self.least_deviation
        return within_reach(points, self.coordinates.mean.to(points), reach.to(points))

    @cached_property
    def least_deviation(self) -> float:
        """The smallest number by which any part of the model divides coordinates."""
        maps = [self.coordinates] + ([] if self.neighbors is None else [self.neighbors.coordinates])
        found = [1 / float(one.lengths().max()) for one in maps]
        if (part := self.linear_part) is not None:
            found.append(part.complement**0.5)
            if len(part.variances):  # which there are none of where the rows of the other folds are equal
                found.append(float(part.variances.min()) ** 0.5)
        return min(found)

    @cached_property
    def _fits_float32(self) -> bool:
        """Whether all that divides or moves points is well within the range of float32, so that they can be of that type."""
        single = torch.finfo(torch.float32)
        if self.scales is not None and not single.tiny <= self.scales.min() <= self.scales.max() <= single.max:
            return False
        return 1 / MOST_SINGLE < self.least_deviation < MOST_SINGLE and float(self.coordinates.mean.abs().max()) < MOST_SINGLE

    def in_input_space(self) -> Quadrics | None:
        """Return the quadrics as polynomials of the (normalised) input."""
        if self.quadrics is None:
            return None
        coordinates = self.coordinates
        if self.scales is not None and not self.normalize:  # those of normalised rows are polynomials of directions
            scales = self.scales.to(coordinates.mean)
            if not 1 / FARTHEST_UNIT <= scales.min() <= FARTHEST_UNIT:
                raise ValueError(
                    f"coefficients of quadrics in a unit of {float(scales.min()):.1g} are out of the range of float64; fit "
                    "rows that are multiplied by a number, so that their unit is nearer to 1"
                )
            coordinates = WorkingCoordinates(coordinates.mean * scales, coordinates.matrix / scales)
        return coordinates.in_input_space(self.quadrics)

    def _scaled(self, points: Tensor) -> Tensor:
        points = points if self._fits_float32 else points.double()
        return points if self.scales is None else scaled(points, self.scales)

    def _distances(self, points: Tensor) -> Tensor:
        return DISTANCE_FUNCTIONS[self.distance](self.coordinates.transform(points), self._quadrics_like(points))

    def _quadrics_like(self, points: Tensor) -> Quadrics:
        assert self.quadrics is not None
        return self.quadrics.to(dtype=points.dtype, device=points.device)

    def _combined(self, distances: Tensor) -> Tensor:
        """Return what each quadric adds to the score, (n, m)."""
        if self.quadric_weights is None:
            return distances / distances.shape[1]
        return distances.square() * self.quadric_weights.to(distances)


def _adding_up(contributions: Tensor, scores: Tensor) -> Tensor:
    """Return non-negative contributions (n, d) that add up to scores (n,) to the last bits, however large they are."""
    contributions = contributions.nan_to_num(posinf=MOST_SCORE)
    sums = contributions.sum(dim=1)
    shares = torch.where(sums[:, None] > 0, contributions / torch.where(sums > 0, sums, 1)[:, None], 1 / contributions.shape[1])
    return shares * scores[:, None]
