"""Groups by name: keys, and folds that keep a group together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric.data.groups import group_folds, group_keys

NAMES = st.lists(st.sampled_from(["a", "b", "c", "ä", "1"]), min_size=1, max_size=20)


@given(names=NAMES)
def test_rows_of_one_name_have_one_key(names):
    keys = group_keys(names, len(names))
    assert all((a == b) == (i == j) for a, i in zip(names, keys, strict=True) for b, j in zip(names, keys, strict=True))


@given(names=NAMES, more=NAMES)
def test_keys_do_not_depend_on_the_other_rows(names, more):
    np.testing.assert_array_equal(group_keys(names + more, len(names + more))[: len(names)], group_keys(names, len(names)))


@pytest.mark.parametrize("names", [[3, 5, 3], np.array(["x", "y", "x"], dtype=object), ["x", "y", "x"], [True, False, True]])
def test_groups_may_be_numbers_or_texts(names):
    keys = group_keys(names, 3)
    assert keys.dtype == np.int64
    assert keys[0] == keys[2] != keys[1]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([1, 2], r"of each of 3 rows, shape \(3,\), got shape \(2,\)"),
        ([[1, 2, 3]], r"got shape \(1, 3\)"),
        ([1.0, np.nan, 2.0], "that of row 1 is missing"),
        (np.array(["a", "b", None], dtype=object), "that of row 2 is missing"),
        (["", "a", "b"], "that of row 0 is missing"),
    ],
)
def test_bad_groups_are_refused(groups, message):
    with pytest.raises(ValueError, match=message):
        group_keys(groups, 3)


@given(keys=st.lists(st.integers(0, 8), min_size=3, max_size=40), n_folds=st.integers(2, 5))
def test_a_group_is_in_one_fold(keys, n_folds):
    keys = np.array(keys)
    if len(np.unique(keys)) < n_folds:
        keys = np.arange(len(keys))
        n_folds = min(n_folds, len(keys))
    folds = group_folds(keys, n_folds)
    assert set(folds) == set(range(n_folds))
    for key in np.unique(keys):
        assert len(set(folds[keys == key])) == 1
