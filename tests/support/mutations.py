"""Small faults put into the code on purpose, and whether the tests notice them.

``python -m tests.support.mutations geometry model --sample 100`` draws so many of all possible ones in these rooms and prints
those that no test has noticed. A fault is another operator, comparison, number or truth value, a call or a statement that is
left out. The tests of the room are run, then those of the detector; for each fault in a process of its own and with a copy of
the package, so that the code itself is never changed.
"""

import argparse
import ast
import copy
import os
import random
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
SECONDS = 240  # a test that hangs has noticed the fault
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


def is_noticed(folder: Path, tests: list[str]) -> bool:
    """Run tests of a copy of the project in a process of its own; say whether one of them fails."""
    child = os.fork()
    if child == 0:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.chdir(folder)
        sys.path[:] = [str(folder), *(path for path in sys.path if path not in ("", str(ROOT)))]
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "pyod_quadric")]:
            del sys.modules[name]
        os.environ["PYTHONPATH"] = str(folder)
        import pytest

        os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])) != 0)
    deadline = time.monotonic() + SECONDS
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status != 0
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return True
        time.sleep(0.05)


def tests_of(file: Path, folder: Path) -> list[list[str]]:
    """Return what may notice a fault in a file: first its own tests, then those of its room, then some of the whole."""
    own, room = f"tests/{file.parent.name}/test_{file.stem}.py", f"tests/{file.parent.name}"
    others = [test for test in OTHERS if (folder / test).exists()]
    return [[own] if (folder / own).exists() else [], [room], others]


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
    found: Counter[tuple[str, bool]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        for name in ("pyod_quadric", "tests", "examples"):
            shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", project)
        for file, number, kind, line in drawn:
            place = project / file.relative_to(ROOT)
            code = with_fault(trees[file], number, kind)
            place.write_text(code)
            is_seen = any(is_noticed(project, tests) for tests in tests_of(file, project) if tests)
            shutil.copy(file, place)
            found[file.parent.name, is_seen] += 1
            if not is_seen:
                pairs = zip(ast.unparse(trees[file]).splitlines(), code.splitlines(), strict=False)
                new = next(new.strip() for old, new in pairs if old != new)
                print(f"{file.parent.name}/{file.name}:{line}: {kind}: {new}", flush=True)
    for room in arguments.rooms:
        print(f"{room}: {found[room, True]} of {found[room, True] + found[room, False]} noticed")


if __name__ == "__main__":
    main()
