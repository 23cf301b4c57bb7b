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
    *("LES", "LES (4 passes)", "LES (3 passes)"),
    *("LES (2 passes)", "AES", "LES of all κ", "mean probabilities"),
    *("best snapshot", "mean weights", "PES", "MaxLogit-pNorm"),
    *("error predictor", "temperature by AURC", "temperature by NLL", "final of doctor"),
    *(
        "final of entropy",
        "gen",
        "final of margin",
        "PES (paper)",
        "nn_distance",
        "mc_dropout_variance",
    ),
    *("final of max_logit", "final of energy", "SPTD", "deep_knn"),
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
        name = found.pooled.label(row)
        if name in METHODS:
            cells = " | ".join(gain(board[row.method, row.kappa]) for board in boards)
            lines.append(f"| {name} | {row.passes:.0f} | {cells} |")
    return lines


def main() -> None:
    """Write the table and the picture."""
    found = study()
    PAGE.write_text(replaced(PAGE.read_text(), table(found)))
    found.plot().save(PICTURE)


if __name__ == "__main__":
    main()
