"""Preparation of rows before the fit: scaling columns, normalising rows, and bringing numbers into range.

The rows alone decide both, without a seed. Columns with very different units are scaled, since otherwise only the largest would
count. Rows are normalised if their distance from the mean depends mainly on their norm, so that short rows would seem normal
and long ones abnormal, and if normalising removes this dependence.

First of all, numbers are brought into a range in which sums of squares do not overflow. Medians of a sample of rows give the
typical distance from the middle. If it is far from 1, rows are divided by a power of two, which rounds nothing. Rows absurdly
far out, such as codes for missing numbers, are moved to the edge of the range, in their direction: they stay the farthest
outliers, and the other rows keep their resolution.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor

from pyod_quadric.data.rows import Rows, normalized, row_norms
from pyod_quadric.geometry.quadrics import BLOCK_NUMBERS
from pyod_quadric.parallel.ranks import on_first_rank, sum_over_ranks
from pyod_quadric.parameters import Parameters
from pyod_quadric.progress import stage

MOST_BLOCK_ROWS = 8192
# Columns are standardised if the spread of one is more than this many times that of the lower quartile of all: from there on,
# principal axes of the others are rounding. Below that, neither is better: of two real tables with ratios of a thousand and of
# fifty thousand, one gained .1 in ROC-AUC and the other lost .07. Embeddings of images and texts have at most 70.
LARGE_UNIT = 1e6
N_SPREAD = 4000  # rows by which spreads are seen
# Rows farther out than this many typical distances are moved to there. Tables with long tails reach some millions, those of
# ADBench 200; with a row at 1e9, the variance of the others is lost to rounding in the sum of all.
ABSURD = 1e7
ORDINARY = 40  # exponents of two that a typical distance may have, up to 1e12 and down to 1e-12
SMALLEST, LARGEST = 1e-303, 1e303  # typical distances beyond which numbers round too much, or overflow
# A column whose entries are mostly larger than this many typical distances is constant up to rounding; float64 cannot hold its
# square together with the others.
MOST_OFFSET = 1e15
CLIPPED = 1e100  # of sizes: larger ones are absurd by any measure, and their squares are still finite
TAILS = (0.01, 0.99)  # quantiles to which they are clipped, so that a few absurd entries make no unit
# Rows are normalised only if their norms hold less than this share of the variance: .01 to .12 in embeddings.
NORM_SHARE = 0.2
# And if their mean holds more than this share of the squared norms, since for centred rows the origin means nothing: .02 for
# faces, .05 to .2 for texts. Or if they lie around the origin on a sphere: the variance of their squared norms is less than
# this share of that of a Gaussian with their mean and covariance. None of 69 sets in 32 features or more has less than .42.
MEAN_SHARE = 0.01
SPHERE = 0.25
NORM_FEATURES = 32  # and only in embeddings: few features lose too much with their norm
# And if the rank correlation of norms with distances from the mean falls by more than this: from .99 to .01 for faces, from .95
# to .17 and .99 to .02 for texts, from .80 to .42 for images; it rises for images of one kind of thing, and for tables.
LESS_BY_LENGTH = 0.2


@dataclass(frozen=True, eq=False)
class PreparedRows:
    """Prepared rows, with their scales and norms.

    Parameters
    ----------
    rows : Rows
    scales : Tensor of shape (d,), optional
        The divisors of the columns.
    norms : Tensor of shape (n,), optional
        The divisors of the rows.
    """

    rows: Rows
    scales: Tensor | None = None
    norms: Tensor | None = None


@stage("preparation")
def prepared_rows(rows: Rows, parameters: Parameters, device: torch.device) -> PreparedRows:
    """Return rows in range, standardised or normalised as the parameters or the rows decide."""
    units = on_first_rank(lambda: _Units.of(_some(rows).numpy(), parameters.standardize, rows.dtype))
    scales = None if units.scales is None else torch.from_numpy(units.scales)
    scaled = rows if scales is None else rows.scaled(scales)
    scaled = scaled.within(torch.from_numpy(units.centre), units.reach)
    scales = None if scales is None else scales.to(device)
    if parameters.normalize is False or (parameters.normalize == "auto" and rows.n_features < NORM_FEATURES):
        return PreparedRows(scaled, scales)
    norms, mean, unit_mean = _norms_and_means(scaled, device)
    if parameters.normalize is True or (not units.are_standardized and _are_directions(scaled, norms, mean, unit_mean)):
        return PreparedRows(scaled.normalized(), scales, norms)
    return PreparedRows(scaled, scales)


def block_rows(rows: Rows) -> int:
    """Return the number of rows to read at a time."""
    return min(MOST_BLOCK_ROWS, max(1, BLOCK_NUMBERS // rows.n_features))


@dataclass(frozen=True, eq=False)
class _Units:
    """What columns are divided by, and how far from a centre the rows are usual then.

    Parameters
    ----------
    scales : ndarray of shape (d,), optional
    centre : ndarray of shape (d,)
        Of the rows that are divided.
    reach : float
        How far from it rows may be.
    are_standardized : bool
        Whether columns have scales of their own.
    """

    scales: NDArray[np.float64] | None
    centre: NDArray[np.float64]
    reach: float
    are_standardized: bool

    @classmethod
    def of(cls, some: NDArray[np.float64], standardize: bool | Literal["auto"], dtype: torch.dtype) -> "_Units":
        """Choose the units by a sample of rows (n, d), which are finite but of any magnitude."""
        size = _power_of_two(_lower_median(np.abs(some).max(axis=1)))
        with np.errstate(over="ignore"):
            some = np.clip(some / size, -CLIPPED, CLIPPED)
        centre, away = _centred(some)
        typical = _lower_median(away)
        if away.any() and not SMALLEST <= typical * size <= LARGEST:
            raise ValueError(
                f"rows are about {typical * size:.1g} from each other, where float64 has no room for computations; multiply "
                f"them by a number, so that distances are from {SMALLEST} to {LARGEST}"
            )
        scales = None if standardize is False else _spreads(some[away <= ABSURD * typical], always=standardize)
        are_standardized = scales is not None
        unit = _power_of_two(typical) * size
        if scales is None and not 2.0**-ORDINARY < unit < 2.0**ORDINARY:
            scales = np.full(len(centre), min(unit, torch.finfo(dtype).max / 2) / size)
        huge = np.abs(centre) > MOST_OFFSET * typical
        if huge.any():
            scales = np.where(huge, np.abs(centre), 1 / size if scales is None else scales)
        some = some * size if scales is None else some / scales
        centre, away = _centred(some)
        reach = (ABSURD * _lower_median(away) if away.any() else CLIPPED) * math.sqrt(len(centre))
        return cls(None if scales is None else scales * size, centre, reach, are_standardized)


def _centred(some: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the middle (d,) of rows (n, d), and by how much an entry of each row is off at most, (n,)."""
    centre = torch.from_numpy(some).median(dim=0).values.numpy()  # one of the entries, which does not overflow
    return centre, np.abs(some - centre).max(axis=1)


