"""The library and the command line read a file in the same way: the same type, names, model and scores."""

import json

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

from pyod_quadric import QuadricDetector
from pyod_quadric.cli.inputs import kept_rows, open_input
from pyod_quadric.cli.main import main
from pyod_quadric.data.columns import Choice
from pyod_quadric.data.files import open_rows
from pyod_quadric.data.rows import rows_of
from pyod_quadric.data.sources import Subset

NAMES = list("abcd")
DATA = np.random.default_rng(0).normal(size=(200, 4)) ** 3


def table(rows, *types):
    kinds = types or [pyarrow.from_numpy_dtype(rows.dtype)] * rows.shape[1]
    return pyarrow.table({name: pyarrow.array(column, kind) for name, column, kind in zip(NAMES, rows.T, kinds, strict=True)})


def npy(folder, rows, order="C"):
    np.save(folder / "rows.npy", np.asarray(rows, order=order))
    return folder / "rows.npy"


def npy_by_column(folder, rows):
    return npy(folder, rows, "F")


def npz(folder, rows):
    np.savez(folder / "rows.npz", X=rows, other=np.zeros(3))
    return folder / "rows.npz"


def csv(folder, rows):
    pyarrow.csv.write_csv(table(rows), folder / "rows.csv")
    return folder / "rows.csv"


def tsv(folder, rows):
    pyarrow.csv.write_csv(table(rows), folder / "rows.tsv", pyarrow.csv.WriteOptions(delimiter="\t"))
    return folder / "rows.tsv"


def jsonl(folder, rows):
    lines = [json.dumps(dict(zip(NAMES, row, strict=True))) for row in rows.tolist()]  # with NaN as Python writes it
    (folder / "rows.jsonl").write_text("\n".join(lines))
    return folder / "rows.jsonl"


def jsonl_lists(folder, rows):
    lines = [json.dumps({"embedding": row}) for row in rows.tolist()]
    (folder / "rows.ndjson").write_text("\n".join(lines) + "\n\n")
    return folder / "rows.ndjson"


def parquet(folder, rows):
    pyarrow.parquet.write_table(table(rows), folder / "rows.parquet", row_group_size=70)
    return folder / "rows.parquet"


def parquet_lists(folder, rows):
    column = pyarrow.array(rows.tolist(), pyarrow.list_(pyarrow.from_numpy_dtype(rows.dtype)))
    pyarrow.parquet.write_table(pyarrow.table({"embedding": column}), folder / "rows.parquet", row_group_size=70)
    return folder / "rows.parquet"


def folder_of_all(folder, rows):
    (folder / "parts").mkdir()
    np.save(folder / "parts" / "0.npy", rows[:90])
    pyarrow.parquet.write_table(table(rows[90:]), folder / "parts" / "1.parquet")
    (folder / "parts" / "about.csv").write_text("a table beside the rows\n")
    return folder / "parts"


def folder_of_text(folder, rows):
    (folder / "parts").mkdir()
    pyarrow.csv.write_csv(table(rows[:90]), folder / "parts" / "0.csv")
    pyarrow.csv.write_csv(table(rows[90:]).select(NAMES[::-1]), folder / "parts" / "1.csv")
    return folder / "parts"


