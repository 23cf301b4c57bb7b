"""Boards of a contest as tables (terminal, Markdown, LaTeX) and as a plot; computes nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from snapsure.contest import Comparison
from snapsure.contest._comparison import Board, Row
from snapsure.metrics import Interval

_HEADS = (
    "method",
    "E-AURC",
    "AURC",
    "AUGRC",
    "NLL",
    "Brier",
    "error",
    "passes",
    "snapshots",
    "MB",
    "gain",
    "p",
    "behind the best",
    "verdict",
)


_LATEX = {sign: rf"\{sign}" for sign in "%_&#{}$"} | {
    "κ": r"$\kappa$",
    "…": r"\dots{}",
    "<": "$<$",
    ">": "$>$",
    "^": r"\^{}",
    "~": r"\~{}",
    "\\": r"\textbackslash{}",
}


def boards_of(comparison: Comparison) -> list[Board]:
    """What is to be shown, the board over all data sets first."""
    pooled = [] if comparison.pooled is None else [comparison.pooled]
    return [*pooled, *comparison.boards.values()]


def caption(board: Board, comparison: Comparison) -> str:
    """What a board's numbers are."""
    runs = f"{board.runs} runs" if board.runs > 1 else "1 run (intervals are of its points alone)"
    return (
        f"{board.name}: {runs}, {board.points:,} points. Areas × 10³. Gain: percent of the E-AURC "
        f"of {board.reference}; {comparison.level:.0%} intervals of {comparison.resamples:,} "
        "paired resamples; p corrected by Holm."
    )


def as_table(board: Board, comparison: Comparison) -> Table:
    """For a terminal."""
    table = Table(title=caption(board, comparison), title_justify="left", title_style="")
    for head in _HEADS:
        table.add_column(head, justify="left" if head in ("method", "verdict") else "right")
    for row in board.rows:
        table.add_row(*map(escape, _cells(row)))
    return table


def as_markdown(comparison: Comparison) -> str:
    """Every board as a table of GitHub's Markdown."""
    parts = []
    for board in boards_of(comparison):
        lines = [caption(board, comparison), ""]
        lines.append(f"| {' | '.join(_HEADS)} |")
        lines.append("|" + "|".join("---" if h in ("method", "verdict") else "--:" for h in _HEADS))
        lines[-1] += "|"
        for row in board.rows:
            cells = (cell.replace("|", r"\|") for cell in _cells(row))
            lines.append(f"| {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def as_latex(comparison: Comparison) -> str:
    """Every board as a `tabular` with the rules of booktabs; verdicts are left to the text."""
    parts = []
    for board in boards_of(comparison):
        lines = [f"% {caption(board, comparison)}", r"\begin{tabular}{l" + "r" * 12 + "}"]
        lines += [r"\toprule", _latex_line(_HEADS[:-1]), r"\midrule"]
        lines += [_latex_line(_cells(row)[:-1]) for row in board.rows]
        lines += [r"\bottomrule", r"\end{tabular}"]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def plot(comparison: Comparison, path: Path) -> None:
    """Gain against price, a panel per board."""
    from matplotlib.figure import Figure

    boards = boards_of(comparison)
    figure = Figure(figsize=(8, 3.6 * len(boards)), layout="constrained")
    for i, board in enumerate(boards, 1):
        axes = figure.add_subplot(len(boards), 1, i)
        edge = -max(5.0, *(row.gain.estimate for row in board.rows))
        for row in board.rows:
            # As far below the reference as the best is above it; what is further is in the table.
            mark = "o" if row.gain.estimate >= edge else "v"
            height = max(row.gain.estimate, edge)
            axes.plot(row.passes, height, mark, color=_colour(row.method), markersize=5)
        for row in _told(board):
            # Names of what costs one pass stand left of it: there is room, and on the right are
            # those of two and three passes.
            left = row.passes < 1.5
            axes.annotate(
                row.method,
                (row.passes, max(row.gain.estimate, edge)),
                xytext=(-5 if left else 5, -9 if row.method == board.reference else 3),
                ha="right" if left else "left",
                textcoords="offset points",
                fontsize=7,
            )
        axes.axhline(0, color="0.6", linewidth=0.8)
        axes.set_xscale("log")
        axes.margins(x=0.25, y=0.12)
        axes.set_title(board.name, fontsize=9, loc="left")
        axes.set_xlabel("forward passes per answer")
        axes.set_ylabel(f"% less E-AURC than {board.reference}")
    figure.savefig(path, dpi=130)


def _told(board: Board) -> list[Row]:
    """Rows with a name in the plot: the best at each price, and the reference."""
    best: dict[float, Row] = {}
    for row in board.rows:
        best.setdefault(round(row.passes), row)
    return [*best.values(), board[board.reference]]


def _colour(method: str) -> str:
    kinds = {"AES": "#0072b2", "PES": "#009e73", "LES": "#d55e00"}
    return next((colour for kind, colour in kinds.items() if method.startswith(kind)), "0.35")


def _cells(row: Row) -> list[str]:
    numbers: list[tuple[float, Callable[[float], str]]] = [
        (row.eaurc, _thousandths),
        (row.aurc, _thousandths),
        (row.augrc, _thousandths),
        (row.nll, "{:.3f}".format),
        (row.brier, "{:.3f}".format),
        (row.error, "{:.1%}".format),
        (row.passes, "{:.0f}".format),
        (row.snapshots, "{:.0f}".format),
    ]
    size = "" if row.bytes is None else f"{row.bytes / 1e6:.1f}"
    is_reference = row.verdict.startswith("the reference")
    return [
        row.method,
        *(form(value) for value, form in numbers),
        size,
        "" if is_reference else _interval(row.gain),
        "" if is_reference else _p(row.p_holm),
        "" if row.verdict.endswith("the best here") else _interval(row.behind),
        row.verdict,
    ]


def _thousandths(value: float) -> str:
    return f"{1e3 * value:.2f}"


def _interval(interval: Interval) -> str:
    estimate, low, high = (f"{round(end, 1) + 0.0:+.1f}" for end in interval)  # no -0.0
    return f"{estimate} ({low} … {high})"


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def _latex_line(cells: Any) -> str:
    return " & ".join("".join(_LATEX.get(sign, sign) for sign in cell) for cell in cells) + r" \\"
