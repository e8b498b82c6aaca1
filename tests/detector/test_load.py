"""A fitted detector under load: many threads, many processes, many calls."""

import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from pyod_quadric import QuadricDetector

N_THREADS, N_PROCESSES = 8, 4
FIRST, LAST = 1_000, 5_000
# What may still be kept after 1,000 calls. A leak of the scores would be 32 MB, one of an object a call 4,000 blocks of memory;
# what allocators keep, and the system in its large pages, and threads of other tests, is a part of that on any machine.
N_SCORED, MOST_BYTES, MOST_BLOCKS = 1_000, 12_000_000, 1_000

IN_PROCESSES = """
import sys
from concurrent.futures import ProcessPoolExecutor
import multiprocessing
import numpy as np
from pyod_quadric import batch_scorer

if __name__ == "__main__":
    path, rows, scores = sys.argv[1:]
    blocks = np.load(rows)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pyod_quadric"])
    with ProcessPoolExecutor(N_PROCESSES, mp_context=context) as pool:
        np.save(scores, list(pool.map(batch_scorer(path), blocks)))
"""


def resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


@pytest.fixture(scope="module")
def detector():
    rng = np.random.default_rng(0)
    return QuadricDetector().fit(rng.normal(size=(500, 40)) ** 3)


@pytest.fixture(scope="module")
def blocks():
    return np.random.default_rng(1).normal(size=(24, 100, 40)) ** 3


@pytest.fixture(scope="module")
def serial(detector, blocks):
    return [detector.decision_function(block) for block in blocks]


def test_threads_share_a_detector(detector, blocks, serial):
    together = Barrier(N_THREADS)

    def work(first: int) -> list[np.ndarray]:
        together.wait()
        return [detector.decision_function(blocks[(first + place) % len(blocks)]) for place in range(len(blocks))]

    with ThreadPoolExecutor(N_THREADS) as pool:
        found = list(pool.map(work, range(N_THREADS)))
    for first, scores in enumerate(found):
        np.testing.assert_array_equal(scores, np.roll(serial, -first, axis=0))


def test_processes_score_alike(detector, blocks, serial, tmp_path):
    detector.save(tmp_path / "model")
    np.save(tmp_path / "rows.npy", blocks)
    script = tmp_path / "script.py"
    script.write_text(IN_PROCESSES.replace("N_PROCESSES", str(N_PROCESSES)))
    command = [sys.executable, script, tmp_path / "model", tmp_path / "rows.npy", tmp_path / "scores.npy"]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npy"), serial)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read as Linux tells it")
def test_memory_does_not_grow_with_calls():
    rows = np.random.default_rng(0).normal(size=(N_SCORED, 2)) ** 3
    detector = QuadricDetector().fit(rows)
    found = {}
    for call in range(1, LAST + 1):
        detector.decision_function(rows)
        if call in (FIRST, LAST):
            gc.collect()
            found[call] = resident(), sys.getallocatedblocks()
    n_bytes, n_blocks = (after - before for before, after in zip(found[FIRST], found[LAST], strict=True))
    assert n_bytes < MOST_BYTES
    assert n_blocks < MOST_BLOCKS
