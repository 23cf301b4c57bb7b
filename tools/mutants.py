"""Change the code a little, and see whether the tests notice: `python -m tools.mutants`.

Draws places of the source at random, makes one change at each, and runs the tests that reach it.
The changes are PIT's default ones in Python's terms (boundaries, negated conditions, arithmetic,
removed calls, returned values), `and` for `or`, and True for False. Not changed: annotations,
decorators, strings and numbers, 1 << 16 among them; nor what only asserts, as in PIT: the `strict`
of a zip, and imports for type checkers.

The first run finds out which of the quick tests reach which lines, which takes some minutes, and
keeps it in `.mutants/`. Delete that folder when code or tests have changed. A change that these do
not notice meets all tests of its room and of the commands, the slow ones too, but no slow ones of
other rooms.

Not mutmut, which forks after the tests have run: a fork hangs after PyTorch has used several
threads.
"""

import ast
import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated, Any

import typer

SOURCE = Path("src/snapsure")
CACHE = Path(".mutants")
_FIRST = 30  # tests that run before the others: most changes are noticed by one of the fastest
_SIGNATURES = "tests/test_signatures.py"
_COMMANDS = Path("tests/cli")
_LISTED = "tests.txt"
_LONGEST = 1800.0  # seconds that all tests of a room may take
_PYTEST = ["-q", "-x", "-n", "0", "-p", "no:randomly", "-p", "no:cacheprovider"]
_PYTEST += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is imported before

_COMPARE: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
}
_COMPUTE: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


@dataclass(frozen=True)
class Mutant:
    """One change: `number` counts the changes of its file."""

    path: str
    number: int
    line: int
    lines: tuple[int, ...]  # of its statement, or of its function where that runs at import
    before: str
    after: str

    def __str__(self) -> str:
        """Return where it is and what it changes."""
        return f"{self.path}:{self.line}: {self.before} → {self.after}"


def find_changes(
    tree: ast.Module,
) -> Iterator[tuple[ast.stmt, ast.FunctionDef | None, ast.AST, ast.AST]]:
    """Yield every change of a file: its statement and function, a node, and what replaces it."""

    def visit(
        node: ast.AST, statement: ast.stmt, function: ast.FunctionDef | None
    ) -> Iterator[tuple[ast.stmt, ast.FunctionDef | None, ast.AST, ast.AST]]:
        if _only_asserts(node):
            return
        if isinstance(node, ast.stmt):
            statement = node
        for other in _find_alternatives(node):
            yield statement, function, node, other
        if isinstance(node, ast.FunctionDef):
            function = node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from visit(child, statement, function)

    for statement in tree.body:
        yield from visit(statement, statement, None)


def _only_asserts(node: ast.AST) -> bool:
    """Whether a part of the code changes nothing while the code is right."""
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.keyword(arg="strict", value=ast.Constant(value=True)):
            return True
    return False


