"""Small faults put into the code on purpose, and whether the tests notice them.

``python -m tests.support.mutations geometry model --sample 100`` draws so many of all possible ones in these rooms and prints
those that no test has noticed, and the share of the others. A fault is another operator, comparison, number or truth value, a
condition that is turned round, or a statement that is left out.

First the tests run without a fault, since tests that fail anyway would notice everything. That also shows which functions each
test calls, and how long it takes. For a fault, the tests run that call its function, the shortest first, until one fails. Each
fault has a process of its own and is put into a copy of the package, so that the code itself is never changed.

``--only model/linear.py:56 --tests tests/model`` tries all faults of a line again, by some tests.
"""

import argparse
import ast
import copy
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
KINDS = ("operator", "number", "truth", "statement", "negation")
OTHERS = [
    *("tests/fitting/test_fit.py", "tests/detector/test_explanations.py", "tests/detector/test_detector.py"),
    *("tests/detector/test_far_out.py", "tests/detector/test_odd_numbers.py", "tests/detector/test_equivariance.py"),
]
# Loaded once, and not in each process.
LIBRARIES = "hypothesis numpy scipy.stats torch pyod.models.base sklearn.mixture geoopt mpmath pandas"
Calls = dict[str, tuple[float, list[list[Any]]]]  # seconds of each test, and the functions that it calls: file, line


class Selection:
    """A plugin of pytest: run these tests and no others, in this order."""

    def __init__(self, names: list[str]) -> None:
        self._places = {name: place for place, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave out the others."""
        items[:] = sorted((item for item in items if item.nodeid in self._places), key=lambda item: self._places[item.nodeid])


class Recorder:
    """A plugin of pytest: keep the seconds of each test, and the functions of the package that it calls."""

    def __init__(self, folder: Path) -> None:
        self.calls: Calls = {}
        self._package = f"{folder / 'pyod_quadric'}{os.sep}"
        self._seen: set[tuple[str, int]] = set()

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(self._package):
            self._seen.add((code.co_filename.removeprefix(self._package), code.co_firstlineno))

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> None:
        """Begin anew."""
        self._seen, self._began = set(), time.process_time()
        threading.settrace(self._note)
        sys.settrace(self._note)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Keep what was called."""
        sys.settrace(None)
        threading.settrace(None)
        self.calls[nodeid] = time.process_time() - self._began, sorted(self._seen)


def faults_in(tree: ast.Module) -> Iterator[tuple[int, str, int]]:
    """Yield the number of the node, the kind and the line of each fault that can be put into a module."""
    told = [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in ast.walk(tree) if _is_told(node)]
    for number, node in enumerate(ast.walk(tree)):
        line = getattr(node, "lineno", 0)
        if not any(line in lines for lines in told):
            yield from ((number, kind, line) for kind in KINDS if _put_in(copy.deepcopy(node), kind))


def with_fault(tree: ast.Module, number: int, kind: str) -> str:
    """Return the code of a module with a fault."""
    changed = copy.deepcopy(tree)
    _put_in(next(node for place, node in enumerate(ast.walk(changed)) if place == number), kind)
    return ast.unparse(ast.fix_missing_locations(changed))


def _is_told(node: ast.AST) -> bool:
    """Say whether a node is an error, a warning, a report or a type, whose words tests need not know."""
    name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    return isinstance(node, ast.Raise | ast.AnnAssign) or name.endswith(("warn", "field", "count", "counted", "stage"))


def _put_in(node: Any, kind: str) -> bool:
    """Change a node in place, if that kind of fault can be put into it."""
    if kind == "operator":
        if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in OPERATORS:
            node.op = OPERATORS[type(node.op)]()
            return not (
                isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant | ast.JoinedStr) and _is_text(node.left)
            )
        if isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
            node.ops[0] = OPERATORS[type(node.ops[0])]()  # type: ignore[call-overload]
            return True
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            node.op = ast.UAdd()
            return True
        return False
    if kind == "number" and isinstance(node, ast.Constant) and type(node.value) in (int, float):
        node.value = node.value + 1 if type(node.value) is int else node.value * 2 + (node.value == 0)
        return True
    if kind == "truth" and isinstance(node, ast.Constant) and type(node.value) is bool:
        node.value = not node.value
        return True
    if kind == "negation" and isinstance(node, ast.If | ast.IfExp | ast.While):
        node.test = ast.UnaryOp(op=ast.Not(), operand=node.test)
        return True
    if kind == "statement" and isinstance(node, ast.FunctionDef | ast.For | ast.If | ast.With):
        return _leave_out(node.body)
    return False


