"""The paper's tables on the pages of results/, as `snapsure reproduce` wrote them.

`python -m tools.paper_tables` puts each into its place, which a comment names:
`<!-- cifar100-cpu-full/table1 -->`; a test compares them.
"""

import re
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "results"
PAGES = (RESULTS / "README.md", RESULTS / "cifar100-cpu" / "README.md")
_PLACE = re.compile(r"^<!-- ([\w-]+/\w+) -->\n+(?:\|.*\n)*\n*", re.M)


def filled(page: Path) -> str:
    """A page with every table as it is in its folder."""
    return _PLACE.sub(lambda place: f"<!-- {place[1]} -->\n\n{_rows(place[1])}\n", page.read_text())


def _rows(name: str) -> str:
    """A table without its title."""
    lines = (RESULTS / f"{name}.md").read_text().splitlines(keepends=True)
    return "".join(line for line in lines if line.startswith("|"))


def main() -> None:
    """Write all pages."""
    for page in PAGES:
        page.write_text(filled(page))


if __name__ == "__main__":
    main()
