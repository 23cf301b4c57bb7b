"""Do the tests notice? Small changes of the code, each run against the tests of its own room.

    python -m tools.mutants --out mutants.jsonl            # 100 mutants, drawn by a fixed seed
    python -m tools.mutants --out mutants.jsonl --report   # what has been found so far

A mutant is a comparison turned, a number moved, a sign changed, a condition or a statement taken
away, in a copy of the tree. It is killed if a test fails: of those that are not slow first, then of
the slow ones. Stopped, it goes on where it was: what the file has is not run again. Mutants that no
test could tell from the code, judged by hand, are in `equivalent_mutants.txt`.
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt")
# Rooms of the house, and the tests that must notice.
ROOMS = {
    "metrics": ["tests/metrics"],
    "estimators": ["tests/estimators"],
    "threshold": [
        "tests/decisions/test_threshold.py",
        "tests/decisions/test_threshold_groups.py",
        "tests/decisions/test_threshold_promise.py",
    ],
    "evaluation": ["tests/evaluation"],
    "snapshots": ["tests/snapshots"],
}
# What takes longest to import is there when a process is forked for a mutant.
_LOADED = ("torch", "scipy.stats", "sklearn.datasets", "pandas")
_PATIENCE = 900  # seconds: a mutant that takes this long hangs, and has been noticed
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
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
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}


class Mutant(NamedTuple):
    """A change: its room and file, its name (where, and what became of what), and its place."""

    room: str
    path: str
    name: str
    node: int
    change: int


def mutants_of(path: Path) -> Iterator[tuple[str, int, int]]:
    """Name, node and number of every change of a file."""
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    skipped = {id(inner) for node in nodes for part in _no_code(node) for inner in ast.walk(part)}
    places = _places(tree)
    seen: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for change in range(0 if id(node) in skipped else _changes(node)):
            after = _apply(copy.deepcopy(node), change)
            name = f"{places[id(node)]}: {_line(node)}  →  {after}"
            seen[name] = seen.get(name, 0) + 1
            yield name + (f" ({seen[name]})" if seen[name] > 1 else ""), i, change


def changed(path: Path, mutant: Mutant) -> str:
    """The file's text with the change."""
    tree = ast.parse(path.read_text())
    _apply(list(ast.walk(tree))[mutant.node], mutant.change)
    return ast.unparse(ast.fix_missing_locations(tree))


def _no_code(node: ast.AST) -> Iterator[ast.AST]:
    """What says nothing that runs: types, texts of refusals, slots of f-strings."""
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
        yield node.annotation
    if isinstance(node, ast.FunctionDef) and node.returns is not None:
        yield node.returns
    if isinstance(node, ast.Raise | ast.JoinedStr):
        yield node


def _places(tree: ast.Module) -> dict[int, str]:
    """The function or class that each node is in, and the statement."""
    found: dict[int, str] = {}

    def walk(node: ast.AST, inside: str, statement: str) -> None:
        if isinstance(node, ast.stmt):
            statement = _line(node)
        found[id(node)] = f"{inside} [{statement}]"
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            inside = f"{inside}.{node.name}".lstrip(".")
        for child in ast.iter_child_nodes(node):
            walk(child, inside, statement)

    walk(tree, "", "")
    return found


def _changes(node: ast.AST) -> int:
    """How many mutants a node has."""
    if isinstance(node, ast.Compare):
        return int(type(node.ops[0]) in _COMPARISONS)
    if isinstance(node, ast.BinOp | ast.AugAssign):
        removed = isinstance(node, ast.AugAssign)
        return int(type(node.op) in _OPERATORS) + removed
    if isinstance(node, ast.Constant):
        return int(type(node.value) in (int, float, bool))
    if isinstance(node, ast.If | ast.IfExp):
        return 2
    if isinstance(node, ast.Expr):
        return int(isinstance(node.value, ast.Call))
    return int(isinstance(node, ast.BoolOp) or _is_not(node))


def _is_not(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert)


def _apply(node: ast.AST, change: int) -> str:
    """Change a node in its place; what it is now."""
    if isinstance(node, ast.Compare):
        node.ops[0] = _COMPARISONS[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp | ast.AugAssign) and change == 0 and _turns(node.op):
        node.op = _OPERATORS[type(node.op)]()
    elif isinstance(node, ast.Constant):
        value = node.value
        assert isinstance(value, int | float)
        moved = value + 1 if isinstance(value, int) or not value else value * 1.5
        node.value = not value if isinstance(value, bool) else moved
    elif isinstance(node, ast.If | ast.IfExp):
        node.test = ast.Constant(change == 0)
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd() if isinstance(node.op, ast.USub) else node.op
        if not isinstance(node.op, ast.UAdd):  # `not x` and `~x` as x
            node.operand, node.op = ast.UnaryOp(type(node.op)(), node.operand), node.op
    else:
        return _removed(node)
    return _line(node)


