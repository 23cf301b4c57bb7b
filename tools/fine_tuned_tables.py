"""The tables of docs/results/fine-tuned.md: pre-trained networks, of text and of images.

`python -m tools.fine_tuned_tables` writes them anew from `results/intents` and `results/images`; a
test compares them.
"""

from collections.abc import Mapping

import numpy as np

from snapsure.evaluation import Board, Result, compare
from snapsure.evaluation._archive import open_contest
from tools.aes_tables import RESULTS, ROOT, about
from tools.passes_tables import gain, percent, replaced

PAGE = ROOT / "docs" / "results" / "fine-tuned.md"
INTENTS, IMAGES = "intents", "images"  # studies


def queries_table() -> list[str]:
    """Every training on queries: what it fits, where it errs."""
    lines = [
        "| transformer | seed | steps | right in training | wrong of 4,500 | wrong of 5,500 |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    runs = open_contest(RESULTS / INTENTS)
    for size, told in about(INTENTS).items():
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
            cells += [f"{1e3 * row.eaurc:.2f}", "" if row.outcome == "reference" else interval(row)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def interval(row: Result) -> str:
    """A gain, bold where it is significant, and its 95 % interval."""
    return f"{gain(row)} [{row.saved.low:+.1f} … {row.saved.high:+.1f}]"


def _log_saved(row: Result) -> float:
    return -float(np.log1p(-row.saved.estimate / 100))


def images_table() -> list[str]:
    """Every training on images."""
    lines = ["| image network | seed | right in training | wrong in test |", "|---|--:|--:|--:|"]
    for name, told in about(IMAGES).items():
        for one in told:
            right, wrong = (percent(one[key], 1) for key in ("training_accuracy", "test_error"))
            lines.append(f"| {name} | {one['seed']} | {right} | {wrong} |")
    return lines


def boards() -> dict[str, Board]:
    """Every rival on every board of both studies."""
    runs = open_contest(RESULTS / INTENTS)
    found: dict[str, Board] = {}
    for size in about(INTENTS):  # each by itself: its draws depend on no other study
        found.update(compare({name: runs[name] for name in (size, f"{size}-oos")}).boards)
    found.update(compare(open_contest(RESULTS / IMAGES)).boards)
    return found


def tables(found: Mapping[str, Board]) -> list[list[str]]:
    """All tables of the page."""
    made = [queries_table(), images_table()]
    for size in about(INTENTS):
        both = {"in scope": found[size], "with out of scope": found[f"{size}-oos"]}
        made.append(board_table(f"{size}: every rival", both))
    return [*made, board_table("images: every rival", {"CIFAR-100": found[IMAGES]})]


def main() -> None:
    """Write them."""
    text = PAGE.read_text()
    for table in tables(boards()):
        text = replaced(text, table)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
