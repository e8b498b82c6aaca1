"""Fit a file that is larger than the memory the process may have.

A child process gets a limit of its address space and of its data, far below the size of the file, opens the file by its path,
fits a detector with quadrics in 50 coordinates and scores all rows. (In 100, the default for so many rows, moments alone take
2 GB.) The table shows the peak of its resident memory, beyond what it had after its imports, for files of different sizes; it
should not grow with them but for one number a row.

Run it with ``python -m examples.benchmarks.out_of_core --output DIR``; it writes files of up to some gigabytes to a temporary
folder and removes them. Other sizes: ``--rows 6000000``, which takes an hour. ``--redraw`` draws ``out_of_core.json`` of the
output folder again and measures nothing. Linux only.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from examples.benchmarks._common import (
    add_redraw,
    argument_parser,
    markdown_table,
    resident,
    stored_results,
    write_results,
)

MEGABYTE, GIGABYTE = 10**6, 10**9
FULL = {"n_rows": (250_000, 500_000, 1_000_000), "n_features": 512, "limit": 1500 * MEGABYTE}
FAST = {"n_rows": (2_000, 4_000), "n_features": 16, "limit": 1500 * MEGABYTE}


def write_rows(path: Path, n_rows: int, n_features: int, seed: int) -> None:
    """Write rows near a curved surface of 8 dimensions, a block at a time."""
    rng = np.random.default_rng(seed)
    axes = rng.standard_normal((16, n_features), dtype=np.float32) / 4
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (n_rows, n_features))
    for start in range(0, n_rows, 20_000):
        hidden = rng.standard_normal((min(20_000, n_rows - start), 8), dtype=np.float32)
        curved = np.concatenate([hidden, hidden**2 - 1], axis=1)
        noise = 0.1 * rng.standard_normal((len(hidden), n_features), dtype=np.float32)
        rows[start : start + len(hidden)] = curved @ axes + noise
        rows.flush()


def child(path: str, limit: int) -> None:
    """Fit and score a file within a limit, and print what it took."""
    from pyod_quadric import QuadricDetector

    QuadricDetector().fit(np.random.default_rng(0).normal(size=(200, 8)))  # whatever is loaded or allocated once
    before = resident("VmRSS")
    in_use = resident("VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (in_use + limit, in_use + limit))
    started = time.perf_counter()
    detector = QuadricDetector(n_components=min(50, np.load(path, mmap_mode="r").shape[1])).fit(path)
    fitted = time.perf_counter()
    scores = detector.decision_function(path)
    print(
        json.dumps(
            {
                "fit_seconds": fitted - started,
                "score_seconds": time.perf_counter() - fitted,
                "peak_bytes": resident("VmHWM") - before,
                "n_scores": len(scores),
                "n_quadrics": detector.n_quadrics_,
            }
        )
    )


def measure(path: Path, limit: int) -> dict[str, Any]:
    """Fit a file in a process of its own."""
    command = [sys.executable, "-m", "examples.benchmarks.out_of_core", "--child", str(path), str(limit)]
    finished = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    if finished.returncode:
        raise RuntimeError(finished.stderr[-2000:])
    found: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return found | {"file_bytes": path.stat().st_size}


def draw(results: list[dict[str, Any]], limit: int) -> Figure:
    """Draw peak memory against the size of the file."""
    figure, ax = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
    sizes = [result["file_bytes"] / GIGABYTE for result in results]
    ax.plot(sizes, sizes, "--", color="grey", label="the file itself")
    ax.axhline(limit / GIGABYTE, color="black", linestyle=":", label="memory that the process may have")
    ax.plot(
        sizes, [result["peak_bytes"] / GIGABYTE for result in results], "o-", color="#d55e00", label="peak of fit and score"
    )
    title = f"Fit and score of {results[0]['n_rows']:,} to {results[-1]['n_rows']:,} rows from a .npy file"
    ax.set(xlabel="size of the file, GB", ylabel="memory beyond the start, GB", title=title, ylim=(0, None))
    ax.grid(alpha=0.3)
    ax.legend()
    return figure


def main(output: Path, fast: bool = False, seed: int = 0, rows: tuple[int, ...] = (), redraw: bool = False) -> dict[str, Any]:
    """Measure, print the table, write ``out_of_core.json`` and ``out_of_core.png``, and return the results."""
    if redraw:
        stored = stored_results(output, "out_of_core")
        write_results(output, "out_of_core", stored, draw(stored["results"], stored["limit"]))
        return stored
    size: dict[str, Any] = FAST if fast else FULL
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for n_rows in rows or size["n_rows"]:
            path = Path(folder, "rows.npy")
            write_rows(path, n_rows, size["n_features"], seed)
            results.append({"n_rows": n_rows} | measure(path, size["limit"]))
            path.unlink()
    names = ["n_rows", "file_bytes", "peak_bytes", "fit_seconds", "score_seconds", "n_quadrics"]
    cells = [[result[name] / (MEGABYTE if name.endswith("bytes") else 1) for name in names] for result in results]
    header = ["rows", "file, MB", "peak beyond the start, MB", "seconds to fit", "seconds to score", "quadrics"]
    print(markdown_table(header, cells))
    summary = {"limit": size["limit"], "n_features": size["n_features"], "seed": seed, "results": results}
    write_results(output, "out_of_core", summary, draw(results, size["limit"]))
    return summary


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], int(sys.argv[3]))
    else:
        parser = argument_parser(__doc__, data=False)
        add_redraw(parser)
        parser.add_argument("--rows", type=int, nargs="+", default=(), help="other sizes of the files")
        main(**vars(parser.parse_args()))
