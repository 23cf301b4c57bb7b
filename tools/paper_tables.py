"""The paper's tables on the pages of results/, as `snapsure reproduce` wrote them.

`python -m tools.paper_tables` puts each into its place, which a comment names:
`<!-- cifar100-cpu-full/table1 -->`; and `<!-- cpu-full/summary -->`, all of them in one. A test
compares them.
"""

import json
import re
from pathlib import Path
from typing import Any

from snapsure.paper.tables import published

RESULTS = Path(__file__).parent.parent / "results"
PAGES = (RESULTS / "README.md",)
_SUMMARY = "cpu-full/summary"
_SETS = {"cifar100": "CIFAR-100", "cifar10": "CIFAR-10"}
_AVERAGED = {
    "softmax": "softmax response",
    "nn_distance": "NN-distance",
    "mc_dropout_variance": "MC-dropout, variance",
    "mc_dropout": "MC-dropout, mean",
    "ensemble": "an ensemble",
}
_COMPARED = {
    "pes_paper": "PES to the letter",
    "pes": "PES",
    "les": "LES (ours)",
    "les_in_3": "LES in 3 passes (ours)",
}
_PLACE = re.compile(r"^<!-- ([\w-]+/\w+) -->\n+(?:\|.*\n)*\n*", re.M)


def filled(page: Path) -> str:
    """A page with every table as it is in its folder."""
    return _PLACE.sub(lambda place: f"<!-- {place[1]} -->\n\n{_rows(place[1])}\n", page.read_text())


def summary() -> str:
    """What AES, PES and LES gain: the paper's, and ours."""
    head, rows = ["percent less E-AURC"], [["*test error, %*"]]
    rows += [[f"AES of {of}"] for of in _AVERAGED.values()] + [[of] for of in _COMPARED.values()]
    for name, title in _SETS.items():
        folder = RESULTS / f"{name}-cpu-full"
        networks, first, third = (
            json.loads((folder / f"{part}.json").read_text())
            for part in ("networks", "table1", "table3")
        )
        head += [f"{title}: paper", "ours"]
        cells = [_errors(name, networks["test_error"])]
        cells += [_averaged(name, kappa, first.get(kappa)) for kappa in _AVERAGED]
        cells += [_compared(name, method, third) for method in _COMPARED]
        for row, more in zip(rows, cells, strict=True):
            row += more
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _errors(dataset: str, ours: list[float]) -> list[str]:
    paper = published()["validation_error_percent"][dataset]
    return [f"*{paper}*", f"*{100 * min(ours):.1f} … {100 * max(ours):.1f}*"]


def _averaged(dataset: str, kappa: str, row: Any) -> list[str]:
    """A κ of table 1, at k = 30."""
    paper = published()["table1_aes"][dataset].get(kappa)
    theirs = _signed(100 * (1 - paper["k30"] / paper["baseline"])) if paper else ""
    return [theirs, _ours(row["k30"], row["final"]) if row else ""]


def _compared(dataset: str, method: str, table: Any) -> list[str]:
    """A method of table 3."""
    paper = published()["table3_pes_softmax"][dataset]["improvement_percent"]
    theirs = _signed(paper) if method == "pes_paper" else ""
    return [theirs, _ours(table[method], table["final"])]


def _ours(found: Any, final: Any) -> str:
    """The gain with its interval on one line, bold where that excludes 0."""
    _, most, least = (-100 * end / final["eaurc"] for end in found["difference"])
    told = f"{_signed(found['gain'])} ({_signed(least)} … {_signed(most)})"
    told = told.replace(" ", "\N{NO-BREAK SPACE}")
    return f"**{told}**" if least * most > 0 else told


def _signed(percent: float) -> str:
    return f"{percent:+.1f}".replace("-", "−")


def _rows(name: str) -> str:
    """A table without its title."""
    if name == _SUMMARY:
        return summary()
    lines = (RESULTS / f"{name}.md").read_text().splitlines(keepends=True)
    return "".join(line for line in lines if line.startswith("|"))


def main() -> None:
    """Write all pages."""
    for page in PAGES:
        page.write_text(filled(page))


if __name__ == "__main__":
    main()
