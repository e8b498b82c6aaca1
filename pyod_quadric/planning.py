"""What a fit will cost, before it starts: operations, bytes, memory and time, stage by stage.

Two jobs are known. The *paper's*: m quadrics in all d features, trained by gradient descent. A step with b rows has two
products of ``2 b m d²`` FLOP, and around them what does not grow with b: matrices are unpacked, gradients packed, the frame is
held orthonormal. The *closed form*, which is the default of :class:`pyod_quadric.QuadricDetector`: a few rounds of weighing
rows, each with three passes over them, and a last pass for products of quadratic features in more coordinates.

Operations are counted as the code does them, matrix products exactly. Bytes are those of elementwise operations, by their reads
and writes, and calls those of a training step with next to no numbers. Time is the sum of all of these over their speeds:
nothing overlaps.
"""

import math
from dataclasses import dataclass, fields, replace

from pyod_quadric._packing import packed_size
from pyod_quadric.fitting import (
    MOST_COMPONENTS,
    MOST_COMPONENTS_FIRST,
    MOST_ROUNDS,
    N_EVIDENCE,
    N_REFERENCES,
    ROWS_PER_COEFFICIENT,
)
from pyod_quadric.initial import check_n_quadrics
from pyod_quadric.options import ConstraintName
from pyod_quadric.quadrics import BLOCK_NUMBERS
from pyod_quadric.spectral import N_STRIPES
from pyod_quadric.speeds import EIGEN_FLOPS, Speeds
from pyod_quadric.view import MOST_BLOCK_ROWS, N_FOLDS, NORM_FEATURES

# What depends on the rows: how many rounds it takes until their weights settle, and which share of the quadrics has evidence.
EXPECTED_ROUNDS = 3
EXPECTED_KEPT = 1 / 7
# Bytes of elementwise operations, in float32: reads and writes for each number of what is gone through.
READ = 14  # rows are copied and looked at for NaN
NORMALIZE = 16
SPLIT = 8  # into folds
CENTRE = 8
MOMENTS = 60  # float64
WHITEN = 28
FEATURE = 400  # float64; gathered, multiplied, and put in order for products that are thin
TOTAL = 48  # where products of features are added to, float64
HALVES_SCORED = 47  # products of vectors, which are slow, and norms
HALVES_TRAINED = 77
MATRICES = 160  # of each quadric, in every step
CHECKS = 500  # of the matrices of quadrics, where quadrics are made or moved
FRAME = {"penalty": 36, "stiefel": 60}  # for each packed entry, in every step
STEP_CALLS = {"penalty": 320, "stiefel": 430}  # what a step takes with one quadric in two features
FRAME_PRODUCTS = {"penalty": 2, "stiefel": 6}  # each of 2 P m² FLOP
# Batches from which the plan chooses, and the share of a step's time that may go to what does not grow with the batch.
BATCH_SIZES = (256, 512, 1024, 2048, 4096, 8192)
FIXED_SHARE = 0.25
ROW_BYTES = 64  # a few numbers for each row: fold, weights, scores, labels
SCORING_ROWS = 4096


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of a fit, and what it does.

    Parameters
    ----------
    name : str
    passes : float
        How many times all rows are read.
    float32, float64, eigen : float
        FLOP of products in either type, and of eigenvalue problems.
    fresh, cached : float
        Bytes that elementwise operations read and write, with results in new memory and in memory that is there.
    calls : float
        Calls of operations that take no time otherwise.
    read : float
        Bytes from the storage.

    Examples
    --------
    >>> speeds = Speeds(float32=1e9, float64=1e9, eigen=1e9, fresh=1e9, cached=1e9, calls=1e5)
    >>> (Stage(name="one", float32=2e9) + Stage(name="two", fresh=1e9)).seconds(speeds)
    3.0
    """

    name: str
    passes: float = 0.0
    float32: float = 0.0
    float64: float = 0.0
    eigen: float = 0.0
    fresh: float = 0.0
    cached: float = 0.0
    calls: float = 0.0
    read: float = 0.0

    def __add__(self, other: "Stage") -> "Stage":
        sums = {name: getattr(self, name) + getattr(other, name) for name in _AMOUNTS}
        return Stage(name=self.name, **sums)

    def __mul__(self, times: float) -> "Stage":
        return Stage(name=self.name, **{name: times * getattr(self, name) for name in _AMOUNTS})

    @property
    def product_flops(self) -> float:
        """FLOP of matrix products."""
        return self.float32 + self.float64

    def seconds(self, speeds: Speeds) -> float:
        """Return how long this takes."""
        return float(sum(getattr(self, name) / speed for name, speed in _speed_of(speeds).items()))


_AMOUNTS = [field.name for field in fields(Stage) if field.name != "name"]


def _speed_of(speeds: Speeds) -> dict[str, float]:
    names = ("float32", "float64", "eigen", "fresh", "cached", "calls")
    return {**{name: getattr(speeds, name) for name in names}, "read": speeds.reading}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The stages of a fit, its peak of memory in bytes, and the parameters of the detector that it is about.

    Examples
    --------
    >>> plan = plan_paper(6_000_000, 512, 100, epochs=1, batch_size=1024)
    >>> f"{plan.total.product_flops:.2g} FLOP in {plan.steps} steps"
    '9.9e+14 FLOP in 5860 steps'
    """

    stages: list[Stage]
    memory: float
    parameters: dict[str, object]
    steps: int = 0

    @property
    def total(self) -> Stage:
        """All stages together."""
        total = Stage(name="total")
        for stage in self.stages:
            total += stage
        return total


