"""The command ``report``: the same page from all kinds of files as from Python."""

import io
import sys

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

from pyod_quadric import QuadricDetector
from pyod_quadric.cli.main import main
from pyod_quadric.report import write_report
from tests.support.pages import HOSTILE, Page

pytest.importorskip("plotly")
PEOPLE = np.repeat(np.arange(60), 5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("report")
    rows, new = np.random.default_rng(0).normal(size=(2, 300, 4))
    np.save(path / "new.npy", new)
    np.save(path / "people.npy", PEOPLE)
    names = HOSTILE[:4]
    ids = {"id": [f"<b>{i}</b>" for i in range(300)]}
    table = pyarrow.table(ids | dict(zip(names, new.T, strict=True)))
    pyarrow.csv.write_csv(table, path / "new.csv")
    pyarrow.parquet.write_table(table, path / "new.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"id": ids["id"], "rows": list(new)}), path / "lists.parquet")
    pyarrow.parquet.write_table(table.append_column("who", [PEOPLE]), path / "grouped.parquet")
    plain, grouped = QuadricDetector().fit(rows), QuadricDetector().fit(rows, groups=PEOPLE)
    plain.save(path / "model")
    grouped.save(path / "grouped")
    write_report(plain, new, path / "plain.html")
    write_report(plain, new, path / "with ids.html", ids=ids["id"])
    write_report(grouped, new, path / "grouped.html", groups=PEOPLE)
    return path


@pytest.fixture
def call(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)

    def run(line):
        status = main(["report", *line.split()])
        return status, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("model new.npy", "plain"),
        ("model new.csv --drop id", "plain"),
        ("model new.csv --id-column id", "with ids"),
        ("model new.parquet --id-column id", "with ids"),
        ("model lists.parquet --id-column id --columns rows", "with ids"),
        ("grouped new.npy --groups people.npy", "grouped"),
        ("grouped grouped.parquet --group-column who --drop id", "grouped"),
    ],
)
def test_the_page_is_that_of_python_whatever_the_file(call, folder, tmp_path, line, expected):
    status, said = call(f"{line} -o {tmp_path}/page.html")
    assert status == 0, said
    assert (tmp_path / "page.html").read_bytes() == (folder / f"{expected}.html").read_bytes()
    assert f"300 rows are in {tmp_path}/page.html, a page of" in said


def test_standard_input(call, folder, tmp_path, monkeypatch):
    text = (folder / "new.csv").read_bytes()
    for options, expected in (("--id-column id", "with ids"), ("--drop id", "plain")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text))))
        assert call(f"model - {options} -o {tmp_path}/page.html --force")[0] == 0
        assert (tmp_path / "page.html").read_bytes() == (folder / f"{expected}.html").read_bytes()


def test_names_of_columns_are_text(call, tmp_path, folder):
    assert main(["fit", "new.csv", "--id-column", "id", "-o", f"{tmp_path}/model", "-q"]) == 0
    assert call(f"{tmp_path}/model new.csv --id-column id --title <b> --top 3 --points 50 -o {tmp_path}/page.html")[0] == 0
    page = Page((tmp_path / "page.html").read_bytes())
    assert all(f"{name} = " in page.text for name in HOSTILE[:4])
    assert page.texts.count("<b>") == 2  # as the title, and above all
    assert "The 3 rows with the highest scores" in page.text
    assert "50 of the 300 rows are drawn and listed" in page.text


def test_rows_with_nan(call, folder, tmp_path):
    rows = np.load(folder / "new.npy")
    rows[7, 1] = np.nan
    np.save(folder / "holes.npy", rows)
    status, said = call(f"model holes.npy -o {tmp_path}/page.html")
    assert (status, "row 7 of holes.npy" in said) == (1, True)
    assert not list(tmp_path.iterdir())
    for line in ("model holes.npy", "grouped holes.npy --groups people.npy"):
        assert call(f"{line} --on-nan drop -o {tmp_path}/page.html --force")[0] == 0
        text = Page((tmp_path / "page.html").read_bytes()).text
        assert "299 rows of 4 features were scored" in text
        assert "1 further rows hold NaN or infinite entries and were left out." in text


def test_a_fit_with_groups_and_rows_without(call, tmp_path):
    assert call(f"grouped new.npy -o {tmp_path}/page.html")[0] == 0
    assert "so that drift was not tested" in Page((tmp_path / "page.html").read_bytes()).text


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ("model new.npy -o page.png", 2, "must end with .html"),
        ("model new.npy", 2, "required: -o/--output"),
        ("model new.npy -o page.html --top 0", 2, "--top must be 1 or more"),
        ("model new.npy -o page.html --points 1", 2, "--points must be 2 or more"),
        ("model - -o page.html --group-column who", 2, "by --groups"),
        ("model new.npy -o plain.html", 1, "--force overwrites it"),
        ("model new.npy -o page.html --groups people.npy", 1, "the fit has none"),
        ("model nothing.npy -o page.html", 1, "nothing.npy"),
    ],
)
def test_what_cannot_be_done_is_said(call, folder, line, status, words):
    found, said = call(line)
    assert (found, words in said) == (status, True), said
    assert not (folder / "page.html").exists()


def test_without_plotly_the_extra_is_named(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    status, said = call("model new.npy -o page.html")
    assert (status, "pip install 'pyod-quadric[report]'" in said) == (1, True)
