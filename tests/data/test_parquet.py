"""Parquet files give the rows that a DataFrame of them holds, by the names of its columns, in bounded memory."""

import resource
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest

from pyod_quadric import QuadricDetector
from pyod_quadric.cli.main import main
from pyod_quadric.data.batches import RowBatches
from pyod_quadric.data.files import open_rows
from pyod_quadric.data.rows import rows_of

pyarrow = pytest.importorskip("pyarrow")
NAMES = list("abcd")
FRAME = pandas.DataFrame(np.random.default_rng(0).normal(size=(120, 4)), columns=NAMES)


@pytest.fixture
def scored():
    """Scores of the frame by a detector that was fitted to it."""
    return QuadricDetector().fit(FRAME).decision_function(FRAME)


@pytest.fixture
def scored_in_training():
    """Its training scores."""
    return QuadricDetector().fit(FRAME).decision_scores_


@pytest.mark.parametrize("dtype", ["Int64", "boolean"])
def test_what_is_missing_among_integers_is_not_a_number(dtype, tmp_path):
    frame = (FRAME > 0).astype(dtype)
    frame.iloc[7, 2] = pandas.NA
    frame = frame.rename(columns={"c": "c.d"})
    frame.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"row 7 of .* holds NaN"):
        QuadricDetector().fit(tmp_path / "rows.parquet")
    found = np.asarray(open_rows(tmp_path / "rows.parquet"))
    np.testing.assert_array_equal(found, frame.to_numpy(np.float64, na_value=np.nan))


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, bool, np.float16, np.float32])
def test_numbers_of_all_kinds(dtype, tmp_path):
    frame = (3 * FRAME).clip(lower=0).astype(dtype)
    frame.to_parquet(tmp_path / "rows.parquet")
    source = open_rows(tmp_path / "rows.parquet")
    assert source.dtype == (np.float32 if np.issubdtype(dtype, np.floating) else np.float64)
    np.testing.assert_array_equal(np.asarray(source), frame.to_numpy())
    found = QuadricDetector().fit(tmp_path / "rows.parquet")
    np.testing.assert_array_equal(found.decision_scores_, QuadricDetector().fit(frame.to_numpy()).decision_scores_)


def test_columns_of_shards_are_found_by_their_names(tmp_path, scored_in_training):
    FRAME[:50].to_parquet(tmp_path / "0.parquet")
    FRAME[50:][NAMES[::-1]].to_parquet(tmp_path / "1.parquet")
    detector = QuadricDetector().fit(tmp_path)
    np.testing.assert_array_equal(detector.decision_scores_, scored_in_training)
    assert list(detector.feature_names_in_) == NAMES
    FRAME[50:].rename(columns={"c": "e"}).to_parquet(tmp_path / "2.parquet")
    with pytest.raises(ValueError, match=r"2\.parquet cannot be read: its columns are not those .* they differ in c, e"):
        QuadricDetector().fit(tmp_path)


def test_names_of_shards_count_after_files_without_names(tmp_path, scored_in_training):
    np.save(tmp_path / "0.npy", np.ascontiguousarray(FRAME[:20]))
    FRAME[20:50].to_parquet(tmp_path / "1.parquet")
    FRAME[50:][NAMES[::-1]].to_parquet(tmp_path / "2.parquet")
    detector = QuadricDetector().fit(tmp_path)
    np.testing.assert_array_equal(detector.decision_scores_, scored_in_training)
    assert list(detector.feature_names_in_) == NAMES


def test_columns_of_a_model_are_found_by_their_names(tmp_path, scored):
    detector = QuadricDetector().fit(FRAME)
    FRAME.assign(id=1.0)[["id", *NAMES[::-1]]].to_parquet(tmp_path / "rows.parquet")
    np.testing.assert_array_equal(detector.decision_function(tmp_path / "rows.parquet"), scored)
    FRAME[["a", "b"]].to_parquet(tmp_path / "few.parquet")
    with pytest.raises(ValueError, match="lacks c, d, which the model was fitted to; its columns: a, b"):
        detector.decision_function(tmp_path / "few.parquet")


def test_the_command_line_finds_columns_of_folders_by_their_names(tmp_path, scored, capsys):
    (tmp_path / "rows").mkdir()
    FRAME.assign(id="text").to_parquet(tmp_path / "rows" / "0.parquet")
    folder, model, scores = (str(tmp_path / name) for name in ("rows", "model.safetensors", "scores.npy"))
    assert main(["fit", folder, "--drop", "id", "--output", model]) == 0
    FRAME.assign(id="text")[["d", "id", "b", "a", "c"]].to_parquet(tmp_path / "rows" / "0.parquet")
    assert main(["score", model, folder, "--output", scores]) == 0
    np.testing.assert_allclose(np.load(scores), scored, rtol=1e-12)
    assert "no names" not in capsys.readouterr().err


