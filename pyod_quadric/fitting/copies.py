"""Copies: rows that are equal or nearly equal. They share a fold, or a model would know a held-out row from its copy.

Rows are projected on a few random directions. Copies fall into one cell of a fine grid there, or into one cell of the same grid
shifted by half a cell. Cells are so small that other rows hardly ever share one, however many rows there are. If no more rows
share cells than chance explains, only equal rows count as copies.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from pyod_quadric.data.rows import Rows
from pyod_quadric.fitting.preparation import block_rows
from pyod_quadric.parallel.ranks import from_first_rank, sum_over_ranks
from pyod_quadric.progress import stage

N_DIRECTIONS = 8
N_SAMPLED = 500  # rows by which the size of a cell is chosen, and by which columns are called continuous
NEAR = 1e-3  # the largest width of a cell, in units of the spread of rows
EXACT = 1e-12  # a width in which equal rows meet, whatever the rounding, and no others
LEAST_SPREAD = 0.1  # of a column, in units of that of the median one
CHANCE = 0.01  # the share of rows that may meet another one by chance
# A row that occurs this many times as often as the average row is not a copy by accident: new rows will equal it, too.
FREQUENT = 5
LARGEST_SHARE = 0.1  # of the rows, in a set of copies: with larger ones there is little to hold out
BOUND = 2.0**62  # of the number of a cell


@stage("copies")
def copies_of(rows: Rows, device: torch.device) -> NDArray[np.int64] | None:
    """Return a number for each row (n,), equal for copies, from one or two passes; None if there are no copies.

    Rows of categories or counts are often equal by nature, and new rows will equal them as well. So the search needs a
    continuous column, one whose values are mostly different.

    Parameters
    ----------
    rows : Rows
    device : torch.device

    Examples
    --------
    >>> import numpy as np, torch
    >>> from pyod_quadric.data.rows import rows_of
    >>> once = np.random.default_rng(0).normal(size=(50, 3))
    >>> found = copies_of(rows_of(np.concatenate([once, once[:2] + 1e-9])), torch.device("cpu"))
    >>> np.flatnonzero(found == found[0]).tolist(), len(np.unique(found))
    ([0, 50], 50)
    """
    sample = rows.read(_spread_out(rows.n_rows)).double().cpu()
    centre, directions = from_first_rank(_directions(sample), device)
    nearly = _width((sample - centre.cpu()) @ directions.cpu(), rows.n_rows)
    for width in (nearly, EXACT):
        found = _without_frequent(_merged(_cells(rows, centre, directions / width)))
        n_copies = rows.n_rows - int(found.max()) - 1
        if not n_copies:
            return None
        are_some = n_copies > (2 * CHANCE * rows.n_rows if width > EXACT else 0)
        if are_some and np.bincount(found).max() <= LARGEST_SHARE * rows.n_rows and _is_continuous(rows, found):
            return found
    return None


def _directions(sample: Tensor) -> tuple[Tensor, Tensor]:
    """Return the centre (d,) of rows, and random directions (d, p) along which they have a spread of about 1."""
    low, centre, high = torch.from_numpy(np.quantile(sample.numpy(), [0.25, 0.5, 0.75], axis=0))
    spread = (high - low) / 1.349  # as a normal distribution has it
    spread = torch.where(spread > 0, spread, sample.std(dim=0))
    known = spread[spread > 0]
    # What varies far less than the others may be rounding, and copies need not agree in it.
    spread = spread.clamp(min=LEAST_SPREAD * float(known.median()) if len(known) else 1.0)
    d = len(centre)
    # The same for every seed: copies are copies.
    drawn = np.random.default_rng(0).standard_normal((d, min(d, N_DIRECTIONS))) / np.sqrt(d)
    return centre, torch.from_numpy(drawn) / spread[:, None]


def _width(sketch: Tensor, n_rows: int) -> float:
    """Return the width of a cell in which a row meets others by chance in few cases, from a sample's coordinates (s, p)."""
    variances = torch.linalg.eigvalsh(sketch.T @ sketch).clamp(min=0)
    dimension = float(variances.sum() ** 2 / variances.square().sum().clamp(min=torch.finfo(torch.float64).tiny))
    return min(NEAR, math.pow(CHANCE / n_rows, 1 / max(1.0, dimension)))


def _cells(rows: Rows, centre: Tensor, directions: Tensor) -> Tensor:
    """Return hashes (2, n) of the cells in which rows are, in the grid and in the one moved by half a cell, from one pass."""
    cells = torch.zeros(2, rows.n_rows, dtype=torch.int64, device=centre.device)
    drawn = np.random.default_rng(1).integers(-(2**62), 2**62, directions.shape[1]) | 1
    factors = torch.from_numpy(drawn).to(centre.device)
    shifts = torch.tensor([0.0, 0.5], dtype=torch.float64, device=centre.device)
    for place, block in rows.placed_blocks(block_rows(rows)):
        sketch = (block.to(centre.device).double() - centre) @ directions
        numbers = (sketch[None] + shifts[:, None, None]).floor().clamp(-BOUND, BOUND).nan_to_num().long()
        cells[:, place] = (numbers * factors).sum(dim=2)  # overflows, as hashes do
    sum_over_ranks(cells)
    return cells


def _merged(cells: Tensor) -> NDArray[np.int64]:
    """Return the same number (n,) for rows in one cell of either grid (2, n), directly or by way of others."""
    unmoved, moved = (np.unique(one.cpu().numpy(), return_inverse=True)[1] for one in cells)
    n = len(moved)
    if unmoved.max() == n - 1 and moved.max() == n - 1:
        return np.arange(n)
    n_unmoved, size = unmoved.max() + 1, unmoved.max() + moved.max() + 2
    graph = coo_array((np.ones(n, dtype=np.int8), (unmoved, n_unmoved + moved)), shape=(size, size))  # a row joins its cells
    return np.unique(connected_components(graph, directed=False)[1][unmoved], return_inverse=True)[1]


def _without_frequent(copies: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of sets of copies (n,), where rows of sets that are far larger than others are apart."""
    counts = np.bincount(copies)
    often = counts[copies] > FREQUENT * len(copies) / len(counts)
    apart = np.where(often, len(counts) + np.arange(len(copies)), copies)
    return np.unique(apart, return_inverse=True)[1]


def _is_continuous(rows: Rows, copies: NDArray[np.int64]) -> bool:
    """Return whether most values of some column are different, among rows that are no copies of each other."""
    first = np.sort(np.unique(copies, return_index=True)[1])
    some = rows.read(first[_spread_out(len(first))]).cpu().numpy()
    return any(len(np.unique(column)) > len(some) / 2 for column in some.T)


def _spread_out(n: int) -> NDArray[np.int64]:
    """Return some of the numbers from 0 to n - 1, evenly."""
    return np.unique(np.linspace(0, n - 1, min(N_SAMPLED, n)).astype(np.int64))
