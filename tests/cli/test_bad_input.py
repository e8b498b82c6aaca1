"""Whatever is wrong, a command says so in one line, exits with 1 or 2, and writes nothing."""

import errno
import os
import shlex
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from pyod_quadric import QuadricDetector
from pyod_quadric.cli.main import main
from pyod_quadric.storage.container import with_checksum
from tests.support.disks import limited_size

# What is done with rows in a file: every command that takes them. The models are of three features, a, b and c.
COMMANDS = {
    "fit": "fit {} -o out",
    "score": "score model {}",
    "explain": "explain model {}",
    "compare": "compare {}",
    "robustness": "robustness --model model --embeddings {} --labels labels.npy",
}
WITH_MODEL = {
    "score": "score {} rows.npy",
    "explain": "explain {} rows.npy",
    "robustness": "robustness --model {} --embeddings rows.npy --labels labels.npy",
    "info": "info {}",
}
WITH_OUTPUT = {
    "fit": ("fit rows.npy -o {}", "model2"),
    "score": ("score model rows.npy -o {}", "scores.csv"),
    "labels": ("score model rows.npy --labels-output {}", "labels2.npy"),
    "explain": ("explain model rows.npy -o {}", "explained.parquet"),
    "compare": ("compare rows.npy -o {}", "picture.png"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("bad")
    rows = np.random.default_rng(0).normal(size=(60, 3))
    np.save(path / "rows.npy", rows)
    np.save(path / "labels.npy", np.arange(60) // 2)
    detector = QuadricDetector().fit(rows)
    detector.save(path / "model")
    detector.feature_names_in_ = np.array(["a", "b", "c"], dtype=object)
    detector.save(path / "named")
    content = (path / "model").read_bytes()
    assert content.count(b'"format_version":"1"') == 1
    (path / "newer").write_bytes(with_checksum(content.replace(b'"format_version":"1"', b'"format_version":"2"')))
    (path / "damaged").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (path / "cut").write_bytes(content[:300])
    (path / "empty").touch()
    for suffix in ("npy", "npz", "csv", "jsonl", "parquet"):
        (path / f"empty.{suffix}").touch()
        (path / f"garbage.{suffix}").write_bytes(b"\x80\xff garbage, garbage\n\x80")
    np.save(path / "none.npy", np.empty((0, 3)))
    (path / "none.csv").write_text("a,b,c\n")
    pyarrow.parquet.write_table(
        pyarrow.table({name: pyarrow.array([], pyarrow.float64()) for name in "abc"}), path / "none.parquet"
    )
    np.save(path / "flat.npy", np.arange(5.0))
    np.save(path / "texts.npy", np.array([["x", "y", "z"]] * 60))
    np.save(path / "complex.npy", rows * 1j)
    np.save(path / "objects.npy", rows.astype(object), allow_pickle=True)
    np.savez(path / "objects.npz", X=rows.astype(object))
    np.savez(path / "two.npz", first=rows, second=rows)
    np.save(path / "wide.npy", np.ones((60, 5)))
    holes = rows.copy()
    holes[[17, 40], 1] = np.nan, np.inf
    np.save(path / "holes.npy", holes)
    np.save(path / "nothing.npy", np.full((60, 3), np.nan))
    np.save(path / "few.npy", rows[:2])
    np.savez(path / "few.npz", rows[:2])
    lines = [",".join(map(repr, row)) for row in rows.tolist()]
    (path / "rows.csv").write_text("\n".join(["a,b,c", *lines]))
    (path / "other.csv").write_text("\n".join(["a,b,x", *lines]))
    (path / "words.csv").write_text("a,b,c\n1,2,3\n4,many,6\n")
    (path / "texts.csv").write_text("a,b,c\nx,2,2026-11-18\n,5,\n")
    (path / "late.csv").write_text("a,b,c\n" + 60_000 * "1,2,3\n" + "4,many,6\n")
    (path / "texts.jsonl").write_text('{"a": "x", "b": 2, "c": "2026-11-18"}\n{"b": 5}\n')
    (path / "late.jsonl").write_text(60_000 * '{"a": 1, "b": 2, "c": 3}\n' + '{"b": "many"}\n')
    (path / "nested.jsonl").write_text('{"a": 1, "b": {"c": 1}}\n')
    (path / "array.jsonl").write_text("[1, 2, 3]\n[4, 5, 6]\n")
    (path / "cut.jsonl").write_text('{"a": 1, "b": 2, "c": 3}\n{"a": 1, "b": 2')
    lists = {"e": [[1.0, 2.0]], "f": [3.0]}
    pyarrow.parquet.write_table(pyarrow.table(lists), path / "lists.parquet")
    (path / "ragged.csv").write_text("a,b,c\n1,2,3\n4,5\n")
    (path / "twice.csv").write_text("a,b,a\n1,2,3\n")
    pyarrow.parquet.write_table(pyarrow.table({"a": [1.0], "b": ["text"], "c": [2.0]}), path / "words.parquet")
    (path / "plain").write_text("a file, where a folder is needed")
    (path / "folder.csv").mkdir()
    return path


@pytest.fixture
def refused(folder, monkeypatch, capsys):
    """Run a command line that must fail, and return the line that says why."""
    monkeypatch.chdir(folder)

    def run(line: str, status: int = 1) -> str:
        before = sorted(folder.iterdir())
        capsys.readouterr()
        assert main(shlex.split(line)) == status
        output, errors = capsys.readouterr()
        assert sorted(folder.iterdir()) == before
        assert output in ("", "row,score,label\n")
        (message,) = errors.splitlines()
        assert message.startswith("pyod-quadric: error: ")
        return message

    return run


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("missing.npy", "there is no file missing.npy"),
        ("folder.csv", "holds no .npy, .parquet, .csv, .tsv, .jsonl or .ndjson files"),
        *((f"empty.{suffix}", f"empty.{suffix}") for suffix in ("npy", "npz", "csv", "jsonl", "parquet")),
        *((f"garbage.{suffix}", f"garbage.{suffix}") for suffix in ("npy", "npz", "csv", "jsonl", "parquet")),
        *((f"none.{suffix}", f"none.{suffix} has no rows") for suffix in ("npy", "csv", "parquet")),
        ("flat.npy", "flat.npy must hold rows of shape (n, d) with d at least 1, got (5,)"),
        ("texts.npy", "must hold real numbers, got <U1"),
        ("complex.npy", "must hold real numbers, got complex128"),
        ("objects.npy", "it holds Python objects, which are never loaded"),
        ("objects.npz", "the array X of objects.npz cannot be read"),
        ("two.npz", "two.npz has the arrays first, second; choose one by --array"),
        ("rows.npz --array Z", "there is no file rows.npz"),
        ("two.npz --array Z", "two.npz has no array Z; its arrays: first, second"),
        ("holes.npy", "row 17 of holes.npy (counted from 0) holds NaN or infinite entries; --on-nan"),
        ("nothing.npy --on-nan drop", "all rows of nothing.npy hold NaN or infinite entries"),
        ("words.csv", "words.csv holds no numbers in b ('many'); leave such columns out by --drop b, or name the one"),
        ("texts.csv", "no numbers in a ('x'), c ('2026-11-18'); leave such columns out by --drop a,c, or name the one that"),
        ("words.parquet", "no numbers in b (string); leave such columns out by --drop b, or name the one that identifies"),
        ("words.parquet", "rows by --id-column"),
        ("texts.jsonl", "no numbers in a (string), c (timestamp[s]); leave such columns out by --drop a,c, or name the one"),
        ("lists.parquet", "has the column of lists e beside others; take it alone by --columns e, or leave it out by --drop e"),
        ("nested.jsonl", "no numbers in b (struct<c: int64>)"),
        ("array.jsonl", "array.jsonl, one JSON object for each line: JSON parse error: Column() changed from object to array"),
        ("cut.jsonl", "cut.jsonl, one JSON object for each line: JSON parse error: Missing a comma or '}' after an object"),
        ("ragged.csv", "Expected 3 columns, got 2"),
        ("twice.csv", "more than one column of the name a"),
        ("rows.csv --columns a,q", "rows.csv has no column q; its columns: a, b, c"),
        ("rows.csv --drop q", "rows.csv has no column q; its columns: a, b, c"),
        ("rows.csv --columns a,b --drop b", "the column b cannot be a feature and left out"),
        ("rows.csv --drop a,b,c", "rows.csv has no columns left"),
    ],
)
def test_rows(refused, command, file, message):
    assert message in refused(command.format(file))


@pytest.mark.parametrize("command", [COMMANDS[name] for name in ("score", "explain", "robustness")])
def test_rows_that_are_not_those_of_the_model(refused, command):
    assert "wide.npy has 5 features, but the model was fitted to 3" in refused(command.format("wide.npy"))
    named = command.replace("model ", "named ", 1).replace("--named", "--model").replace("--model model", "--model named")
    assert "other.csv lacks c, which the model was fitted to; its columns: a, b, x" in refused(named.format("other.csv"))
    message = refused(named.format("rows.csv --columns a,c,b"))
    assert "the model was fitted to the columns a, b, c, but --columns says a, c, b" in message


@pytest.mark.parametrize("command", WITH_MODEL.values(), ids=WITH_MODEL)
@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("missing", "there is no model file missing"),
        ("folder.csv", "there is no model file folder.csv"),
        ("newer", "newer format"),
        ("damaged", "checksum"),
        ("cut", "cut cannot be loaded"),
        ("empty", "empty cannot be loaded"),
        ("rows.npy", "rows.npy cannot be loaded"),
    ],
)
def test_models(refused, command, file, message):
    assert message in refused(command.format(file))