def test_an_index_that_pandas_has_stored_is_no_feature(tmp_path):
    frame = FRAME[FRAME["a"] > 0]  # an index with gaps, which pandas stores as a column
    frame.to_parquet(tmp_path / "rows.parquet")
    assert QuadricDetector().fit(tmp_path / "rows.parquet").n_features_in_ == 4
    assert main(["fit", str(tmp_path / "rows.parquet"), "--output", str(tmp_path / "model.safetensors")]) == 0
    assert list(QuadricDetector.load(tmp_path / "model.safetensors").feature_names_in_) == NAMES


@pytest.mark.parametrize("kind", [pyarrow.list_(pyarrow.float32()), pyarrow.list_(pyarrow.float32(), 4)], ids=str)
def test_embeddings_in_a_column_of_lists(kind, tmp_path):
    rows = FRAME.to_numpy(np.float32)
    table = pyarrow.table({"embedding": pyarrow.array(rows.tolist(), kind)})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=50)
    detector = QuadricDetector().fit(tmp_path / "rows.parquet")
    np.testing.assert_array_equal(detector.decision_scores_, QuadricDetector().fit(rows).decision_scores_)
    assert not hasattr(detector, "feature_names_in_")


def test_lists_of_different_lengths_are_refused(tmp_path):
    lists = [*FRAME.to_numpy().tolist(), [1.0, 2.0]]
    pyarrow.parquet.write_table(pyarrow.table({"embedding": lists}), tmp_path / "rows.parquet")
    with pytest.raises(OSError, match=r"row group 0 of .*: the lists in embedding must all have 4 numbers"):
        QuadricDetector().fit(tmp_path / "rows.parquet")


@pytest.mark.parametrize(("column", "kind"), [("text", "string"), (pandas.Timestamp("2026-01-01"), "timestamp")])
def test_columns_that_are_no_numbers_are_named(column, kind, tmp_path):
    FRAME.assign(e=column).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(
        ValueError, match=rf"rows\.parquet holds no numbers in e \(.*{kind}.*\); leave such columns out by drop=e, "
    ):
        QuadricDetector().fit(tmp_path / "rows.parquet")


def test_a_file_that_has_changed_is_noticed(tmp_path):
    FRAME.to_parquet(tmp_path / "rows.parquet", row_group_size=50)
    rows = rows_of(tmp_path / "rows.parquet")
    rows.read(slice(5))
    (2 * FRAME).assign(e=0).to_parquet(tmp_path / "rows.parquet", row_group_size=50)
    with pytest.raises(OSError, match=r"row group 1 of .* has changed since it was opened"):
        rows.read(slice(60, 65))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the list of open files is Linux's")
def test_many_shards_are_neither_open_nor_in_memory_at_once(tmp_path):
    for number in range(30):
        FRAME.to_parquet(tmp_path / f"{number:02}.parquet")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    n_open = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (n_open + 15, limits[1]))
    try:
        rows = rows_of(tmp_path)
        for _ in rows.blocks(100):
            pass
        assert np.array_equal(rows.read(np.array([3599, 0])), FRAME.to_numpy()[[-1, 0]])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    kept = [part for part in rows._source._parts if part._decoded is not None or part._metadata is not None]
    assert len(kept) == 1


def test_training_decodes_each_row_group_once_in_a_window(tmp_path, monkeypatch):
    frame = pandas.concat([FRAME] * 5)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=100, index=False)
    np.save(tmp_path / "rows.npy", np.ascontiguousarray(frame))
    decoded = []
    read = pyarrow.parquet.ParquetFile.read_row_group
    monkeypatch.setattr(
        pyarrow.parquet.ParquetFile, "read_row_group", lambda file, *args: decoded.append(args[0]) or read(file, *args)
    )
    settings = {"batch_size": 32, "seed": 3, "one_in": 4, "weights": np.linspace(0, 1, 600)}
    expected = list(RowBatches(rows_of(tmp_path / "rows.npy"), **settings).epoch(1, first=2))
    found = list(RowBatches(rows_of(tmp_path / "rows.parquet"), **settings).epoch(1, first=2))
    assert sorted(decoded) == list(range(6))
    assert len(found) == len(expected) > 5
    for batch, wanted in zip(found, expected, strict=True):
        assert batch.equal(wanted)
