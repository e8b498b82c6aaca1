"""PyOD's own tests of its detectors, run on :class:`QuadricDetector`: the class is replaced in each, and all else stays.

A test file that says ``from pyod.models.knn import KNN`` gets ``QuadricDetector`` for ``KNN``, and asks of it whatever it asks
of KNN: labels, thresholds, probabilities, rejection, clones, files, ensembles. Arguments that mean nothing to it are left out
when a detector is made, since nearly all tests begin with some; tests of these arguments fail. What is about another kind of
detector (graphs, time series, labels, a single feature) is not run, and ensembles stay as they are, with replaced members.

PyOD's packages have no tests, so give a checkout of its repository:

    git clone --depth 1 https://github.com/yzhao062/pyod
    python -m examples.benchmarks.pyod_own_tests pyod

The tests run against the PyOD that is installed, in some minutes. ``--original`` runs them without a replacement, to see which
fail for other reasons. Nothing of them is kept here.
"""

import argparse
import ast
import importlib
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyod.models.base import BaseDetector

from examples.benchmarks._common import markdown_table
from pyod_quadric import QuadricDetector

# Kinds of detectors that have other input than rows without labels, and those that are made of others.
OTHER_KINDS = ("audio_ae", "base", "base_dl", "devnet", "embedding", "feature_bagging", "lscp", "mad", "suod", "xgbod")
OTHER_BEGINNINGS = ("pyg_", "ts_")
# Parameters that mean the same everywhere. (A GMM's n_components, say, are no coordinates.)
SHARED = ("contamination", "random_state", "verbose", "batch_size", "lr", "device")
# What a failure is called, by what its message or the name of the test has in it; the first that fits counts.
REASONS = {
    "a package that is not installed": ("ModuleNotFoundError",),
    "arguments that were left out": ("not raised", "DID NOT RAISE", "not triggered", "'novelty'", "unexpected keyword"),
    "attributes or methods of another detector": ("has no attribute", "hasattr(", "test_parameters", "test_invocation"),
    "sparse rows": ("Sparse data",),
    "rows that are all equal": ("all rows are equal",),
    "training rows are scored out of fold": ("test_train_scores_match_decision_function",),
    "ties of ranks": ("test_predict_rank",),
}


def detectors_of(path: Path) -> set[tuple[str, str]]:
    """Return modules and names of the detectors of rows that a test file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        short = module.removeprefix("pyod.models.")
        if short == module or short in OTHER_KINDS or short.startswith(OTHER_BEGINNINGS):
            continue
        classes = vars(_imported(module))
        found |= {(module, alias.name) for alias in node.names if _is_detector(classes.get(alias.name))}
    return found


def _imported(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError:  # a package that this detector needs is not installed
        return ModuleType(module)


def _is_detector(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseDetector)


class WithoutForeignArguments(type(QuadricDetector)):  # type: ignore[misc]
    """Classes that are called with the arguments of others, and leave out what means nothing to them."""

    def __call__(cls, *_: Any, **arguments: Any) -> Any:
        """Make a detector with the arguments that it shares; those of a clone are all its own."""
        is_clone = arguments.keys() == QuadricDetector().get_params().keys()
        return super().__call__(**{name: value for name, value in arguments.items() if is_clone or name in SHARED})


class Replacement(QuadricDetector, metaclass=WithoutForeignArguments):
    """What takes the place of PyOD's classes."""


class Outcomes:
    """A plugin of pytest that counts, and remembers why tests failed."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: dict[str, list[tuple[str, str]]] = defaultdict(list)  # by reason, tests and messages

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the outcome of a test, or of what failed or was skipped before it; parts of tests are not counted."""
        if type(report) is not pytest.TestReport:
            return
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            message = (crash.message if crash else str(report.longrepr)).strip()
            test = report.nodeid.rpartition("/")[2]
            self.failures[reason_of(test, message)].append((test, " ".join(message.split())[:300]))


def reason_of(test: str, message: str) -> str:
    """Return the reason of a failure, or the beginning of its message."""
    for reason, parts in REASONS.items():
        if any(part in message or part in test for part in parts):
            return reason
    return message.splitlines()[0][:100]


def main(checkout: Path, original: bool = False, only: str = "") -> Outcomes:
    """Run the tests, print a table, and return what came of them."""
    tests = checkout / "pyod" / "test"
    paths = {path: detectors_of(path) for path in sorted(tests.glob("test_*.py"))}
    paths = {path: classes for path, classes in paths.items() if classes}
    if not paths:
        raise SystemExit(f"{checkout} must be a checkout of PyOD with tests in pyod/test; its packages have none")
    outcomes = Outcomes()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        shutil.copytree(tests, Path(folder) / "tests")  # so that the PyOD beside them is not imported
        for module, name in sorted(set.union(*paths.values())) if not original else []:
            patch.setattr(f"{module}.{name}", Replacement)
        copies = [str(Path(folder) / "tests" / path.name) for path in paths]
        arguments = ["-q", "--tb=no", "--no-header", "-c", "/dev/null", f"--rootdir={folder}", "--import-mode=importlib"]
        pytest.main([*arguments, "-p", "no:cacheprovider", "-W", "ignore", "-k", only, *copies], plugins=[outcomes])
    classes = len(set.union(*paths.values()))
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.counts.items())
    done = "as they are" if original else "replaced"
    print(f"\nPyOD {version('pyod')}, {len(paths)} test files, {classes} classes {done}: {counts}")
    rows = [
        [reason, len(failed), ", ".join(sorted({test.partition("::")[0] for test, _ in failed}))]
        for reason, failed in sorted(outcomes.failures.items(), key=lambda item: -len(item[1]))
    ]
    print(f"\n{markdown_table(['reason', 'tests', 'where'], rows)}" if rows else "")
    for failed in outcomes.failures.values():
        for test, message in failed:
            print(f"{test}: {message}", file=sys.stderr)
    return outcomes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="of PyOD's repository")
    parser.add_argument("--original", action="store_true", help="run the tests on PyOD's own classes")
    parser.add_argument("--only", default="", help="tests that fit this expression, as of pytest's -k")
    main(**vars(parser.parse_args()))
