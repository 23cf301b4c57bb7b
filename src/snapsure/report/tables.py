"""Tables: one type, and one function for each place that shows it.

A `Table` holds values and says how each column is written. `to_terminal`, `to_html` (notebooks and
the page), `to_markdown` and `to_latex` render it, and escape every cell.
"""

import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich import table as terminal
from rich.console import Console
from rich.markup import escape

from snapsure.evaluation import Board, Comparison, Result
from snapsure.metrics import Interval
from snapsure.table import ScoreTable

_EXAMPLES = 5  # that a notebook shows of a score table
_TEXT_WIDTH = 120
_PADDING = "padding: 0.15em 0.6em"
_LATEX = {sign: rf"\{sign}" for sign in "%_&#{}$"} | {
    "κ": r"$\kappa$",
    "…": r"\dots{}",
    "−": "$-$",
    "<": "$<$",
    ">": "$>$",
    "^": r"\^{}",
    "~": r"\~{}",
    "\\": r"\textbackslash{}",
}


@dataclass(frozen=True)
class Column:
    """A column: its head, how its values are written, and whether they are text or numbers.

    Text is aligned left and may wrap. Numbers are aligned right and never wrap.
    """

    head: str
    form: Callable[[Any], str] = str
    text: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of values under columns. None is an empty cell, a str is written as it is."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[object]]
    title: str = ""

    @property
    def heads(self) -> list[str]:
        """The heads of the columns."""
        return [column.head for column in self.columns]

    @property
    def cells(self) -> list[list[str]]:
        """Every row as it is written."""
        return [
            [
                value if isinstance(value, str) else "" if value is None else column.form(value)
                for column, value in zip(self.columns, row, strict=True)
            ]
            for row in self.rows
        ]

    def select(self, heads: Sequence[str]) -> "Table":
        """Return the table with these columns alone, in this order."""
        at = [self.heads.index(head) for head in heads]
        rows = [[row[i] for i in at] for row in self.rows]
        return replace(self, columns=[self.columns[i] for i in at], rows=rows)


def to_terminal(table: Table) -> terminal.Table:
    """Render a table for a terminal.

    Where first cells are empty, a line separates the groups that begin with a first cell.
    """
    rendered = terminal.Table(title=escape(table.title), title_justify="left", title_style="")
    for column in table.columns:
        rendered.add_column(
            escape(column.head),
            justify="left" if column.text else "right",
            no_wrap=not column.text,
        )
    grouped = any(not row[0] for row in table.cells)
    for row in table.cells:
        if grouped and row[0]:
            rendered.add_section()
        rendered.add_row(*map(escape, row))
    return rendered


def to_html(table: Table) -> str:
    """Render a table for a notebook or a page; the first cell of a row is its head."""

    def render(tag: str, cells: Sequence[str], text: str, number: str) -> list[str]:
        name = tag.partition(" ")[0]
        styles = [
            f"text-align: left; {_PADDING}; {text}"
            if column.text
            else f"text-align: right; {_PADDING}; {number}"
            for column in table.columns
        ]
        return [
            f'<{tag} style="{style}">{html.escape(cell)}</{name}>'
            for style, cell in zip(styles, cells, strict=True)
        ]

    narrow, wide, whole = "min-width: 6em", "min-width: 11em", "white-space: nowrap"
    heads = render('th scope="col"', table.heads, narrow, "")
    body = []
    for row in table.cells:
        first = render('th scope="row"', row, narrow, whole)[:1]
        cells = [*first, *render("td", row, wide, whole)[1:]]
        body.append(f"<tr>{''.join(cells)}</tr>")
    caption = ""
    if table.title:
        caption = f'<caption style="text-align: left">{html.escape(table.title)}</caption>'
    return (
        f"<table>{caption}<thead><tr>{''.join(heads)}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table>"
    )


def to_markdown(table: Table) -> str:
    """Render a table in GitHub's Markdown, without its title."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(_one_line(cell).replace("|", r"\|") for cell in cells) + " |"

    sides = "|".join("---" if column.text else "--:" for column in table.columns)
    return "\n".join([line(table.heads), f"|{sides}|", *map(line, table.cells)]) + "\n"


def to_latex(table: Table) -> str:
    """Render a table as a `tabular` with the rules of booktabs, its title as a comment."""

    def line(cells: Sequence[str]) -> str:
        written = ("".join(_LATEX.get(sign, sign) for sign in _one_line(cell)) for cell in cells)
        return " & ".join(written) + r" \\"

    sides = "".join("l" if column.text else "r" for column in table.columns)
    return "\n".join(
        [
            f"% {table.title}",
            rf"\begin{{tabular}}{{{sides}}}",
            *(r"\toprule", line(table.heads), r"\midrule"),
            *map(line, table.cells),
            *(r"\bottomrule", r"\end{tabular}"),
        ]
    )


def _one_line(cell: str) -> str:
    return cell.replace("\n", " ")


def signed(value: float, digits: int = 1) -> str:
    """Write a number with its sign, and never −0."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def percent(share: float, digits: int = 1) -> str:
    """Write a share in percent."""
    return f"{100 * share:.{digits}f} %"


