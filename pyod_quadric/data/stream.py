"""What is kept of a stream: a uniform sample of bounded size, or the latest rows."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.data.rows import Rows

CAPACITY = 20_000
GROWTH = 10  # a stream that is longer by a tenth has grown enough for another fit


@dataclass(frozen=True, eq=False)
class Reservoir:
    """Rows of a stream, each of which is in the sample with the same probability (Vitter's algorithm R), or the latest ones.

    Parameters
    ----------
    seed : int
    capacity : int
        The most rows to keep of a uniform sample.
    window : int, optional
        Keep the latest so many rows instead, so that older ones are forgotten.

    Examples
    --------
    >>> import numpy as np
    >>> from pyod_quadric.data.rows import rows_of
    >>> reservoir = Reservoir(seed=0, capacity=5)
    >>> for start in (0.0, 3.0, 6.0):
    ...     reservoir = reservoir.with_rows(rows_of(start + np.arange(3.0)[:, None]))
    >>> reservoir.n_seen, len(reservoir.rows)
    (9, 5)
    """

    seed: int
    capacity: int = CAPACITY
    rows: NDArray[np.floating] | None = None  # (at most capacity, d)
    n_seen: int = 0
    n_used: int = 0
    window: int | None = None

    def with_rows(self, rows: Rows) -> "Reservoir":
        """Return the sample after further rows of the stream."""
        sample = self._uniform(rows) if self.window is None else self._latest(rows, self.window)
        return replace(self, rows=sample, n_seen=self.n_seen + rows.n_rows)

    def _latest(self, rows: Rows, window: int) -> NDArray[np.floating]:
        new: NDArray[np.floating] = rows.read(slice(max(0, rows.n_rows - window), rows.n_rows)).cpu().numpy()
        return new if self.rows is None else np.concatenate([self.rows[max(0, len(self.rows) + len(new) - window) :], new])

    def _uniform(self, rows: Rows) -> NDArray[np.floating]:
        kept = 0 if self.rows is None else len(self.rows)
        rng = np.random.default_rng((self.seed, self.n_seen))
        numbers = np.arange(self.n_seen, self.n_seen + rows.n_rows)
        # Row number i goes to a random place from 0 to i, if there is such a place; the first ones fill the sample in order.
        places = np.where(numbers < self.capacity, numbers, rng.integers(0, numbers + 1))
        last = {int(place): number for number, place in enumerate(places) if place < self.capacity}
        dtype = np.result_type(*([] if self.rows is None else [self.rows]), str(rows.dtype).removeprefix("torch."))
        sample = np.empty((max(kept, min(self.capacity, int(numbers[-1]) + 1)), rows.n_features), dtype)
        if self.rows is not None:
            sample[:kept] = self.rows
        chosen = np.array(sorted(last, key=lambda place: last[place]), dtype=np.int64)
        sample[chosen] = rows.read(np.array([last[int(place)] for place in chosen], dtype=np.int64)).cpu().numpy()
        return sample

    def sample(self) -> NDArray[np.floating]:
        """Return the rows that are kept."""
        if self.rows is None:
            raise ValueError("no rows have come yet")
        return self.rows

    def has_grown(self) -> bool:
        """Return whether there are a tenth more rows than when they were last used, or a tenth of the latest ones is new."""
        before = self.n_used if self.window is None else min(self.n_used, self.window)
        return GROWTH * (self.n_seen - self.n_used) >= before

    def used(self) -> "Reservoir":
        """Return the same sample, as used now."""
        return replace(self, n_used=self.n_seen)
