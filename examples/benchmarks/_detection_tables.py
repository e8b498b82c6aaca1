"""Tables and the picture of the detection benchmark, from its cells."""

from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import rankdata

from examples.benchmarks._common import markdown_table
from examples.benchmarks._detection_cells import ABLATIONS, METRICS, OURS, Cells, Column, Plan

N_DRAWN = 9  # detectors in each panel


class Entry(NamedTuple):
    """One detector in one column, at its best preprocessing."""

    preprocessing: str
    means: dict[str, float]  # by metric
    by_seed: list[float]  # mean ROC-AUC
    roc_auc: list[list[float]]  # of each set with each seed, by seed
    n_failed: int


def entry(cells: Cells, plan: Plan, column: Column, method: str) -> Entry | None:
    """Return the best of the preprocessings by ROC-AUC; one counts with the first seeds of which all cells are there."""
    entries = []
    for preprocessing in plan.methods[method]:
        by_seed: list[list[dict[str, Any]]] = []
        for seed in plan.seeds:
            keys = [task.key() for task in plan.tasks(column, method, preprocessing, seed)]
            if not keys or not all(key in cells for key in keys):
                break
            by_seed.append([cells[key] for key in keys])
        found = [cell for row in by_seed for cell in row]
        if found:
            means = {metric: float(np.mean([cell[metric] for cell in found])) for metric in METRICS}
            seed_means = [float(np.mean([cell["roc_auc"] for cell in row])) for row in by_seed]
            roc_auc = [[cell["roc_auc"] for cell in row] for row in by_seed]
            entries.append(Entry(preprocessing, means, seed_means, roc_auc, sum("error" in cell for cell in found)))
    # Those of more seeds first: means of different seeds do not compare.
    return max(entries, key=lambda entry: (len(entry.by_seed), entry.means["roc_auc"]), default=None)


Entries = dict[Column, dict[str, Entry]]


def all_entries(cells: Cells, plan: Plan) -> Entries:
    """Return all detectors in all columns, best first; those without figures are left out."""
    entries: Entries = {}
    for column in plan.columns():
        found = {method: entry(cells, plan, column, method) for method in plan.methods}
        there = {method: item for method, item in found.items() if item is not None}
        entries[column] = dict(sorted(there.items(), key=lambda item: -item[1].means["roc_auc"]))
    return entries


def without(entries: Entries, methods: Any) -> Entries:
    """Return the entries of the other methods."""
    return {column: {name: item for name, item in row.items() if name not in methods} for column, row in entries.items()}


def mean_ranks(entries: Entries) -> dict[Column, dict[str, float]]:
    """Return the mean over sets of the rank of each detector by ROC-AUC with the first seed, 1 for the best."""
    ranks = {}
    for column, row in entries.items():
        means = rankdata([[-number for number in item.roc_auc[0]] for item in row.values()], axis=0).mean(axis=1)
        ranks[column] = dict(zip(row, means.tolist(), strict=True))
    return ranks


class Regret(NamedTuple):
    """By how much others are ahead of one detector, in ROC-AUC."""

    mean: float  # over sets and seeds, to the best peer of each set
    largest: float  # of a set, mean over seeds
    of_means: float  # the mean of the best peer of the column less its own, with the seeds that the peer has
    n_backwards: int  # sets below .5 where a peer is above .7


def regrets(row: dict[str, Entry], name: str = OURS) -> Regret:
    """Return the regret of a detector in a column; peers that have no figures with a seed are left out there."""
    own, others = row[name], [item for other, item in row.items() if other not in (name, OURS)]
    gaps, is_backwards = [], []
    for seed, mine in enumerate(own.roc_auc):
        best = np.max([item.roc_auc[seed] for item in others if len(item.roc_auc) > seed], axis=0)
        gaps.append(best - np.array(mine))
        is_backwards.append((np.array(mine) < 0.5) & (best > 0.7))
    gap = np.mean(gaps, axis=0)
    pairs = [list(zip(item.by_seed, own.by_seed, strict=False)) for item in others]
    of_means = max(float(np.mean([peer - mine for peer, mine in seeds])) for seeds in pairs)
    return Regret(float(gap.mean()), float(gap.max()), of_means, int(np.any(is_backwards, axis=0).sum()))


N_COMPARED = 4  # peers beside ours in the table of regrets


def regret_table(entries: Entries) -> str:
    """Return the regret of our detector and of the peers with the least, mean over the columns."""
    there = {column: row for column, row in entries.items() if OURS in row and len(row) > 2}
    everywhere = [
        name for name in {name for row in there.values() for name in row} if all(name in row for row in there.values())
    ]
    found = {name: {column: regrets(row, name) for column, row in there.items()} for name in everywhere}
    means = {name: float(np.mean([regret.mean for regret in row.values()])) for name, row in found.items()}
    best = sorted((name for name in everywhere if name != OURS), key=means.__getitem__)[:N_COMPARED]
    names = [OURS, *best]
    lines = [
        [
            column.title(),
            *(f"{found[name][column].mean:.3f} / {found[name][column].largest:.3f}" for name in names),
            f"{found[OURS][column].of_means:+.3f}",
            found[OURS][column].n_backwards,
        ]
        for column in there
    ]
    largest = {name: max(regret.largest for regret in found[name].values()) for name in names}
    backwards = sum(regret.n_backwards for regret in found[OURS].values())
    worst = max(regret.of_means for regret in found[OURS].values())
    lines.append(["all", *(f"{means[name]:.3f} / {largest[name]:.3f}" for name in names), f"at most {worst:+.3f}", backwards])
    header = ["mean / largest regret", *names, "best peer's mean less ours", "below .5 where a peer is above .7"]
    return markdown_table(header, lines)


