"""Rows come out of files as they went in, whatever the kind of file and the size of blocks; files are whole or not there."""

import json

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from pyod_quadric.cli.errors import CommandError
from pyod_quadric.cli.inputs import checked_blocks, kept_rows
from pyod_quadric.cli.outputs import open_writer, whole_file
from pyod_quadric.data.columns import Choice
from pyod_quadric.data.files import open_rows, read_labels
from tests.support.profiles import n_examples

SHAPES = array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12)
FINITE = {"allow_nan": False, "allow_infinity": False}


def save(path, rows, order="C"):
    names = [f"c{place}" for place in range(rows.shape[1])]
    if path.suffix == ".npy":
        np.save(path, np.asarray(rows, order=order))
    elif path.suffix == ".npz":
        np.savez(path, rows)
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.table(dict(zip(names, rows.T, strict=True))), path, row_group_size=5)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows.tolist()))
    else:
        path.write_text("\n".join([",".join(names), *(",".join(map(repr, row)) for row in rows.tolist())]) + "\n")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".jsonl", ".parquet"])
@n_examples(25)  # each writes a file
@given(st.data(), st.sampled_from(["C", "F"]), st.integers(1, 15))
def test_blocks_are_the_rows(scratch, suffix, data, order, size):
    rows = data.draw(arrays(np.float64, SHAPES, elements=st.floats(**FINITE)))
    path = scratch / f"rows{suffix}"
    save(path, rows, order)
    source = open_rows(path)
    assert source.n_rows in (None, len(rows))
    blocks = list(checked_blocks(source, "error", size))
    np.testing.assert_array_equal(np.concatenate([block.rows for block in blocks]), rows)
    np.testing.assert_array_equal(np.concatenate([block.indices for block in blocks]), np.arange(len(rows)))
    assert {len(block.rows) for block in blocks[:-1]} <= {size}
    assert source.shape == rows.shape


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".jsonl", ".parquet"])
@n_examples(25)  # each writes a file
@given(st.data())
def test_rows_that_are_not_finite_are_left_out(scratch, suffix, data):
    rows = data.draw(arrays(np.float64, SHAPES, elements=st.floats(width=64)))
    path = scratch / f"holes{suffix}"
    save(path, rows)
    finite = np.isfinite(rows).all(axis=1)
    if finite.any():
        kept = kept_rows(open_rows(path), "drop")
        np.testing.assert_array_equal(kept.rows, rows[finite])
        np.testing.assert_array_equal(kept.indices, np.flatnonzero(finite))
        assert kept.n_dropped == (~finite).sum()
    if not finite.all():
        with pytest.raises(ValueError, match=f"row {np.argmin(finite)} of "):
            list(checked_blocks(open_rows(path), "error"))


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".jsonl", ".parquet"])
@n_examples(25)  # each writes a file
@given(st.lists(st.lists(st.floats(), max_size=6), max_size=4))
def test_what_is_written_in_parts_is_read_as_a_whole(scratch, suffix, parts):
    path = scratch / f"written{suffix}"
    with open_writer(str(path), {"score": np.float64}, force=True, npy="score") as writer:
        for part in parts:
            writer.write({"score": np.array(part)})
    expected = np.array([number for part in parts for number in part])
    if suffix == ".npy":
        found = np.load(path)
    elif suffix == ".csv":
        found = np.array([float(line) for line in path.read_text().splitlines()[1:]])
    elif suffix == ".jsonl":
        numbers = [json.loads(line)["score"] for line in path.read_text().splitlines()]
        found = np.array([np.nan if number is None else number for number in numbers], float)
        expected = np.where(np.isfinite(expected), expected, np.nan)  # JSON knows no infinity
    else:
        found = pyarrow.parquet.read_table(path)["score"].to_numpy()
    np.testing.assert_array_equal(found, expected)


def test_a_file_that_came_meanwhile_is_not_overwritten(tmp_path):
    path = tmp_path / "file"
    with pytest.raises(CommandError, match="is there already; --force"), whole_file(str(path), force=False):
        path.write_bytes(b"theirs")
    assert path.read_bytes() == b"theirs"


def features(path, **choices):
    source = open_rows(path, Choice(**choices))
    return source.names, np.asarray(kept_rows(source, "drop").rows).tolist()


def test_csv_headers(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("1.5,2\n3,4\n")
    assert features(path, header=False) == (None, [[1.5, 2.0], [3.0, 4.0]])
    assert features(path, header=False, columns=["1"]) == (None, [[2.0], [4.0]])
    with pytest.raises(ValueError, match="header=False"):
        features(path)
    path.write_text("0,1\n3,4\n")  # as pandas writes frames whose columns have no names
    assert features(path) == (["0", "1"], [[3.0, 4.0]])
    path.write_bytes('\ufeff"a,b",ü\r\n3,4\r\n'.encode())
    assert features(path) == (["a,b", "ü"], [[3.0, 4.0]])
    path.write_text("a,b\n3,\nNA,5\n6,7")
    assert features(path) == (["a", "b"], [[6.0, 7.0]])
    path.write_text(",a\n0,5\n")
    with pytest.raises(ValueError, match="without a name"):
        features(path)
    assert features(path, columns=["a"]) == (["a"], [[5.0]])


def test_parquet_types(tmp_path):
    path = tmp_path / "rows.parquet"
    table = {"i": pyarrow.array([1, None, 3], pyarrow.int8()), "b": [True, False, True], "f": [0.5, 1.5, 2.5]}
    pyarrow.parquet.write_table(pyarrow.table(table), path)
    assert features(path) == (["i", "b", "f"], [[1.0, 1.0, 0.5], [3.0, 1.0, 2.5]])
    pyarrow.parquet.write_table(pyarrow.table({"f": pyarrow.array([0.5, 1.5], pyarrow.float32())}), path)
    assert open_rows(path).dtype == np.float32


@pytest.mark.parametrize("kind", [pyarrow.list_(pyarrow.float32()), pyarrow.list_(pyarrow.float32(), 2)])
def test_parquet_column_of_lists(tmp_path, kind):
    path = tmp_path / "rows.parquet"
    column = pyarrow.array([[1.0, 2.0], [3.0, 4.0]], kind)
    pyarrow.parquet.write_table(pyarrow.table({"text": ["x", "y"], "embedding": column}), path)
    assert features(path, columns=["embedding"]) == (None, [[1.0, 2.0], [3.0, 4.0]])
    ragged = pyarrow.array([[1.0, 2.0], [3.0]], pyarrow.list_(pyarrow.float32()))
    pyarrow.parquet.write_table(pyarrow.table({"embedding": ragged}), path)
    with pytest.raises(OSError, match="must all have 2 numbers"):
        features(path)


def test_labels(tmp_path):
    np.save(tmp_path / "y.npy", np.array(["x", "y"]))
    np.savez(tmp_path / "y.npz", X=np.zeros((2, 2)), y=[1, 0])
    (tmp_path / "y.csv").write_text("who\n01\n1\n")
    assert read_labels(tmp_path / "y.npy").tolist() == ["x", "y"]
    assert read_labels(tmp_path / "y.npz").tolist() == [1, 0]
    assert read_labels(tmp_path / "y.csv").tolist() == ["01", "1"]  # texts: these are two identities