def _find_alternatives(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand in the place of a node."""

    def changed(**fields: Any) -> ast.AST:
        other = copy.copy(node)
        for name, value in fields.items():
            setattr(other, name, value)
        return other

    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                for kind in _COMPARE[type(op)]:
                    yield changed(ops=[*ops[:i], kind(), *ops[i + 1 :]])
        case ast.BinOp(left=ast.Constant(), right=ast.Constant()):
            pass
        case ast.BinOp(op=op) | ast.AugAssign(op=op):
            if type(op) in _COMPUTE:
                yield changed(op=_COMPUTE[type(op)]())
        case ast.BoolOp(op=op):
            yield changed(op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield changed(value=not value)
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield changed(value=ast.Constant(None))
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            if not isinstance(test, ast.Compare | ast.UnaryOp | ast.Constant):
                yield changed(test=ast.UnaryOp(ast.Not(), test))


def find_mutants(path: Path) -> Iterator[Mutant]:
    """Yield every change of a file."""
    for number, (statement, function, node, other) in enumerate(
        find_changes(ast.parse(path.read_text()))
    ):
        end = statement.end_lineno or statement.lineno
        if isinstance(body := getattr(statement, "body", None), list):
            end = max(statement.lineno, body[0].lineno - 1)
        lines = tuple(range(statement.lineno, end + 1))
        if statement is function:  # its defaults
            lines = tuple(range(function.body[0].lineno, (function.end_lineno or 0) + 1))
        texts = [_shorten(ast.unparse(ast.fix_missing_locations(one))) for one in (node, other)]
        yield Mutant(str(path), number, getattr(node, "lineno", statement.lineno), lines, *texts)


def _shorten(text: str) -> str:
    return text.split("\n")[0][:70]


def mutate(mutant: Mutant) -> str:
    """Return the file with one change."""
    tree = ast.parse(Path(mutant.path).read_text())
    _, _, node, other = [*find_changes(tree)][mutant.number]

    class Replace(ast.NodeTransformer):
        def visit(self, one: ast.AST) -> Any:
            return other if one is node else self.generic_visit(one)

    return ast.unparse(ast.fix_missing_locations(Replace().visit(tree)))


class Watch:
    """A plugin of pytest that keeps which lines each test reaches, and how long it takes.

    Coverage's own files do not survive tests that fill disks.
    """

    def __init__(self) -> None:
        from coverage import Coverage  # which `make mutants` installs

        self._coverage = Coverage(data_file=None, source=[str(SOURCE)])
        self._times: dict[str, float] = {}

    def pytest_sessionstart(self) -> None:
        """Begin before the package is imported."""
        self._coverage.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Say whose lines come next."""
        if sys.gettrace() is None:  # a test has taken it away
            self._coverage.stop()
            self._coverage.start()
        self._coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add the times of setting up, running and cleaning up."""
        self._times[report.nodeid] = self._times.get(report.nodeid, 0) + report.duration

    def pytest_sessionfinish(self, session: Any) -> None:
        """Write what this process has seen."""
        self._coverage.stop()
        data = self._coverage.get_data()
        lines = {
            str(Path(path).relative_to(Path.cwd())): data.contexts_by_lineno(path)
            for path in data.measured_files()
        }
        name = session.config.workerinput["workerid"]
        (CACHE / f"{name}.json").write_text(json.dumps({"lines": lines, "times": self._times}))


def pytest_configure(config: Any) -> None:
    """Watch the tests of a worker: this module is pytest's plugin in `measure`."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Watch())


def measure(workers: int) -> None:
    """Run the quick tests, and keep which lines each reaches and how long it takes."""
    CACHE.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "-p", "tools.mutants"]
    subprocess.run([*command, "-m", "not slow and not torture"], check=True)


