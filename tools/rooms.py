"""The rooms of the package and what each imports, as the table in CONTRIBUTING.md.

`python tools/rooms.py` prints it; a test compares it with what stands there.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "snapsure"


def room_of(path: Path) -> str:
    """The folder or file of the package that a path belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def edges() -> dict[str, set[str]]:
    """Each room, and the rooms that it imports from."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if path != PACKAGE / "__init__.py":
            others = found.setdefault(room_of(path), set())
            others |= {name for name in _imported(path) if name != room_of(path)}
    return found


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "snapsure":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("snapsure."):
            yield str(node.module).split(".")[1]


def in_order(graph: dict[str, set[str]]) -> list[str]:
    """Rooms so that each comes after those it imports from; a cycle is refused."""
    order: list[str] = []
    while len(order) < len(graph):
        ready = [r for r in graph if r not in order and graph[r] <= {*order}]
        if not ready:
            left = {room: graph[room] - {*order} for room in graph if room not in order}
            raise SystemExit(f"rooms must not import in a circle, got {left}")
        order += ready
    return order


def table() -> str:
    """Markdown: what a room is for, and what it imports."""
    graph = edges()
    lines = ["| room | what it is for | imports from |", "|---|---|---|"]
    order = in_order(graph)
    for room in order:
        path = PACKAGE / f"{room}.py"
        path = path if path.exists() else PACKAGE / room / "__init__.py"
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        others = ", ".join(f"`{name}`" for name in order if name in graph[room])
        lines.append(f"| `{room}` | {said.splitlines()[0]} | {others} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
