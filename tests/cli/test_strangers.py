"""Names in a file of a stranger are shown, and the terminal does not obey them."""

import copy

import pytest

from pyod_quadric.cli.main import main
from tests.support.mutants import base, forged

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m"
NAMES = [f"x{EVIL}", "y\nthreshold: 0\r", "\u202ez"]  # the last one turns what follows around
SHOWN = [r"x\x1b]0;title\x07\x1b[2J\x9b31m", r"y\nthreshold: 0\r", r"\u202ez"]


@pytest.fixture
def model(tmp_path):
    document, tensors = copy.deepcopy(base("everything"))
    document["values"] |= {"feature_names": NAMES, "versions": {f"torch{EVIL}": f"2{EVIL}"}}
    (tmp_path / "model").write_bytes(forged(document, tensors))
    return tmp_path / "model"


def test_info_shows_what_a_terminal_would_obey(model, capsys):
    assert main(["info", str(model)]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in SHOWN)
    assert shown.replace("\n", "").isprintable()
    assert sum(line.startswith("threshold") for line in shown.splitlines()) == 0
    assert main(["info", str(model), "--json"]) == 0
    assert capsys.readouterr().out.replace("\n", "").isprintable()


def test_errors_and_notes_show_it_too(model, tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("a,b,c\n1,2,3\n")
    assert main(["score", str(model), str(tmp_path / "rows.csv"), "-o", str(tmp_path / "scores.csv")]) != 0
    said = capsys.readouterr().err
    assert SHOWN[0] in said
    assert said.replace("\n", "").isprintable()
    assert main(["info", str(tmp_path / f"no{EVIL}")]) != 0
    assert capsys.readouterr().err.replace("\n", "").isprintable()
