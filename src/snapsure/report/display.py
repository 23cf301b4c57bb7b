"""What was computed elsewhere, for the terminal and for notebooks; computes nothing."""

import html
from collections.abc import Mapping

from rich.table import Table

from snapsure._display import html_table
from snapsure.evaluation import Comparison
from snapsure.evaluation._methods import FINAL
from snapsure.evaluation._result import Board, Result

_FRAME = 640  # pixels of a page's height in a notebook


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


def boards_html(found: Comparison) -> str:
    """Each board as a table for a notebook: quality, gain, price and verdict of every method."""
    return "".join(_board_html(board, found.level) for board in found.every)


def _board_html(board: Board, level: float) -> str:
    heads = ("method", f"{board.measure} ×10³", "gain, %", "passes", "NLL", "Brier", "verdict")
    runs = f"{board.runs} run{'s' * (board.runs > 1)}"
    caption = (
        f"{board.name}: {runs}, {board.points:,} points. Gain: percent of the {board.measure} of "
        f"{board.reference} that is saved, with {level:.0%} intervals."
    )
    rows = [
        (
            row.method,
            f"{1e3 * getattr(row, board.metric):.2f}",
            "" if row.method == board.reference else _gain(row),
            f"{row.passes:.0f}",
            f"{row.nll:.4f}",
            f"{row.brier:.4f}",
            row.verdict,
        )
        for row in board.rows
    ]
    return html_table(caption, heads, rows, words=("method", "verdict"))


def _gain(row: Result) -> str:
    if row.gain is None:
        return "–"
    estimate, low, high = (f"{round(end, 1) + 0.0:+.1f}" for end in row.gain)  # no -0.0
    return f"{estimate} ({low} … {high})"


def framed(page: str, about: str) -> str:
    """A page inside a notebook, apart from its other cells; `about` says what is left without it.

    What shows a notebook and does not trust it takes the frame away.
    """
    return (
        f"<p>{html.escape(about)}</p>"
        f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts allow-popups" '
        f'style="width: 100%; height: {_FRAME}px; border: 1px solid #8888"></iframe>'
    )
