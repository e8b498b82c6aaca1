"""The code in the README runs, and its commands are those that CI runs."""

import re
from pathlib import Path

import pytest

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


def test_pictures_are_there():
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]*)\)", README):
        assert (ROOT / picture).is_file(), picture