@pytest.mark.parametrize(("command", "name"), WITH_OUTPUT.values(), ids=WITH_OUTPUT)
def test_outputs(refused, folder, command, name):
    assert "there is no folder nowhere" in refused(command.format(f"nowhere/{name}"))
    assert "there is no folder plain" in refused(command.format(f"plain/{name}"))
    assert "/proc" in refused(command.format(f"/proc/{name}"))
    target = folder / name
    target.write_bytes(b"precious")
    assert f"{name} is there already; --force overwrites it" in refused(command.format(name))
    assert target.read_bytes() == b"precious"
    target.unlink()
    target.mkdir()
    assert f"{name} cannot be written: it is a folder" in refused(command.format(f"{name} --force"))
    target.rmdir()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes as POSIX has them")
@pytest.mark.parametrize(("command", "name"), WITH_OUTPUT.values(), ids=WITH_OUTPUT)
def test_outputs_are_files(refused, folder, command, name):
    os.mkfifo(folder / name)
    assert f"{name} cannot be written: it is a device or a pipe, and no file" in refused(command.format(f"{name} --force"))
    assert (folder / name).is_fifo()
    (folder / name).unlink()


@pytest.mark.parametrize("name", ["scores.csv", "scores.npy", "scores.parquet"])
def test_a_full_disk_is_named(refused, folder, name):
    with limited_size(folder, 300):
        message = refused(f"score model rows.npy -o {name}")
    assert f"error: {name}: File too large; it could not be written" in message


