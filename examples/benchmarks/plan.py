"""Whether ``pyod-quadric plan`` is right: planned and measured times of fits of both kinds, at several sizes.

The machine is timed before and after each fit, and the mean of both speeds goes into the plan, since the machine may change
while others are at work. With one thread (``OMP_NUM_THREADS=1``) all times are the processor's, to which waiting for others
adds nothing. How many rounds rows are weighed and how many quadrics have evidence depends on the rows; the plan is made with
what it expects. Then blocks of rows are scored by one and by two workers of a local Dask cluster, if Dask is there; these are
times of the clock, and mean something only where each worker has a core of its own.

Run it with ``OMP_NUM_THREADS=1 python -m examples.benchmarks.plan --output DIR``, in about two minutes.
"""

import tempfile
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from examples.benchmarks._common import argument_parser, environment, markdown_table, write_results
from examples.benchmarks.cost import mixture
from pyod_quadric import QuadricDetector
from pyod_quadric.cluster import score_dask
from pyod_quadric.planning import Plan, plan_closed_form, plan_paper
from pyod_quadric.speeds import Speeds, calibrated

TARGET = 0.3  # how far planned over measured may be from 1
CPU = torch.device("cpu")


class Size(NamedTuple):
    """What is timed."""

    paper: tuple[tuple[int, int, int, int], ...]  # rows, features, quadrics, epochs
    closed_form: tuple[tuple[int, int], ...]  # rows, features
    scored: tuple[int, int]  # rows, features
    workers: tuple[int, ...]
    processes: bool  # or threads, which start at once


FULL = Size(
    ((60_000, 64, 20, 2), (20_000, 128, 50, 1), (8_192, 256, 100, 1), (4_096, 512, 50, 1)),
    ((20_000, 64), (40_000, 128), (20_000, 256), (20_000, 512)),
    (200_000, 128),
    (1, 2),
    processes=True,
)
FAST = Size(((300, 4, 2, 1),), ((300, 4),), (200, 4), (1,), processes=False)


def measure(name: str, detector: QuadricDetector, plan: Plan, n_rows: int, n_features: int, seed: int) -> dict[str, Any]:
    """Fit a detector, and return the planned and the measured seconds."""
    rows = mixture(n_rows, n_features, seed)
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    before = calibrated(CPU, n_features)
    started = clock()
    detector.fit(rows)
    measured = clock() - started
    speeds = mean_speeds(before, calibrated(CPU, n_features))
    planned = plan.total.seconds(speeds)
    size = {"kind": name, "n_rows": n_rows, "n_features": n_features, **plan.parameters}
    found = size | {"planned": planned, "measured": measured, "ratio": planned / measured}
    print(found, flush=True)
    return found | {"speeds": {name: speed for name, speed in asdict(speeds).items() if name != "reading"}}


def mean_speeds(one: Speeds, other: Speeds) -> Speeds:
    """Return the means of two measurements."""
    return Speeds(**{name: (speed + getattr(other, name)) / 2 for name, speed in asdict(one).items()})


def measure_all(size: Size, seed: int) -> list[dict[str, Any]]:
    """Fit all sizes of both kinds."""
    QuadricDetector.from_paper("sub", n_quadrics=1, epoch_num=1).fit(mixture(100, 2, seed))  # what is slow only the first time
    results = []
    for n, d, m, epochs in size.paper:
        detector = QuadricDetector.from_paper("full", n_quadrics=m, epoch_num=epochs)
        results.append(measure("paper", detector, plan_paper(n, d, m, epochs=epochs), n, d, seed))
    for n, d in size.closed_form:
        results.append(measure("default", QuadricDetector(), plan_closed_form(n, d), n, d, seed))
    return results


def measure_workers(size: Size, seed: int) -> dict[int, float]:
    """Return the rows scored in a second by so many workers of a local cluster, each with one thread."""
    try:
        import dask.array as da
        from dask import delayed
        from distributed import Client, LocalCluster
    except ImportError:
        return {}
    rows = mixture(*size.scored, seed)
    detector = QuadricDetector().fit(rows[:20_000])
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.safetensors")
        detector.save(path)
        file = Path(folder, "rows.npy")
        np.save(file, rows)
        bounds = np.linspace(0, len(rows), 21, dtype=int)
        parts = [delayed(read)(file, *ends) for ends in pairwise(bounds.tolist())]
        shapes = [(stop - start, rows.shape[1]) for start, stop in pairwise(bounds.tolist())]
        blocks = da.concatenate([da.from_delayed(part, shape, rows.dtype) for part, shape in zip(parts, shapes, strict=True)])
        for n_workers in size.workers:
            with (
                LocalCluster(
                    n_workers=n_workers, threads_per_worker=1, processes=size.processes, dashboard_address=None
                ) as cluster,
                Client(cluster) as client,
            ):
                placed = client.persist(blocks)
                score_dask(placed, path).compute()  # workers start and read the model
                started = time.perf_counter()
                score_dask(placed, path).compute()
                found[n_workers] = len(rows) / (time.perf_counter() - started)
    return found


def read(file: Path, start: int, stop: int) -> NDArray[np.float32]:
    """Read some rows, on a worker."""
    return np.array(np.load(file, mmap_mode="r")[start:stop])


def draw(results: list[dict[str, Any]]) -> Figure:
    """Draw planned against measured times."""
    figure, ax = plt.subplots(figsize=(6.5, 5.5), layout="constrained")
    times = [result[name] for result in results for name in ("planned", "measured")]
    ends = np.array([min(times) / 1.5, max(times) * 1.5])
    ax.loglog(ends, ends, "k-", label="planned = measured")
    ax.fill_between(ends, (1 - TARGET) * ends, (1 + TARGET) * ends, color="lightgrey", label=f"within {TARGET:.0%}")
    for kind, marker in (("paper", "o"), ("default", "s")):
        chosen = [result for result in results if result["kind"] == kind]
        ax.plot([result["measured"] for result in chosen], [result["planned"] for result in chosen], marker, label=kind)
    ax.set(
        xlabel="measured seconds", ylabel="planned seconds", title=f"{len(results)} fits, {torch.get_num_threads()} thread(s)"
    )
    ax.grid(alpha=0.3)
    ax.legend()
    return figure


def main(output: Path, fast: bool = False, seed: int = 0) -> dict[str, Any]:
    """Measure, print the tables, write ``plan.json`` and ``plan.png``, and return the results."""
    size = FAST if fast else FULL
    print(f"seed {seed}, {environment()}")
    results = measure_all(size, seed)
    names = ["kind", "n_rows", "n_features", "n_quadrics", "planned", "measured", "ratio"]
    print(f"\n{markdown_table(names, [[result.get(name, 'auto') for name in names] for result in results])}\n")
    throughput = measure_workers(size, seed)
    print(markdown_table(["workers", "rows scored per second"], list(throughput.items())))
    summary = {"size": size._asdict(), "seed": seed, "results": results, "rows_per_second": throughput}
    write_results(output, "plan", summary, draw(results))
    return summary


if __name__ == "__main__":
    main(**vars(argument_parser(__doc__, data=False).parse_args()))
