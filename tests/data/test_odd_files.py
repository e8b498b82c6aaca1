"""Files as other programs leave them: partitions, empty parts, notes of pandas, empty lines and other ends of lines."""

import sys
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric import QuadricDetector
from pyod_quadric.data.arrow import as_file
from pyod_quadric.data.columns import Choice
from pyod_quadric.data.files import open_rows, read_labels


def table(*numbers):
    return pa.table({"a": np.array(numbers, dtype=float), "b": -np.array(numbers, dtype=float)})


def embeddings(*numbers):
    return pa.table({"e": pa.array([[number, 0.0] for number in numbers], pa.list_(pa.float32()))})


def read(path, **choice):
    """Return what a path holds, which must be the same by slice, in blocks and by index."""
    rows = open_rows(path, Choice(**choice))
    whole = rows[:]
    np.testing.assert_array_equal(np.concatenate([*rows.blocks(2), whole[:0]]), whole)
    np.testing.assert_array_equal(rows[np.arange(len(whole))], whole)
    return whole


def test_partitions_belong_to_their_folder(tmp_path):
    pandas = pd.DataFrame({"a": np.arange(6.0), "b": np.ones(6), "day": [1, 2] * 3, "place": list("xxyyxx")})
    pandas.to_parquet(tmp_path / "rows", partition_cols=["day", "place"])
    np.testing.assert_array_equal(np.sort(read(tmp_path / "rows")[:, 0]), np.arange(6.0))
    pq.write_table(table(7, 8), tmp_path / "rows" / "late.parquet")
    assert len(read(tmp_path / "rows")) == 8


def test_rows_in_other_folders_are_not_left_out_in_silence(tmp_path):
    for name in ("older", "empty", ".hidden"):
        (tmp_path / name).mkdir()
    pq.write_table(table(1), tmp_path / "older" / "rows.parquet")
    pq.write_table(table(2), tmp_path / ".hidden" / "rows.parquet")
    pq.write_table(table(3), tmp_path / "rows.parquet")
    with pytest.warns(UserWarning, match="left out: older; name them"):
        assert read(tmp_path)[:, 0].tolist() == [3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read([tmp_path / "rows.parquet", tmp_path / "older"])[:, 0].tolist() == [3, 1]


@pytest.mark.parametrize("kind", [table, embeddings])
def test_a_folder_as_spark_writes_it(kind, tmp_path):
    for number, part in enumerate([kind(), kind(1, 2), kind(), kind(3)]):
        pq.write_table(part, tmp_path / f"part-0000{number}.snappy.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part-00001.snappy.parquet.crc").write_bytes(b"crc")
    (tmp_path / "._part-00001.snappy.parquet").write_bytes(b"\0\5\x16\7")  # as macOS leaves it on other disks
    assert read(tmp_path)[:, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("suffix", "texts"),
    [("csv", ["", "a,b\n1,2\n", "a,b\n"]), ("jsonl", ["", '{"a": 1, "b": 2}\n']), ("tsv", ["a\tb\n", "", "a\tb\n1\t2\n"])],
)
def test_empty_parts_as_text(suffix, texts, tmp_path):
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.{suffix}").write_text(text)
    assert read(tmp_path).tolist() == [[1, 2]]


@pytest.mark.parametrize("kind", [table, embeddings])
def test_parts_that_are_all_empty_are_refused(kind, tmp_path):
    for number in range(2):
        pq.write_table(kind(), tmp_path / f"{number}.parquet")
    with pytest.raises(ValueError, match="has no rows; at least 1"):
        QuadricDetector().fit(tmp_path)


NOTES = ["null", "{", "[]", *(f'{{"index_columns": {value}}}' for value in ("null", "5", '{"a": 1}')), b"\xff", "[" * 10**5]


@pytest.mark.parametrize("notes", NOTES, ids=range(len(NOTES)))
def test_notes_of_pandas_that_nobody_understands_say_nothing(notes, tmp_path):
    pq.write_table(table(1, 2).replace_schema_metadata({"pandas": notes}), tmp_path / "rows.parquet")
    assert read(tmp_path / "rows.parquet").tolist() == [[1, -1], [2, -2]]


@pytest.mark.parametrize("choice", [{}, {"drop": ("a",)}, {"columns": ["a"]}, {"label_column": "a"}])
def test_two_columns_of_one_name(choice, tmp_path):
    pq.write_table(pa.Table.from_arrays([pa.array([1.0])] * 3, names=["a", "a", "b"]), tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match="more than one column of the name a"):
        open_rows(tmp_path / "rows.parquet", Choice(**choice))


@given(st.lists(st.none() | st.integers(-9, 9), min_size=1), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_in_one_column_a_line_without_a_number_is_a_row(tmp_path_factory, numbers, end, header):
    path = tmp_path_factory.mktemp("lines") / "rows.csv"
    if not header and numbers[0] is None:
        numbers = [0, *numbers]  # how many columns there are must be seen from the first line
    lines = ["a"] * header + ["" if number is None else str(number) for number in numbers]
    path.write_bytes("".join(line + end for line in lines).encode())
    expected = [[np.nan if number is None else float(number)] for number in numbers]
    np.testing.assert_array_equal(read(path, header=header), expected)


def test_a_missing_number_is_named_by_its_row(tmp_path):
    (tmp_path / "rows.csv").write_text("a\n1\n2\n\n4\n")
    with pytest.raises(ValueError, match=r"row 2 of .*rows\.csv .* holds NaN"):
        QuadricDetector().fit(tmp_path / "rows.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\r1,2\r3,4\r", "carriage returns"),
        ("a\r1\r", "carriage returns"),
        ("a;b\n1;2\n", "';' between columns; ',' was expected"),
        ("a;b\n1,5;2\n", "';' between columns"),
        ("a\tb\n1\t2\n", r"'\\t' between columns"),
        ("\n\na,b\n1,2\n", "no line of column names"),
    ],
)
def test_text_of_another_kind_is_refused_with_a_remedy(text, message, tmp_path):
    (tmp_path / "rows.csv").write_bytes(text.encode())
    with pytest.raises(ValueError, match=message):
        open_rows(tmp_path / "rows.csv")