def _leave_out(body: list[ast.stmt]) -> bool:
    """Leave out the first statement that does something and names nothing new."""
    for place, statement in enumerate(body):
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not is_text and isinstance(statement, ast.Expr | ast.AugAssign | ast.Raise):
            body[place] = ast.Pass()
            return True
    return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def function_of(tree: ast.Module, line: int) -> int | None:
    """Return the first line of the innermost function that holds a line, or None."""
    holders = [
        (min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]), node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]
    return max((first for first, last in holders if first <= line <= last), default=None)


def tests_of(file: Path, function: int | None, calls: Calls, most_seconds: float) -> list[list[str]]:
    """Return the tests that call a function of a file, or any if None: those of the file, and as many others as time allows.

    The shortest come first. They are two lists, since most faults are noticed by the first one. What no test calls is called
    when the file is imported.
    """
    where = f"{file.parent.name}/{file.name}"
    if not any([where, function] in functions for _, functions in calls.values()):
        function = None
    own: list[str] = []
    others: list[str] = []
    total = 0.0
    for name, (seconds, functions) in sorted(calls.items(), key=lambda item: item[1][0]):
        if any(path == where and function in (None, line) for path, line in functions):
            if name.startswith((f"tests/{file.parent.name}/test_{file.stem}.py", f"pyod_quadric/{where}")):
                own.append(name)
            elif (total := total + seconds) < most_seconds:
                others.append(name)
    return [tests for tests in (own, others) if tests]


