"""The rows kept of a stream: a uniform sample of bounded size, or the latest rows."""

from dataclasses import dataclass, replace
from typing import Any

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
        The largest size of the uniform sample.
    window : int, optional
        If given, keep this many of the latest rows instead of a uniform sample.
    groups : ndarray of shape (at most capacity,), optional
        The group of each row, by :func:`pyod_quadric.data.groups.group_keys`.

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
    groups: NDArray[np.int64] | None = None

    def with_rows(self, rows: Rows, groups: NDArray[np.int64] | None = None) -> "Reservoir":
        """Return the sample after further rows of the stream; give their groups (n,) if and only if earlier rows had groups."""
        if self.rows is not None and (self.groups is None) != (groups is None):
            earlier, now = ("none", "some") if self.groups is None else ("some", "none")
            raise ValueError(f"all rows of a stream have groups, or none has: earlier ones have {earlier}, these have {now}")
        origin = self._uniform(rows.n_rows) if self.window is None else self._latest(rows.n_rows, self.window)
        new = np.flatnonzero(origin >= 0)
        new = new[np.argsort(origin[new])]  # files are read in order
        read = rows.read(origin[new]).cpu().numpy()
        sample = self._replaced(self.rows, origin, new, read)
        keys = None if groups is None else self._replaced(self.groups, origin, new, groups[origin[new]])
        return replace(self, rows=sample, groups=keys, n_seen=self.n_seen + rows.n_rows)

    def _replaced(
        self, old: NDArray[Any] | None, origin: NDArray[np.int64], places: NDArray[np.int64], new: NDArray[Any]
    ) -> NDArray[Any]:
        """Return old entries where they are kept, and new ones at their places."""
        dtype = new.dtype if old is None else np.result_type(old, new)
        entries = np.empty((len(origin), *new.shape[1:]), dtype)
        if old is not None:
            entries[origin < 0] = old[-1 - origin[origin < 0]]
        entries[places] = new
        return entries

    def _latest(self, n_new: int, window: int) -> NDArray[np.int64]:
        """Return where each row of the sample comes from: the number of a new row, or -1 minus that of an old one."""
        n_old = 0 if self.rows is None else len(self.rows)
        return np.concatenate([-1 - np.arange(n_old), np.arange(n_new)])[-window:]

    def _uniform(self, n_new: int) -> NDArray[np.int64]:
        """Return the same for a uniform sample."""
        n_old = 0 if self.rows is None else len(self.rows)
        rng = np.random.default_rng((self.seed, self.n_seen))
        numbers = np.arange(self.n_seen, self.n_seen + n_new)
        # Row number i goes to a random place from 0 to i, if there is such a place; the first ones fill the sample in order.
        places = np.where(numbers < self.capacity, numbers, rng.integers(0, numbers + 1))
        origin = -1 - np.arange(max(n_old, min(self.capacity, self.n_seen + n_new)))
        for number, place in enumerate(places.tolist()):  # the last one stays
            if place < self.capacity:
                origin[place] = number
        return origin

    def sample(self) -> NDArray[np.floating]:
        """Return the kept rows."""
        if self.rows is None:
            raise ValueError("no rows have come yet")
        return self.rows

    def is_one_row(self) -> bool:
        """Return whether all kept rows are equal, like those of a stuck sensor."""
        rows = self.sample()
        return bool((rows == rows[:1]).all())

    def has_grown(self) -> bool:
        """Return whether rows have grown by a tenth since the last use; with a window, whether a tenth of it is new."""
        before = self.n_used if self.window is None else min(self.n_used, self.window)
        return GROWTH * (self.n_seen - self.n_used) >= before

    def used(self) -> "Reservoir":
        """Return the same sample, marked as used now."""
        return replace(self, n_used=self.n_seen)
