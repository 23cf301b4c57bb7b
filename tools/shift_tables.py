"""The tables of images under a shift, in docs/results/which-score.md.

`python -m tools.shift_tables` writes them anew from `results/shift.json`, once there is one; a test
compares them.
"""

import json
from typing import Any

from tools.contest_tables import PAGE
from tools.passes_tables import ROOT, percent, replaced

FOUND = ROOT / "results" / "shift.json"
FINAL = "softmax"
WAYS = {
    "AES": "AES of softmax",
    "LES": "LES of softmax",
    "LES, 3 passes": "LES in 3 passes of softmax",
}


def found() -> dict[str, Any]:
    """What is committed, by data set."""
    told: dict[str, Any] = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    return told


def table(dataset: str, study: dict[str, Any]) -> list[str]:
    """A row per shift and severity: percent of the final softmax's E-AURC saved, and how sure."""
    lines = [
        f"| {dataset}, shifted by | wrong | E-AURC × 10³ | {' | '.join(WAYS)} |",
        f"|---|--:|--:|{'--:|' * len(WAYS)}",
    ]
    for row in study["rows"]:
        name = f"{row['shift']} {row['severity']}" if row["severity"] else "nothing"
        area = f"{1e3 * row['ways'][FINAL]['eaurc']:.1f}"
        cells = [saved(row["ways"][way]) for way in WAYS.values()]
        lines.append(f"| {' | '.join([name, percent(row['wrong'], 1), area, *cells])} |")
    return lines


def saved(way: dict[str, Any]) -> str:
    """A gain, bold where it is significant, and its 95 % interval."""
    estimate, low, high = way["eaurc_saved"]
    written = f"{round(estimate, 1) + 0.0:+.1f}"
    bold = f"**{written}**" if way["eaurc_p"] < 0.05 else written
    return f"{bold} [{low:+.1f} … {high:+.1f}]"


def page(text: str) -> str:
    """The page with these tables."""
    for dataset, study in found().items():
        text = replaced(text, table(dataset, study))
    return text


def main() -> None:
    """Write them."""
    PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    main()
