"""The tables of the study of fine-tuned text, in docs/results/intents.md.

`python -m tools.intents_tables` writes them anew from `results/intents`, `results/contest` and
`results/cifar100-cpu*`; a test compares them.
"""

from collections.abc import Mapping

import numpy as np

from snapsure.evaluation import compare
from snapsure.evaluation._result import Board, Result
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


def board_table(title: str, boards: Mapping[str, Board]) -> list[str]:
    """Every method that all boards have, the best over all first."""
    heads = " | ".join(f"{head}: E-AURC × 10³ | gain, %" for head in boards)
    lines = [f"| {title} | passes | {heads} |", f"|---|--:|{'--:|--:|' * len(boards)}"]
    first, *others = boards.values()
    names = [
        row.method
        for row in first.rows
        if all(row.method in [one.method for one in board.rows] for board in others)
    ]
    best = sorted(names, key=lambda name: -sum(_log_saved(one[name]) for one in boards.values()))
    for name in best:
        cells = [name, f"{first[name].passes:.0f}"]
        for board in boards.values():
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
        made.append(networks_table())
        for size in about():
            both = {
                "in scope": found.boards[size],
                "with out of scope": found.boards[f"{size}-oos"],
            }
            made.append(board_table(f"{size}: every rival", both))
    return made


def main() -> None:
    """Write them."""
    text = PAGE.read_text()
    for table in tables():
        text = replaced(text, table)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
