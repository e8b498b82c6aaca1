"""Rows in memory, whatever holds them: the same rows, in the type of their numbers, and the same fit bit for bit."""

import functools
import sys

import numpy as np
import pandas
import polars
import pyarrow
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from pyod_quadric import QuadricDetector, TrainingOptions, finite_rows, random_quadrics, train
from pyod_quadric.data.memory import in_memory
from pyod_quadric.data.rows import rows_of
from tests.support.elsewhere import DEVICE, Elsewhere

X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
HALVES = X.astype(np.float16)
ROUNDED = torch.from_numpy(X).bfloat16()


class ByDlpack:
    """An array that nothing but DLPack can take, as those of some accelerators are."""

    def __init__(self, tensor):
        self._tensor, self.shape = tensor, tuple(tensor.shape)

    def __dlpack__(self, **options):
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()


def fixed_size(rows=X):
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.ravel()), rows.shape[1])


@functools.cache
def fitted(partial=False):
    return QuadricDetector().partial_fit(X).partial_fit(X) if partial else QuadricDetector().fit(X)


def dataset():
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset(pyarrow.table({"id": range(60), "embedding": fixed_size()}))


# What gives the rows of X as float32.
SINGLE = {
    "tensor": lambda: torch.from_numpy(X),
    "tensor that requires grad": lambda: torch.from_numpy(X).requires_grad_(),
    "parameter": lambda: torch.nn.Parameter(torch.from_numpy(X)),
    "tensor column by column": lambda: torch.from_numpy(np.asfortranarray(X)),
    "list of tensors": lambda: list(torch.from_numpy(X)),
    "list of tensors that require grad": lambda: [row.requires_grad_() for row in torch.from_numpy(X)],
    "tuple of arrays": lambda: tuple(X),
    "array of arrays": lambda: np.array([*X, None], dtype=object)[:-1],
    "DLPack": lambda: ByDlpack(torch.from_numpy(X)),
    "pandas lists": lambda: pandas.Series(list(X)),
    "pandas lists of arrow": lambda: pandas.Series(fixed_size(), dtype=pandas.ArrowDtype(fixed_size().type)),
    "pandas frame of lists": lambda: pandas.DataFrame({"embedding": list(X)}),
    "pandas frame": lambda: pandas.DataFrame(X),
    "pandas frame with missing values": lambda: pandas.DataFrame(X).astype("Float32"),
    "polars lists": lambda: polars.Series(X.tolist(), dtype=polars.List(polars.Float32)),
    "polars array": lambda: polars.Series(X),
    "polars frame of lists": lambda: polars.DataFrame({"embedding": X}),
    "polars frame": lambda: polars.DataFrame(dict(zip("abcd", X.T, strict=True))),
    "arrow fixed-size lists": fixed_size,
    "arrow lists": lambda: pyarrow.array(list(X)),
    "arrow chunks": lambda: pyarrow.chunked_array([fixed_size()[:20], fixed_size()[20:]]),
    "arrow table of lists": lambda: pyarrow.table({"embedding": fixed_size()}),
    "arrow table": lambda: pyarrow.table(dict(zip("abcd", X.T, strict=True))),
    "data set column": lambda: dataset()["embedding"],
    "data set column of chosen rows": lambda: dataset().select(range(59, -1, -1)).select(range(59, -1, -1))["embedding"],
    "data set column of arrays": lambda: dataset().with_format("numpy")["embedding"],
    "data set column of tensors": lambda: dataset().with_format("torch")["embedding"],
    "data set of one column": lambda: dataset().select_columns("embedding"),
    "loader of a data set": lambda: DataLoader(dataset().with_format("torch").select_columns("embedding"), batch_size=60),
    "xarray": lambda: pytest.importorskip("xarray").DataArray(X, dims=("row", "feature")),
    "Dask": lambda: pytest.importorskip("dask.array").from_array(X, chunks=(20, 2)),
}