def peers_table(entries: Entries) -> str:
    """Return ROC-AUC / average precision and the preprocessing of each detector, by mean rank."""
    ranks = mean_ranks(entries)
    names = {name for row in entries.values() for name in row}
    overall = {name: float(np.mean([row[name] for row in ranks.values() if name in row])) for name in names}
    rows = []
    n_missing = {name: sum(name not in row for row in ranks.values()) for name in names}
    for name in sorted(names, key=lambda name: (n_missing[name] > 0, overall[name])):  # ranks in some columns compare with none
        n_columns = len(ranks) - n_missing[name]
        cells = [_figures(row[name], name != OURS) if name in row else "–" for row in entries.values()]
        rows.append([name, *cells, f"{overall[name]:.1f}" + ("" if n_columns == len(entries) else f" ({n_columns} columns)")])
    return markdown_table(["detector", *(column.title() for column in entries), "mean rank"], rows)


def _figures(item: Entry, with_preprocessing: bool = False) -> str:
    text = f"{item.means['roc_auc']:.3f} / {item.means['average_precision']:.3f}"
    return text + f" {item.preprocessing}" * with_preprocessing + f" ({item.n_failed} failed)" * (item.n_failed > 0)


def ablation_table(entries: Entries) -> str:
    """Return the ROC-AUC of our detector and its variants with the first seed."""
    entries = {column: row for column, row in entries.items() if OURS in row and len(row) > 1}
    rows = []
    for name in (OURS, *ABLATIONS):
        there = [row[name].by_seed[0] - row[OURS].by_seed[0] for row in entries.values() if name in row]
        if there:
            cells = [f"{row[name].by_seed[0]:.3f}" if name in row else "–" for row in entries.values()]
            rows.append(["default" if name == OURS else name, *cells, f"{np.mean(there):+.4f}"])
    return markdown_table(["variant", *(column.title() for column in entries), "mean difference"], rows)


def margin_table(entries: Entries, seeds: list[int]) -> str:
    """Return how far our detector is ahead of the best peer of each column, with each seed."""
    rows = []
    for column, row in entries.items():
        if OURS not in row or len(row) < 2:
            continue
        best = next(name for name in row if name != OURS)
        means = [f"{row[name].means['roc_auc']:.4f}" for name in (OURS, best)]
        margins = [f"{ours - peer:+.4f}" for ours, peer in zip(row[OURS].by_seed, row[best].by_seed, strict=False)]
        margins += ["–"] * (len(seeds) - len(margins))
        rank = f"{mean_ranks({column: row})[column][OURS]:.1f} of {len(row)}"
        rows.append([column.title(), *means, f"{best}@{row[best].preprocessing}", *margins, rank])
    header = ["group, mode", "ours", "best peer", "which is", *(f"margin, seed {seed}" for seed in seeds), "our mean rank"]
    return markdown_table(header, rows)


def draw(entries: Entries, plan: Plan) -> Figure:
    """Draw the mean ROC-AUC of our detector and the best peers, a panel for each column of the table."""
    n_columns = min(4, len(entries))
    n_rows = -(-len(entries) // n_columns)
    figure, panels = plt.subplots(
        n_rows, n_columns, figsize=(4.2 * n_columns, 0.6 + 3.4 * n_rows), layout="constrained", squeeze=False
    )
    for ax, (column, row) in zip(panels.flat, entries.items(), strict=False):
        shown = [name for place, name in enumerate(row) if place < N_DRAWN or name == OURS]
        _draw_column(ax, {name: row[name] for name in shown})
        n_sets = len(plan.sets[column.regime])
        ax.set_title(f"{column.title()} ({n_sets} {'sets' if n_sets > 1 else 'set'})", fontsize=10)
        ax.set_xlabel("ROC-AUC" + ", mean over the sets" * (n_sets > 1))
    for ax in panels.flat[len(entries) :]:
        ax.set_axis_off()
    n_seeds = len(plan.seeds)
    figure.suptitle(
        f"Ours (raw rows, defaults) and the best peers, each at its best preprocessing; {n_seeds} seeds (ticks), mean (dot)"
    )
    return figure


def _draw_column(ax: Axes, row: dict[str, Entry]) -> None:
    for place, (name, item) in enumerate(row.items()):
        colour = "#d55e00" if name == OURS else "#0072b2"
        mean = item.means["roc_auc"]
        ax.plot(item.by_seed, [place] * len(item.by_seed), "|", color=colour, markersize=9, alpha=0.7)
        ax.plot(mean, place, "o", color=colour)
        ax.annotate(
            f"{mean:.3f}", (max(*item.by_seed, mean), place), (7, 0), textcoords="offset points", va="center", fontsize=8
        )
    labels = [name if name == OURS else f"{name}@{item.preprocessing}" for name, item in row.items()]
    ax.set_yticks(range(len(row)), labels, fontsize=8)
    ax.set_ylim(len(row) - 0.5, -0.5)
    ax.margins(x=0.05)
    low, high = ax.get_xlim()
    ax.set_xlim(low, high + 0.22 * (high - low))  # room for the numbers
    ax.grid(alpha=0.3)
