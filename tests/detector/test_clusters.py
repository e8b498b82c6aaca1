"""Spark and Ray Data score like the detector, and each of their workers reads the model once.

Both are too heavy for CI, where this is skipped; the guide to clusters says what was run.
"""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.processes import HANGING

ROOT = Path(__file__).parents[2]
without_spark = pytest.mark.skipif(not find_spec("pyspark") or not shutil.which("java"), reason="needs pyspark and a JVM")
without_ray = pytest.mark.skipif(not find_spec("ray"), reason="needs ray")


@pytest.mark.parametrize(
    ("engine", "kinds"),
    [
        pytest.param("spark", ["score", "struct", "list"], marks=without_spark),
        pytest.param("ray", ["score", "array"], marks=without_ray),
    ],
)
def test_workers_score_like_the_detector_and_read_the_model_once(engine, kinds):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.support.on_clusters", engine]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANGING, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["rows"] == 2000
    assert sorted(result["errors"]) == sorted(kinds)
    assert max(result["errors"].values()) < 1e-12  # products round by the size of a batch
    assert set(result["models"].values()) == {1}
