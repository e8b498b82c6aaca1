"""The code in the README and in the documentation runs, and the commands are those that CI runs."""

import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.csv
import pytest

from pyod_quadric.cli.main import main
from pyod_quadric.cli.parser import COMMANDS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SESSION = ROOT / "docs/guide/command-line.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page):
    """Return the language and the code of each block of a page."""
    return re.findall(r"```(\w+)\n(.*?)```", page.read_text(), flags=re.DOTALL)


BLOCKS = blocks(ROOT / "README.md")
PYTHON = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, (language, code) in enumerate(blocks(page))
    if language == "python"
]


@pytest.mark.parametrize("code", PYTHON)
def test_python_blocks_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict = {"__name__": "page"}
    exec(code, namespace)  # the pages are ours
    assert namespace.keys() - {"__name__", "__builtins__"}


def test_ci_runs_the_readme_test_command():
    commands = [code.strip() for language, code in BLOCKS if language == "sh"]
    (tests,) = [command for command in commands if command.endswith("tox")]
    assert tests in (ROOT / ".ci/run").read_text()
    assert all("-c constraints.txt" in command for command in commands if "pip install" in command)


def test_the_cpu_only_installation_takes_the_constrained_torch():
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    (named,) = set(re.findall(r"torch==[\w.]+", (ROOT / "docs/guide/installation.md").read_text()))
    assert named in pins


def test_the_session_on_the_command_line(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    for name, n in (("rows", 300), ("new", 50)):
        columns = {"id": [f"{name} {place}" for place in range(n)], **{c: rng.normal(size=n) for c in "abcd"}}
        fraud = (np.arange(n) % 20 == 0).astype(int)
        pyarrow.csv.write_csv(pyarrow.table(columns | {"fraud": fraud}), tmp_path / f"{name}.csv")
    people = np.repeat(np.arange(50), 2)
    np.save(tmp_path / "faces.npy", rng.normal(size=(50, 4))[people] + 0.1 * rng.normal(size=(100, 4)))
    np.save(tmp_path / "people.npy", people)
    np.save(tmp_path / "others.npy", rng.normal(size=(60, 4)))
    monkeypatch.chdir(tmp_path)
    session = [code.replace("\\\n", " ") for language, code in blocks(SESSION) if language == "sh"]
    lines = [line for code in session for line in code.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("pyod-quadric ")]
    assert {command[0] for command in commands} == set(COMMANDS)
    for command in commands:
        assert main([*command, "--epoch-num", "1"] if command[0] == "compare" else command) == 0, capsys.readouterr().err
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 51
    assert (tmp_path / "penalty_vs_manifold.png").is_file()


def test_pictures_are_there():
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]*)\)", README):
        assert (ROOT / picture).is_file(), picture
