"""A pass over a table needs memory for a few blocks, however large the file and its row groups are."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is found where Linux has it")

# The peak of the process after a small file and after a large one, in bytes; what is allocated once is there after the first.
SCRIPT = """
import sys
import numpy as np
from pyod_quadric import QuadricDetector
from pyod_quadric.cli.main import main
from pyod_quadric.data.rows import rows_of

folder, suffix, *ways = sys.argv[1:]
detector = QuadricDetector(score_function="linear", robust=False).fit(np.random.default_rng(0).normal(size=(300, 64)))
detector.save(f"{folder}/model")

def go_through(path, way):
    if way == "library":
        return detector.decision_function(path)
    if way == "reads":
        rows = rows_of(path)
        for start in range(5):
            rows.read(np.arange(start, rows.n_rows, 5000))
        return None
    assert main(["score", f"{folder}/model", path, "-o", f"{folder}/scores.npy", "--force", "--quiet"]) == 0

for name in ("small", "big"):
    for way in ways:
        go_through(f"{folder}/{name}.{suffix}", way)
    print(int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024)
"""
N_SMALL, N_BIG = 20_000, 300_000  # of 64 float32: 5 and 77 MB
N_LINES = 60_000  # 72 MB


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables")
    schema = pyarrow.schema([(f"c{k}", pyarrow.float32()) for k in range(64)])
    rows = np.random.default_rng(0).normal(size=(64, N_SMALL)).astype(np.float32)
    for name, n_rows, group in (("small.parquet", N_SMALL, N_SMALL), ("big.parquet", N_BIG, N_BIG)):
        whole = pyarrow.table(list(np.tile(rows, n_rows // N_SMALL)), schema=schema)
        parquet.write_table(whole, path / name, row_group_size=group, use_dictionary=False)
        parquet.write_table(whole, path / name.replace(".", "-groups."), row_group_size=10_000, use_dictionary=False)
    line = ",".join(["0.1234567890123456"] * 64) + "\n"
    for name, n_rows in (("small", N_LINES // 6), ("big", N_LINES)):
        (path / f"{name}.csv").write_text(",".join(schema.names) + "\n" + n_rows * line)
        (path / f"{name}.jsonl").write_text(n_rows // 2 * (json.dumps(dict.fromkeys(schema.names, 0.1234567890123456)) + "\n"))
    return path


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_a_pass_needs_memory_for_a_few_blocks(folder, suffix):
    few, many = peaks(folder, suffix, "library", "command")
    holds_group = suffix == "parquet" and int(pyarrow.__version__.partition(".")[0]) < 24  # and decodes its pages later
    assert many - few < 32 * 2**20 + (N_BIG * 64 * 4 if holds_group else 0)


def test_rows_here_and_there_need_memory_for_a_row_group(folder, tmp_path):
    for name in ("small", "big"):
        (tmp_path / f"{name}.parquet").symlink_to(folder / f"{name}-groups.parquet")
    few, many = peaks(tmp_path, "parquet", "reads")
    assert many - few < 32 * 2**20


def peaks(folder, suffix, *ways):
    command = [sys.executable, "-c", SCRIPT, str(folder), suffix, *ways]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return map(int, done.stdout.split())