def _turns(op: ast.operator) -> bool:
    return type(op) in _OPERATORS


def _removed(node: ast.AST) -> str:
    """Make a statement one that does nothing."""
    for name in node._fields:
        delattr(node, name)
    node.__class__ = ast.Pass
    return "pass"


def _line(node: ast.AST) -> str:
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}"
    return ast.unparse(node).split("\n")[0]


def drawn(count: int, seed: int) -> list[Mutant]:
    """So many mutants, as many of each room, spread over its files by their size."""
    rng, chosen = random.Random(seed), []
    for place, (room, _) in enumerate(ROOMS.items()):
        every = [
            Mutant(room, path.relative_to(ROOT).as_posix(), *one)
            for path in sorted((ROOT / "src/snapsure" / room).glob("*.py"))
            for one in mutants_of(path)
        ]
        share = count // len(ROOMS) + (place < count % len(ROOMS))
        chosen += rng.sample(every, min(share, len(every)))
    return chosen


def killed(tree: Path, mutant: Mutant) -> str:
    """What noticed it: a test, or "hangs"; empty where nothing did."""
    path = tree / mutant.path
    kept = path.read_bytes()
    path.write_text(changed(path, mutant))
    try:
        return _failing(tree, mutant, "not slow and not torture") or _failing(tree, mutant, "slow")
    finally:
        path.write_bytes(kept)


def _failing(tree: Path, mutant: Mutant, marked: str) -> str:
    """The first test that fails, or how the tests ended."""
    stem = Path(mutant.path).stem.strip("_")
    files = [
        file.relative_to(tree).as_posix()
        for place in ROOMS[mutant.room]
        for file in ([tree / place] if place.endswith(".py") else (tree / place).glob("test_*.py"))
    ]
    files.sort(key=lambda file: (stem not in file, file))
    asked = ["-x", "-q", "-n", "0", "-m", marked, "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    asked += ["--tb=no", *files]
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if not child:
            _test(tree, asked, output.fileno())
        ended = _ended(child)
        if ended is None:
            return "hangs"
        if ended in (0, 5):  # 5: no test is marked so
            return ""
        output.seek(0)
        failed = [line for line in output if line.startswith(("FAILED", "ERROR"))]
    return (failed or [f"pytest ended with {ended}"])[0].split(" - ")[0].strip()


def _test(tree: Path, asked: list[str], output: int) -> NoReturn:
    """Be a process that tests the tree, and ends."""
    ended = 1
    try:
        os.setsid()
        os.chdir(tree)
        for stream in (1, 2):
            os.dup2(output, stream)
        sys.path[:0] = [str(tree / "src"), str(tree)]
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True
        ended = int(pytest.main(asked))
        sys.stdout.flush()
    finally:
        os._exit(ended)


def _ended(child: int) -> int | None:
    """What a process ends with; none if it hangs, and is ended."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def run(count: int, seed: int, rooms: list[str], out: Path) -> None:
    """Run what the file does not have yet."""
    done = {(one["path"], one["name"]) for one in _found(out)}
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"  # a process that has threads must not be forked
    for name in _LOADED:
        import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".*", "site", "results", "dist")
        shutil.copytree(ROOT, tree, ignore=ignored)
        for mutant in drawn(count, seed):
            if mutant.room not in rooms or (mutant.path, mutant.name) in done:
                continue
            by = killed(tree, mutant)
            told = {"room": mutant.room, "path": mutant.path, "name": mutant.name, "by": by}
            with out.open("a") as file:
                file.write(json.dumps(told, ensure_ascii=False) + "\n")
            print(f"{'killed' if by else 'SURVIVED':8} {mutant.path} {mutant.name}", flush=True)


def report(out: Path) -> None:
    """Print how many were noticed, room by room, and which were not."""
    found, known = _found(out), set(EQUIVALENT.read_text().splitlines())
    alive = [one for one in found if not one["by"]]
    equivalent = [one for one in alive if f"{one['path']} {one['name']}" in known]
    for room in ROOMS:
        of_room = [one for one in found if one["room"] == room]
        same = sum(one["room"] == room for one in equivalent)
        print(f"{room:10} {sum(bool(one['by']) for one in of_room)} of {len(of_room) - same}")
    for one in alive:
        word = "equivalent" if one in equivalent else "SURVIVED"
        print(f"{word} {one['path']} {one['name']}")
    told = len(found) - len(equivalent)
    print(f"{len(found) - len(alive)} of {told} killed, {len(equivalent)} equivalent")


def _found(out: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="+", choices=list(ROOMS), default=list(ROOMS))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    if not asked.report:
        run(asked.count, asked.seed, asked.rooms, asked.out)
    report(asked.out)


if __name__ == "__main__":
    main()
