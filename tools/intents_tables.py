"""The tables of the study of fine-tuned text, in docs/results/intents.md.

`python -m tools.intents_tables` writes them anew from `results/intents`, `results/contest` and
`results/cifar100-cpu*`; a test compares them.
"""

import numpy as np

from snapsure.evaluation import Comparison, compare
from snapsure.evaluation._result import Result
from tools.intents_record import (
    ROOT,
    about,
    intents,
    others,
    record_of,
    record_table,
    rules_table,
    starts,
    starts_table,
)
from tools.passes_tables import gain, percent, replaced

PAGE = ROOT / "docs" / "results" / "intents.md"


def networks_table() -> list[str]:
    """Every training: what it fits, where it errs."""
    lines = [
        "| network | seed | steps | right in training | wrong of 4,500 | wrong of 5,500 |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    runs = intents()
    for size, told in about().items():
        for one, run in zip(told, runs[f"{size}-oos"], strict=True):
            steps = max(row["step"] for row in one["log"])
            cells = [size, one["seed"], f"{steps:,}", percent(one["training_accuracy"], 1)]
            cells += [percent(one["test_error"], 1), percent(run.table.errors.mean(), 1)]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def board_table(found: Comparison, size: str) -> list[str]:
    """Every method on both boards of a size, the best over both first."""
    boards = [found.boards[size], found.boards[f"{size}-oos"]]
    lines = [
        f"| {size} | passes | in scope: E-AURC × 10³ | gain, % | "
        "with out of scope: E-AURC × 10³ | gain, % |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    names = [row.method for row in boards[0].rows]
    for name in sorted(names, key=lambda name: -sum(_log_saved(one[name]) for one in boards)):
        cells = [name, f"{boards[0][name].passes:.0f}"]
        for board in boards:
            row = board[name]
            cells += [f"{1e3 * row.eaurc:.2f}", "" if name == board.reference else interval(row)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def interval(row: Result) -> str:
    """A gain, bold where it is significant, and its 95 % interval."""
    return f"{gain(row)} [{row.saved.low:+.1f} … {row.saved.high:+.1f}]"


def _log_saved(row: Result) -> float:
    return -float(np.log1p(-row.saved.estimate / 100))


def tables() -> list[list[str]]:
    """All tables of the page; those of fine-tuned networks once there are some."""
    ours = intents()
    everything = {**ours, **others()}
    moved = starts(everything)
    record = record_of(moved, everything)
    made = [starts_table(moved), record_table(record), rules_table(record)]
    if ours:
        found = compare(ours)
        made += [networks_table(), *(board_table(found, size) for size in about())]
    return made


def main() -> None:
    """Write them."""
    text = PAGE.read_text()
    for table in tables():
        text = replaced(text, table)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
