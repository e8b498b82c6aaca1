"""How well the default detector finds outliers, beside PyOD's detectors and beside itself with parts left out.

Data are embeddings of images and of texts and tabular sets from ADBench, and sentences. ADBench's sets are split 70/30,
stratified (above 10,000 rows, 10,000 of them are drawn first), and fitted in two modes: *clean* on the training rows that are
inliers, *contaminated* on all of them. Sentences are fitted on movie reviews only, and their figures are means over three other
domains as outliers. The seed decides the draw and the split, and is the ``random_state`` of the peers that have one.

Peers have PyOD's default parameters. Scaling matters to them, so they are fitted to rows as they are (raw), min-max scaled
(mm), divided by their norms (l2) and standardised (std), the weaker ones to min-max scaled rows only, as ADBench does; each
counts at its best preprocessing in each group and mode. They get float64, since some fail in float32. Ours gets raw float32
rows and has its default parameters everywhere. A fit that fails counts as chance.

Run it with ``OMP_NUM_THREADS=1 python -m examples.benchmarks.detection --data DIR --output DIR --workers 2``. All cells take
several hours, mostly for KPCA and neural networks; each is kept in ``detection_cells.json`` as soon as it is there, and a run
that was killed goes on from them. ``--again`` fits our detector anew and keeps the peers.
"""

from pathlib import Path
from typing import Any

from examples.benchmarks._common import argument_parser, write_results
from examples.benchmarks._detection_cells import ABLATIONS, PEERS, fill, make_plan, read_cells
from examples.benchmarks._detection_tables import (
    ablation_table,
    all_entries,
    draw,
    margin_table,
    mean_ranks,
    peers_table,
    without,
)


def main(
    output: Path,
    data: Path = Path("../shared/data"),
    fast: bool = False,
    seeds: list[int] | None = None,
    workers: int = 1,
    again: bool = False,
    cached: bool = False,
) -> dict[str, Any]:
    """Measure what is missing, print the tables, write ``detection.json`` and ``.png``, and return the results."""
    plan = make_plan(data, seeds or [0, 1], fast)
    path = output / "detection_cells.json"
    cells = read_cells(path)
    if again:
        cells = {key: cell for key, cell in cells.items() if key.rsplit("/", 1)[1].split("@")[0] in PEERS}
    if not cached:
        fill(cells, path, plan.all_tasks(), data, workers)
    entries = all_entries(cells, plan)
    if not any(entries.values()):
        raise SystemExit(f"there are no cells in {path}: run without --cached first")
    compared, ours = without(entries, ABLATIONS), without(entries, PEERS)
    print(f"\nROC-AUC / average precision, means over sets and seeds {plan.seeds}\n\n{peers_table(compared)}")
    print(f"\nours against the best peer\n\n{margin_table(compared, plan.seeds)}")
    print(f"\nour detector with something changed\n\n{ablation_table(ours)}")
    results = {
        "seeds": plan.seeds,
        "sets": plan.sets,
        "mean_ranks": {column.title(): row for column, row in mean_ranks(compared).items()},
        "entries": {column.title(): {name: item._asdict() for name, item in row.items()} for column, row in entries.items()},
    }
    write_results(output, "detection", results, draw(compared, plan))
    return results


if __name__ == "__main__":
    parser = argument_parser(__doc__, data=True, seeds=True)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--again", action="store_true", help="fit our detector anew; peers that are there are kept")
    parser.add_argument("--cached", action="store_true", help="fit nothing: tables of what is there")
    main(**vars(parser.parse_args()))
