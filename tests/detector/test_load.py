"""A fitted detector under load: many threads, many processes, many calls."""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from joblib import Parallel, delayed

from pyod_quadric import QuadricDetector
from tests.support.processes import HANGING

N_THREADS, N_PROCESSES = 16, 4
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

AFTER_A_FORK = """
import multiprocessing
import sys
import numpy as np
from pyod_quadric import QuadricDetector

def fitted(rows):
    return QuadricDetector().fit(rows).decision_scores_

if __name__ == "__main__":
    blocks = np.load(sys.argv[1])
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found = pool.map(fitted, blocks)
    np.save(sys.argv[2], found)
"""
INTERRUPTED = """
import pickle
import sys
import numpy as np
from pyod_quadric import QuadricDetector

rows = np.load(sys.argv[1])[0]
detector = QuadricDetector().partial_fit(rows)
before, scores = vars(detector).copy(), detector.decision_function(rows)
detector.set_params(epoch_num=100_000, verbose=2)
parameters = detector.get_params()
try:
    detector.fit(rows + 1)
except KeyboardInterrupt:
    assert all(vars(detector)[name] is before[name] for name in before if name not in parameters)
    assert vars(detector).keys() == before.keys()
    assert (detector.decision_function(rows) == scores).all()
    detector.set_params(epoch_num=None, verbose=0).fit(rows)
    assert (detector.decision_function(rows) == scores).all()
    print("as before")
"""


def resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def scores_of_fit(rows):
    return QuadricDetector().fit(rows).decision_scores_


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


@pytest.fixture(scope="module")
def fits(blocks):
    return [scores_of_fit(block) for block in blocks[:4]]


def test_fits_in_threads_are_those_one_after_the_other(blocks, fits):
    together = Barrier(2)

    def work(first: int) -> list[np.ndarray]:
        together.wait()
        return [scores_of_fit(block) for block in blocks[first:4:2]]

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(work, range(2)))
    np.testing.assert_array_equal(found[0], fits[::2])
    np.testing.assert_array_equal(found[1], fits[1::2])


def test_fits_of_coroutines_are_those_one_after_the_other(blocks, fits):
    async def work() -> list[np.ndarray]:
        return await asyncio.gather(*(asyncio.to_thread(scores_of_fit, block) for block in blocks[:4]))

    np.testing.assert_array_equal(asyncio.run(work()), fits)


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_fits_of_joblib_are_those_one_after_the_other(blocks, fits, backend):
    found = Parallel(n_jobs=2, backend=backend)(delayed(scores_of_fit)(block) for block in blocks[:4])
    np.testing.assert_allclose(found, fits, rtol=1e-9)  # as workers have other numbers of threads


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_fits_after_a_fork_are_those_one_after_the_other(blocks, fits, tmp_path):
    np.save(tmp_path / "rows.npy", blocks[:4])
    command = [sys.executable, "-c", AFTER_A_FORK, tmp_path / "rows.npy", tmp_path / "scores.npy"]
    subprocess.run(command, check=True, timeout=HANGING, env={**os.environ, "OMP_NUM_THREADS": "1"})
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), fits, rtol=1e-9)


def test_an_interrupted_fit_leaves_the_earlier_one(blocks, tmp_path):
    """SIGINT in the first epochs of a training that would take hours."""
    np.save(tmp_path / "rows.npy", blocks[:1])
    command = [sys.executable, "-u", "-c", INTERRUPTED, tmp_path / "rows.npy"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, **streams) as process:
        assert "epoch" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=HANGING)[0].splitlines()[-1] == "as before"
    assert process.returncode == 0


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


# In blocks of Python's memory, after 108 further fits and 270 further scorings. A detector that is kept has about 110 of them,
# scores have three.
MOST_GROWTH = {"fits": 3_000, "scorings": 400}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what a process holds is read as Linux tells it")
def test_fits_and_scorings_leave_nothing_behind():
    """3,000 fits and 10,000 scorings by hand: ``python -m tests.support.load 3000 10000``."""
    command = [sys.executable, "-m", "tests.support.load", "120", "300"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True, check=False, timeout=HANGING
    )
    assert done.returncode == 0, done.stderr
    for what, (before, after) in json.loads(done.stdout).items():
        assert after["blocks"] - before["blocks"] < MOST_GROWTH[what], what
        assert after["bytes"] - before["bytes"] < 3 * MOST_BYTES, what
        assert after["threads"] <= before["threads"] + 2, what  # those that have ended may be counted for another moment
        assert after["python threads"] == before["python threads"] == 1, what
        assert after["files"] == before["files"], what
