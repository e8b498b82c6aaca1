"""A function of the model, applied to all rows block by block, on a device."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyod_quadric.data.rows import Rows
from pyod_quadric.parallel.devices import moved
from pyod_quadric.parallel.ranks import n_ranks, sum_over_ranks

BATCH_ROWS = 4096  # of one block; more gain nothing


def in_blocks(
    function: Callable[[Tensor], Tensor], rows: Rows, device: torch.device, size: int = BATCH_ROWS, shared: bool = False
) -> NDArray[np.float64]:
    """Return the values (n, ...) of a function for all rows, in float64.

    Parameters
    ----------
    function : callable
        A function from points (b, d) on the device to values (b, ...).
    rows : Rows
    device : torch.device
    size : int
        The largest number of rows in a block.
    shared : bool
        Whether the processes of a group share the work; all of them get all values.
    """
    results: NDArray[np.float64] | None = None  # for all rows at once: many small ones would leave holes in the memory
    shared = shared and n_ranks() > 1
    places: list[slice] = []

    def blocks() -> Iterator[Tensor]:
        for place, block in rows.placed_blocks(size) if shared else _placed(rows.blocks(size)):
            places.append(place)
            yield block

    for number, block in enumerate(moved(blocks(), device)):  # which may be one block ahead
        values = function(block).double().cpu().numpy()
        if results is None:
            results = np.zeros((rows.n_rows, *values.shape[1:]))
        results[places[number]] = values
    assert results is not None  # there is at least one row
    if not shared:
        return results
    total = torch.from_numpy(results).to(device)
    sum_over_ranks(total)
    return total.cpu().numpy()


def _placed(blocks: Iterator[Tensor]) -> Iterator[tuple[slice, Tensor]]:
    """Yield consecutive blocks with their slices."""
    start = 0
    for block in blocks:
        yield slice(start, start + len(block)), block
        start += len(block)
