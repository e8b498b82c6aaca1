"""Which columns of a table are features."""

from collections import Counter
from dataclasses import dataclass

from pyod_quadric.cli.errors import CommandError, listed


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What the options say about the columns of a table, and the arrays of an ``.npz`` file.

    Parameters
    ----------
    columns : list of str, optional
        The features; by default all that are left.
    drop : list of str
        What is no feature.
    label_column : str, optional
        The column of the labels, or their array in an ``.npz`` file; no feature either.
    array : str, optional
        The array of the rows in an ``.npz`` file.
    header : bool, default=True
        Whether the first line of a ``.csv`` file holds names.
    """

    columns: list[str] | None = None
    drop: tuple[str, ...] = ()
    label_column: str | None = None
    array: str | None = None
    header: bool = True

    def features(self, path: str, names: list[str], wanted: list[str] | None) -> list[str]:
        """Return the names of the features among those of a table; ``wanted`` are those of a model, if it has names.

        Examples
        --------
        >>> Choice(drop=("id",)).features("rows.csv", ["id", "b", "a"], wanted=None)
        ['b', 'a']
        >>> Choice().features("rows.csv", ["id", "b", "a"], wanted=["a", "b"])
        ['a', 'b']
        """
        self._check_names(path, names)
        left = [name for name in names if name not in self.drop and name != self.label_column]
        chosen = self.columns or wanted or left
        if wanted is not None and chosen != wanted:
            raise CommandError(f"the model was fitted to the columns {listed(wanted)}, but --columns says {listed(chosen)}")
        missing = [name for name in chosen if name not in left]
        if missing:
            raise CommandError(f"{path} lacks {listed(missing)}, which the model was fitted to; its columns: {listed(left)}")
        if not chosen:
            raise CommandError(f"{path} has no columns left to be features; its columns: {listed(names)}")
        if "" in chosen:
            raise CommandError(f"{path} has a column without a name, an index perhaps; choose features by --columns")
        return chosen

    def _check_names(self, path: str, names: list[str]) -> None:
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise CommandError(f"{path} has more than one column of the name {listed(twice)}; names must differ")
        given = [*(self.columns or []), *self.drop, *([self.label_column] if self.label_column else [])]
        unknown = [name for name in given if name not in names]
        if unknown:
            raise CommandError(f"{path} has no column {listed(unknown)}; its columns: {listed(names)}")
        for name in self.columns or []:
            if name in self.drop or name == self.label_column:
                raise CommandError(f"the column {name} cannot be a feature and left out at the same time")
