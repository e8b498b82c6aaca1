"""How certain the ranking is: shapes with scattered outliers drawn a thousand times, and every set with ten random states.

Shapes (circles, ellipses, spheres, curves where a cylinder meets a sphere, and both sections of a torus: two circles of one
centre, and two apart) are drawn with 300 to 2,000 rows and up to 30 % scattered outliers among them. Points in the middle,
where a Gaussian sees nothing, must be found wherever PyOD's KNN finds them. Then our detector is fitted to each set of the
detection benchmark with ten values of ``random_state``, on the same split, and the spread of its ROC-AUC is what is left to
chance.

Run it with ``OMP_NUM_THREADS=1 python -m examples.benchmarks.certainty --data DIR --output DIR``, in about an hour and a half.
"""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from joblib import Parallel, delayed
from matplotlib.figure import Figure
from pyod.models.knn import KNN
from sklearn.metrics import roc_auc_score

from examples.benchmarks._common import argument_parser, markdown_table, write_results
from examples.benchmarks._data import DATA, need
from examples.benchmarks._detection_cells import Column, load, make_plan, quality, quiet
from examples.benchmarks._regimes import SHAPES, Files, middle, shape
from pyod_quadric import QuadricDetector

MOST_SCATTERED = 0.3
FOUND = 0.95  # a ROC-AUC from which outliers count as found
MOST_SPREAD = 0.005  # in ROC-AUC, over random states
LARGE = ("wordnet",)  # half a minute for each fit


def draw_of_a_shape(seed: int) -> dict[str, Any]:
    """Return the ROC-AUC of our detector and of KNN on one draw."""
    rng = np.random.default_rng(seed)
    name, n, share = SHAPES[seed % len(SHAPES)], int(rng.integers(300, 2000)), rng.uniform(0, MOST_SCATTERED)
    rows, inliers = shape(name, n, rng), shape(name, 500, rng)
    scattered = rng.uniform(-1.5, 1.5, size=(round(share * n / (1 - share)), rows.shape[1])) * np.abs(rows).max(axis=0)
    rows, outliers = np.concatenate([rows, scattered]), middle(name, 100, rng)
    labels = np.repeat([0, 1], [len(inliers), len(outliers)])
    found = {"shape": name, "n": n, "scattered": share}
    for method, detector in (("ours", QuadricDetector(random_state=seed)), ("KNN", KNN())):
        with quiet():
            scores = detector.fit(rows).decision_function(np.concatenate([inliers, outliers]))
        found[method] = float(roc_auc_score(labels, scores))
    return found


def over_random_states(files: Files, column: Column, name: str, n_states: int) -> list[float]:
    """Return the ROC-AUC of our detector with each random state."""
    split = load(files, column, name, 0)
    rows = [part.numpy() for part in (split.training, split.inliers, *split.outliers)]
    known = {} if split.groups is None else {"groups": split.groups}
    found = []
    for state in range(n_states):
        with quiet():
            detector = QuadricDetector(random_state=state).fit(rows[0], **known)
        found.append(quality(split, detector.decision_function(np.concatenate(rows[1:])))["roc_auc"])
    return found


def shapes_table(draws: list[dict[str, Any]]) -> str:
    """Return for each shape how often the outliers were found."""
    lines = []
    for name in SHAPES:
        own = [draw for draw in draws if draw["shape"] == name]
        by_knn = [draw for draw in own if draw["KNN"] >= FOUND]
        lines.append(
            [
                name,
                len(own),
                len(by_knn),
                sum(draw["ours"] >= FOUND for draw in by_knn),
                sum(draw["ours"] >= FOUND for draw in own),
                min(draw["ours"] for draw in own),
                min(draw["KNN"] for draw in own),
            ]
        )
    header = ["shape", "draws", "found by KNN", "of these by ours", "found by ours", "lowest, ours", "lowest, KNN"]
    return markdown_table(header, lines)


def picture(draws: list[dict[str, Any]], spreads: dict[str, list[float]]) -> Figure:
    """Draw the ROC-AUC of each draw over the share of scattered outliers, and the spread over random states of each set."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for method, colour, marker in (("KNN", "#0072b2", "x"), ("ours", "#d55e00", ".")):
        left.plot(
            [draw["scattered"] for draw in draws],
            [draw[method] for draw in draws],
            marker,
            color=colour,
            label=method,
            alpha=0.5,
        )
    left.set(
        xlabel="share of scattered outliers among the rows",
        ylabel="ROC-AUC",
        title=f"{len(draws)} draws of {len(SHAPES)} shapes",
    )
    left.legend()
    deviations = np.sort([np.std(found) for found in spreads.values()])[::-1]
    right.plot(np.arange(1, len(deviations) + 1), deviations, ".", color="#d55e00")
    right.axhline(MOST_SPREAD, color="grey", linewidth=1)
    right.set(
        xlabel="sets, from the most to the least spread",
        ylabel="standard deviation of ROC-AUC",
        title=f"{len(next(iter(spreads.values())))} random states on each of {len(spreads)} sets",
    )
    return figure


def main(
    output: Path,
    data: Path = DATA,
    faces: Path | None = None,
    fast: bool = False,
    workers: int = 1,
) -> dict[str, Any]:
    """Measure, print the tables, write ``certainty.json`` and ``certainty.png``, and return the results."""
    n_draws, n_states = (10, 3) if fast else (1000, 10)
    if not fast:
        need(data, faces=faces)
    files = Files(data, faces)
    plan = make_plan(files, [0], fast)
    parallel = Parallel(n_jobs=workers)
    draws = parallel(delayed(draw_of_a_shape)(seed) for seed in range(n_draws))
    print(f"outliers in the middle of shapes, found: ROC-AUC of {FOUND} or more\n\n{shapes_table(draws)}", flush=True)
    tasks = [(column, name) for column in plan.columns() if column.regime not in LARGE for name in plan.sets[column.regime]]
    found = parallel(delayed(over_random_states)(files, column, name, n_states) for column, name in tasks)
    spreads = {f"{column.title()}, {name}": row for (column, name), row in zip(tasks, found, strict=True)}
    lines = []
    for column in plan.columns():
        own = [np.std(row) for (other, _), row in zip(tasks, found, strict=True) if other == column]
        if own:
            lines.append(
                [column.title(), len(own), float(np.mean(own)), float(np.max(own)), sum(own_ > MOST_SPREAD for own_ in own)]
            )
    header = ["regime", "sets", "mean deviation", "largest", f"above {MOST_SPREAD}"]
    print(f"\nstandard deviation of ROC-AUC over {n_states} random states\n\n{markdown_table(header, lines)}")
    results = {"draws": draws, "random_states": spreads}
    write_results(output, "certainty", results, picture(draws, spreads))
    return results


if __name__ == "__main__":
    parser = argument_parser(__doc__, data=True, seeds=None)
    parser.add_argument("--faces", type=Path, help="an .npz file with embeddings of faces; see _regimes.py")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    main(**vars(parser.parse_args()))
