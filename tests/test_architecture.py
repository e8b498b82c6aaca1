"""The architecture: rooms in one order, each package behind one door, a map that is complete, and versions that agree."""

import ast
import configparser
import importlib
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import pyod_quadric

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "pyod_quadric"
MODULES = sorted(PACKAGE.rglob("*.py"))

# From the ground up: what is in a room imports from its own room and from rooms that stand before it.
ROOMS = [
    *("_version", "allowed", "parameters", "progress", "geometry", "parallel", "storage", "data", "model", "training"),
    *("fitting", "similarity", "plotting", "export", "detector", "report", "cluster", "adengine", "cli", "__main__"),
]
# Packages with a single door, or none but these.
DOORS = {
    "pyarrow": ["data"],
    "tqdm": ["progress", "cli"],
    "geoopt": ["training"],
    "pyod": ["detector"],
    "dask": ["cluster"],
    "joblib": ["parallel"],
    "threadpoolctl": ["parallel"],
    "safetensors": ["storage"],
    "matplotlib": ["plotting"],
    "plotly": ["report"],
}


def imports(path: Path) -> set[str]:
    """Return what a module imports, by dotted names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def room_of(path: Path) -> str:
    return name_of(path).partition(".")[0]


@pytest.mark.parametrize("path", [path for path in MODULES if path != PACKAGE / "__init__.py"], ids=name_of)
def test_imports_go_one_way(path):
    room = room_of(path)
    for package, _, rest in (name.partition(".") for name in imports(path)):
        if package == "pyod_quadric":
            other = rest.partition(".")[0]
            assert other in ("__version__", *ROOMS[: ROOMS.index(room) + 1]), f"{room} may not import from {other}"
        assert room in DOORS.get(package, [room]), f"only {DOORS[package]} may import {package}"


def test_what_a_fit_has_learnt_cannot_be_changed():
    classes = [node for path in MODULES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
    decorated = {(node.name, ast.unparse(one)) for node in classes for one in node.decorator_list}
    of_data = {(name, decorator) for name, decorator in decorated if decorator.startswith("dataclass")}
    assert len(of_data) > 30
    assert [name for name, decorator in of_data if "frozen=True" not in decorator] == []


def test_geometry_needs_torch_alone():
    for path in (PACKAGE / "geometry").glob("*.py"):
        outside = {name.partition(".")[0] for name in imports(path)} - set(__import__("sys").stdlib_module_names)
        assert outside <= {"torch", "pyod_quadric"}
        assert all(name.startswith("pyod_quadric.geometry") for name in imports(path) if name.startswith("pyod_quadric"))


def test_only_parallel_talks_to_other_processes():
    assert {room_of(path) for path in MODULES if any(name.startswith("torch.distributed") for name in imports(path))} == {
        "parallel"
    }


@pytest.mark.parametrize("room", [None, *(room for room in ROOMS if (PACKAGE / room).is_dir())])
def test_maps_name_every_room_and_every_module(room):
    folder = PACKAGE / room if room else PACKAGE
    names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    doc = importlib.import_module(f"pyod_quadric.{room}" if room else "pyod_quadric").__doc__
    for name in names - {"__init__", "__main__", "_version"}:
        assert f"``{name}``" in doc, f"the map of {folder.name} does not name {name}"


def test_the_root_is_small():
    assert len(list(PACKAGE.glob("*.py"))) <= 12


def test_tests_mirror_the_rooms_and_share_helpers_in_one_place():
    folders = {path.name for path in (ROOT / "tests").iterdir() if (path / "__init__.py").is_file()}
    assert folders == {*(room for room in ROOMS if (PACKAGE / room).is_dir()), "detector", "support"}
    for path in (ROOT / "tests").rglob("*.py"):
        others = {name for name in imports(path) if name.startswith("tests.")}
        assert all(name.startswith("tests.support") for name in others), path


def test_promised_paths_exist():
    for path in ("model.Model", "export.ScoreModule", "similarity.RobustSimilarity", "training.train", "plotting.plot_scores"):
        module, _, name = path.partition(".")
        assert hasattr(importlib.import_module(f"pyod_quadric.{module}"), name), path


def test_packages_are_imported_when_they_are_needed():
    lines = [
        "import sys, pyod_quadric",
        "assert not {'torch', 'pyod', 'sklearn', 'scipy', 'numpy'} & set(sys.modules)",
        "detector = pyod_quadric.QuadricDetector().fit([[0.0, 1.0], [1.0, 0.5], [2.0, 2.0], [3.0, 1.0]])",
        "assert not {'geoopt', 'dask', 'plotly', 'pyod_quadric.plotting', 'pyod_quadric.similarity'} & set(sys.modules)",
        "print(len(detector.decision_scores_))",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert done.stdout == "4\n", done.stderr


def test_public_names_come_without_warnings_and_without_geoopt():
    lines = [
        "import sys, pyod_quadric",
        "names = set(pyod_quadric.__all__) - {'CholeskyStiefel'}",  # which is a manifold of geoopt's
        "found = {name: getattr(pyod_quadric, name) for name in names}",
        "rows = [[i % 7, i % 5, (i * i) % 11] for i in range(60)]",
        "for parameters in ({}, {'epoch_num': 2, 'constraint': 'penalty'}):",
        "    found['QuadricDetector'](**parameters).fit(rows).decision_function(rows)",
        "assert 'geoopt' not in sys.modules",
    ]
    command = [sys.executable, "-W", "error", "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_type_checkers_see_the_public_names():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {(node.module, alias.name) for node in block.body for alias in node.names}
    assert seen == {(module, name) for name, module in pyod_quadric._MODULES.items()}


def declared(extra: str = "") -> dict[str, Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return {requirement.name: requirement for requirement in map(Requirement, lines)}


def pins(name: str) -> dict[str, str]:
    lines = [line.partition("#")[0].strip() for line in (ROOT / name).read_text().splitlines()]
    return {Requirement(line).name: str(Requirement(line).specifier) for line in lines if line}


def test_every_import_is_a_declared_dependency():
    distributions = importlib.metadata.packages_distributions()
    standard = set(__import__("sys").stdlib_module_names)
    used = {name.partition(".")[0] for path in MODULES for name in imports(path)} - standard - {"pyod_quadric"}
    # Packages of extras need not be installed everywhere.
    names = {distribution for package in used for distribution in distributions.get(package, [])}
    assert names <= {*declared(), *declared("plot"), *declared("tables"), *declared("report"), *declared("cluster")}


def test_oldest_pins_are_the_lower_bounds():
    oldest = pins("constraints-oldest.txt")
    for name, requirement in declared().items():
        (bound,) = requirement.specifier
        assert bound.operator == ">="
        pinned = oldest[name].removeprefix("==")
        expected = "2.13.0" if name == "torch" else bound.version
        assert [*pinned.split("."), "0"][: len(expected.split("."))] == expected.split("."), name


@pytest.mark.parametrize("extra", ["", "plot", "tables", "report", "ensemble", "onnx", "cluster", "text", "dev"])
def test_newest_pins_fit_the_declared_range(extra):
    newest = pins("constraints.txt")
    for name, requirement in declared(extra).items():
        if name != "pyod-quadric":
            assert requirement.specifier.contains(newest[name].removeprefix("==")), name


def test_a_release_is_built_by_files_that_are_named_by_hash():
    lines = [line for line in (ROOT / ".ci" / "release.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[\w-]+==[\w.]+( --hash=sha256:[0-9a-f]{64})+", line)] == []
    pinned = dict(line.split()[0].split("==") for line in lines)
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for requirement in map(Requirement, ["build", *needed]):
        assert requirement.specifier.contains(pinned[requirement.name])
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    release = tox["testenv:release"]
    assert "--require-hashes" in release["install_command"]
    assert release["deps"].strip() == "-r {tox_root}/.ci/release.txt"
    assert "build --no-isolation" in release["commands"]  # isolated, pip would fetch others
    assert "constraints.txt" in tox["testenv:audit"]["commands"]


def test_version_is_the_installed_one():
    assert importlib.metadata.version("pyod-quadric") == pyod_quadric.__version__


@pytest.mark.parametrize("name", pyod_quadric.__all__)
def test_public_names_have_runnable_examples(name):
    assert "Examples\n" in getattr(pyod_quadric, name).__doc__