@pytest.mark.parametrize("make", SINGLE.values(), ids=SINGLE)
def test_whatever_holds_rows_has_the_fit_of_the_array(make):
    detector, expected = QuadricDetector().fit(make()), fitted()
    assert detector.n_features_in_ == 4
    np.testing.assert_array_equal(detector.decision_scores_, expected.decision_scores_)
    for method in ("decision_function", "predict", "predict_proba", "predict_confidence", "predict_pvalue", "explain"):
        np.testing.assert_array_equal(getattr(detector, method)(make()), getattr(expected, method)(X), err_msg=method)
    stream = QuadricDetector().partial_fit(make()).partial_fit(make())
    np.testing.assert_array_equal(stream.decision_scores_, fitted(partial=True).decision_scores_)


# What gives other numbers: half precision is float32 from then on, Python's numbers are float64.
OTHERS = {
    "float16 array": (lambda: HALVES, HALVES.astype(np.float32)),
    "float16 tensor": (lambda: torch.from_numpy(HALVES), HALVES.astype(np.float32)),
    "float16 frame": (lambda: pandas.DataFrame(HALVES), HALVES.astype(np.float32)),
    "float16 lists": (lambda: fixed_size(HALVES), HALVES.astype(np.float32)),
    "bfloat16 tensor": (lambda: ROUNDED, ROUNDED.float().numpy()),
    "bfloat16 tensor that requires grad": (lambda: ROUNDED.clone().requires_grad_(), ROUNDED.float().numpy()),
    "list of bfloat16 tensors": (lambda: list(ROUNDED), ROUNDED.float().numpy()),
    "bfloat16 array": (lambda: X.astype(pytest.importorskip("ml_dtypes").bfloat16), ROUNDED.float().numpy()),
    "lists": (X.tolist, X.astype(np.float64)),
    "pandas lists of numbers": (lambda: pandas.Series(X.tolist()), X.astype(np.float64)),
    "integer tensor": (lambda: torch.from_numpy((9 * X).astype(np.int32)), (9 * X).astype(np.int32).astype(np.float64)),
    "masked array without holes": (lambda: np.ma.masked_array(X, mask=False), X),
}


@pytest.mark.parametrize(("make", "expected"), OTHERS.values(), ids=OTHERS)
def test_types_follow_one_rule(make, expected):
    detector, same = QuadricDetector().fit(make()), QuadricDetector().fit(expected)
    np.testing.assert_array_equal(detector.decision_scores_, same.decision_scores_)
    np.testing.assert_array_equal(detector.decision_function(make()), same.decision_function(expected))
    rows = rows_of(make()).read(slice(None))
    assert rows.dtype == torch.from_numpy(expected).dtype
    assert rows.is_contiguous()


@given(n=st.integers(1, 9), d=st.integers(1, 5), missing=st.sets(st.integers(0, 8)), data=st.data())
def test_columns_of_lists_are_their_rows(n, d, missing, data):
    """With rows that are missing, in every kind of column."""
    rows = np.array(data.draw(st.lists(st.lists(st.floats(-9, 9), min_size=d, max_size=d), min_size=n, max_size=n)))
    lists = [None if place in missing else row for place, row in enumerate(rows.tolist())]
    expected = np.where(np.isin(np.arange(n), list(missing))[:, None], np.nan, rows)
    if all(row is None for row in lists):
        return
    arrays = [None if row is None else np.array(row) for row in lists]
    columns = [lists, arrays, pandas.Series(lists), pyarrow.array(lists)]
    if np.asarray(polars.Series([None, [0.0]]))[0] is None:  # old ones make an empty list of what is missing
        columns.append(polars.Series(lists))
    for column in [*columns, [None if row is None else torch.tensor(row, dtype=torch.float64) for row in lists]]:
        np.testing.assert_array_equal(in_memory(column), expected)


