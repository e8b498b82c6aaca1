"""Which columns of a table are features, which one holds labels, and which array of an ``.npz`` file holds the rows."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass


class ChoiceError(ValueError):
    """Raised when a choice does not apply to the kind of file and would have no effect."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What to take from a file.

    Parameters
    ----------
    columns : list of str, optional
        The features; by default all remaining columns.
    drop : tuple of str
        Columns that are not features.
    label_column : str, optional
        The column of the labels, which is not a feature; in an ``.npz`` file an array (n,).
    id_column : str, optional
        The column that identifies the rows, which is not a feature; in an ``.npz`` file an array (n,).
    list_column : str, optional
        The column of lists that a model was fitted to; it is used if the file has it.
    array : str, optional
        The array (n, d) of an ``.npz`` file that holds the rows; by default ``X``, or the only one.
    header : bool, default=True
        Whether the first line of a ``.csv`` file holds names.

    Examples
    --------
    >>> Choice(drop=("id",)).features("rows.csv", ["id", "b", "a"])
    ['b', 'a']
    >>> Choice().features("rows.csv", ["id", "b", "a"], wanted=["a", "b"])
    ['a', 'b']
    """

    columns: list[str] | None = None
    drop: tuple[str, ...] = ()
    label_column: str | None = None
    id_column: str | None = None
    list_column: str | None = None
    array: str | None = None
    header: bool = True

    def check_effect(self, path: object, *, columns: bool = False, labels: bool = False, array: bool = False) -> None:
        """Raise a ChoiceError for choices that the file does not support: named columns, labels, arrays.

        Examples
        --------
        >>> Choice(array="X").check_effect("rows.csv", columns=True, labels=True)
        Traceback (most recent call last):
        ...
        pyod_quadric.data.columns.ChoiceError: rows.csv has no named arrays, so that array=... has no effect; leave it out
        """
        for there, given, option, what in (
            (columns, self.columns, "columns=...", "named columns"),
            (columns, self.drop, "drop=...", "named columns"),
            (labels, self.label_column, "label_column=...", "named columns"),
            (labels, self.id_column, "id_column=...", "named columns"),
            (array, self.array, "array=...", "named arrays"),
        ):
            if given not in (None, (), []) and not there:
                raise ChoiceError(f"{path} has no {what}, so that {option} has no effect; leave it out")

    def check_header(self, path: object) -> None:
        """Raise a ChoiceError if a file without a header is to be read without one."""
        if not self.header:
            raise ChoiceError(f"{path} is no .csv file, so that header=False has no effect; leave it out")

    def features(self, path: object, names: list[str], wanted: list[str] | None = None) -> list[str]:
        """Return the names of the features, in order.

        Parameters
        ----------
        path : object
            The name of the file in error messages.
        names : list of str
            Those of all columns.
        wanted : list of str, optional
            The features that a model was fitted to, if it knows their names.
        """
        self._check_names(path, names)
        left = [name for name in names if name not in (*self.drop, self.label_column, self.id_column)]
        chosen = self.columns or wanted or left
        if wanted is not None and chosen != wanted:
            raise ValueError(f"the model was fitted to the columns {listed(wanted)}, but columns=... says {listed(chosen)}")
        missing = [name for name in chosen if name not in left]
        if missing:
            raise ValueError(f"{path} lacks {listed(missing)}, which the model was fitted to; its columns: {listed(left)}")
        if not chosen:
            raise ValueError(f"{path} has no columns left to be features; its columns: {listed(names)}")
        if "" in chosen:
            raise ValueError(f"{path} has a column without a name, an index perhaps; choose features by columns=...")
        return list(chosen)

    def _check_names(self, path: object, names: list[str]) -> None:
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ValueError(f"{path} has more than one column of the name {listed(twice)}; names must differ")
        given = [*(self.columns or []), *self.drop, *(name for name in (self.label_column, self.id_column) if name is not None)]
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ValueError(f"{path} has no column {listed(unknown)}; its columns: {listed(names)}")
        for name in self.columns or []:
            if name in (*self.drop, self.label_column, self.id_column):
                raise ValueError(f"the column {name} cannot be a feature and left out at the same time")


def no_numbers(path: object, columns: Mapping[str, str]) -> ValueError:
    """Return the error to raise for features that are not numeric.

    Parameters
    ----------
    path : object
    columns : dict of str
        What each of the columns holds instead, or an example of it.

    Examples
    --------
    >>> str(no_numbers("rows.csv", {"id": "'row 0'", "day": "date32[day]"})).partition(";")[0]
    "rows.csv holds no numbers in id ('row 0'), day (date32[day])"
    """
    shown = listed([f"{name} ({held})" for name, held in columns.items()])
    return ValueError(
        f"{path} holds no numbers in {shown}; leave such columns out by drop={','.join(columns)}, "
        "or name the one that identifies rows by id_column=..."
    )


def listed(names: list[str], most: int = 20) -> str:
    """Return names as text; long lists are cut short.

    Examples
    --------
    >>> listed(["a", "b", "c"], most=2)
    'a, b, ... (3 in all)'
    """
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[:most])}, ... ({len(names)} in all)"


def printable(text: str) -> str:
    r"""Return untrusted text in one line, with control characters escaped, so that a terminal shows and does not obey them.

    Examples
    --------
    >>> print(printable("height\x1b[2J\n"))
    height\x1b[2J\n
    """
    return text if text.isprintable() else "".join(sign if sign.isprintable() else _escaped(sign) for sign in text)


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode()
