"""What fitting and scoring cost, beside PyOD's detectors, as rows and features grow.

The rows are a low-rank Gaussian mixture with noise in all directions, float32, or float64 for GMM, which fails otherwise. All
detectors have default parameters and run on all threads. Each size is timed up to three times while that takes little, and the
shortest time counts. A size is skipped when the smaller ones let expect that it would take too long; the expectation is a power
of n through the last two sizes.

Run it with ``python -m examples.benchmarks.cost --output DIR`` on a quiet machine, in about half an hour. It keeps what it has
measured in ``cost_timings.json``, and a killed run resumes from it. On a machine with other work, run it with
``OMP_NUM_THREADS=1`` and ``--cpu-time``, which counts only the processor's time for this process: otherwise waiting would be
counted, too. ``--redraw`` draws ``cost.json`` of the output folder again and measures nothing.
"""

import json
import math
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from examples.benchmarks._common import (
    add_redraw,
    argument_parser,
    environment,
    markdown_table,
    stored_results,
    write_results,
)
from examples.benchmarks._detection_cells import OURS, make_detector, quiet

NEURAL = ("AutoEncoder", "DeepSVDD", "VAE")
METHODS = (OURS, *NEURAL, "OCSVM", "KNN", "LOF", "GMM", "IForest")
NEED_FLOAT64 = ("GMM",)
# Colours that colour-blind people tell apart (Okabe and Ito); neural detectors are dashed.
STYLES = {
    OURS: ("#d55e00", "o", "-"),
    "AutoEncoder": ("#0072b2", "s", "--"),
    "DeepSVDD": ("#cc79a7", "s", "--"),
    "VAE": ("#000000", "s", "--"),
    "OCSVM": ("#cc79a7", "v", "-"),
    "KNN": ("#0072b2", "^", "-"),
    "LOF": ("#009e73", "X", "-"),
    "GMM": ("#e69f00", "D", "-"),
    "IForest": ("#56b4e9", "P", "-"),
}
MOST_SECONDS = 160.0  # that a size may be expected to take
REPETITIONS, ENOUGH_SECONDS = 3, 5.0
N_WARM = 100
N_CLUSTERS, RANK, NOISE = 5, 8, 0.1
LARGE = 10_000  # rows from which on ours should be the faster one


class Size(NamedTuple):
    """What is timed."""

    n_rows: tuple[int, ...]
    n_features: tuple[int, ...]
    n_scored: int
    methods: tuple[str, ...]


FULL = Size((1_000, 10_000, 100_000), (16, 64, 512), 5_000, METHODS)
FAST = Size((100, 200), (4, 9), 50, (OURS, "GMM", "KNN"))


class Timing(NamedTuple):
    """Seconds of one detector at one size; those of a size that was skipped are expected ones."""

    method: str
    n_rows: int
    n_features: int
    fit_seconds: float
    score_seconds: float
    skipped: bool = False


def mixture(n_rows: int, n_features: int, seed: int) -> NDArray[np.float32]:
    """Return rows of a Gaussian mixture in a few directions, with noise in all of them."""
    rng = np.random.default_rng(seed)
    rank = min(RANK, n_features)
    axes = rng.standard_normal((rank, n_features)) / math.sqrt(n_features)
    centres = 3 * rng.standard_normal((N_CLUSTERS, rank))
    hidden = centres[rng.integers(N_CLUSTERS, size=n_rows)] + rng.standard_normal((n_rows, rank))
    noise = NOISE * rng.standard_normal((n_rows, n_features), dtype=np.float32) / math.sqrt(n_features)
    return (hidden @ axes).astype(np.float32) + noise


Clock = Callable[[], float]


def best_of_few(task: Callable[[], object], clock: Clock) -> float:
    """Return the shortest time of a task, which is done again only if it is short."""
    times: list[float] = []
    while len(times) < REPETITIONS and sum(times) < ENOUGH_SECONDS:
        started = clock()
        task()
        times.append(clock() - started)
    return min(times)