def run(folder: Path, files: list[str], plugin: Any, cpu_seconds: float) -> str:
    """Run tests of a copy of the project in a process of its own; say whether they have "passed", "failed" or "hung"."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_seconds), int(cpu_seconds) + 5))
        nowhere = os.open(os.devnull if isinstance(plugin, Selection) else folder / "tests.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.chdir(folder)
        sys.path[:] = [str(folder), *(path for path in sys.path if path not in ("", str(ROOT)))]
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "pyod_quadric")]:
            del sys.modules[name]
        os.environ["PYTHONPATH"] = str(folder)
        if isinstance(plugin, Selection):  # the code may change twice in a second, which the time of a file does not show
            sys.dont_write_bytecode = True
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        code = 1
        try:
            quiet = ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
            code = int(pytest.main([*quiet, *files], plugins=[plugin]))
            if isinstance(plugin, Recorder):
                (folder / "calls.json").write_text(json.dumps(plugin.calls))
        except BaseException:  # which must not end what the parent has begun
            traceback.print_exc()
        os._exit(int(code != 0))
    # A busy machine takes longer; tests that wait for something that does not come have noticed the fault.
    deadline = time.monotonic() + 10 * cpu_seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            is_over = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
            return "hung" if is_over else "passed" if status == 0 else "failed"
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hung"
        time.sleep(0.05)


def calls_without_fault(folder: Path, tests: list[str]) -> Calls:
    """Run tests without a fault; return the functions that each of them calls."""
    if (result := run(folder, tests, Recorder(folder), 3600)) != "passed":
        print((folder / "tests.txt").read_text()[-2000:])
        sys.exit(f"the tests have {result} without a fault")
    calls: Calls = json.loads((folder / "calls.json").read_text())
    return calls


def result_of(folder: Path, tests: list[list[str]], calls: Calls) -> str:
    """Say what the tests do with the fault that is in the copy of the project."""
    for some in tests:
        files = list(dict.fromkeys(name.partition("::")[0] for name in some))
        seconds = 40 + 3 * sum(calls[name][0] for name in some)
        if (result := run(folder, files, Selection(some), seconds)) != "passed":
            return result
    return "passed"


def share(part: int, whole: int) -> str:
    """Return a share in per cent, and the 95 % interval of Wilson."""
    z, p = 1.96, part / whole
    middle, half = p + z * z / (2 * whole), z * (p * (1 - p) / whole + z * z / (4 * whole * whole)) ** 0.5
    low, high = ((middle + sign * half) / (1 + z * z / whole) for sign in (-1, 1))
    return f"{100 * p:.0f} % ({100 * low:.0f} to {100 * high:.0f} %)"


def main() -> None:
    """Draw faults, run the tests with each, and print what nobody has noticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rooms", nargs="+")
    parser.add_argument("--sample", type=int, nargs="+", default=[100], help="faults of each room, or of all of them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip", type=int, default=0, help="faults of the first room that an interrupted run has tried")
    parser.add_argument("--seconds", type=float, default=60, help="of tests of other files for a fault at most")
    parser.add_argument("--calls", type=Path, help="where to keep what tests call, for another run")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="all faults of a line, such as model/linear.py:56, or model/linear.py:56:number",
    )
    parser.add_argument("--tests", action="append", default=[], help="files or folders of tests; those of the rooms, if none")
    arguments = parser.parse_args()
    for name in LIBRARIES.split():
        with suppress(ImportError):
            __import__(name)
    sys.modules["torch"].set_num_threads(1)  # threads do not survive a fork
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder).resolve()
        for name in ("pyod_quadric", "tests", "examples", "docs"):
            shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__", "*.png"))
        for name in ("pyproject.toml", "README.md", "CHANGELOG.md"):
            shutil.copy(ROOT / name, project)
        tests = arguments.tests or [f"{what}/{room}" for room in arguments.rooms for what in ("tests", "pyod_quadric")] + OTHERS
        if arguments.calls and arguments.calls.exists():
            calls = json.loads(arguments.calls.read_text())
        else:
            calls = calls_without_fault(project, list(dict.fromkeys(tests)))
        if arguments.calls:
            arguments.calls.write_text(json.dumps(calls))
        print(f"{len(calls)} tests, {sum(seconds for seconds, _ in calls.values()):.0f} s", flush=True)
        for place, room in enumerate(arguments.rooms):
            try_room(project, room, calls, arguments, arguments.sample[min(place, len(arguments.sample) - 1)])
            arguments.skip = 0


def try_room(project: Path, room: str, calls: Calls, arguments: argparse.Namespace, sample: int) -> None:
    """Draw faults of a room, and print what comes of each."""
    trees = {file: ast.parse(file.read_text()) for file in sorted((project / "pyod_quadric" / room).glob("*.py"))}
    possible = [(file, *fault) for file, tree in trees.items() for fault in faults_in(tree)]
    if arguments.only:
        wanted = tuple(f"{only}:" for only in arguments.only)
        drawn = [fault for fault in possible if f"{room}/{fault[0].name}:{fault[3]}:{fault[2]}:".startswith(wanted)]
    else:
        drawn = random.Random(arguments.seed).sample(possible, min(sample, len(possible)))
    print(f"{room}: {len(drawn)} of {len(possible)} faults", flush=True)
    found: Counter[str] = Counter()
    for number, (file, node, kind, line) in list(enumerate(drawn, 1))[arguments.skip :]:
        sound, code = file.read_text(), with_fault(trees[file], node, kind)
        tests = tests_of(file, function_of(trees[file], line), calls, arguments.seconds)
        file.write_text(code)
        result = result_of(project, tests, calls) if tests else "passed"
        file.write_text(sound)
        found[result] += 1
        new = ""
        if result == "passed":
            pairs = zip(ast.unparse(trees[file]).splitlines(), code.splitlines(), strict=False)
            new = f": SURVIVED {sum(map(len, tests))} tests: " + next(
                (new.strip() for old, new in pairs if old != new), "the last line"
            )
        print(f"{number} {result} {room}/{file.name}:{line}: {kind}{new}", flush=True)
    n = found.total()
    if n:
        noticed = n - found["passed"]
        print(f"{room}: {noticed} of {n} noticed, {share(noticed, n)}, {found['hung']} by tests that did not end", flush=True)


if __name__ == "__main__":
    main()
