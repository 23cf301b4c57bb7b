"""Boards of a contest as tables (terminal, Markdown, LaTeX) and as a plot; computes nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from snapsure.evaluation import Comparison
from snapsure.evaluation._result import Board, Result
from snapsure.metrics import Interval
from snapsure.report import pictures

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
    "trainings",
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
    return comparison.every


def caption(board: Board, comparison: Comparison) -> str:
    """What a board's numbers are."""
    runs = f"{board.runs} runs" if board.runs > 1 else "1 run (intervals are of its points alone)"
    return (
        f"{board.name}: {runs}, {board.points:,} points. Areas × 10³. Gain: percent of the "
        f"{board.measure} of {board.reference}; {comparison.level:.0%} intervals of "
        f"{comparison.resamples:,} paired resamples; p corrected by Holm."
    )


def as_table(board: Board, comparison: Comparison) -> Table:
    """For a terminal."""
    table = Table(title=caption(board, comparison), title_justify="left", title_style="")
    for head in _HEADS:
        side: Any = "left" if head in ("method", "verdict") else "right"
        table.add_column(head, justify=side, no_wrap=head == "method")
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
        lines = [
            f"% {caption(board, comparison)}",
            r"\begin{tabular}{l" + "r" * (len(_HEADS) - 2) + "}",
        ]
        lines += [r"\toprule", _latex_line(_HEADS[:-1]), r"\midrule"]
        lines += [_latex_line(_cells(row)[:-1]) for row in board.rows]
        lines += [r"\bottomrule", r"\end{tabular}"]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def plot(comparison: Comparison, path: Path) -> None:
    """Gain against price, a panel per board."""
    pictures.save(pictures.boards(boards_of(comparison), comparison.level), path)


def _cells(row: Result) -> list[str]:
    numbers: list[tuple[float, Callable[[float], str]]] = [
        (row.eaurc, _thousandths),
        (row.aurc, _thousandths),
        (row.augrc, _thousandths),
        (row.nll, "{:.3f}".format),
        (row.brier, "{:.3f}".format),
        (row.error, "{:.1%}".format),
        (row.passes, "{:.0f}".format),
        (row.snapshots, "{:.0f}".format),
        (row.trainings, "{:g}".format),
    ]
    size = "" if row.bytes is None else f"{row.bytes / 1e6:.1f}"
    is_reference = row.verdict.startswith("the reference")
    return [
        row.method,
        *(form(value) for value, form in numbers),
        size,
        "" if is_reference else _interval(row.saved),
        "" if is_reference or row.p_holm is None else _p(row.p_holm),
        "" if row.verdict.endswith("the best here") or not row.behind else _interval(row.behind),
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
