"""Help comes before anything heavy is imported, and every command is a module of its own."""

import os
import subprocess
import sys
from importlib import import_module

import pytest

from pyod_quadric.cli.parser import COMMANDS, FLAT, RARE, as_typed, build_parser, parameters_in

HEAVY = ("torch", "pyod", "sklearn", "scipy", "numpy", "pandas", "pyarrow", "matplotlib", "geoopt")
SCRIPT = """
import sys
from pyod_quadric.cli.main import main

status = main(sys.argv[2:])
print(status, *(name for name in sys.argv[1].split(",") if name in sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("line", "status"),
    [("--help", 0), ("--version", 0), ("", 2), ("fit rows.npy", 2), *((f"{name} --help", 0) for name in COMMANDS)],
)
def test_nothing_heavy_is_imported_to_parse(line, status):
    command = [sys.executable, "-c", SCRIPT, ",".join(HEAVY), *line.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    assert done.stderr.splitlines()[-1] == str(status)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_run(name):
    assert callable(import_module(f"pyod_quadric.cli.{name}").run)


@pytest.mark.parametrize(("name", "entry"), {**FLAT, **RARE}.items(), ids={**FLAT, **RARE})
def test_defaults_can_be_typed(name, entry):
    """What the help shows as the default means the default."""
    line = ["fit", "rows.npy", "-o", "model", f"--{name.replace('_', '-')}={as_typed(entry.default)}"]
    found = parameters_in(build_parser().parse_args(line))
    value = found[name] if name in FLAT else found["training_options"][name]
    assert (type(value), value) == (type(entry.default), entry.default)