def test_tensors_on_another_device_stay_there():
    expected = QuadricDetector(device="cpu").fit(X)
    with Elsewhere():
        there = torch.from_numpy(X).to(DEVICE)
        for rows in (there, list(there)):
            assert rows_of(rows).read(slice(3)).device.type == DEVICE
            for device in (DEVICE, "cpu"):
                detector = QuadricDetector(device=device).fit(rows)
                np.testing.assert_allclose(detector.decision_scores_, expected.decision_scores_, rtol=1e-4)
                np.testing.assert_allclose(detector.predict_pvalue(rows), expected.predict_pvalue(X), rtol=0.1)
            detector = QuadricDetector(device="cpu").partial_fit(rows)
            np.testing.assert_array_equal(detector.decision_scores_, QuadricDetector().partial_fit(X).decision_scores_)


def test_training_takes_the_same_rows():
    start = random_quadrics(2, 4, torch.Generator().manual_seed(0))
    options = TrainingOptions(epoch_num=1, batch_size=20)
    expected = train(X, start, options).quadrics.quadratic
    for rows in (torch.from_numpy(X).requires_grad_(), list(torch.from_numpy(X)), dataset()["embedding"], fixed_size()):
        assert torch.equal(train(rows, start, options).quadrics.quadratic, expected)


def test_tables_keep_the_names_of_their_columns():
    table = pyarrow.table(dict(zip("abcd", X.T, strict=True)))
    detector = QuadricDetector().fit(table)
    assert detector.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="must be in the same order"):
        detector.predict(table.select(["b", "a", "c", "d"]))
    assert not hasattr(QuadricDetector().fit(pandas.DataFrame({"embedding": list(X)})), "feature_names_in_")


FRAME = pandas.DataFrame(X, columns=list("abcd"))
BAD = {
    "ragged list": (lambda: [[1.0, 2.0], [1.0, 2.0], [3.0]], ValueError, "as the first one, 2, but row 2 has 1"),
    "ragged tensors": (lambda: [torch.ones(3), torch.ones(2)], ValueError, "as the first one, 3, but row 1 has 2"),
    "ragged pandas": (lambda: pandas.Series([[1.0], [1.0, 2.0]]), ValueError, "as the first one, 1, but row 1 has 2"),
    "ragged polars": (lambda: polars.Series([[1.0], [1.0, 2.0]]), ValueError, "as the first one, 1, but row 1 has 2"),
    "ragged arrow": (lambda: pyarrow.array([[1.0], [1.0, 2.0]]), ValueError, "as the first one, 1, but row 1 has 2"),
    "list and number": (lambda: [[1.0, 2.0], 3.0], ValueError, "as the first one, 2, but row 1 has 1"),
    "batches": (lambda: [X[:40], X[40:]], ValueError, "batches of rows in a list.*torch.cat or numpy.concatenate"),
    "scipy sparse": (lambda: scipy.sparse.csr_array(X), TypeError, "sparse: reduce them .* TruncatedSVD in a pipeline"),
    "torch sparse": (lambda: torch.from_numpy(X).to_sparse(), TypeError, "sparse: reduce them .* TruncatedSVD"),
    "pandas sparse": (lambda: FRAME.astype("Sparse"), TypeError, r"sparse: reduce them .* X\.sparse\.to_dense\(\)"),
    "meta": (lambda: torch.from_numpy(X).to("meta"), ValueError, "on the meta device, .* no values"),
    "complex tensor": (lambda: torch.ones(5, 2) * 1j, ValueError, "must hold real numbers, got torch.complex64"),
    "one-dimensional tensor": (
        lambda: torch.ones(5),
        ValueError,
        r"rows of shape .* got \(5,\); one row is X\[None\]",
    ),
    "missing row": (lambda: [*X[:3].tolist(), None], ValueError, r"row 3 holds NaN .* finite_rows\(\.\.\.\), or impute"),
    "masked entry": (lambda: np.ma.masked_array(X, mask=X[5, 2] == X), ValueError, "row 5 holds NaN"),
    "text column": (lambda: FRAME.assign(c="text", d="more"), ValueError, r"not so c \(text\), d \(text\); leave these out"),
    "date column": (lambda: FRAME.assign(c=pandas.Timestamp(0)), ValueError, r"not so c \(Timestamp\)"),
    "lists among others": (lambda: FRAME.assign(d=list(X)), ValueError, r"not so d \(lists\); .* such as X\['embedding'\]"),
    "dictionary": (lambda: {"train": X, "test": X}, TypeError, "has entries by name: train, test; give one of them"),
    "loader of dictionaries": (lambda: DataLoader([{"a": 1.0, "b": 2.0}]), TypeError, "begins with row 0: .* by name: a, b"),
    "torch data set": (lambda: TensorDataset(torch.from_numpy(X)), TypeError, r"one by one; give DataLoader\(dataset"),
    "query": (lambda: polars.from_pandas(FRAME).lazy(), TypeError, r"a LazyFrame is a query; give its result, X\.collect\(\)"),
}


