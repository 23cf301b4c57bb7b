"""The contest's own table and picture, in docs/results/which-score.md.

`python -m tools.contest_tables` writes them anew from `results/contest`; a test compares them. Next
to it, `tools.choice_tables` writes the page's other tables.
"""

from snapsure.evaluation import Comparison, compare
from snapsure.evaluation._archive import open_contest
from tools.passes_tables import ROOT, gain, replaced

PAGE = ROOT / "docs" / "results" / "which-score.md"
PICTURE = ROOT / "docs" / "images" / "contest.png"

# Left out of the page: AES, PES and LES over the other κ, which the full boards have.
METHODS = (
    *("LES of softmax", "LES in 4 passes of softmax", "LES in 3 passes of softmax"),
    *("LES in 2 passes of softmax", "AES of softmax", "LES of all κ", "mean probabilities"),
    *("best snapshot of softmax", "mean weights", "PES of softmax", "MaxLogit-pNorm"),
    *("error predictor", "temperature by AURC", "temperature by NLL", "doctor", "entropy", "gen"),
    *("margin", "PES to the letter of softmax", "nn_distance", "mc_dropout_variance"),
    *("max_logit", "energy", "SPTD", "deep_knn"),
)


def study() -> Comparison:
    """The committed contest, ranked by E-AURC."""
    return compare(open_contest(ROOT / "results" / "contest"))


def table(found: Comparison) -> list[str]:
    """A row per method, the best over all tasks first."""
    assert found.pooled is not None
    boards = found.every
    lines = [
        f"| method | passes | {' | '.join(board.name for board in boards)} |",
        f"|---|--:|{'--:|' * len(boards)}",
    ]
    for row in found.pooled.rows:
        if row.method in METHODS:
            cells = " | ".join(gain(board[row.method]) for board in boards)
            lines.append(f"| {row.method} | {row.passes:.0f} | {cells} |")
    return lines


def main() -> None:
    """Write the table and the picture."""
    found = study()
    PAGE.write_text(replaced(PAGE.read_text(), table(found)))
    found.plot().save(PICTURE)


if __name__ == "__main__":
    main()
