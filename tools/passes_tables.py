"""The tables of the study of few passes, in README.md and docs/results/few-passes.md.

`python -m tools.passes_tables` writes them anew from `results/passes`, and their pictures; a test
compares them.
"""

import re
from pathlib import Path

from snapsure.evaluation import Board, Comparison, Result, compare
from snapsure.evaluation._archive import open_contest
from snapsure.report import pictures

ROOT = Path(__file__).parent.parent
README, PAGE = ROOT / "README.md", ROOT / "docs" / "results" / "few-passes.md"
PICTURE = ROOT / "docs" / "images" / "passes.png"  # a panel per task, and all of them together …
SUMMARY = ROOT / "docs" / "images" / "passes-all.png"  # … which is the one that the README shows

# The README's rows, in their order.
SHOWN = {
    "`AES()`, no labels": "AES",
    "`LES()`, held-out labels": "LES",
    "`LES(passes=3)`, held-out labels": "LES (3 passes)",
    "`SelfAdaptive`, a loss for the training itself": "SAT",
    "`Student` answering itself: one more training": "student",
    "for comparison: a second network, and the mean of both": "both networks, answering together",
    "for comparison: label smoothing": "label smoothing",
}
# The page leaves out what is next to another row: variants of students, and rivals of one pass.
WAYS = (
    *("both networks, answering together", "second network and the old, of the old answers"),
    *("student and the old, of the old answers", "LES"),
    *("second network, of the old answers", "LES (4 passes)"),
    *("LES (3 passes)", "LES (2 passes)", "mean weights"),
    *("mean probabilities", "AES", "student, of the old answers", "SAT", "final"),
    *("CRL", "FMFP", "student", "label smoothing", "student of the final"),
    "student of all epochs",
)


def study() -> Comparison:
    """The committed study, ranked by AURC."""
    return compare(open_contest(ROOT / "results" / "passes"), metric="aurc")


def gain(row: Result) -> str:
    """Percent less than the reference, bold where it is significant."""
    written = f"{round(row.saved.estimate, 1) + 0.0:+.1f}"
    return f"**{written}**" if row.p_holm is not None and row.p_holm < 0.05 else written


def percent(share: float, digits: int = 0) -> str:
    """A share in words."""
    return f"{100 * share:.{digits}f} %"


def readme_table(found: Comparison) -> list[str]:
    """A few ways, their gains alone."""
    boards, over_all = list(found.boards.values()), _pooled(found)
    heads = [f"{board.name} ({percent(board['final'].error)} wrong)" for board in boards]
    lines = [
        f"| percent less AURC than the final softmax | passes | better in | {' | '.join(heads)} |",
        f"|---|--:|--:|{'--:|' * len(boards)}",
    ]
    for words, way in SHOWN.items():
        cells = " | ".join(gain(board[way]) for board in boards)
        head = f"| {words} | {over_all[way].passes:.0f} | {_better(boards, way)} |"
        lines.append(f"{head} {cells} |")
    return lines


def page_table(found: Comparison) -> list[str]:
    """Every way, the best over all tasks first."""
    boards, over_all = list(found.boards.values()), _pooled(found)
    lines = [
        f"| way | passes | trainings | better in | all | "
        f"{' | '.join(board.name for board in boards)} |",
        f"|---|--:|--:|--:|--:|{'--:|' * len(boards)}",
    ]
    for way in sorted(WAYS, key=lambda way: -over_all[way].saved.estimate):
        row, plain = over_all[way], way == "final"
        cells = [
            f"{percent(one.error, 1)}, {1e3 * one.aurc:.1f}" + ("" if plain else f", {gain(one)}")
            for one in (board[way] for board in boards)
        ]
        head = [way, f"{row.passes:.0f}", f"{row.trainings:.3g}"]
        head += ["", ""] if plain else [_better(boards, way), gain(row)]
        lines.append(f"| {' | '.join([*head, *cells])} |")
    return lines


def _better(boards: list[Board], way: str) -> str:
    """On how many of all trainings it is better than the plain network's softmax."""
    gains = [gain for board in boards for gain in board[way].gains]
    return f"{sum(gain is not None and gain > 0 for gain in gains)} of {len(gains)}"


def replaced(text: str, table: list[str]) -> str:
    """A text whose table of the same first column is this one."""
    first = re.escape(table[0].split(" | ")[0])
    made, count = re.subn(
        rf"^{first} .*\n(?:\|.*\n)+", lambda _: "\n".join(table) + "\n", text, flags=re.M
    )
    assert count == 1
    return made


def _pooled(found: Comparison) -> Board:
    assert found.pooled is not None
    return found.pooled


def main() -> None:
    """Write both tables and the pictures."""
    found = study()
    for path, table in ((README, readme_table(found)), (PAGE, page_table(found))):
        path.write_text(replaced(path.read_text(), table))
    found.plot().save(PICTURE)
    pictures.save(pictures.draw_boards([_pooled(found)], found.level), SUMMARY)


if __name__ == "__main__":
    main()