def thousandths(area: float) -> str:
    """Write an area × 10³."""
    return f"{1e3 * area:.2f}"


def write_limit(risk: float) -> str:
    """Write an error limit with no more digits than it needs."""
    return f"{100 * risk:.3g} %"


def interval(ends: Interval) -> str:
    """Write an estimate with its interval."""
    estimate, low, high = map(signed, ends)
    return f"{estimate} ({low} … {high})"


def p_value(p: float) -> str:
    """Write a probability, however small."""
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def tabulate_board(board: Board, comparison: Comparison) -> Table:
    """Every number of a board: quality, price, gain over the reference, and the verdict."""
    runs = f"{board.runs} runs" if board.runs > 1 else "1 run (intervals are of its examples alone)"
    title = (
        f"{board.name}: {runs}, {board.examples:,} examples. Areas × 10³. Gain: percent less "
        f"{board.measure} than {board.reference_label} on the same examples, with "
        f"{comparison.level:.0%} intervals."
    )
    if any(row.p_holm is not None for row in board.rows):
        title += " p is corrected by Holm."
    columns = [
        Column("method", text=True),
        *(Column(head, thousandths) for head in ("E-AURC", "AURC", "AUGRC")),
        *(Column(head, "{:.3f}".format) for head in ("NLL", "Brier")),
        Column("error", percent),
        *(Column(head, "{:.0f}".format) for head in ("passes", "snapshots")),
        Column("trainings", "{:g}".format),
        Column("MB", "{:.1f}".format),
        Column("gain, %", interval),
        Column("p", p_value),
        Column("behind the best, %", interval),
        Column("verdict", text=True),
    ]
    return Table(columns, [_board_row(row, board) for row in board.rows], title)


def _board_row(row: Result, board: Board) -> list[object]:
    is_reference = row.outcome == "reference"
    is_best = row.verdict.endswith("the best here")
    return [
        *(board.label(row), row.eaurc, row.aurc, row.augrc, row.nll, row.brier, row.error),
        *(row.passes, row.snapshots, row.trainings),
        None if row.bytes is None else row.bytes / 1e6,
        None if is_reference else "–" if row.gain is None else row.gain,
        None if is_reference else row.p_holm,
        None if is_best else row.behind,
        row.verdict,
    ]


def summarise_board(board: Board, comparison: Comparison) -> Table:
    """Return the columns of a board that matter most to a reader."""
    heads = ("method", board.measure, "gain, %", "passes", "NLL", "Brier", "verdict")
    return tabulate_board(board, comparison).select(heads)


def render_comparison(comparison: Comparison) -> str:
    """Render every board for a notebook."""
    return "".join(to_html(summarise_board(board, comparison)) for board in comparison.every)


def write_comparison(comparison: Comparison) -> str:
    """Write every board as text, as wide as it needs."""
    console = Console(width=_TEXT_WIDTH, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        for board in comparison.every:
            console.print(to_terminal(summarise_board(board, comparison)))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def render_score_table(table: ScoreTable) -> str:
    """Render the first examples of a score table for a notebook."""
    snapshots, n = table.labels.shape
    columns: dict[str, Any] = {} if table.y is None else {"y": table.y}
    columns["y_hat"] = table.y_hat
    wrong = ", no labels"
    if table.y is not None:
        columns["wrong"] = np.where(table.errors, "yes", "no")
        wrong = f", {table.errors.mean():.1%} wrong"
    kappas = {name: table.kappa(name)[-1] for name in table.names}

    rows = [
        [i, *(each[i] for each in (*columns.values(), *kappas.values()))]
        for i in range(min(n, _EXAMPLES))
    ]
    if n > _EXAMPLES:
        rows.append(["…"] * (1 + len(columns) + len(kappas)))
    return to_html(
        Table(
            [
                *map(Column, ("row", *columns)),
                *(Column(name, "{:.4f}".format) for name in kappas),
            ],
            rows,
            f"ScoreTable: {n:,} examples × {snapshots} snapshot{'s' * (snapshots > 1)} "
            f"(epochs {table.epochs[0]} … {table.epochs[-1]}, κ of the last){wrong}",
        )
    )
