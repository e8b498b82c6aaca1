"""Kinds of values of a parameter: validation, description, and parsing on the command line."""

import math
import os
import reprlib
from collections.abc import Mapping as AnyMapping
from numbers import Integral, Real
from typing import Any, Protocol, get_args

MOST_COUNT = 2**53  # rows, epochs, seeds: floats count no farther, and nothing here has more

_short = reprlib.Repr()  # a file may have a text of megabytes where a number is expected
_short.maxstring = _short.maxother = _short.maxlong = 200


class Kind(Protocol):
    """One kind of values."""

    def accepts(self, value: Any) -> bool:
        """Return whether a value is of this kind."""

    def plain(self, value: Any) -> Any:
        """Return an accepted value in a type of Python's own."""

    def parse(self, text: str) -> Any:
        """Return the value that a text stands for, or raise a ValueError."""

    def __str__(self) -> str: ...


def checked(name: str, value: Any, kinds: tuple[Kind, ...]) -> Any:
    """Return a value of one of the kinds in a type of Python's own, or raise a ValueError that names the kinds.

    Examples
    --------
    >>> checked("lr", 1, (Number(above=0),))
    1.0
    >>> checked("lr", -1, (Number(above=0), Nothing()))
    Traceback (most recent call last):
    ...
    ValueError: lr must be a number above 0, or None; got -1
    """
    for kind in kinds:
        if kind.accepts(value):
            return kind.plain(value)
    raise ValueError(f"{name} must be {', or '.join(map(str, kinds))}; got {_short.repr(value)}")


def parsed(text: str, kinds: tuple[Kind, ...]) -> Any:
    """Return the value of the first kind that a text can stand for, or raise a ValueError.

    Examples
    --------
    >>> parsed("0.5", (Words("auto"), Whole(1), Number(above=0)))
    0.5
    """
    for kind in sorted(kinds, key=lambda kind: not isinstance(kind, Nothing)):  # "none" is a text and a name, too
        try:
            value = kind.parse(text)
        except ValueError:
            continue
        if kind.accepts(value):
            return value
    raise ValueError(f"must be {', or '.join(map(str, kinds))}")


class _Plain:
    """Values that are kept as they are and cannot be typed."""

    def plain(self, value: Any) -> Any:
        return value

    def parse(self, text: str) -> Any:
        raise ValueError(text)


class Words(_Plain):
    """Some words, or those of a ``Literal``."""

    def __init__(self, *words: Any) -> None:
        self.words: tuple[str, ...] = tuple(word for given in words for word in get_args(given) or (given,))

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.words

    def parse(self, text: str) -> str:
        return text

    def __str__(self) -> str:
        return " or ".join(map(repr, self.words))


class Whole:
    """Whole numbers from some number on, up to ``MOST_COUNT`` if nothing else is said."""

    def __init__(self, least: int, most: int = MOST_COUNT) -> None:
        self.least, self.most = least, most

    def accepts(self, value: Any) -> bool:
        return isinstance(value, Integral) and not _is_flag(value) and self.least <= int(value) <= self.most

    def plain(self, value: Any) -> int:
        return int(value)

    def parse(self, text: str) -> int:
        return int(text)

    def __str__(self) -> str:
        return (
            f"a whole number of {self.least} or more"
            if self.most == MOST_COUNT
            else f"a whole number from {self.least} to {self.most}"
        )


class Number:
    """Finite numbers between bounds."""

    def __init__(
        self, *, least: float = -math.inf, above: float = -math.inf, most: float = math.inf, below: float = math.inf
    ) -> None:
        self._bounds = {"of at least": least, "above": above, "of at most": most, "below": below}

    def accepts(self, value: Any) -> bool:
        least, above, most, below = self._bounds.values()
        if not isinstance(value, Real) or _is_flag(value):
            return False
        try:
            number = float(value)
        except OverflowError:  # of a whole number
            return False
        return math.isfinite(number) and least <= number <= most and above < number < below

    def plain(self, value: Any) -> float:
        return float(value)

    def parse(self, text: str) -> float:
        return float(text)

    def __str__(self) -> str:
        bounds = " and ".join(f"{words} {bound:g}" for words, bound in self._bounds.items() if math.isfinite(bound))
        return f"a number {bounds}".strip()


class Share(Number):
    """PyOD's contamination: Python's floats, since PyOD takes NumPy's float32 for a thresholder, or a thresholder."""

    def __init__(self) -> None:
        super().__init__(above=0, most=0.5)

    def accepts(self, value: Any) -> bool:
        return hasattr(value, "fit") or (isinstance(value, float | int) and super().accepts(value))

    def plain(self, value: Any) -> Any:
        return value

    def __str__(self) -> str:
        return f"{super().__str__()} (a Python float), or a thresholder"


def _is_flag(value: Any) -> bool:
    """Return whether a value is True or False, of Python's or of NumPy's type."""
    return type(value).__name__ in ("bool", "bool_")


class Flag:
    """True or False, "yes" or "no" on a command line."""

    def accepts(self, value: Any) -> bool:
        return _is_flag(value)

    def plain(self, value: Any) -> bool:
        return bool(value)

    def parse(self, text: str) -> bool:
        if text not in ("yes", "no"):
            raise ValueError(text)
        return text == "yes"

    def __str__(self) -> str:
        return "True or False"


class Nothing(_Plain):
    """None, "none" on a command line."""

    def accepts(self, value: Any) -> bool:
        return value is None

    def parse(self, text: str) -> None:
        if text != "none":
            raise ValueError(text)

    def __str__(self) -> str:
        return "None"


class Text(_Plain):
    """Any text."""

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str)

    def parse(self, text: str) -> str:
        return text

    def __str__(self) -> str:
        return "a text"


class PathName(Text):
    """The path of a file."""

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str | os.PathLike)

    def __str__(self) -> str:
        return "a path"


class Object(_Plain):
    """An object of a class of this name, which need not be imported to be recognised."""

    def __init__(self, name: str) -> None:
        self._name = name

    def accepts(self, value: Any) -> bool:
        return any(kind.__name__ == self._name for kind in type(value).__mro__)

    def __str__(self) -> str:
        return self._name


class Seed(Whole):
    """What scikit-learn takes as ``random_state``, but for None."""

    def __init__(self) -> None:
        super().__init__(0, 2**32 - 1)

    def accepts(self, value: Any) -> bool:
        return type(value).__name__ == "RandomState" or super().accepts(value)

    def plain(self, value: Any) -> Any:
        return int(value) if super().accepts(value) else value

    def __str__(self) -> str:
        return "a whole number from 0 to 2**32 - 1, or a RandomState"


class Mapping(_Plain):
    """A dictionary with some of these keys."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = keys

    def accepts(self, value: Any) -> bool:
        return isinstance(value, AnyMapping) and all(key in self._keys for key in value)

    def plain(self, value: Any) -> dict[str, Any]:
        return dict(value)

    def __str__(self) -> str:
        return f"a dictionary with some of the keys {', '.join(self._keys)}"