def test_a_full_disk_behind_the_standard_output_is_named(refused, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sys.stdout, "write", full)
    assert "error: the standard output: No space left on device" in refused("score model rows.npy")


def test_outputs_are_not_inputs(refused, folder):
    rows = (folder / "rows.npy").read_bytes()
    for command in ("fit rows.npy -o rows.npy --force", "score model rows.npy -o ../{}/rows.npy --force"):
        assert "is an input of this command" in refused(command.format(folder.name))
    assert (folder / "rows.npy").read_bytes() == rows


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("score model rows.npy -o scores.txt", "must end with .npy or .parquet or .csv or .jsonl or .ndjson"),
        ("compare rows.npy -o picture.jpeg", "must end with .png"),
        ("score model plain", "plain must end with .npy, .npz, .csv, .tsv, .jsonl, .ndjson, .parquet"),
        ("score model rows.npy --columns a", "rows.npy has no named columns, so that --columns has no effect"),
        ("score model rows.npy --drop a", "rows.npy has no named columns, so that --drop has no effect"),
        ("score model rows.npy --label-column a", "rows.npy has no named columns, so that --label-column has no effect"),
        ("fit rows.npy -o x --array X", "rows.npy has no named arrays, so that --array has no effect"),
        ("fit rows.csv -o x --array X", "rows.csv has no named arrays, so that --array has no effect"),
        ("fit few.npz -o x --columns a", "few.npz has no named columns, so that --columns has no effect"),
        ("fit rows.npy -o x --no-header", "rows.npy is no .csv file, so that --no-header has no effect"),
        ("fit words.parquet -o x --no-header", "words.parquet is no .csv file, so that --no-header has no effect"),
        ("score model rows.npy --id-column a", "rows.npy has no named columns, so that --id-column has no effect"),
        ("fit texts.jsonl -o x --no-header", "texts.jsonl is no .csv file, so that --no-header has no effect"),
        ("score model rows.csv --id-column a -o x.npy", "--id-column has no effect on a .npy file"),
        ("explain model rows.csv --id-column a -o x.npy", "--id-column has no effect on a .npy file"),
        ("score model rows.npy --format jsonl -o x.csv", "--format has no effect on x.csv"),
        ("explain model rows.npy --format csv -o x.csv", "--format has no effect on x.csv"),
        ("explain model rows.npy --largest 2 -o x.npy", "--largest has no effect on a .npy file"),
        ("score model rows.npy --batch-size 0", "--batch-size must be 1 or more"),
        ("score model rows.npy -o x.npy --labels-output x.npy", "must be different files"),
        ("explain model rows.npy --top 0", "--top must be 1 or more"),
        ("explain model rows.npy --largest -1", "--largest must be 1 or more"),
        ("robustness --model model --embeddings rows.npy", "give either --labels or --label-column"),
        ("robustness --model model --embeddings rows.npy --labels labels.npy --repeats 0", "--repeats must be 1 or more"),
        ("compare rows.npy --epoch-num 0", "--epoch-num must be 1 or more"),
        ("compare two.npz --array first --label-column second --labels labels.npy", "labels are given twice"),
    ],
)
def test_wrong_usage(refused, command, message):
    assert message in refused(command, status=2)


