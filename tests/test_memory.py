"""Training from a file needs memory for a window of batches, not for the rows."""

import os
import subprocess
import sys

import numpy as np
import pytest

SCRIPT = """
import resource, sys
import numpy as np, torch
from pyod_quadric import TrainingOptions, fit_working_coordinates, random_quadrics, train
from pyod_quadric.batches import Rows

path, small = sys.argv[1:]
train(small, random_quadrics(1, 128, torch.Generator()), TrainingOptions(epoch_num=1))  # whatever is allocated once
used = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + 100 * 2**20,) * 2)
try:
    np.load(path)
except MemoryError:
    print("the rows do not fit")
rows = Rows(path)
working = fit_working_coordinates(lambda: rows.blocks(4096))
options = TrainingOptions(epoch_num=1, validation_fraction=0.1)
trained = train(path, random_quadrics(1, 128, torch.Generator()), options, working)
print("trained to", trained.history["loss"][0])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit on private memory is Linux's")
def test_training_on_a_file_larger_than_the_memory_allowed(tmp_path):
    big = np.lib.format.open_memmap(tmp_path / "big.npy", mode="w+", dtype=np.float32, shape=(600_000, 128))  # 307 MB
    for start in range(0, len(big), 50_000):
        big[start : start + 50_000] = np.random.default_rng(start).normal(size=(50_000, 128)).astype(np.float32)
    np.save(tmp_path / "small.npy", big[:5000])
    big.flush()
    command = [sys.executable, "-c", SCRIPT, tmp_path / "big.npy", tmp_path / "small.npy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "the rows do not fit"
    assert np.isfinite(float(lines[1].removeprefix("trained to ")))