def _lower_median(numbers: NDArray[np.float64]) -> float:
    """Return the median of those numbers (n,) that are positive, 1 if none is."""
    positive = numbers[numbers > 0]
    return float(torch.from_numpy(positive).median()) if len(positive) else 1.0


def _power_of_two(number: float) -> float:
    """Return the largest power of two that is not larger."""
    return math.ldexp(1.0, math.frexp(number)[1] - 1)


def _spreads(some: NDArray[np.float64], always: bool | Literal["auto"]) -> NDArray[np.float64] | None:
    """Return the spread (d,) of each column, 1 where there is none; or None if units are alike and it is not asked for."""
    spreads = np.clip(some, *np.quantile(some, TAILS, axis=0)).std(axis=0)
    spreads = np.where(spreads > 0, spreads, some.std(axis=0))
    known = spreads[spreads > 0]
    if not len(known) or (always is not True and not known.max() > LARGE_UNIT * np.quantile(known, 0.25)):
        return None
    return np.where(spreads > 0, spreads, 1.0)


def _some(rows: Rows) -> Tensor:
    """Return at most ``N_SPREAD`` rows, evenly spaced."""
    indices = np.unique(np.linspace(0, rows.n_rows - 1, min(N_SPREAD, rows.n_rows)).astype(np.int64))
    return rows.read(indices).double().cpu()


def _norms_and_means(rows: Rows, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the norms (n,) of rows, and the means (d,) of the rows and of the normalised rows, from one pass."""
    norms = torch.zeros(rows.n_rows, dtype=torch.float64, device=device)
    sums = torch.zeros(2, rows.n_features, dtype=torch.float64, device=device)
    for place, block in rows.placed_blocks(block_rows(rows)):
        block = block.to(device)
        norms[place] = row_norms(block)
        sums += torch.stack([block.double().sum(dim=0), normalized(block).double().sum(dim=0)])
    sum_over_ranks(norms, sums)
    mean, unit_mean = sums / rows.n_rows
    return norms, mean, unit_mean


def _are_directions(rows: Rows, norms: Tensor, mean: Tensor, unit_mean: Tensor) -> bool:
    """Return whether rows are directions with a length of its own, from one pass."""
    mean_square, squared_mean = float(norms.square().mean()), float(mean.square().sum())
    variance = mean_square - squared_mean
    if (
        not norms.min() > 0
        or not norms.var(correction=0) < NORM_SHARE * variance
        or not (squared_mean > MEAN_SHARE * mean_square or on_first_rank(lambda: _are_on_a_sphere(rows, norms)))
    ):
        return False
    squared = torch.zeros(2, rows.n_rows, dtype=torch.float64, device=norms.device)  # distances from the means
    for place, block in rows.placed_blocks(block_rows(rows)):
        block = block.to(norms.device).double()
        squared[0, place] = (block - mean).square().sum(dim=1)
        squared[1, place] = (normalized(block) - unit_mean).square().sum(dim=1)
    sum_over_ranks(squared)
    lengths = norms.cpu().numpy()
    raw, unit = (abs(float(spearmanr(lengths, distances.cpu().numpy()).statistic)) for distances in squared)
    return raw - unit > LESS_BY_LENGTH  # not if either is NaN


def _are_on_a_sphere(rows: Rows, norms: Tensor) -> bool:
    """Return whether norms vary far less than those of a Gaussian do."""
    some = _some(rows) / norms.median().cpu()  # squares of squares of what is large or small are out of range
    mean = some.mean(dim=0)
    products = (some - mean) @ (some - mean).T
    # Squared products of different rows have the mean tr Σ², and squared norms of a Gaussian the variance 2 tr Σ² + 4 μᵀΣμ.
    trace = products[~torch.eye(len(some), dtype=torch.bool)].square().mean()
    of_gaussian = 2 * trace + 4 * (some @ mean).var()
    return bool(some.square().sum(dim=1).var() < SPHERE * of_gaussian)
