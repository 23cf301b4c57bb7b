"""Every block of Python on a page runs, in order, and prints what the page says it prints.

A block is followed by what it prints in a block of text titled "Output", whose numbers must agree
to six digits. What follows from a training differs from one CPU to another: it is titled "Output of
one run" and not compared. A block of code titled "Not run: …" is left out. A page that says
`<!-- continues ../start/tutorial.md -->` runs the blocks of that page first.

`UPDATE_PAGES=1 pytest tests/test_pages.py` writes what the blocks print into the pages.
"""

import os
import re
import sys
from pathlib import Path

import pytest

from snapsure.testing import KappaContract

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r'^```python(?: title="(?P<title>[^"]*)")?\n(?P<code>.*?)^```\n'
    r'(?:\n```text title="(?P<kind>Output[^"]*)"\n(?P<output>.*?)^```\n)?',
    re.M | re.S,
)
CONTINUES = re.compile(r"<!-- continues (\S+) -->")
NUMBER = re.compile(r"[-+−]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")
ONE_RUN = "Output of one run"

# Warnings of the frameworks about themselves.
THEIRS = {
    "lightning.md": (
        "ignore::lightning.fabric.utilities.warnings.PossibleUserWarning",
        "ignore:.*LeafSpec.*:FutureWarning",
    ),
    "adapters.md": (
        "ignore:'pin_memory' argument is set as true",
        "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning",
    ),
    "transformers.md": ("ignore:'pin_memory' argument is set as true",),
    "keras.md": ("ignore:__array__ implementation doesn't accept:DeprecationWarning",),
    "mlflow.md": ("ignore:.*Any type hint is inferred as AnyType",),
}


def pages():
    for path in sorted((ROOT / "docs").rglob("*.md")):
        marks = [pytest.mark.filterwarnings(rule) for rule in THEIRS.get(path.name, ())]
        if BLOCK.search(path.read_text()):
            yield pytest.param(path, marks=marks, id=path.relative_to(ROOT).as_posix())


@pytest.mark.parametrize("page", [*pages()])
def test_the_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    text, names = page.read_text(), {"__name__": "page"}
    before = CONTINUES.search(text)
    if before:
        for block in BLOCK.finditer((page.parent / before[1]).read_text()):
            exec(block["code"], names)
        capsys.readouterr()

    def run(block):
        if (block["title"] or "").startswith("Not run: "):
            return block[0]
        line = text.count("\n", 0, block.start("code"))
        exec(compile("\n" * line + block["code"], str(page), "exec"), names)
        printed = capsys.readouterr().out
        if "UPDATE_PAGES" not in os.environ and block["kind"] != ONE_RUN:
            assert agree(printed, block["output"] or ""), printed
        kind = block["kind"] or ("Output" if before is None else ONE_RUN)
        fence = f'\n```text title="{kind}"\n{printed}```\n' if printed else ""
        return block[0][: block.end("code") - block.start()] + "```\n" + fence

    updated = BLOCK.sub(run, text)
    if "UPDATE_PAGES" in os.environ:
        page.write_text(updated)


class TestTheKappaOfThePage(KappaContract):
    """The page's own κ keeps the contract that the page tells readers to test."""

    def make(self, inputs, labels):
        page = (ROOT / "docs" / "how-to" / "own-kappa.md").read_text()
        names = {"__name__": "page"}
        code = next(b["code"] for b in BLOCK.finditer(page) if "class Lead" in b["code"])
        exec(code.split("\n\ntable = ")[0], names)
        return names["Lead"]()


def agree(printed, expected):
    """Whether two outputs have the same words, and the same numbers to six digits."""
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", expected).split():
        return False
    ours, theirs = (
        [float(number.replace(",", "").replace("−", "-")) for number in NUMBER.findall(text)]
        for text in (printed, expected)
    )
    return ours == pytest.approx(theirs, rel=1e-6, abs=1e-9)