KINDS = [npy, npy_by_column, npz, csv, tsv, jsonl, jsonl_lists, parquet, parquet_lists, folder_of_all, folder_of_text]
NAMELESS = [npy, npy_by_column, npz, jsonl_lists, parquet_lists]
TEXT = [csv, tsv, jsonl, jsonl_lists, folder_of_text]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
@pytest.mark.parametrize("save", KINDS)
def test_library_and_command_line_agree(save, dtype, tmp_path):
    path = save(tmp_path, DATA.astype(dtype))
    found = QuadricDetector().fit(path)
    model, scores = str(tmp_path / "model"), str(tmp_path / "scores.npy")
    assert main(["fit", str(path), "-o", model, "-q"]) == 0
    assert main(["score", model, str(path), "-o", scores, "-q"]) == 0
    typed = QuadricDetector.load(model)
    np.testing.assert_array_equal(typed.decision_scores_, found.decision_scores_)
    np.testing.assert_array_equal(np.load(scores), found.decision_function(path))
    assert list(getattr(typed, "feature_names_in_", [])) == list(getattr(found, "feature_names_in_", []))
    assert list(getattr(found, "feature_names_in_", [])) == ([] if save in NAMELESS else NAMES)
    source = open_input(str(path), Choice())
    assert source.dtype == (np.float32 if dtype == np.float32 and save not in TEXT else np.float64)
    expected = DATA.astype(dtype).astype(source.dtype)
    np.testing.assert_allclose(source, expected, rtol=1e-7 if save in TEXT else 0)  # a text may be short for a float32
    np.testing.assert_array_equal(rows_of(path).read(slice(None)), source)


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["float32", "int8"], np.float32),
        (["float32", "int32"], np.float64),
        (["float32", "float64"], np.float64),
        (["int8", "bool"], np.float64),
        (["float16", "uint8"], np.float32),
        (["float16", "float16"], np.float32),
    ],
)
def test_columns_of_several_types(types, expected, tmp_path):
    rows = np.random.default_rng(0).integers(0, 2, size=(60, 2))
    columns = {name: rows[:, k].astype(types[k]) for k, name in enumerate("ab")}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    assert open_rows(tmp_path / "rows.parquet").dtype == expected
    assert open_rows(tmp_path).dtype == expected
    np.testing.assert_array_equal(open_rows(tmp_path), rows)


@pytest.mark.parametrize("save", [csv, jsonl, parquet, npy, npy_by_column])
def test_scores_of_several_blocks_agree(save, tmp_path):
    detector = QuadricDetector(score_function="linear").fit(DATA)
    detector.save(tmp_path / "model")
    path = save(tmp_path, np.tile(DATA, (50, 1)))  # 10,000 rows
    assert main(["score", str(tmp_path / "model"), str(path), "-o", str(tmp_path / "scores.npy"), "-q"]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npy"), detector.decision_function(path))


@pytest.mark.parametrize("save", KINDS)
def test_rows_are_dropped_without_being_loaded(save, tmp_path):
    holes = DATA.copy()
    holes[[0, 7, 199], 2] = np.nan, np.inf, -np.inf
    kept = kept_rows(open_rows(save(tmp_path, holes)), "drop")
    assert isinstance(kept.rows, Subset)
    assert kept.n_dropped == 3
    left = np.delete(holes, [0, 7, 199], axis=0)
    for size in (1, 64, 1000):
        blocks = list(kept.rows.blocks(size))
        assert {len(block) for block in blocks[:-1]} <= {size}
        np.testing.assert_array_equal(np.concatenate(blocks), left)
    np.testing.assert_array_equal(kept.rows[np.array([196, 0, 3])], left[[196, 0, 3]])
    np.testing.assert_array_equal(
        QuadricDetector().fit(kept.rows).decision_scores_, QuadricDetector().fit(left).decision_scores_
    )


@pytest.mark.parametrize("save", [csv, tsv, jsonl, parquet, folder_of_text, npz])
def test_labels_come_with_the_rows(save, tmp_path):
    rows = DATA.copy()
    rows[:, 3] = np.arange(200) % 2
    path = save(tmp_path, rows)
    if save is npz:
        np.savez(path, X=rows[:, :3], d=rows[:, 3])
    source = open_rows(path, Choice(label_column="d"))
    assert source.shape == (200, 3)
    np.testing.assert_array_equal(np.asarray(source.labels, float), rows[:, 3])
    some = Subset(source, np.array([4, 9]))
    np.testing.assert_array_equal(np.asarray(some.labels, float), [0, 1])


def test_names_are_checked_in_one_place(tmp_path):
    detector = QuadricDetector().fit(open_rows(csv(tmp_path, DATA)))
    swapped = tmp_path / "swapped.csv"
    pyarrow.csv.write_csv(table(DATA).select(list("badc")), swapped)
    np.testing.assert_array_equal(detector.decision_function(swapped), detector.decision_function(csv(tmp_path, DATA)))
    with pytest.raises(ValueError, match="the columns must be a, b, c, d, in this order, got b, a, d, c"):
        detector.decision_function(open_rows(swapped))
