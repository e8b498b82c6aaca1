"""A plan counts the operations that a fit does, grows with the job, and says what is wrong with its sizes."""

import math
from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from pyod_quadric import QuadricDetector
from pyod_quadric._packing import packed_size
from pyod_quadric.planning import (
    BATCH_SIZES,
    MOST_ROUNDS,
    best_batch_size,
    plan_closed_form,
    plan_paper,
    worst_closed_form,
)
from pyod_quadric.speeds import Speeds, calibrated

SPEEDS = Speeds(float32=7e10, float64=3e10, eigen=2e10, fresh=2e10, cached=3e10, calls=2e5)
ROWS = np.random.default_rng(0).normal(size=(2000, 24)).astype(np.float32) ** 3


def counted(detector: QuadricDetector, rows: np.ndarray) -> int:
    """Return the FLOP of all matrix products of a fit, as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        detector.fit(rows)
    return counter.get_total_flops()


@pytest.mark.parametrize("constraint", ["penalty", "stiefel"])
def test_operations_of_the_papers_settings(constraint):
    settings = {"n_quadrics": 9, "epoch_num": 2, "batch_size": 100, "constraint": constraint}
    plan = plan_paper(1100, 24, 9, epochs=2, batch_size=100, constraint=constraint)
    detector = QuadricDetector.from_paper("full", **settings)
    assert plan.total.product_flops == pytest.approx(counted(detector, ROWS[:1100]), rel=0.03)
    assert plan.parameters == settings


def test_operations_of_the_closed_form():
    detector = QuadricDetector(robust=False)
    flops = counted(detector, ROWS)
    kept = detector.n_quadrics_ / packed_size(len(detector.model_.coordinates.matrix))
    assert plan_closed_form(2000, 24, rounds=0, kept=kept).total.product_flops == pytest.approx(flops, rel=0.03)


def test_rounds_are_within_what_is_planned():
    flops = counted(QuadricDetector(), ROWS)
    least, most = plan_closed_form(2000, 24, rounds=1, kept=0), worst_closed_form(2000, 24)
    assert 0.97 * least.total.product_flops < flops < 1.03 * most.total.product_flops


@st.composite
def jobs(draw):
    d = draw(st.integers(2, 600))
    return draw(st.integers(d + 1, 10**7)), d, draw(st.integers(1, packed_size(d)))


@given(jobs(), st.sampled_from(["penalty", "stiefel"]))
def test_larger_jobs_of_the_paper_cost_more(job, constraint):
    n, d, m = job
    small = plan_paper(n, d, m, constraint=constraint)
    for larger in (
        plan_paper(2 * n, d, m, constraint=constraint),
        plan_paper(n + d, d + 1, m, constraint=constraint),
        plan_paper(n, d, m, epochs=21, constraint=constraint),
    ):
        assert larger.total.seconds(SPEEDS) > small.total.seconds(SPEEDS)
        assert larger.total.product_flops > small.total.product_flops
        assert larger.memory >= small.memory


@given(jobs(), st.integers(0, MOST_ROUNDS - 1))
def test_larger_jobs_of_the_closed_form_cost_more(job, rounds):
    n, d, _ = job
    small = plan_closed_form(n, d, rounds=rounds)
    for larger in (plan_closed_form(2 * n, d, rounds=rounds), plan_closed_form(n, d, rounds=rounds + 1)):
        assert larger.total.seconds(SPEEDS) > small.total.seconds(SPEEDS)
        assert larger.memory >= small.memory
    assert worst_closed_form(n, d).total.seconds(SPEEDS) > small.total.seconds(SPEEDS)


@given(jobs(), st.sampled_from(list(asdict(SPEEDS))))
def test_faster_machines_take_no_longer(job, name):
    n, d, m = job
    faster = Speeds(**{**asdict(SPEEDS), name: 2 * asdict(SPEEDS)[name]})
    for plan in (plan_paper(n, d, m), plan_closed_form(n, d)):
        assert plan.total.seconds(faster) <= plan.total.seconds(SPEEDS)
        assert sum(stage.seconds(SPEEDS) for stage in plan.stages) == pytest.approx(plan.total.seconds(SPEEDS))


@given(jobs(), st.floats(0.01, 100))
def test_reading_adds_the_bytes_of_all_passes(job, gb_per_s):
    n, d, _ = job
    total = plan_closed_form(n, d).total
    added = total.seconds(SPEEDS.reading_at(gb_per_s)) - total.seconds(SPEEDS)
    assert added == pytest.approx(total.passes * 4 * n * d / (gb_per_s * 1e9), rel=1e-6)


@given(jobs())
def test_batches_are_large_enough_for_what_a_step_costs_anyway(job):
    n, d, m = job
    chosen = best_batch_size(n, d, m, SPEEDS)
    assert chosen in BATCH_SIZES
    if chosen < min(n, BATCH_SIZES[-1]):
        one = plan_paper(chosen, d, m, epochs=2, batch_size=chosen) if chosen > d else None
        if one:  # a batch of twice the rows in as many steps costs at least 7/4
            two = plan_paper(2 * chosen, d, m, epochs=2, batch_size=2 * chosen)
            assert two.stages[1].seconds(SPEEDS) > 1.7 * one.stages[1].seconds(SPEEDS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plan_paper(100, 512, 10), "more rows than features.*got 100 rows of 512 features"),
        (lambda: plan_closed_form(2, 1), "more rows than features"),
        (lambda: plan_paper(1000, 2, 4), "no more can be orthonormal; got 4"),
        (lambda: plan_paper(1000, 2, 3, epochs=0), "epochs must be at least 1, got 0"),
        (lambda: plan_paper(1000, 2, 3, batch_size=0), "batch_size must be at least 1, got 0"),
        (lambda: plan_closed_form(1000, 2, rounds=7), "0 to 6 rounds"),
        (lambda: plan_closed_form(1000, 2, kept=1.5), "share from 0 to 1"),
        (lambda: Speeds.stated(-1), "tflops must be a positive number, got -1"),
        (lambda: Speeds.stated(1, float64_tflops=math.inf), "float64_tflops must be a positive number"),
        (
            lambda: Speeds(float32=1, float64=0, eigen=1, fresh=1, cached=1, calls=1),
            "the speed float64 must be positive, got 0",
        ),
        (lambda: SPEEDS.reading_at(0), "reading speed must be a positive number"),
    ],
)
def test_errors_say_what_is_needed(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_calibration_finds_speeds_and_leaves_generators_alone():
    before = torch.get_rng_state()
    speeds = calibrated(torch.device("cpu"), 64)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(1e7 < speed < 1e15 for name, speed in asdict(speeds).items() if name not in ("reading", "calls"))
    assert 1e3 < speeds.calls < 1e8
