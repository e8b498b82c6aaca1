"""Time and memory from the start of a process to the score of one row: in Python, and with onnxruntime alone.

Each way runs in processes of its own, in turns, and imports what it needs. The shortest times count, so that files are in the
system's cache; processor time is that of the process alone, whatever else the machine does. Memory is the peak of the resident
set, as Linux counts it.

Run it with ``python -m examples.benchmarks.start``, in a minute. It needs the packages of the ``onnx`` extra.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from examples.benchmarks._common import environment, markdown_table
from examples.benchmarks.cost import mixture
from pyod_quadric import QuadricDetector

IMPORTS = """
import sys
import numpy as np
row = np.load(sys.argv[2])
"""
ONNXRUNTIME = """
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1] + ".onnx", providers=["CPUExecutionProvider"])
np.save(sys.argv[3], session.run(["scores"], {"rows": row})[0])
"""
DETECTOR = """
from pyod_quadric import QuadricDetector
np.save(sys.argv[3], QuadricDetector.load(sys.argv[1]).decision_function(row))
"""
COST = """
import time
print(time.process_time(), next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])
"""
WAYS = {"NumPy alone": IMPORTS, "onnxruntime": IMPORTS + ONNXRUNTIME, "load, decision_function": IMPORTS + DETECTOR}
MEGABYTE = 1e6


class Cost(NamedTuple):
    """Of one process."""

    seconds: float
    processor_seconds: float
    megabytes: float


def run(code: str, *arguments: str) -> Cost:
    """Run code in a new interpreter and return what it cost."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code + COST, *arguments], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode:
        raise RuntimeError(f"the process failed: {done.stderr}")
    processor_seconds, kilobytes = done.stdout.split()
    return Cost(seconds, float(processor_seconds), 1024 * int(kilobytes) / MEGABYTE)


def main(n_rows: int = 10_000, n_features: int = 64, repetitions: int = 5, quiet: bool = False) -> dict[str, Cost]:
    """Fit a default detector, write both files, and return the best of each way."""
    rows = mixture(n_rows + 1, n_features, seed=0)
    detector = QuadricDetector().fit(rows[:-1])
    expected = detector.decision_function(rows[-1:].astype(np.float64))
    best: dict[str, Cost] = {}
    with tempfile.TemporaryDirectory() as folder:
        model, row, scores = (str(Path(folder) / name) for name in ("model", "row.npy", "scores.npy"))
        detector.save(model)
        detector.to_onnx(f"{model}.onnx")
        np.save(row, rows[-1:])
        for _ in range(repetitions):
            for name, code in WAYS.items():
                Path(scores).unlink(missing_ok=True)
                cost = run(code, model, row, scores)
                if "np.save" in code:
                    np.testing.assert_allclose(np.load(scores), expected, rtol=1e-4)
                best[name] = Cost(*map(min, cost, best.get(name, cost)))
        sizes = [Path(name).stat().st_size / MEGABYTE for name in (model, f"{model}.onnx")]
    if not quiet:
        print(f"{environment()}, {n_rows} rows, {n_features} features, {detector.n_quadrics_} quadrics")
        print(f"model file {sizes[0]:.1f} MB, ONNX file {sizes[1]:.1f} MB\n")
        print(markdown_table(["way", "seconds", "of processor time", "MB"], [[name, *cost] for name, cost in best.items()]))
    return best


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n-rows", type=int, default=10_000)
    parser.add_argument("--n-features", type=int, default=64)
    parser.add_argument("--repetitions", type=int, default=5)
    main(**vars(parser.parse_args()))