@pytest.mark.parametrize(("make", "error", "message"), BAD.values(), ids=BAD)
def test_errors_say_what_to_do(make, error, message):
    detector = fitted()
    for method in (QuadricDetector().fit, QuadricDetector().partial_fit, detector.decision_function):
        with pytest.raises(error, match=message):
            method(make())


def test_a_column_may_be_called_sparse():
    assert QuadricDetector().fit(FRAME.rename(columns={"a": "sparse"})).feature_names_in_[0] == "sparse"


def test_other_packages_are_not_imported():
    """They are known by what they can do."""
    before = set(sys.modules)
    rows_of([torch.ones(2), torch.ones(2)])
    rows_of(pandas.DataFrame({"a": [1.0]}))
    assert not {"xarray", "datasets", "dask"} & (set(sys.modules) - before)


# Rows without NaN


def holes(kind=np.asarray):
    rows = X.copy()
    rows[[3, 3, 50], [0, 2, 1]] = np.nan, np.inf, np.nan
    return kind(rows)


def written(tmp_path):
    np.save(tmp_path / "rows.npy", holes())
    return tmp_path / "rows.npy"


INCOMPLETE = {
    "array": lambda _: holes(),
    "tensor": lambda _: torch.from_numpy(holes()),
    "file": written,
    "lists": lambda _: pandas.Series(list(holes())),
    "data frame": lambda _: pandas.DataFrame(holes(), columns=list("abcd")),
}


@pytest.mark.parametrize("make", INCOMPLETE.values(), ids=INCOMPLETE)
def test_complete_rows_remember_where_they_were(make, tmp_path):
    rows, expected = finite_rows(make(tmp_path)), np.delete(X, [3, 50], axis=0)
    np.testing.assert_array_equal(rows.indices, np.delete(np.arange(60), [3, 50]))
    assert len(rows) == 58
    np.testing.assert_array_equal(rows[:], expected)
    detector, same = QuadricDetector().fit(rows), QuadricDetector().fit(expected)
    np.testing.assert_array_equal(detector.decision_scores_, same.decision_scores_)
    np.testing.assert_array_equal(detector.decision_function(rows), same.decision_function(expected))


def test_complete_rows_of_a_table_have_its_names():
    frame = pandas.DataFrame(holes(), columns=list("abcd"))
    detector = QuadricDetector().fit(finite_rows(frame))
    assert detector.feature_names_in_.tolist() == list("abcd")
    assert len(detector.predict(pandas.DataFrame(X, columns=list("abcd")))) == 60


def test_there_must_be_some_complete_rows():
    with pytest.raises(ValueError, match="all rows of the array hold NaN or infinite entries"):
        finite_rows(np.full((5, 2), np.nan))
    with pytest.raises(TypeError, match="rows of a loader cannot be left out"):
        finite_rows(DataLoader(TensorDataset(torch.from_numpy(X))))


@pytest.mark.parametrize("name", ["a", 1, ("x", 1)])
def test_columns_of_one_name_are_refused(name):
    with pytest.raises(ValueError, match=r"rows have more than one column of the name .*; names must differ"):
        in_memory(pandas.DataFrame(np.zeros((5, 3)), columns=[name, "b", name]))
