"""Imports point one way, public names are documented, and the pinned versions agree with the declared ones."""

import ast
import importlib.metadata
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import pyod_quadric

ROOT = Path(__file__).parent.parent
# From the ground up: a module imports only modules that stand before it.
ORDER = [
    *("_version", "distributed", "_packing", "quadrics", "distances", "geometric", "objective", "projection", "moments"),
    *("lengths", "linear", "spectral", "stiefel", "constraints", "initial", "preprocessing"),
    *("disk", "parquet", "sources", "rows", "batches", "atomic"),
    *("checkpoints", "options", "training", "model", "evidence", "view", "fitting", "parameters", "speeds", "planning"),
    *("spectrum", "reservoir", "envelope", "files", "export", "threads"),
    *("contours", "plotting", "comparisons", "identification", "cutoffs", "half_half", "similarity", "scoring", "detector"),
    *("cluster", "adengine", "__init__"),
]
CLI = [
    *("errors", "columns", "arrow", "tables", "outputs", "options", "group", "fit", "score", "explain", "robustness", "duel"),
    *("compare", "info", "plan"),
]
ORDER += ["cli.__init__", *(f"cli.{name}" for name in CLI), "cli.main", "__main__"]
# Packages that a single module may import.
ONLY = {
    "dask": ["cluster"],
    "geoopt": ["stiefel", "constraints"],
    "joblib": ["threads"],
    "pyarrow": ["parquet", "cli.arrow"],
    "pyod": ["scoring"],
    "threadpoolctl": ["threads"],
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            packages = ("pyod_quadric", "pyod_quadric.cli")
            found |= {f"{node.module}.{a.name}" for a in node.names} if node.module in packages else {node.module}
    return found


PACKAGE = ROOT / "pyod_quadric"
MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_one_way(path):
    importer = name_of(path)
    assert importer in ORDER, "give the new module its place in ORDER"
    allowed = ORDER[: ORDER.index(importer)]
    for name in imports(path):
        package, _, module = name.partition(".")
        if package == "pyod_quadric":
            assert module in allowed, f"{importer} may not import {name}"
        assert importer in ONLY.get(package, [importer]), f"only {ONLY[package]} may import {package}"


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
    assert names <= {*declared(), *declared("plot"), *declared("tables"), *declared("cluster")}


def test_oldest_pins_are_the_lower_bounds():
    oldest = pins("constraints-oldest.txt")
    for name, requirement in declared().items():
        (bound,) = requirement.specifier
        assert bound.operator == ">="
        pinned = oldest[name].removeprefix("==")
        expected = "2.13.0" if name == "torch" else bound.version
        assert [*pinned.split("."), "0"][: len(expected.split("."))] == expected.split("."), name


@pytest.mark.parametrize("extra", ["", "plot", "tables", "ensemble", "onnx", "cluster", "text", "dev"])
def test_newest_pins_fit_the_declared_range(extra):
    newest = pins("constraints.txt")
    for name, requirement in declared(extra).items():
        if name != "pyod-quadric":
            assert requirement.specifier.contains(newest[name].removeprefix("==")), name


def test_version_is_the_installed_one():
    assert importlib.metadata.version("pyod-quadric") == pyod_quadric.__version__


@pytest.mark.parametrize("name", pyod_quadric.__all__)
def test_public_names_have_runnable_examples(name):
    assert "Examples\n" in getattr(pyod_quadric, name).__doc__
