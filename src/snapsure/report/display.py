"""What was computed elsewhere as a table for the terminal; computes nothing."""

from collections.abc import Mapping

from rich.table import Table

from snapsure.evaluation import Comparison
from snapsure.evaluation._methods import FINAL
from snapsure.evaluation._result import Result


def results_table(found: Mapping[str, Comparison], title: str) -> Table:
    """E-AURC × 10³ of each κ and method, with what it gains and how sure that is.

    `found` are evaluations by whose they are; one's own needs no name.
    """
    table = Table(title=title, caption="Δ is method − final κ: below 0 is better")
    for heading, side in (
        ("κ", "left"),
        ("method", "left"),
        ("E-AURC ×10³", "right"),
        ("final", "right"),
        ("gain", "right"),
        ("Δ ×10³ [95 %]", "right"),
        ("NLL", "right"),
        ("Brier", "right"),
    ):
        table.add_column(heading, justify=side, no_wrap=True)  # type: ignore[arg-type]
    boards = [
        (f"{whose}: {name}" if whose else name, board)
        for whose, each in found.items()
        for name, board in each.boards.items()
    ]
    several = any(board.runs > 1 for _, board in boards)
    if several:
        table.add_column("gain of each seed, %", justify="right", no_wrap=True)
    for name, board in boards:
        for i, row in enumerate(board.rows):
            gain = "" if row.gain is None else f"{row.gain.estimate:+.1f} %"
            low, high = row.difference.low * 1e3, row.difference.high * 1e3
            table.add_row(
                name if i == 0 else "",
                row.method,
                f"{row.eaurc * 1e3:.2f}",
                f"{row.reference_eaurc * 1e3:.2f}",
                "" if row.method == FINAL else gain,
                "" if row.method == FINAL else f"{low:+.2f} … {high:+.2f}",
                f"{row.nll:.4f}",
                f"{row.brier:.4f}",
                *_gains(row, several),
            )
        table.add_section()
    return table


def _gains(row: Result, several: bool) -> list[str]:
    if not several:
        return []
    gains = ("–" if gain is None else f"{gain:+.0f}" for gain in row.gains)
    return ["" if row.method == FINAL else " ".join(gains)]
