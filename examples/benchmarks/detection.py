"""How well the default detector finds outliers in every kind of data, beside PyOD's detectors and with parts left out.

The regimes are in ``_regimes.py``: embeddings of images and of texts and tables from ADBench, sources of sentences, intents,
glosses of WordNet, handwritten numbers, faces (if there is a file of them), shapes and sensors. ADBench's sets are split 70/30,
stratified (above 10,000 rows, 10,000 of them are drawn first). Sets are fitted in two modes: *clean* on inliers, *contaminated*
with outliers among the rows. The seed decides the draw and the split, and is the ``random_state`` of the peers that have one.

Peers have PyOD's default parameters. Scaling matters to them, so they are fitted to rows as they are (raw), min-max scaled
(mm), divided by their norms (l2) and standardised (std), the weaker ones to min-max scaled rows only, as ADBench does; each
counts at its best preprocessing in each regime and mode. They get float64, since some fail in float32, and slow ones get some
thousand rows, as ``_detection_cells.py`` says. Ours gets raw float32 rows, and the groups of rows where these have any, and has
its default parameters everywhere. A fit that fails counts as chance.

The *regret* of a detector on a set is the ROC-AUC of the best peer on this very set less its own. No single detector is the
best one everywhere, so this asks for more than the best mean.

Run it with ``OMP_NUM_THREADS=1 python -m examples.benchmarks.detection --data DIR --output DIR --workers 2``. All cells take
many hours, mostly for neural networks; each is kept in ``detection_cells.json`` as soon as it is there, and a run
that was killed goes on from them. ``--again`` fits our detector anew and keeps the peers.
"""

from pathlib import Path
from typing import Any

from examples.benchmarks._common import argument_parser, write_results
from examples.benchmarks._data import DATA, need
from examples.benchmarks._detection_cells import ABLATIONS, OURS, PEERS, fill, make_plan, read_cells
from examples.benchmarks._detection_tables import (
    ablation_table,
    all_entries,
    draw,
    margin_table,
    mean_ranks,
    peers_table,
    regret_table,
    regrets,
    without,
)
from examples.benchmarks._regimes import Files


def main(
    output: Path,
    data: Path = DATA,
    faces: Path | None = None,
    fast: bool = False,
    seeds: list[int] | None = None,
    workers: int = 1,
    again: bool = False,
    cached: bool = False,
) -> dict[str, Any]:
    """Measure what is missing, print the tables, write ``detection.json`` and ``.png``, and return the results."""
    if not fast and not cached:
        need(data, faces=faces)
    files = Files(data, faces)
    plan = make_plan(files, seeds or [0, 1], fast)
    path = output / "detection_cells.json"
    cells = read_cells(path)
    if again:
        cells = {key: cell for key, cell in cells.items() if key.rsplit("/", 1)[1].split("@")[0] in PEERS}
    if not cached:
        fill(cells, path, plan.all_tasks(), files, workers)
    entries = all_entries(cells, plan)
    if not any(entries.values()):
        raise SystemExit(f"there are no cells in {path}: run without --cached first")
    compared, ours = without(entries, ABLATIONS), without(entries, PEERS)
    print(f"\nROC-AUC / average precision, means over sets and seeds {plan.seeds}\n\n{peers_table(compared)}")
    print(f"\nregret: the best peer of each set less the detector's own ROC-AUC\n\n{regret_table(compared)}")
    print(f"\nours against the best peer\n\n{margin_table(compared, plan.seeds)}")
    print(f"\nour detector with something changed\n\n{ablation_table(ours)}")
    results = {
        "seeds": plan.seeds,
        "sets": plan.sets,
        "regrets": {column.title(): regrets(row)._asdict() for column, row in compared.items() if OURS in row},
        "mean_ranks": {column.title(): row for column, row in mean_ranks(compared).items()},
        "entries": {column.title(): {name: item._asdict() for name, item in row.items()} for column, row in entries.items()},
    }
    write_results(output, "detection", results, draw(compared, plan))
    return results


if __name__ == "__main__":
    parser = argument_parser(__doc__, data=True, seeds=True)
    parser.add_argument("--faces", type=Path, help="an .npz file with embeddings of faces; see _regimes.py")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--again", action="store_true", help="fit our detector anew; peers that are there are kept")
    parser.add_argument("--cached", action="store_true", help="fit nothing: tables of what is there")
    main(**vars(parser.parse_args()))
