"""What identifies rows is carried into results, lists are found by their name, and rows come and go through pipes."""

import csv
import io
import json
import shlex
import subprocess
import sys

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

from pyod_quadric import QuadricDetector
from pyod_quadric.cli.main import main
from pyod_quadric.data.columns import Choice
from pyod_quadric.data.files import open_rows
from pyod_quadric.data.sources import Subset

NAMES = list("abc")
ROWS, NEW = np.random.default_rng(0).normal(size=(2, 120, 3)) ** 3
TEXTS = [f"{number:03}" for number in range(120)]  # whose zeros must stay
NUMBERS = np.arange(120, dtype=np.uint64) + np.uint64(2**63)  # as hashes are


def write(path, rows, ids):
    """Write rows beside ids in a file of any kind."""
    table = pyarrow.table({"id": ids, **dict(zip(NAMES, rows.T, strict=True))})
    if path.suffix == ".npz":
        np.savez(path, X=rows, id=ids)
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=50)
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("ids")
    for suffix in (".csv", ".jsonl", ".npz", ".parquet"):
        write(path / f"new{suffix}", NEW, TEXTS)
        write(path / f"numbered{suffix}", NEW, NUMBERS)
    write(path / "rows.csv", ROWS, TEXTS)
    assert main(["fit", f"{path}/rows.csv", "--id-column", "id", "-o", f"{path}/model", "-q"]) == 0
    return path


@pytest.fixture
def call(folder, monkeypatch, capsys):
    """Run a command line in the folder that must succeed, and return what it printed."""
    monkeypatch.chdir(folder)

    def run(line: str, stdin: bytes = b"") -> str:
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin))))
        status = main(shlex.split(line))
        output, errors = capsys.readouterr()
        assert status == 0, errors
        return output

    return run


def columns_of(text):
    """Return the columns of CSV or JSON lines."""
    is_json = text.startswith("{")
    lines = [json.loads(line) for line in text.splitlines()] if is_json else list(csv.DictReader(io.StringIO(text)))
    return {name: [line[name] for line in lines] for name in lines[0]}


def test_an_id_is_no_feature(folder):
    fitted = QuadricDetector.load(folder / "model")
    assert list(fitted.feature_names_in_) == NAMES
    np.testing.assert_array_equal(fitted.decision_scores_, QuadricDetector().fit(ROWS).decision_scores_)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "npz", "parquet"])
def test_ids_are_carried_into_scores(call, folder, suffix):
    found = columns_of(call(f"score model new.{suffix} --id-column id --batch-size 7"))
    assert list(found) == ["row", "id", "score", "label"]
    assert found["id"] == TEXTS
    expected = QuadricDetector().fit(ROWS).decision_function(NEW)
    np.testing.assert_allclose(np.array(found["score"], float), expected, rtol=1e-9)
    few = columns_of(call(f"score model new.{suffix} --id-column id --fdr 0.5 --p-values"))
    assert (list(few), few["id"]) == (["row", "id", "score", "label", "p_value"], TEXTS)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "npz", "parquet"])
def test_ids_that_are_numbers_stay_numbers(call, tmp_path, suffix, kind):
    call(f"score model numbered.{suffix} --id-column id -o {tmp_path}/s.{kind} -q")
    if kind == "parquet":
        found = pyarrow.parquet.read_table(tmp_path / "s.parquet").to_pydict()["id"]
    else:
        found = columns_of((tmp_path / f"s.{kind}").read_text())["id"]
    assert [int(number) for number in found] == NUMBERS.tolist()


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "npz", "parquet"])
def test_ids_follow_their_rows(call, folder, suffix):
    """Rows that are left out, chosen or put in order of their scores keep their ids."""
    holes = NEW.copy()
    holes[[3, 70], 1] = np.nan
    write(folder / f"holes.{suffix}", holes, TEXTS)
    kept = columns_of(call(f"score model holes.{suffix} --id-column id --on-nan drop"))
    assert kept["id"] == [TEXTS[int(row)] for row in kept["row"]]
    assert len(kept["id"]) == 118
    for options in ("--top 5", "--top 5 --largest 2", "--rows 99,4-6"):
        found = columns_of(call(f"explain model new.{suffix} --id-column id {options}"))
        assert list(found)[:4] == ["row", "id", "score", "label"]
        assert found["id"] == [TEXTS[int(row)] for row in found["row"]]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_rows_come_and_go_through_pipes(call, folder, suffix, kind):
    expected = columns_of(call(f"score model new.{suffix} --id-column id --format {kind}"))
    content = (folder / f"new.{suffix}").read_bytes()
    assert columns_of(call(f"score model - --id-column id --format {kind} --output -", content)) == expected
    assert columns_of(call(f"score model - --id-column id --format {kind}", b"\xef\xbb\xbf" + content)) == expected
    explained = columns_of(call(f"explain model new.{suffix} --top 3 --format {kind}"))
    assert columns_of(call(f"explain model - --top 3 --format {kind}", content)) == explained
    call("fit - --drop id -o piped --force -q", content)
    assert call(f"score piped new.{suffix}") == call("score piped - --columns a,b,c", content)


