"""Very many fits and scorings in one process: what it holds in memory, threads and open files must not grow.

``python -m tests.support.load 3000 10000`` makes so many of each, and prints as JSON what a process holds after a tenth of them
and after all. Fits are in turn what people do: arrays, files, streams, trainings, saving and loading, two threads at a time.
"""

import gc
import json
import sys
import tempfile
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from pyod_quadric import QuadricDetector

N_ROWS = 400


def held() -> dict[str, int]:
    """Return what this process holds: bytes of memory, blocks of Python's memory, threads, open files."""
    gc.collect()
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "bytes": 1024 * int(lines["VmRSS"].split()[0]),
        "blocks": sys.getallocatedblocks(),
        "threads": int(lines["Threads"]),
        "python threads": threading.active_count(),
        "files": len(list(Path("/proc/self/fd").iterdir())),
    }


def fit_once(number: int, rows: np.ndarray, folder: Path) -> None:
    """Fit in one of several ways, in turn."""
    way = number % 6
    if way == 0:  # first, so that threads have long ended when they are counted
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(QuadricDetector(score_function="linear").fit, [rows[:100], rows[100:200]]))
    elif way == 1:
        QuadricDetector().fit(rows)
    elif way == 2:
        QuadricDetector(score_function="linear", robust=False).fit(folder / "rows.npy")
    elif way == 3:
        QuadricDetector(epoch_num=1, n_quadrics=1, constraint="stiefel").fit(rows[:100])
    elif way == 4:
        QuadricDetector(window=50).partial_fit(rows[:50]).partial_fit(rows[50:60]).save(folder / "model")
    else:
        QuadricDetector.load(folder / "model").explain(rows[:5])


def main(n_fits: int, n_scorings: int) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    rows = np.random.default_rng(0).normal(size=(N_ROWS, 4)) ** 3
    detector = QuadricDetector().fit(rows)
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "rows.npy", rows)
        detector.save(folder / "model")
        jobs = {
            "fits": (n_fits, lambda number: fit_once(number, rows, folder)),
            "scorings": (n_scorings, lambda number: detector.decision_function(rows if number % 2 else folder / "rows.npy")),
        }
        for what, (n, job) in jobs.items():
            found[what] = []
            for number in range(n):
                job(number)
                if number + 1 in (n // 10, n):
                    found[what].append(held())
    print(json.dumps(found))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