# Labels


NO_TEXT = [b"5\xae\n0\n", b"a\n\xe5\xdb\n", "a\n1\n".encode("utf-16"), b"a\n" + b"1" * 200_000 + b"\n"]


@pytest.mark.parametrize("content", NO_TEXT, ids=range(len(NO_TEXT)))
def test_labels_that_are_no_text_are_refused_by_name(content, tmp_path):
    (tmp_path / "labels.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"labels\.csv cannot be read: "):
        read_labels(tmp_path / "labels.csv")


@pytest.mark.parametrize("label", ["[1, 2]", '{"b": 1}'])
def test_lists_are_no_labels(label, tmp_path):
    alone, beside = tmp_path / "labels.jsonl", tmp_path / "rows.jsonl"
    alone.write_text(3 * f'{{"y": {label}}}\n')
    beside.write_text(3 * f'{{"y": {label}, "x": 1}}\n')
    with pytest.raises(ValueError, match=r"labels\.jsonl must hold labels of shape \(n,\), numbers or texts"):
        read_labels(alone)
    with pytest.raises(ValueError, match=r"rows\.jsonl must hold labels of shape \(n,\), numbers or texts"):
        _ = open_rows(beside, Choice(label_column="y")).labels


@pytest.mark.parametrize("choice", [{"label_column": ""}, {"id_column": ""}])
def test_a_column_without_a_name_is_no_choice_by_itself(choice, tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"rows\.csv has no column ; its columns: a, b"):
        open_rows(tmp_path / "rows.csv", Choice(**choice))
    np.save(tmp_path / "rows.npy", np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"rows\.npy has no named columns"):
        open_rows(tmp_path / "rows.npy", Choice(**choice))


@pytest.mark.parametrize("read", [open_rows, read_labels])
def test_names_that_are_no_text_are_refused_by_the_name_of_the_file(read, tmp_path):
    (tmp_path / "rows.jsonl").write_bytes(b'{"a\xdf": 1}\n{"a\xdf": 2}\n')
    with pytest.raises(ValueError, match=r"rows\.jsonl.*utf-8"):
        read(tmp_path / "rows.jsonl")


@pytest.mark.parametrize("start", [b"", b" \r\n", b"\xef\xbb\xbf", b'{"a": null}\n', b'{"a": 1}\n' * 60_000 + b" \t"])
def test_lines_of_null_are_refused_before_they_end_the_process(start, tmp_path):
    (tmp_path / "rows.jsonl").write_bytes(start + b'null\n{"a": 2}\n')
    with pytest.raises(ValueError, match=r"rows\.jsonl, one JSON object for each line: a line holds null"):
        open_rows(tmp_path / "rows.jsonl")[:]
    with pytest.raises(ValueError, match=r"rows\.jsonl, one JSON object for each line: a line holds null"):
        read_labels(tmp_path / "rows.jsonl")


def test_an_array_is_no_archive(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((3, 2)))
    (tmp_path / "rows.npy").rename(tmp_path / "rows.npz")
    for read in (open_rows, read_labels):
        with pytest.raises(ValueError, match=r"rows\.npz cannot be read: it holds one array"):
            read(tmp_path / "rows.npz")


def test_threads_of_pyarrow_never_hold_what_is_python_s(tmp_path, monkeypatch):
    """They let go of a file when they like; letting go of an object of Python aborts a process that is about to end."""
    text = b"a,b\n1,2\n" * 10
    n_held = sys.getrefcount(text)
    file = as_file(pa, text)
    assert sys.getrefcount(text) == n_held
    assert file.read() == text
    parsed = []
    for module, name in ((pyarrow.csv, "read_csv"), (pyarrow.json, "read_json")):
        parse = getattr(module, name)
        monkeypatch.setattr(module, name, lambda file, *rest, parse=parse: parsed.append(type(file)) or parse(file, *rest))
    monkeypatch.delattr(pyarrow.csv, "open_csv")
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "rows.jsonl").write_text('{"a": 1, "b": 2}\n{"a": 3, "b": 4}\n')
    np.testing.assert_array_equal(read(tmp_path / "rows.csv"), read(tmp_path / "rows.jsonl"))
    assert set(parsed) == {pa.BufferReader}


def test_errors_count_the_rows_of_all_blocks_and_shorten_what_they_quote(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "0.123456789,-0.123456789\n" * 30_000 + "\n1,2,3\n")  # several blocks
    with pytest.raises(ValueError, match=r"Row #30001: Expected 2 columns, got 3: 1,2,3$"):
        read(path)
    path.write_text("a,b\n" + "0.123456789,-0.123456789\n" * 30_000 + f"1,{'x' * 10**6}\n")
    with pytest.raises(ValueError, match=r"holds no numbers in b \('x+\.\.\.x+'\); leave") as raised:
        read(path)
    assert len(str(raised.value)) < 1000
