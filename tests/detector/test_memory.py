"""Training from a file and scoring one need memory for a few batches, not for the rows."""

import os
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limits are Linux's")

TRAINING = """
from pyod_quadric import TrainingOptions, fit_working_coordinates, random_quadrics, train
from pyod_quadric.data.rows import rows_of

train(small, random_quadrics(1, 128, torch.Generator()), TrainingOptions(epoch_num=1))  # whatever is allocated once
allow(resource.RLIMIT_DATA, "VmData")
rows = rows_of(path)
working = fit_working_coordinates(lambda: rows.blocks(4096))
options = TrainingOptions(epoch_num=1, validation_fraction=0.1)
trained = train(path, random_quadrics(1, 128, torch.Generator()), options, working)
print(rows.n_rows, np.isfinite(trained.history["loss"][0]))
"""
# Scores that were kept block by block left holes in the memory, each as large as what a block needs.
SCORING = """
from pyod_quadric import QuadricDetector

detector = QuadricDetector(score_function="linear", robust=False).fit(np.load(small))
allow(resource.RLIMIT_AS, "VmSize")
scores = detector.decision_function(path)
print(len(scores), np.isfinite(scores).all())
"""
LIMIT = """
import resource, sys
import numpy as np, torch

path, small = sys.argv[1:]

def allow(limit, name):
    used = int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1]) * 1024
    resource.setrlimit(limit, (used + 100 * 2**20,) * 2)
    try:
        np.load(path)
    except MemoryError:
        print("the rows do not fit")
"""
N_ROWS = 600_000


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    big = np.lib.format.open_memmap(folder / "big.npy", mode="w+", dtype=np.float32, shape=(N_ROWS, 128))  # 307 MB
    for start in range(0, len(big), 50_000):
        big[start : start + 50_000] = np.random.default_rng(start).normal(size=(50_000, 128)).astype(np.float32)
    np.save(folder / "small.npy", big[:5000])
    big.flush()
    return folder / "big.npy", folder / "small.npy"


@pytest.mark.parametrize("script", [TRAINING, SCORING], ids=["training", "scoring"])
def test_a_file_larger_than_the_memory_allowed(paths, script):
    command = [sys.executable, "-c", LIMIT + script, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["the rows do not fit", f"{N_ROWS} True"]
