"""Groups: rows of one person, document or machine, which are alike and must be held out together."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import GroupKFold


def group_keys(groups: ArrayLike, n_rows: int) -> NDArray[np.int64]:
    """Return a key for each row (n,), equal for rows of one group: a hash of the group's name.

    Names are not kept, so saved streams hold none. Later rows of a stream get the same keys for the same names.

    Parameters
    ----------
    groups : array-like of shape (n,)
        Numbers, texts, or anything that ``str`` turns into text.
    n_rows : int

    Examples
    --------
    >>> keys = group_keys(["Ada", "Bob", "Ada"], 3)
    >>> bool(keys[0] == keys[2] != keys[1])
    True
    """
    names = np.asarray(groups)
    if names.shape != (n_rows,):
        raise ValueError(f"groups must name the group of each of {n_rows} rows, shape ({n_rows},), got shape {names.shape}")
    missing = np.flatnonzero([name is None or name != name or name == "" for name in names.tolist()])
    if len(missing):
        raise ValueError(f"groups must name the group of each row, but that of row {missing[0]} is missing")
    texts, inverse = np.unique(names.astype(str), return_inverse=True)
    digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts.tolist()]
    keys: NDArray[Any] = np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64)
    return keys[inverse]


def group_folds(keys: NDArray[np.int64], n_folds: int) -> NDArray[np.int64]:
    """Return the fold (n,) of each row from the keys (n,) of the groups: no group is split, and folds are balanced.

    Examples
    --------
    >>> group_folds(np.array([5, 5, 5, 1, 2, 3]), 2).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    folds = np.empty(len(keys), dtype=np.int64)
    for fold, (_, held_out) in enumerate(GroupKFold(n_folds).split(keys[:, None], groups=keys)):
        folds[held_out] = fold
    return folds