def test_pipes_of_processes(folder):
    command = [sys.executable, "-m", "pyod_quadric", "score", "model", "-", "--id-column", "id", "--format", "jsonl"]
    with (folder / "new.jsonl").open() as rows:
        done = subprocess.run(command, stdin=rows, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    assert columns_of(done.stdout)["id"] == TEXTS


def test_json_knows_no_nan(call, folder):
    (folder / "holes.jsonl").write_text('{"a": 1, "b": 2, "c": 3}\n{"a": 1, "c": NaN}\n\n{"c": 4.5, "b": 1, "a": 0}\n')
    lines = [json.loads(line) for line in call("score model holes.jsonl --on-nan score-nan --format jsonl").splitlines()]
    assert [(line["score"] is None, line["label"] == -1) for line in lines] == [(False, False), (True, True), (False, False)]


def test_ids_with_names_of_results_and_without_names(call, folder):
    (folder / "odd.csv").write_text("score,a,b,c\nx,1,2,3\n,4,5,6\n")
    found = columns_of(call("score model odd.csv --id-column score"))
    assert (list(found), found["id score"]) == (["row", "id score", "score", "label"], ["x", ""])
    (folder / "plain.csv").write_text("x,1,2,3\ny,4,5,6\n")
    assert columns_of(call("score model plain.csv --no-header --id-column 0"))["0"] == ["x", "y"]


def test_ids_of_several_files(call, folder):
    (folder / "parts").mkdir()
    for number, rows in enumerate((slice(50), slice(50, None))):
        write(folder / "parts" / f"{number}.parquet", NEW[rows], TEXTS[rows])
    assert columns_of(call("score model parts --id-column id --batch-size 30"))["id"] == TEXTS
    write(folder / "parts" / "2.parquet", NEW, NUMBERS)
    with pytest.raises(ValueError, match="must hold numbers in all files, or texts in all"):
        open_rows(folder / "parts", Choice(id_column="id"))


def test_ids_of_some_rows(folder):
    for suffix in ("csv", "jsonl", "npz", "parquet"):
        some = Subset(open_rows(folder / f"new.{suffix}", Choice(id_column="id")), np.array([2, 50, 119]))
        assert [name for block in some.marked_blocks(2, with_ids=True) for name in block.ids] == ["002", "050", "119"]


def test_an_id_may_be_missing_a_date_or_the_index_of_pandas(call, folder):
    day = pyarrow.array([1, None, 3], pyarrow.date32())
    count = pyarrow.array([7, None, 9], pyarrow.int32())
    table = pyarrow.table({"day": day, "count": count, **dict(zip(NAMES, NEW[:3].T, strict=True))})
    pyarrow.parquet.write_table(table, folder / "typed.parquet")
    assert columns_of(call("score model typed.parquet --id-column day"))["day"] == ["1970-01-02", "", "1970-01-04"]
    assert columns_of(call("score model typed.parquet --id-column count --format jsonl"))["count"] == [7, None, 9]
    call("score model typed.parquet --id-column count -o typed-scores.parquet")
    assert pyarrow.parquet.read_table(folder / "typed-scores.parquet")["count"].to_pylist() == [7, None, 9]
    indexed = table.to_pandas().set_index("day")
    indexed.drop(columns="count").to_parquet(folder / "indexed.parquet")
    assert columns_of(call("score model indexed.parquet --id-column day"))["day"] == ["1970-01-02", "", "1970-01-04"]
    (folder / "days.jsonl").write_text('{"day": "2026-11-18", "a": 1, "b": 2, "c": 3}\n')
    assert columns_of(call("score model days.jsonl --id-column day"))["day"] == ["2026-11-18"]


# Lists


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_a_model_of_lists_knows_their_column(call, folder, suffix):
    def save(name, rows, **others):
        table = pyarrow.table({**others, "embedding": rows.tolist()})
        if suffix == "parquet":
            pyarrow.parquet.write_table(table, folder / f"{name}.parquet")
        else:
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        return f"{name}.{suffix}"

    rows, new = save("lists", ROWS), save("new-lists", NEW, text=TEXTS, number=NUMBERS.astype(float))
    call(f"fit {rows} -o lists-model -q --force")
    fitted, expected = QuadricDetector.load(folder / "lists-model"), QuadricDetector().fit(ROWS)
    assert (fitted.list_column_, hasattr(expected, "list_column_")) == ("embedding", False)
    scores = expected.decision_function(NEW)
    found = columns_of(call(f"score lists-model {new} --id-column text"))
    assert found["text"] == TEXTS
    np.testing.assert_allclose(np.array(found["score"], float), scores, rtol=1e-9)
    np.testing.assert_allclose(fitted.decision_function(folder / new), scores, rtol=1e-9)
    np.testing.assert_array_equal(fitted.decision_function(NEW), scores)  # from elsewhere as well
    assert not hasattr(fitted.fit(ROWS), "list_column_")
    assert "column of lists: embedding" in call("info lists-model")
    other = save("other", ROWS, text=TEXTS)
    call(f"fit {other} --columns embedding -o lists-model -q --force")
    assert QuadricDetector.load(folder / "lists-model").list_column_ == "embedding"


def test_a_file_without_the_lists_of_a_model_is_refused(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    pyarrow.parquet.write_table(pyarrow.table({"embedding": ROWS.tolist()}), folder / "lists.parquet")
    assert main(["fit", "lists.parquet", "-o", "of-lists", "-q"]) == 0
    pyarrow.parquet.write_table(pyarrow.table({"a": [1.0], "b": [2.0]}), folder / "narrow.parquet")
    assert main(["score", "of-lists", "narrow.parquet"]) == 1
    said = capsys.readouterr().err
    assert "has 2 features, but the model was fitted to 3, the numbers in the column of lists embedding" in said
