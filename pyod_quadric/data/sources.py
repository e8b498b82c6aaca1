"""Rows on disk: files, folders and lists of them."""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.data.disk import Index, NpyFile, RowSource, Source
from pyod_quadric.data.parquet import ParquetFile, Select


class Shards(RowSource):
    """Several sources, one after the other.

    Examples
    --------
    >>> import numpy as np
    >>> shards = Shards([np.zeros((2, 3)), np.ones((4, 3))])
    >>> shards.shape, shards[1:3].tolist()
    ((6, 3), [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    """

    def __init__(self, parts: Sequence[Source]) -> None:
        widths = {part.shape[1:] for part in parts}
        if len(widths) != 1:
            shapes = [f"{getattr(part, 'path', 'an array')}: {part.shape}" for part in parts]
            raise ValueError(f"shards must have the same number of features, got {', '.join(sorted(shapes))}")
        self._parts, self._last = parts, 0
        self.names = next((part.names for part in parts if isinstance(part, RowSource) and part.names is not None), None)
        self.in_groups = any(part.in_groups for part in parts if isinstance(part, RowSource))
        self._starts = np.cumsum([0, *(part.shape[0] for part in parts)])
        self.shape = (int(self._starts[-1]), *widths.pop())
        self.dtype = np.result_type(*(part.dtype for part in parts))

    def __getitem__(self, index: Index) -> NDArray[Any]:
        numbers = np.arange(*index.indices(self.shape[0])) if isinstance(index, slice) else index
        rows = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        places = np.searchsorted(self._starts, numbers, side="right") - 1
        for place in np.unique(places):
            chosen = places == place
            self._leave(int(place))
            rows[chosen] = self._parts[place][numbers[chosen] - self._starts[place]]
        return rows

    def _leave(self, place: int) -> None:
        """Let another part than that at a place forget what it has decoded, so that not all of them keep something."""
        last = self._parts[self._last]
        if place != self._last and isinstance(last, ParquetFile):
            last.release()
        self._last = place


READERS: dict[str, Callable[[Path, Select | None], RowSource]] = {
    ".npy": lambda path, _: NpyFile(path),
    ".parquet": ParquetFile,
}


def open_paths(paths: Sequence[str | PathLike[str]], select: Select | None = None) -> RowSource:
    """Return the rows of files, and of all files of folders in the order of their names, one after the other.

    Columns with names are found by them: those of the first file decide, in whatever order the others have them.

    Parameters
    ----------
    paths : sequence of paths
    select : callable, optional
        Chooses columns by their names, from each file that has names.
    """
    files = [file for path in paths for file in _files(Path(path))]
    parts: list[RowSource] = []
    for file in files:
        named = next((part.names for part in parts if part.names is not None), None)
        parts.append(_opened(file, select if named is None else _as_in(named, select)))
    return parts[0] if len(parts) == 1 else Shards(parts)


def _as_in(first: list[str], select: Select | None) -> Select:
    """Return what selects the columns of the first file that has names, in its order."""

    def selected(names: list[str]) -> list[str]:
        found = select(names) if select else names
        if sorted(found) != sorted(first):
            differing = ", ".join(sorted(set(found) ^ set(first)))
            raise ValueError(f"its columns are not those of the first file; they differ in {differing}")
        return first

    return selected


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in READERS)
    if not files:
        raise ValueError(f"the folder {path} holds no {' or '.join(READERS)} files")
    return files


def _opened(path: Path, select: Select | None) -> RowSource:
    if path.suffix.lower() not in READERS:
        raise ValueError(f"{path} must be a {' or '.join(READERS)} file, or a folder of such files")
    try:
        return READERS[path.suffix.lower()](path, select)
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