class Tests:
    """Which tests reach a change, the fastest first."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._reached: dict[str, dict[int, set[str]]] = {}
        for path in CACHE.glob("*.json"):
            seen = json.loads(path.read_text())
            self._times |= seen["times"]
            for name, lines in seen["lines"].items():
                for line, tests in lines.items():
                    reached = self._reached.setdefault(name, {}).setdefault(int(line), set())
                    reached.update(tests)

    def reaching(self, mutant: Mutant) -> Iterator[tuple[list[str], float]]:
        """Yield tests that may notice a change, and the seconds they may take.

        First the fastest that reach its lines, then the others that do. At last those of
        signatures, which see what is made at import, and of its room and the commands, which may
        start processes.
        """
        by_line = self._reached.get(mutant.path, {})
        found = {test for line in mutant.lines for test in by_line.get(line, ())}
        reaching = sorted(found & self._times.keys(), key=self._times.__getitem__)
        for some in (reaching[:_FIRST], reaching[_FIRST:]):
            if some:
                yield some, 120 + 5 * sum(self._times[test] for test in some)
        room = Path("tests") / Path(mutant.path).relative_to(SOURCE).parts[0]
        rooms = sorted({room, _COMMANDS} if room.is_dir() else {_COMMANDS})
        yield [_SIGNATURES, *map(str, rooms)], _LONGEST


class Tree:
    """A copy of the project in which changes are tried, in a process of its own.

    Each try is a fork of that process, which has imported what takes long: PyTorch, with one
    thread, and pytest.
    """

    def __init__(self, folder: Path) -> None:
        ignored = shutil.ignore_patterns(".git", ".venv", ".mutants", ".*_cache", "__pycache__")
        self._folder = Path(shutil.copytree(".", folder, ignore=ignored))
        context = get_context("spawn")  # forks of a process with threads may hang
        self._process = ProcessPoolExecutor(1, context, _import, (str(self._folder),))

    def notices(self, mutant: Mutant, tests: Sequence[str], seconds: float) -> bool:
        """Whether one of some tests fails, or takes too long, with a change."""
        path = self._folder / mutant.path
        before = path.read_text()
        path.write_text(mutate(mutant))
        try:
            return self.fails(tests, seconds)
        finally:
            path.write_text(before)

    def fails(self, tests: Sequence[str], seconds: float) -> bool:
        """Whether one of some tests fails, or takes too long, with the code as it is here."""
        (self._folder / _LISTED).write_text("\n".join(tests))
        return self._process.submit(_tests_fail, seconds).result()


def _import(folder: str) -> None:
    """Prepare a process that forks for each try."""
    os.chdir(folder)
    source = str(Path("src").resolve())
    os.environ.update(CI="true", PYTHONPATH=source, PYTHONDONTWRITEBYTECODE="1")
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    sys.path[:0] = [folder, source]
    sys.dont_write_bytecode = True
    for name in ("hypothesis", "numpy", "pytest", "scipy.optimize", "torch", "typer"):
        import_module(name)


def _tests_fail(seconds: float) -> bool:
    """Whether the listed tests fail, or take longer than that, in a fork of this process."""
    child = os.fork()
    if not child:
        status = 1
        try:
            os.setsid()
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            status = int(import_module("pytest").main([*_PYTEST, f"@{_LISTED}"]))
        finally:
            os._exit(status)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status != 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def main(
    seed: Annotated[int, typer.Option(help="What the draw follows from.")] = 0,
    count: Annotated[int, typer.Option(help="Changes to draw.")] = 100,
    only: Annotated[str, typer.Option(help="Files, below src/snapsure.")] = "*",
    workers: Annotated[int, typer.Option(help="Changes tried at once.")] = 2,
) -> None:
    """Draw changes, and list those that no test notices."""
    if not CACHE.exists():
        measure(workers)
    tests = Tests()
    files = sorted(
        path for path in SOURCE.rglob("*.py") if fnmatch(str(path.relative_to(SOURCE)), only)
    )
    every = [mutant for path in files for mutant in find_mutants(path)]
    drawn = random.Random(seed).sample(every, min(count, len(every)))
    typer.echo(f"{len(drawn)} of {len(every):,} changes, seed {seed}")

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        trees = SimpleQueue[Tree]()
        for i in range(workers):
            trees.put(Tree(Path(folder) / str(i)))

        passing = set[str]()  # tests, all of a room, that were seen to pass without a change

        def is_killed(mutant: Mutant) -> bool:
            tree, killed = trees.get(), False
            try:
                for some, seconds in tests.reaching(mutant):
                    if not tree.notices(mutant, some, seconds):
                        continue
                    killed = True
                    rooms = {one for one in some if "::" not in one} - passing
                    if rooms and tree.fails(sorted(rooms), seconds):
                        raise typer.BadParameter(f"{rooms} must pass without a change")
                    passing.update(rooms)
                    break
            finally:
                trees.put(tree)
            typer.echo(f"{'killed  ' if killed else 'SURVIVED'} {mutant}")
            return killed

        killed = sum(pool.map(is_killed, drawn))
    typer.echo(f"{killed} of {len(drawn)} killed")


if __name__ == "__main__":
    typer.run(main)