def measure(method: str, rows: NDArray[np.floating], n_scored: int, seed: int, clock: Clock) -> Timing:
    """Time one detector on rows, the last of which are only scored."""
    if method in NEED_FLOAT64:
        rows = rows.astype(np.float64)
    training, test = rows[:-n_scored], rows[-n_scored:]
    detector = make_detector(method, rows.shape[1], seed)
    with quiet():
        fit_seconds = best_of_few(lambda: detector.fit(training), clock)
        score_seconds = best_of_few(lambda: detector.decision_function(test), clock)
    return Timing(method, *training.shape, fit_seconds, score_seconds)


def expected(earlier: list[Timing], n_rows: int) -> tuple[float, float]:
    """Return the expected seconds of fit and score at a larger size, which grow at least linearly and not at all."""

    def grown(name: str, least: float) -> float:
        last = earlier[-1]
        power = least
        if len(earlier) > 1:
            ratio = getattr(last, name) / getattr(earlier[-2], name)
            power = max(power, math.log(ratio) / math.log(last.n_rows / earlier[-2].n_rows))
        return float(getattr(last, name) * (n_rows / last.n_rows) ** power)

    return grown("fit_seconds", 1.0), grown("score_seconds", 0.0)


def all_timings(size: Size, seed: int, clock: Clock, known: list[Timing]) -> Iterator[Timing]:
    """Time all detectors at all sizes but those that are known."""
    for d in size.n_features:
        rows = mixture(max(size.n_rows) + size.n_scored, d, seed)
        for method in size.methods:
            earlier = [timing for timing in known if (timing.method, timing.n_features) == (method, d)]
            yield from earlier
            missing = size.n_rows[len(earlier) :]
            if missing:
                measure(method, rows[: 2 * N_WARM], N_WARM, seed, clock)  # what is slow only the first time
            for n in missing:
                seconds = expected(earlier, n) if earlier else (0.0, 0.0)
                if sum(seconds) > MOST_SECONDS:
                    earlier.append(Timing(method, n, d, *seconds, skipped=True))
                else:
                    earlier.append(measure(method, rows[: n + size.n_scored], size.n_scored, seed, clock))
                yield earlier[-1]


def timings_table(timings: list[Timing], size: Size, name: str) -> str:
    """Return one kind of figures as a table, a column for each size."""
    sizes = list(product(size.n_features, size.n_rows))
    by_place = {(timing.method, timing.n_features, timing.n_rows): timing for timing in timings}
    rows = [[method, *(_figure(by_place[method, d, n], size, name) for d, n in sizes)] for method in size.methods]
    return markdown_table([name, *(f"d = {d}, n = {n:g}" for d, n in sizes)], rows)


def _figure(timing: Timing, size: Size, name: str) -> str:
    if timing.skipped:
        return "skipped"
    return f"{timing.fit_seconds:.3g}" if name == FIT else f"{throughput(timing, size):.2g}"


FIT, SCORE = "seconds to fit", "rows scored per second"


def throughput(timing: Timing, size: Size) -> float:
    """Return the rows scored in a second."""
    return size.n_scored / timing.score_seconds


def claims(timings: list[Timing], size: Size) -> dict[str, Any]:
    """Return how much longer the others take to fit, and how scoring slows down from the fewest to the most rows."""
    seconds = {(timing.method, timing.n_features, timing.n_rows): timing for timing in timings}
    large = [(d, n) for d, n in product(size.n_features, size.n_rows) if n >= min(LARGE, max(size.n_rows))]
    ratios = {
        method: {
            f"d = {d}, n = {n:g}": seconds[method, d, n].fit_seconds / seconds[OURS, d, n].fit_seconds
            for d, n in large
            if not seconds[method, d, n].skipped
        }
        for method in size.methods
        if method != OURS
    }
    slower = {
        f"d = {d}": throughput(seconds[OURS, d, size.n_rows[0]], size) / throughput(seconds[OURS, d, size.n_rows[-1]], size)
        for d in size.n_features
    }
    return {"times_our_fit": ratios, "our_scoring_slower_by": slower}


