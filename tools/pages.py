"""What the documentation site adds to the files in docs/: a hook of MkDocs, named in mkdocs.yml.

- Reference pages that are made from the code: the API room by room, and the command line.
- Files of the repository that pages link to (the README, results, examples, sources). A page links
  to them as in a clone; on the site the same link leads to a copy.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import File, Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "snapsure"

# Where files from outside docs/ stand on the site; all others stand below source/.
PLACES = {
    "README.md": "index.md",
    "examples": "start/examples.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "results/README.md": "results/paper.md",
    "benchmarks/decisions.md": "results/decisions.md",
    "benchmarks/monitor.md": "results/monitor.md",
    "benchmarks/scale.md": "results/scale.md",
}
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")
_FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
_FLAG = re.compile(r" *# doctest: .*$", re.M)
_UNTITLED = "      show_root_heading: false\n      show_root_toc_entry: false\n"
_UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the reference pages, and whatever pages link to outside docs/."""
    from mkdocs.structure.files import File

    made = {f"reference/api/{room}.md": api_page(room) for room in [*rooms(), *MODULES]}
    made["reference/cli.md"] = cli_page()
    for uri, content in made.items():
        files.append(File.generated(config, uri, content=content))
    for path in linked():
        files.append(_copy(config, path))
    return files


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Lead links to where files stand on the site; hide what only doctest reads."""
    source = next((ROOT / path for path, uri in PLACES.items() if uri == page.file.src_uri), None)
    source = source or DOCS / page.file.src_uri

    def moved(link: re.Match[str]) -> str:
        target = _within(source.parent / link[1])
        return os.path.relpath(place_of(target), Path(page.file.src_uri).parent)

    return _FENCED.sub(lambda block: _FLAG.sub("", block[0]), _outside_fences(moved, markdown))


def _outside_fences(moved: "Callable[[re.Match[str]], str]", markdown: str) -> str:
    parts, end = [], 0
    for block in _FENCED.finditer(markdown):
        parts += [_LINK.sub(moved, markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, _LINK.sub(moved, markdown[end:])])


def linked() -> list[str]:
    """What stands on the site from outside docs/: `PLACES`, and what pages link to."""
    pages = [*sorted(DOCS.rglob("*.md")), *(ROOT / path for path in PLACES if path.endswith(".md"))]
    found = dict.fromkeys(PLACES)
    for page in pages:
        for link in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
            target = _within(page.parent / link)
            if not target.startswith("docs/"):
                found[target] = None
    return [*found]


def place_of(path: str) -> str:
    """Where a file of the repository stands on the site, as MkDocs names its sources."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    uri = PLACES.get(path, f"source/{path}")
    return uri.removesuffix(".py") + ".md" if uri.endswith(".py") else uri


def _within(path: Path) -> str:
    """A path in the repository, from its root."""
    return Path(os.path.normpath(path)).relative_to(ROOT).as_posix()


def _copy(config: "MkDocsConfig", path: str) -> "File":
    """A page or a file as it is; code becomes a page, and so does a folder of code."""
    from mkdocs.structure.files import File

    file, uri = ROOT / path, place_of(path)
    if file.is_dir():
        scripts = sorted(file.glob("[!_]*.py"))
        content = "# Examples\n\n" + "\n".join(_code(script, "## ") for script in scripts)
    elif file.suffix == ".py":
        content = _UNSEARCHED + _code(file, "# ")
    else:
        return File.generated(config, uri, abs_src_path=str(file))
    return File.generated(config, uri, content=content)


def _code(file: Path, heading: str) -> str:
    return f"{heading}{_within(file)}\n\n```python\n{file.read_text(encoding='utf-8')}```\n"


# Modules that are imported by their full names.
MODULES = (
    "errors",
    "integrations.lightning",
    "integrations.transformers",
    "integrations.keras",
    "integrations.sklearn",
    "integrations.trees",
    "integrations.torchmetrics",
    "integrations.mlflow",
    "testing",
)


def rooms() -> dict[str, list[str]]:
    """Give the public names of each room, in full; those of `snapsure` itself come first."""
    top = _imported_names(PACKAGE / "__init__.pyi")
    found = {}
    for room in top:
        if (facade := PACKAGE / room / "__init__.py").exists():
            names = _imported_names(facade)
            found[room] = [f"snapsure.{name}" for name in names if name in top]
            found[room] += [f"snapsure.{room}.{name}" for name in names if name not in top]
    return found


def _imported_names(path: Path) -> list[str]:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return [alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names]


def api_page(room: str) -> str:
    """Markdown for mkdocstrings: the public names of a room, or a module."""
    if room in MODULES:
        return f"# snapsure.{room}\n\n::: snapsure.{room}\n    options:\n{_UNTITLED}"
    about = f"::: snapsure.{room}\n    options:\n      members: false\n" + _UNTITLED
    return "\n".join([f"# {room}\n", about, *(f"::: {name}\n" for name in rooms()[room])])


def cli_page() -> str:
    """Every command and option, as Typer's own documentation of it says."""
    command = [sys.executable, "-m", "typer", "snapsure.cli", "utils", "docs"]
    run = subprocess.run(
        [*command, "--name", "snapsure", "--title", "The command line"],
        capture_output=True,
        text=True,
        check=True,
    )
    # Its list of commands cuts their sentences off; they stand below in full.
    return re.sub(r"\*\*Commands\*\*:\n\n(\*.*\n)+\n", "", run.stdout)
