"""The code in the README runs, and its commands are those that CI runs."""

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
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("code", [code for language, code in BLOCKS if language == "python"])
def test_python_blocks_run(code):
    namespace: dict = {}
    exec(code, namespace)  # the README is ours
    assert "scores" in namespace


def test_ci_runs_the_readme_test_command():
    commands = [code.strip() for language, code in BLOCKS if language == "sh"]
    (tests,) = [command for command in commands if command.endswith("tox")]
    assert tests in (ROOT / ".ci/run").read_text()
    assert all("-c constraints.txt" in command for command in commands if "pip install" in command)


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
    lines = [line for language, code in BLOCKS if language == "sh" for line in code.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("pyod-quadric ")]
    assert {command[0] for command in commands} == set(COMMANDS)
    for command in commands:
        assert main([*command, "--epoch-num", "1"] if command[0] == "compare" else command) == 0, capsys.readouterr().err
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 51
    assert (tmp_path / "penalty_vs_manifold.png").is_file()


def test_pictures_are_there():
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]*)\)", README):
        assert (ROOT / picture).is_file(), picture