def plan_paper(
    n_rows: int,
    n_features: int,
    n_quadrics: int,
    *,
    epochs: int = 20,
    batch_size: int = 1024,
    constraint: ConstraintName = "penalty",
) -> Plan:
    """Plan ``QuadricDetector.from_paper("full", ...)`` for float32 rows (n, d): m quadrics in all features, trained.

    Parameters
    ----------
    n_rows, n_features, n_quadrics : int
    epochs, batch_size : int
    constraint : {"penalty", "stiefel"}

    Examples
    --------
    A step of the training costs at least two products of ``2 b m d²`` FLOP:

    >>> training = plan_paper(1024, 512, 100, epochs=1, batch_size=1024).stages[1]
    >>> round(training.float32 / (2 * 1024 * 100 * 512**2), 2)
    2.11
    """
    n, d, m = n_rows, n_features, n_quadrics
    _check_sizes(n, d)
    check_n_quadrics(m, d)
    for name, number in (("epochs", epochs), ("batch_size", batch_size)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    per_epoch = -(-n // batch_size)
    epoch = _pass("training", n, d, NORMALIZE + CENTRE) + Stage(name="", float32=_rows_product(n, d, d))
    epoch += _batch(n, d, m) + _step(d, m, constraint) * per_epoch
    first = _moments(n, d) + Stage(name="", fresh=NORMALIZE * n * d) + _linear(d)
    entries = packed_size(d) * m
    # A random frame is made orthonormal.
    start = Stage(name="", float32=4 * entries * m, fresh=100 * entries + 5 * CHECKS * m * d**2)
    score = _pass("scores of all rows", n, d, NORMALIZE + CENTRE) + Stage(name="", float32=_rows_product(n, d, d))
    return Plan(
        stages=[
            replace(first + start, name="coordinates and start"),
            epoch * epochs,
            score + _distances(n, d, m) + Stage(name="", fresh=CHECKS * m * d**2 * -(-n // SCORING_ROWS)),
        ],
        memory=_paper_memory(n, d, m, batch_size, constraint),
        parameters={"n_quadrics": m, "epoch_num": epochs, "batch_size": batch_size, "constraint": constraint},
        steps=epochs * per_epoch,
    )


def plan_closed_form(
    n_rows: int, n_features: int, *, rounds: int = EXPECTED_ROUNDS, kept: float = EXPECTED_KEPT, second_look: bool = False
) -> Plan:
    """Plan ``QuadricDetector()`` for float32 rows (n, d): everything in closed form.

    Parameters
    ----------
    n_rows, n_features : int
    rounds : int, default=3
        How often rows are weighed until it settles; from 0 (``robust=False``) to 6.
    kept : float, default=1/7
        The share of the quadrics that has evidence, from 0 to 1.
    second_look : bool, default=False
        Whether normalised rows are looked at, too.

    Examples
    --------
    >>> plan_closed_form(100_000, 512, rounds=0).total.passes
    4.0
    """
    n, d = n_rows, n_features
    _check_sizes(n, d)
    if not 0 <= rounds <= MOST_ROUNDS or not 0 <= kept <= 1:
        raise ValueError(f"there are 0 to {MOST_ROUNDS} rounds and a share from 0 to 1 is kept, got {rounds} and {kept}")
    first, k = _n_components(n, d, MOST_COMPONENTS_FIRST), _n_components(n, d, MOST_COMPONENTS)
    looks = _moments(n, d) * (2 if second_look else 1) + _linear(d) * (2 if second_look else 0)
    if d >= NORM_FEATURES:
        looks += _pass("", n, d, SPLIT)
    weighing = _linear(d) + _closed_form(n, d, first) + _evidence(n, d, first)
    weighing += _pass("", n, d, 2 * SPLIT) + _linear_scores(n, d) + _quadric_scores(n, d, first, kept) + _moments(n, d)
    last = _linear(d) + _closed_form(n, d, k) + _evidence(n, d, k)
    scores = _pass("", n, d, 0) + _linear_scores(n, d) + _quadric_scores(n, d, k, kept)
    return Plan(
        stages=[
            replace(looks, name="moments"),
            replace(weighing * rounds, name="rounds of weighing rows"),
            replace(last, name="quadrics"),
            replace(scores, name="scores of all rows"),
        ],
        memory=_closed_form_memory(n, d, k),
        parameters={},
    )


def worst_closed_form(n_rows: int, n_features: int) -> Plan:
    """Plan a closed form with all rounds, all quadrics, and a look at normalised rows: no rows take longer.

    Examples
    --------
    >>> worst_closed_form(100_000, 512).total.float64 > plan_closed_form(100_000, 512).total.float64
    True
    """
    return plan_closed_form(n_rows, n_features, rounds=MOST_ROUNDS, kept=1.0, second_look=n_features >= NORM_FEATURES)


def best_batch_size(
    n_rows: int, n_features: int, n_quadrics: int, speeds: Speeds, constraint: ConstraintName = "penalty"
) -> int:
    """Return the smallest batch in which what does not grow with it takes at most a quarter of a step: small ones learn sooner.

    Examples
    --------
    >>> speeds = Speeds(float32=1e11, float64=5e10, eigen=1e10, fresh=5e9, cached=2e10, calls=2e5)
    >>> best_batch_size(6_000_000, 512, 100, speeds)
    1024
    """
    fixed = _step(n_features, n_quadrics, constraint).seconds(speeds)
    for batch_size in BATCH_SIZES:
        if batch_size >= n_rows or fixed <= FIXED_SHARE * (fixed + _batch(batch_size, n_features, n_quadrics).seconds(speeds)):
            return batch_size
    return BATCH_SIZES[-1]


def _check_sizes(n: int, d: int) -> None:
    if d < 1 or n <= max(d, 2):
        raise ValueError(
            f"a plan is for more rows than features, of which there is one or more, got {n} rows of {d} features; "
            "a fit with fewer rows takes no planning"
        )


def _pass(name: str, n: int, d: int, touched: float) -> Stage:
    """Read all rows once; so many bytes are touched for each number besides."""
    return Stage(name=name, passes=1, fresh=(READ + touched) * n * d, read=4 * n * d)


def _rows_product(n: int, d: int, k: int) -> float:
    return 2 * n * d * k


def _moments(n: int, d: int) -> Stage:
    """Means and covariances of the folds, from a pass."""
    n_merged = N_FOLDS * _n_blocks(n, d)
    merged = Stage(name="", float64=2 * n * d**2, fresh=MOMENTS * n * d + 64 * d**2 * n_merged)
    return _pass("", n, d, SPLIT) + merged


def _n_blocks(n: int, d: int) -> int:
    return -(-n // min(MOST_BLOCK_ROWS, max(1, BLOCK_NUMBERS // d)))


def _linear(d: int) -> Stage:
    """Principal axes of all rows and of all but a fold, and the spread of each fold along them."""
    return Stage(name="", eigen=(1 + N_FOLDS) * EIGEN_FLOPS * d**3, float64=N_FOLDS * 2 * d**3)


def _n_components(n: int, d: int, most: int) -> int:
    """As the fit chooses it."""
    return max(1, min(d, most, int((math.sqrt(8 * n / ROWS_PER_COEFFICIENT + 1) - 1) / 2)))


def _closed_form(n: int, d: int, k: int) -> Stage:
    """All quadrics in k coordinates, from products of features of degree 2, for all rows and for all but a fold."""
    size, solutions = packed_size(k + 1), 1 + N_FOLDS
    quadratic = packed_size(k)
    sample = min(n, N_EVIDENCE)
    stripe = -(-size // N_STRIPES)
    triangle = sum(min(stripe, size - start) * (size - start) for start in range(0, size, stripe))
    products = 2 * n * triangle
    small = solutions * (2 * quadratic * (k + 1) ** 2 + 4 * quadratic**2 * (k + 1)) + 2 * sample * d * k
    n_added = N_FOLDS * _n_blocks(n, d)
    return _pass("", n, d, CENTRE) + Stage(
        name="",
        float32=_rows_product(n, d, k),
        float64=products + small,
        eigen=solutions * EIGEN_FLOPS * quadratic**3,
        fresh=FEATURE * n * size + TOTAL * triangle * n_added,
    )


def _evidence(n: int, d: int, k: int) -> Stage:
    """Distances of a sample and of references to all quadrics."""
    sample = min(n, N_EVIDENCE)
    transformed = Stage(name="", float32=_rows_product(sample, d, k), fresh=CENTRE * sample * d)
    return transformed + _distances(sample + N_REFERENCES, k, packed_size(k))


def _distances(n: int, k: int, m: float) -> Stage:
    """Distances of n points to m quadrics in k coordinates: one product, and a few operations on the half gradients."""
    return Stage(name="", float32=2 * n * m * k**2 + 4 * n * m * k, cached=HALVES_SCORED * n * m * k)


def _linear_scores(n: int, d: int) -> Stage:
    return Stage(name="", float32=_rows_product(n, d, d), fresh=(CENTRE + WHITEN) * n * d)


def _quadric_scores(n: int, d: int, k: int, kept: float) -> Stage:
    quadrics = Stage(name="", float32=_rows_product(n, d, k), fresh=CENTRE * n * d) if kept else Stage(name="")
    return quadrics + _distances(n, k, kept * packed_size(k))


def _batch(b: int, d: int, m: int) -> Stage:
    """Count the part of training steps that grows with the rows: gradients by the points and by the matrices."""
    products = 4 * b * m * d**2 + 6 * b * m * d  # the small ones: values f, and gradients by b
    return Stage(name="", float32=products, cached=HALVES_TRAINED * b * m * d)


def _step(d: int, m: int, constraint: ConstraintName) -> Stage:
    """Count the part of a training step that does not grow with the rows."""
    entries = packed_size(d) * m
    return Stage(
        name="",
        float32=FRAME_PRODUCTS[constraint] * 2 * entries * m,
        cached=MATRICES * d**2 * m + FRAME[constraint] * entries,
        calls=STEP_CALLS[constraint],
    )


def _paper_memory(n: int, d: int, m: int, batch_size: int, constraint: ConstraintName) -> float:
    frames = 4 + (constraint == "stiefel")  # itself, its gradient, its momentum, and the step that is being made
    # The checks of quadrics hold a few copies of their matrices.
    training = 4 * (frames * packed_size(d) * m + 6 * m * d**2 + 2 * BLOCK_NUMBERS + 3 * batch_size * d)
    moments = 8 * (8 * d**2 + 3 * _block_rows(d) * d / N_FOLDS) + 12 * _block_rows(d) * d
    return ROW_BYTES * n + max(training, moments)


def _closed_form_memory(n: int, d: int, k: int) -> float:
    size, quadratic = packed_size(k + 1), packed_size(k)
    rows = 12 * _block_rows(d) * d + 4 * N_EVIDENCE * d
    features = 8 * 3 * min(BLOCK_NUMBERS, size * _block_rows(d) // N_FOLDS)
    products = 8 * 9 * size**2
    quadrics = 4 * (1 + N_FOLDS) * quadratic * k**2 + 8 * 2 * quadratic * k**2
    moments = 8 * (8 * d**2 + 3 * _block_rows(d) * d / N_FOLDS)
    return ROW_BYTES * n + rows + quadrics + max(moments, features + products)


def _block_rows(d: int) -> int:
    return min(MOST_BLOCK_ROWS, max(1, BLOCK_NUMBERS // d))
