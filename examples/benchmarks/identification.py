"""What identification rates cost: time as a multiple of the bare matrix products, and memory beyond the inputs.

The sizes are those of the paper: 12,000 images and up to 800,000 distractors of 512 features, at a false-positive rate of 1e-5;
the vectors are random. The bare products are those of every row with each row after it and with every distractor, in tiles of
the same size, with nothing done to the results. Time is that of the processor, which other work on the machine disturbs least,
and the smaller of two turns. Memory is the peak of the resident memory less what was resident before, when rows and distractors
were in memory already.

Run it with ``python -m examples.benchmarks.identification --output DIR``; the targets are twice the bare products and 2 GB.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from examples.benchmarks._common import argument_parser, markdown_table, resident, write_results
from pyod_quadric import identification_curve, identification_rate
from pyod_quadric.plotting import COLOURS
from pyod_quadric.similarity.cutoffs import SHARES
from pyod_quadric.similarity.pairs import TILE_ROWS

TARGET_RATIO, TARGET_BYTES = 2.0, 2 * 10**9
N_TURNS = 2
RATE = 1e-5
BARE, SINGLE, CURVE = "bare products", "one rate", f"rates of {len(SHARES)} cutoffs"


class Size(NamedTuple):
    """How large a problem is."""

    n_rows: int
    n_features: int
    n_distractors: int


FULL = [Size(12_000, 512, n) for n in (20_000, 100_000, 800_000)]
FAST = [Size(300, 8, n) for n in (100, 500)]


class Problem(NamedTuple):
    """Random embeddings of people, three of each, and of distractors; and outlier scores that say nothing."""

    X: NDArray[np.float32]
    labels: NDArray[np.int64]
    distractors: NDArray[np.float32]
    scores: NDArray[np.float64]
    distractor_scores: NDArray[np.float64]


def make_problem(size: Size, seed: int) -> Problem:
    """Return random numbers of a size."""
    rng = np.random.default_rng(seed)
    labels = np.arange(size.n_rows) // 3
    people = rng.standard_normal((labels[-1] + 1, size.n_features), dtype=np.float32)
    rows = people[labels] + rng.standard_normal((size.n_rows, size.n_features), dtype=np.float32)
    distractors = rng.standard_normal((size.n_distractors, size.n_features), dtype=np.float32)
    return Problem(rows, labels, distractors, rng.random(size.n_rows), rng.random(size.n_distractors))


def bare_products(problem: Problem) -> None:
    """Multiply every row with those after it and with every distractor, tile by tile."""
    rows, distractors = torch.from_numpy(problem.X), torch.from_numpy(problem.distractors)
    for columns in range(0, len(rows), TILE_ROWS):
        for start in range(0, columns + 1, TILE_ROWS):
            rows[start : start + TILE_ROWS] @ rows[columns : columns + TILE_ROWS].T
    for columns in range(0, len(distractors), TILE_ROWS):
        for start in range(0, len(rows), TILE_ROWS):
            rows[start : start + TILE_ROWS] @ distractors[columns : columns + TILE_ROWS].T


def one_rate(problem: Problem) -> None:
    """Measure the similarity as it is."""
    identification_rate(problem.X, problem.labels, problem.distractors, false_positive_rate=RATE)


def curve(problem: Problem) -> None:
    """Measure the robust similarity at all cutoffs that a fit tries."""
    cutoffs = np.quantile(problem.scores, 1 - np.array(SHARES))
    identification_curve(
        problem.X,
        problem.labels,
        problem.scores,
        cutoffs,
        problem.distractors,
        problem.distractor_scores,
        false_positive_rate=RATE,
    )


TASKS = {BARE: bare_products, SINGLE: one_rate, CURVE: curve}


def measured(task: Callable[[Problem], None], problem: Problem) -> dict[str, float]:
    """Return the processor seconds that a task takes and the bytes that it adds to the resident memory at its peak."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far; Linux only
    before, started = resident("VmRSS"), time.process_time()
    task(problem)
    seconds = time.process_time() - started
    # The kernel counts pages per thread and adds them up late, so the peak of a small task can be below what was there before.
    return {"seconds": seconds, "bytes": float(max(resident("VmHWM") - before, 0))}


def measured_in_turns(problem: Problem) -> dict[str, dict[str, float]]:
    """Measure all tasks one after the other, several times; return the least time and the largest memory of each."""
    turns = [{name: measured(task, problem) for name, task in TASKS.items()} for _ in range(N_TURNS)]
    return {
        name: {"seconds": min(turn[name]["seconds"] for turn in turns), "bytes": max(turn[name]["bytes"] for turn in turns)}
        for name in TASKS
    }


def draw(results: list[dict[str, Any]]) -> Figure:
    """Draw time over bare products and peak memory, over the number of distractors."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    numbers = [result["size"]["n_distractors"] for result in results]
    for ax in panels:
        ax.set_prop_cycle(color=COLOURS[:2], marker=["o", "s"])
    for name in (SINGLE, CURVE):
        ratios = [result[name]["seconds"] / result[BARE]["seconds"] for result in results]
        panels[0].semilogx(numbers, ratios, label=name)
        panels[1].semilogx(numbers, [result[name]["bytes"] / 1e6 for result in results], label=name)
    panels[0].axhline(TARGET_RATIO, color="black", linestyle="--", label="target")
    panels[1].axhline(TARGET_BYTES / 1e6, color="black", linestyle="--", label="target")
    panels[0].set(ylabel="time over that of the bare products", ylim=(0, None))
    panels[1].set(ylabel="peak memory beyond the inputs, MB", ylim=(0, None))
    size = Size(**results[0]["size"])
    for ax in panels:
        ax.set(xlabel="distractors", title=f"{size.n_rows:,} rows of {size.n_features} features, float32")
        ax.set_xticks(numbers, [f"{number:,}" for number in numbers])
        ax.minorticks_off()  # their labels would overlap
        ax.grid(alpha=0.3)
        ax.legend()
    return figure


def main(output: Path, fast: bool = False, seed: int = 0) -> dict[str, Any]:
    """Measure, print the table, write ``identification.json`` and ``identification.png``, and return the results."""
    one_rate(make_problem(FAST[0], seed))  # whatever is allocated once
    results = []
    for size in FAST if fast else FULL:
        problem = make_problem(size, seed)
        results.append({"size": size._asdict(), **measured_in_turns(problem)})
        unit = results[-1][BARE]["seconds"]
        rows = [
            (name, results[-1][name]["seconds"], results[-1][name]["seconds"] / unit, results[-1][name]["bytes"] / 1e6)
            for name in TASKS
        ]
        print(f"\n{size.n_rows:,} rows, {size.n_distractors:,} distractors, {size.n_features} features\n")
        print(markdown_table(["", "processor seconds", "over bare products", "peak MB beyond the inputs"], rows), flush=True)
    summary = {"target_ratio": TARGET_RATIO, "target_bytes": TARGET_BYTES, "seed": seed, "results": results}
    write_results(output, "identification", summary, draw(results))
    return summary


if __name__ == "__main__":
    main(**vars(argument_parser(__doc__, data=False).parse_args()))
