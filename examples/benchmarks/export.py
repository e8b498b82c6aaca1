"""Size and latency of the exported score: the detector, its torch module, torch's graph of it, and onnxruntime.

The rows are those of the cost benchmark, float32. Each way scores the same batches, of one row and of many; the shortest time
counts. How far the scores are from those of float64 rows is reported along with it.

Run it with ``python -m examples.benchmarks.export --output DIR`` on a quiet machine, in a few minutes. All ways have as many
threads as torch, one with ``OMP_NUM_THREADS=1``. It needs the packages of the ``onnx`` extra.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from examples.benchmarks._common import argument_parser, best_seconds, environment, markdown_table, write_results
from examples.benchmarks.cost import mixture
from pyod_quadric import QuadricDetector
from pyod_quadric.model.module import exported
from pyod_quadric.plotting import COLOURS

Scorer = Callable[[NDArray[np.float32]], NDArray[Any]]


class Size(NamedTuple):
    """What is fitted, and how it is timed."""

    n_rows: int
    n_features: tuple[int, ...]
    batches: tuple[int, ...]
    repetitions: int


FULL = Size(10_000, (16, 64, 512), (1, 1024), 10)
FAST = Size(200, (4,), (1, 16), 1)


class Files(NamedTuple):
    """Bytes of the detector as a file, of its ONNX graph, and how many quadrics it has."""

    n_quadrics: int
    detector: int
    onnx: int


def scorers(detector: QuadricDetector, directory: Path) -> tuple[dict[str, Scorer], Files]:
    """Return all ways to score rows, and the sizes of the files."""
    detector.save(directory / "detector.safetensors", sample=False)
    detector.to_onnx(directory / "scores.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(directory / "scores.onnx", options, providers=["CPUExecutionProvider"])
    module, single = detector.to_module(), detector.to_module().float()
    graph = exported(module).module()

    def of_torch(score: Callable[..., torch.Tensor]) -> Scorer:
        return lambda rows: score(torch.from_numpy(rows)).numpy()

    ways: dict[str, Scorer] = {
        "decision_function": detector.decision_function,
        "module": of_torch(module),
        "module, float32": of_torch(single),
        "torch.export": of_torch(graph),
        "onnxruntime": lambda rows: session.run(None, {"rows": rows})[0],
    }
    sizes = [(directory / name).stat().st_size for name in ("detector.safetensors", "scores.onnx")]
    return ways, Files(detector.n_quadrics_, *sizes)


def measure(size: Size, n_features: int, seed: int) -> dict[str, Any]:
    """Fit a detector and return its sizes, and of each way the seconds of each batch and the error."""
    rows = mixture(size.n_rows + max(size.batches), n_features, seed)
    training, test = rows[: size.n_rows], rows[size.n_rows :]
    detector = QuadricDetector().fit(training)
    with tempfile.TemporaryDirectory() as directory:
        ways, files = scorers(detector, Path(directory))
    exact = detector.decision_function(test.astype(np.float64))
    seconds: dict[str, dict[int, float]] = {name: {} for name in ways}
    for n in size.batches:
        tasks = {name: (lambda score=score, batch=test[:n]: score(batch)) for name, score in ways.items()}
        for name, best in best_seconds(tasks, size.repetitions).items():
            seconds[name][n] = best
    return {
        "n_features": n_features,
        "files": files._asdict(),
        "seconds": seconds,
        "relative_error": {name: float(np.max(np.abs(score(test) / exact - 1))) for name, score in ways.items()},
    }


def table(results: list[dict[str, Any]], size: Size) -> str:
    """Return milliseconds and errors as a table."""
    header = ["d", "quadrics", "way", *(f"ms, {n} row{'s' * (n > 1)}" for n in size.batches), "relative error"]
    rows = [
        [
            result["n_features"],
            result["files"]["n_quadrics"],
            name,
            *(1000 * seconds[n] for n in size.batches),
            result["relative_error"][name],
        ]
        for result in results
        for name, seconds in result["seconds"].items()
    ]
    return markdown_table(header, rows)


def sizes_table(results: list[dict[str, Any]]) -> str:
    """Return the sizes of files as a table."""
    rows = [[result["n_features"], *(result["files"][name] / 1000 for name in ("detector", "onnx"))] for result in results]
    return markdown_table(["d", "detector's file, kB", "ONNX file, kB"], rows)


def draw(results: list[dict[str, Any]], size: Size) -> Figure:
    """Draw latencies against features, a panel for each batch, and the sizes of files."""
    figure, panels = plt.subplots(1, len(size.batches) + 1, figsize=(4.5 * (len(size.batches) + 1), 4.5), layout="constrained")
    features = [result["n_features"] for result in results]
    for ax in panels:
        ax.set_prop_cycle(color=COLOURS, marker=["o", "s", "^", "D", "v"])
    for ax, n in zip(panels, size.batches, strict=False):
        for name in results[0]["seconds"]:
            ax.plot(features, [1000 * result["seconds"][name][n] for result in results], label=name)
        ax.set_title(f"{n} row{'s' * (n > 1)}")
        ax.set_ylabel("milliseconds")
    panels[0].legend()
    for name, label in (("detector", "detector's file"), ("onnx", "ONNX file")):
        panels[-1].plot(features, [result["files"][name] / 1000 for result in results], label=label)
    panels[-1].set_title("size")
    panels[-1].set_ylabel("kB")
    panels[-1].legend()
    for ax in panels:
        ax.set(xlabel="features", xscale="log", yscale="log")
        ax.set_xticks(features, [str(n) for n in features])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    threads = torch.get_num_threads()
    figure.suptitle(f"The score of a default detector of {size.n_rows} rows, float32, {threads} thread{'s' * (threads > 1)}")
    return figure


def main(output: Path, fast: bool = False, seed: int = 0) -> dict[str, Any]:
    """Measure, print the tables, write ``export.json`` and ``export.png``, and return the results."""
    size = FAST if fast else FULL
    print(f"seed {seed}, {environment()}, onnxruntime {onnxruntime.__version__}")
    measured = [measure(size, n_features, seed) for n_features in size.n_features]
    print(f"\n{table(measured, size)}\n\n{sizes_table(measured)}")
    results = {"size": size._asdict(), "seed": seed, "onnxruntime": onnxruntime.__version__, "results": measured}
    write_results(output, "export", results, draw(measured, size))
    return results


if __name__ == "__main__":
    main(**vars(argument_parser(__doc__, data=False).parse_args()))
