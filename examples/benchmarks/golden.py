"""Scores of fixed fits over all development sets, written down or compared bit for bit: a change of form changes none of them.

``python -m examples.benchmarks.golden --data DIR --write before.npz`` writes them down, and with ``--compare
before.npz`` a later version says which ones differ. Set ``OMP_NUM_THREADS=1``: the number of threads changes rounding.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from examples.benchmarks._data import CLINC150, SENTENCES, WORDNET, adbench, need
from pyod_quadric import QuadricDetector

MOST_ROWS = 4000  # of a fit that is not the default one
WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "normalised": {"normalize": True},
    "linear": {"score_function": "linear"},
    "raw quadrics": {"score_function": "quadrics", "normalize": False, "robust": False},
    "mean distance": {"score_function": "mean_distance", "n_components": 8, "distance": "first_order"},
    "penalty": {"epoch_num": 2, "lr": 0.001, "n_components": 8, "optimizer_name": "adam"},
    "manifold": {"epoch_num": 2, "lr": 0.001, "n_components": 8, "constraint": "stiefel", "init": "random"},
    "coefficient": {"inner_product": "coefficient", "n_components": 0.9, "n_quadrics": 1},
}


def sets(data: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Go through the development sets: a name, and rows."""
    need(data)
    for path in sorted(adbench(data)):
        yield path.stem, np.load(path)["X"][:10_000]
    sentences = np.load(data / SENTENCES)
    for name in sentences.files:
        if sentences[name].ndim == 2:
            yield f"sentences {name}", sentences[name]
    for path in (CLINC150, WORDNET):
        yield Path(path).parent.name, np.load(data / path)["X"][:40_000]


def scores(rows: np.ndarray, settings: dict[str, Any]) -> np.ndarray:
    """Fit to two thirds of the rows, and return the scores of all, or what was raised."""
    try:
        detector = QuadricDetector(**settings).fit(rows[np.arange(len(rows)) % 3 > 0])
    except (ValueError, RuntimeError) as error:
        return np.array(type(error).__name__)
    return detector.decision_function(rows)


def main() -> None:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--write", type=Path)
    group.add_argument("--compare", type=Path)
    arguments = parser.parse_args()
    found = {
        f"{name}, {way}": scores(rows if way == "default" else rows[:MOST_ROWS], settings)
        for name, rows in sets(arguments.data)
        for way, settings in WAYS.items()
    }
    if arguments.write:
        np.savez_compressed(arguments.write, **found)
        return
    earlier = np.load(arguments.compare)
    differing = [key for key, numbers in found.items() if not np.array_equal(numbers, earlier[key])]
    print(f"{len(found) - len(differing)} of {len(found)} fits have the same scores, bit for bit")
    for key in differing:
        print(f"  {key} differs")


if __name__ == "__main__":
    main()
