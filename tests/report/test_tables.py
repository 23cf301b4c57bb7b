"""One table in every form: the same cells, escaped; and the boards of a comparison as tables."""

import io
import re

import pytest
from rich.console import Console

from snapsure import compare, evaluate
from snapsure.evaluation import Run
from snapsure.report.tables import (
    Column,
    Table,
    interval,
    p_value,
    signed,
    tabulate_board,
    to_html,
    to_latex,
    to_markdown,
    to_terminal,
)
from tests.support.runs import run_of

ODD = r"[b]a|b & #1 ^\ {x} <i>"


def printed(table, width=220):
    console = Console(file=io.StringIO(), width=width)
    console.print(to_terminal(table))
    return console.file.getvalue()


@pytest.fixture(scope="module")
def comparison():
    return compare({"first_set": run_of(0), "second": run_of(1, y_of=1)})


def test_a_column_says_how_its_values_are_written():
    table = Table([Column("name", text=True), Column("share", "{:.1%}".format)], [("a", 0.25)])
    assert table.cells == [["a", "25.0%"]]
    assert Table(table.columns, [(None, "–")]).cells == [["", "–"]]  # empty, and as it is
    assert table.select(["share"]).cells == [["25.0%"]]
    assert to_markdown(table) == "| name | share |\n|---|--:|\n| a | 25.0% |\n"
    assert r"\begin{tabular}{lr}" in to_latex(table)
    assert re.findall("text-align: (left|right)", to_html(table)) == ["left", "right"] * 2


def test_every_form_escapes_what_it_must():
    table = Table([Column(ODD, text=True), Column("n")], [(ODD, 1)], ODD)
    assert ODD in printed(table)
    assert to_markdown(table).splitlines()[2] == r"| [b]a\|b & #1 ^\ {x} <i> | 1 |"
    assert r"[b]a|b \& \#1 \^{}\textbackslash{} \{x\} $<$i$>$ & 1 \\" in to_latex(table)
    assert "<i>" not in to_html(table)
    assert to_html(table).count("a|b &amp; #1") == 3


def test_a_terminal_wraps_words_and_cuts_no_number():
    name = "student of all epochs and the old, of the old answers"
    row = (name, "345.31", "2", "+12.8 (+11.2 … +14.3)")
    columns = [Column("method", text=True), *map(Column, ("AURC", "passes", "gain"))]
    shown = printed(Table(columns, [row]), width=60)
    assert max(map(len, shown.splitlines())) <= 60
    for cell in ("345.31", "passes", "+12.8 (+11.2 … +14.3)"):
        assert cell in shown


def test_a_line_separates_groups():
    columns = [Column("group", text=True), Column("n")]
    assert printed(Table(columns, [("a", 1), ("", 2), ("b", 3)])).count("├") == 1
    assert printed(Table(columns, [("a", 1), ("b", 3)])).count("├") == 0


def test_numbers_in_words():
    assert [signed(-0.04), signed(1.26), signed(-2, 2)] == ["+0.0", "+1.3", "−2.00"]
    assert interval((1, -0.5, 2)) == "+1.0 (−0.5 … +2.0)"
    assert [p_value(0.0004), p_value(0.001), p_value(0.25)] == ["< 0.001", "0.001", "0.250"]


def test_a_board_has_every_row(comparison):
    alone = evaluate(run_of(0).table, resamples=100)
    for board, owner in [(each, found) for found in (comparison, alone) for each in found.every]:
        table = tabulate_board(board, owner)
        runs = f"{board.runs} runs," if board.runs > 1 else "1 run ("
        assert table.title.startswith(f"{board.name}: {runs}")
        assert ("Holm" in table.title) == any(row.p_holm is not None for row in board.rows)
        for row, cells in zip(board.rows, table.cells, strict=True):
            told = dict(zip(table.heads, cells, strict=True))
            assert told["method"] == board.label(row)
            assert told["E-AURC"] == f"{1e3 * row.eaurc:.2f}"
            assert told["passes"] == f"{row.passes:.0f}"
            assert told["trainings"] == f"{row.trainings:g}"
            assert told["verdict"] == row.verdict
            is_reference = row.outcome == "reference"
            assert told["gain, %"] == ("" if is_reference else interval(row.gain))
            p = None if is_reference else row.p_holm
            assert told["p"] == ("" if p is None else p_value(p))
            assert told["MB"] == ("" if row.bytes is None else f"{row.bytes / 1e6:.1f}")
            is_best = row.verdict.endswith("the best here")
            behind = None if is_best else row.behind
            assert told["behind the best, %"] == ("" if behind is None else interval(behind))


def test_latex_is_balanced(comparison):
    text = to_latex(tabulate_board(comparison.pooled, comparison))
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 1 + len(comparison.pooled.rows)
    assert len({row.count("&") for row in rows}) == 1
    assert not any(sign in row for row in rows for sign in "κ…−")


def test_odd_names_of_rivals_are_text():
    table = run_of(0).table
    odd = compare(Run(table, others={ODD: table.kappa("softmax")[-1]}))
    assert ODD in printed(tabulate_board(odd.boards["data"], odd).select(["method"]))
