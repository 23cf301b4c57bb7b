"""Boards as text and as a picture: the numbers of the comparison, and nothing else."""

import io

import pytest
from PIL import Image
from rich.console import Console

from snapsure import Run, compare
from snapsure.report import leaderboard
from tests.evaluation.test_compare import run_of


@pytest.fixture(scope="module")
def comparison():
    return compare({"first_set": run_of(0), "second": run_of(1, y_of=1)})


def test_markdown_has_every_row_of_every_board(comparison):
    text = leaderboard.as_markdown(comparison)
    parts = text.strip().split("\n\n")
    assert len(parts) == 6  # a caption and a table for each of three boards
    boards = [comparison.pooled, *comparison.boards.values()]
    for board, caption, table in zip(boards, parts[::2], parts[1::2], strict=True):
        assert caption.startswith(f"{board.name}: ")
        lines = table.splitlines()
        assert len(lines) == 2 + len(board.rows)
        assert {line.count("|") for line in lines} == {16}
        for row, line in zip(board.rows, lines[2:], strict=True):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            assert cells[0] == row.method
            assert cells[1] == f"{1e3 * row.eaurc:.2f}"
            assert cells[7] == f"{row.passes:.0f}"
            assert cells[-1] == row.verdict
            if row.method != "softmax":
                assert cells[9] == f"{row.trainings:g}"
                assert cells[11].startswith(f"{round(row.gain.estimate, 1) + 0.0:+.1f} (")


def test_the_caption_says_what_the_numbers_are(comparison):
    assert leaderboard.caption(comparison.boards["second"], comparison) == (
        "second: 1 run (intervals are of its points alone), 600 points. Areas × 10³. Gain: percent "
        "of the E-AURC of softmax; 95% intervals of 2,000 paired resamples; p corrected by Holm."
    )


def test_latex_is_balanced_and_escaped(comparison):
    text = leaderboard.as_latex(comparison)
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 3
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 3 + sum(
        len(b.rows) for b in (comparison.pooled, *comparison.boards.values())
    )
    assert {row.count("&") for row in rows} == {13}
    for row in rows:
        assert "κ" not in row
        assert "…" not in row
        assert "%" not in row.replace(r"\%", "")


def test_odd_names_are_text():
    table = run_of(0).table
    odd = compare(Run(table, others={r"[b]a|b & #1 ^\ {x}": table.kappa("softmax")[-1]}))
    assert r"[b]a\|b" in leaderboard.as_markdown(odd)
    assert r"[b]a|b \& \#1 \^{}\textbackslash{} \{x\}" in leaderboard.as_latex(odd)
    console = Console(file=io.StringIO(), width=220)
    console.print(leaderboard.as_table(odd.boards["data"], odd))
    assert "[b]a|b" in console.file.getvalue()


def test_terminal(comparison):
    console = Console(file=io.StringIO(), width=220)
    console.print(leaderboard.as_table(comparison.pooled, comparison))
    shown = console.file.getvalue()
    for row in comparison.pooled.rows:
        assert row.method in shown


@pytest.mark.slow
def test_plot(comparison, tmp_path):
    leaderboard.plot(comparison, tmp_path / "board.png")
    with Image.open(tmp_path / "board.png") as picture:
        assert picture.width > 800
        assert len(picture.convert("RGB").getcolors(1 << 20)) > 50
