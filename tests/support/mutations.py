"""Small faults put into the code on purpose, and whether the tests notice them.

``python -m tests.support.mutations geometry model --sample 100`` draws so many of all possible ones in these rooms and prints
those that no test has noticed, and the share of the others. A fault is another operator, comparison, number or truth value, a
condition that is turned round, or a statement that is left out. The tests of the module are run, then those of the room with
few examples, then some of the whole; for each fault in a process of its own and with a copy of the package, so that the code
itself is never changed. First the same tests run without a fault, since tests that fail anyway would notice everything.
"""

import argparse
import ast
import copy
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
CPU_SECONDS = 240  # of a process: a busy machine takes longer, and has noticed nothing by that
SECONDS = 1800  # tests that hang have noticed the fault
KINDS = ("operator", "number", "truth", "statement", "negation")
OTHERS = ["tests/fitting/test_fit.py", "tests/detector/test_explanations.py", "tests/detector/test_detector.py"]


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


def result_of(folder: Path, tests: list[str], profile: str) -> str:
    """Run tests of a copy of the project in a process of its own; say whether they have "passed", "failed" or "hung"."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.chdir(folder)
        sys.path[:] = [str(folder), *(path for path in sys.path if path not in ("", str(ROOT)))]
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "pyod_quadric")]:
            del sys.modules[name]
        os.environ |= {"PYTHONPATH": str(folder), "HYPOTHESIS_PROFILE": profile}
        import pytest

        os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])) != 0)
    deadline = time.monotonic() + SECONDS
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


def tests_of(file: Path, folder: Path) -> list[tuple[list[str], str]]:
    """Return what may notice a fault in a file, and with which profile: its own tests, those of its room, some of the whole.

    Tests of the room with few examples may miss what they would notice with all of them, so that the share is rather too small.
    """
    own, room = f"tests/{file.parent.name}/test_{file.stem}.py", f"tests/{file.parent.name}"
    others = [test for test in OTHERS if (folder / test).exists()]
    return [([own], "always")] * (folder / own).exists() + [([room], "few"), (others, "few")]


def results(file: Path, folder: Path) -> Iterator[str]:
    """Yield what the tests of a file say, as long as they pass."""
    for tests, profile in tests_of(file, folder):
        result = result_of(folder, tests, profile)
        yield result
        if result != "passed":
            return


def main() -> None:
    """Draw faults, run the tests with each, and print what nobody has noticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rooms", nargs="+")
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    files = [file for room in arguments.rooms for file in sorted((ROOT / "pyod_quadric" / room).glob("*.py"))]
    trees = {file: ast.parse(file.read_text()) for file in files}
    possible = [(file, *fault) for file, tree in trees.items() for fault in faults_in(tree)]
    drawn = random.Random(arguments.seed).sample(possible, min(arguments.sample, len(possible)))
    print(f"{len(drawn)} of {len(possible)} faults", flush=True)

    # Once, and not in each process.
    import pyod.models.base  # noqa: F401
    import pytest  # noqa: F401
    import sklearn.mixture  # noqa: F401
    import torch

    torch.set_num_threads(1)  # threads do not survive a fork
    found: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        for name in ("pyod_quadric", "tests", "examples", "docs"):
            shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__", "*.png"))
        for name in ("pyproject.toml", "README.md", "CHANGELOG.md"):
            shutil.copy(ROOT / name, project)
        for file in {file.parent: file for file in files}.values():  # one of each room
            if (result := list(results(file, project))[-1]) != "passed":
                parser.error(f"the tests of {file.parent.name} have {result} without a fault")
        for file, number, kind, line in drawn:
            place = project / file.relative_to(ROOT)
            code = with_fault(trees[file], number, kind)
            place.write_text(code)
            result = list(results(file, project))[-1]
            shutil.copy(file, place)
            found[file.parent.name, result] += 1
            if result == "passed":
                pairs = zip(ast.unparse(trees[file]).splitlines(), code.splitlines(), strict=False)
                new = next(new.strip() for old, new in pairs if old != new)
                print(f"{file.parent.name}/{file.name}:{line}: {kind}: {new}", flush=True)
    for room in arguments.rooms:
        failed, hung, passed = (found[room, result] for result in ("failed", "hung", "passed"))
        print(f"{room}: {failed + hung} of {failed + hung + passed} noticed, {hung} of them by tests that did not end")


if __name__ == "__main__":
    main()