@pytest.mark.parametrize(
    "command",
    ["", "guess", "fit", "fit rows.npy", "fit rows.npy -o x --contamination 0.9", "fit rows.npy -o x --window 100",
     "fit rows.npy -o x --lr fast", "fit rows.npy -o x --robust auto", "info",
     "fit rows.npy -o x --on-nan score-nan", "explain model rows.npy --rows 5-2", "explain model rows.npy --rows 1 --top 2",
     "compare rows.npy --n-components 0"],
)  # fmt: skip
def test_wrong_usage_that_the_parser_sees(folder, monkeypatch, capsys, command):
    monkeypatch.chdir(folder)
    assert main(shlex.split(command)) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("usage: ")
    assert ": error: " in errors.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("fit rows.npy -o x --n-quadrics 100 --score-function mean_distance", "n_quadrics must be at most k (k + 1) / 2 = 6"),
        ("fit late.csv -o x", "late.csv holds no numbers in b ('many'); leave such columns out by --drop b"),
        ("score model late.csv -o x.csv", "late.csv holds no numbers in b ('many'); leave such columns out by --drop b"),
        ("fit late.jsonl -o x", "Column(/b) changed from number to string in row 60000; leave such columns out by --drop"),
        ("fit few.npz -o x", "at least 3 rows are needed, got 2"),
        ("fit rows.npy -o x --device nonsense", "device must be"),
        ("fit rows.npy -o x --epoch-num 1 --patience 2", "patience watches the held-out loss"),
        ("compare few.npy", "20 rows or more are needed"),
        ("compare rows.npy --lr -1", "lr must be a number above 0"),
        ("compare rows.npy --labels labels.npy", "labels must be 1 for outliers and 0 for others"),
        ("compare rows.npy --labels few.npy", "few.npy must hold labels of shape (n,)"),
        ("explain model rows.npy --rows 60", "rows.npy has 60 rows, 0 to 59, so there is no row 60"),
        ("explain model holes.npy --rows 17", "row 17 of holes.npy"),
        ("explain model holes.npy --rows 17 --on-nan drop", "row 17 of holes.npy"),
        ("robustness --model model --embeddings rows.npy --labels flat.npy", "flat.npy has 5 labels, but rows.npy has 60 rows"),
        ("compare wide.npy --labels flat.npy", "flat.npy has 5 labels, but wide.npy has 60 rows"),
        (
            "robustness --model model --embeddings few.npy --labels labels.npy",
            "labels.npy has 60 labels, but few.npy has 2 rows",
        ),
        ("robustness --model model --embeddings rows.npy --labels empty.csv", "empty.csv must have one column, of labels"),
        ("robustness --model model --embeddings rows.npy --labels garbage.parquet", "garbage.parquet cannot be read"),
        ("robustness --model model --embeddings rows.npy --labels rows.csv", "rows.csv must have one column, of labels"),
        (
            "robustness --model model --embeddings rows.npy --labels labels.npy --distractors wide.npy",
            "wide.npy has 5 features",
        ),
        (
            "robustness --model model --embeddings rows.npy --labels labels.npy --false-positive-rate 2",
            "false_positive_rate must be",
        ),
    ],
)
def test_jobs_that_cannot_be_done(refused, command, message):
    assert message in refused(command)


def test_debug_shows_where(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(["info", "damaged", "--debug"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_tables_without_pyarrow(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    for file in ("rows.csv", "words.parquet"):
        assert f"reading {file} needs pyarrow: pip install 'pyod-quadric[tables]'" in refused(f"score model {file}")
    assert "needs pyarrow" in refused("score model rows.npy -o scores.parquet")
