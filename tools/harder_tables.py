"""The tables of docs/results/harder.md: wrong labels in training, and shifted images.

`python -m tools.harder_tables` writes them anew from `results/labels` and `results/shift.json`; a
test compares them.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from snapsure.evaluation import compare
from snapsure.evaluation._archive import open_contest
from tools.fine_tuned_tables import board_table
from tools.passes_tables import ROOT, percent, replaced

PAGE = ROOT / "docs" / "results" / "harder.md"
LABELS = ROOT / "results" / "labels"
SHIFT = ROOT / "results" / "shift.json"
FINAL = "final"
WAYS = {
    "AES": "AES",
    "LES": "LES",
    "LES, 3 passes": "LES (3 passes)",
}


def labels() -> list[str]:
    """Every rival on both boards of wrong labels."""
    return board_table("wrong labels", compare(open_contest(LABELS)).boards)


def shifts() -> list[list[str]]:
    """A table per data set."""
    told: dict[str, Any] = json.loads(SHIFT.read_text())
    return [shift_table(dataset, study) for dataset, study in told.items()]


def shift_table(dataset: str, study: dict[str, Any]) -> list[str]:
    """A row per shift and severity: percent of the final softmax's E-AURC saved."""
    lines = [
        f"| {dataset}, shifted by | wrong | E-AURC × 10³ | {' | '.join(WAYS)} |",
        f"|---|--:|--:|{'--:|' * len(WAYS)}",
    ]
    for row in study["rows"]:
        name = f"{row['shift']} {row['severity']}" if row["severity"] else "nothing"
        area = f"{1e3 * np.mean(row['ways'][FINAL]['eaurc']):.1f}"
        cells = [saved(row["ways"][way]["eaurc_saved"]) for way in WAYS.values()]
        wrong = percent(float(np.mean(row["wrong"])), 1)
        lines.append(f"| {' | '.join([name, wrong, area, *cells])} |")
    return lines


def saved(networks: Sequence[tuple[float, float, float]]) -> str:
    """The mean gain, that of each network, and how many are significantly better / worse."""
    gains = [gain for gain, _, _ in networks]
    mean, *each = (f"{round(gain, 1) + 0.0:+.1f}" for gain in (sum(gains) / len(gains), *gains))
    better, worse = sum(low > 0 for _, low, _ in networks), sum(high < 0 for *_, high in networks)
    return f"{mean} ({' '.join(each)}), {better} / {f'**{worse}**' if worse else 0}"


def main() -> None:
    """Write them."""
    text = PAGE.read_text()
    for table in (labels(), *shifts()):
        text = replaced(text, table)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