def claims_table(found: dict[str, Any]) -> str:
    """Return the range of fit times over ours as a table."""
    rows = []
    for method, ratios in found["times_our_fit"].items():
        faster = sum(ratio > 1 for ratio in ratios.values())
        span = f"{min(ratios.values()):.2g} to {max(ratios.values()):.2g}" if ratios else "–"
        rows.append([method, span, f"{faster} of {len(ratios)}"])
    return markdown_table(["detector", "fit over ours, large n", "ours is faster at"], rows)


def draw(timings: list[Timing], size: Size, kind: str, n_threads: int) -> Figure:
    """Draw fit times and scoring throughput against the rows of the fit, a column for each number of features."""
    n_columns = len(size.n_features)
    figure, panels = plt.subplots(2, n_columns, figsize=(1 + 4 * n_columns, 8), layout="constrained", sharex=True, sharey="row")
    for (row, name), (column, d) in product(enumerate((FIT, SCORE)), enumerate(size.n_features)):
        ax = panels[row, column]
        for method in reversed(size.methods):  # ours on top
            curve = [t for t in timings if (t.method, t.n_features, t.skipped) == (method, d, False)]
            heights = [t.fit_seconds if name == FIT else throughput(t, size) for t in curve]
            colour, marker, line = STYLES[method]
            style = {"color": colour, "marker": marker, "linestyle": line, "linewidth": 3 if method == OURS else 1.5}
            ax.loglog([t.n_rows for t in curve], heights, label=method, markersize=5, **style)
        if row == 0:
            ax.set_title(f"{d} features")
        else:
            ax.set_xlabel("rows of the fit")
        ax.grid(alpha=0.3)
    for ax, name in zip(panels[:, 0], (FIT, SCORE), strict=True):
        ax.set_ylabel(name)
    figure.suptitle(
        f"{kind.capitalize()}, {n_threads} CPU thread{'s' if n_threads > 1 else ''}, float32, {size.n_scored:,} rows scored; "
        f"curves end where a fit would take over {MOST_SECONDS:.0f} s"
    )
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=5)
    return figure


def main(output: Path, fast: bool = False, seed: int = 0, cpu_time: bool = False, redraw: bool = False) -> dict[str, Any]:
    """Measure, print the tables, write ``cost.json`` and ``cost.png``, and return the results."""
    if redraw:
        stored = stored_results(output, "cost")
        size, timings = Size(**stored["size"]), [Timing(**timing) for timing in stored["timings"]]
        write_results(output, "cost", stored, draw(timings, size, stored["kind"], stored["environment"]["threads"]))
        return stored
    size = FAST if fast else FULL
    kind, clock = ("processor time", time.process_time) if cpu_time else ("time", time.perf_counter)
    print(f"{kind}, seed {seed}, {environment()}")
    path = output / "cost_timings.json"
    known = [Timing(**timing) for timing in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []
    output.mkdir(parents=True, exist_ok=True)
    timings: list[Timing] = []
    for timing in all_timings(size, seed, clock, known):
        timings.append(timing)
        if len(timings) > len(known):
            path.write_text(json.dumps([timing._asdict() for timing in timings], indent=0), encoding="utf-8")
        print(timing, flush=True)
    found = claims(timings, size)
    for name in (FIT, SCORE):
        print(f"\n{timings_table(timings, size, name)}")
    print(f"\n{claims_table(found)}\n\nour scoring with the most rows fitted is slower by {found['our_scoring_slower_by']}")
    results = {"size": size._asdict(), "seed": seed, "kind": kind, "timings": [timing._asdict() for timing in timings], **found}
    write_results(output, "cost", results, draw(timings, size, kind, torch.get_num_threads()))
    return results


if __name__ == "__main__":
    parser = argument_parser(__doc__, data=False)
    add_redraw(parser)
    parser.add_argument("--cpu-time", action="store_true", help="count the processor's time for this process only")
    main(**vars(parser.parse_args()))
