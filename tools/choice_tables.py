"""Tables of docs/results/which-score.md that go over every study: what to use, SPTD, AES, labels.

`python -m tools.choice_tables` writes them anew from what is committed; a test compares them.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.choices import AES, EMBEDDED, FINAL, FIVE, LES, LES3, POWERS, ROOT, UNTIED, Task, tasks
from tools.contest_tables import PAGE
from tools.passes_tables import replaced

CURVE = ROOT / "results" / "learning-curve.json"
LES2, BOTH = "LES (2 passes)", "both networks, answering together"
SPTD = f"SPTD, k = {POWERS[1]}"

# Percent of AURC: archived κ and logits are rounded, so that one softmax by two ways differs a bit.
ROUNDING = 0.05

# What you have, what to use, and its name on the boards.
CHOICES = (
    ("one network, nothing else", "softmax response", FINAL),
    ("held-out labels", "`MaxLogitPNorm()`", "MaxLogit-pNorm"),
    ("held-out labels", "an error predictor on the logits", "error predictor"),
    ("held-out labels", "an error predictor on logits and embedding", EMBEDDED),
    ("snapshots; one pass per answer", "the mean of their weights", "mean weights"),
    ("snapshots, no labels", "`AES()`: a bet", AES),
    ("snapshots and held-out labels", "`LES()`", LES),
    ("the same, three passes", "`LES(passes=3)`", LES3),
    ("the same, two passes", "`LES(passes=2)`", LES2),
    ("a second training, two passes", "two networks, answering together (`Ensemble`)", BOTH),
    ("four more trainings, five passes", "five networks, answering together (`Ensemble`)", FIVE),
    ("a training to come, one pass", "the loss `SelfAdaptive`", "SAT"),
    ("snapshots and a second training, one pass", "`Student`", "student"),
)
# The columns of the table with a row per task.
COLUMNS = {
    "AES": AES,
    "LES": LES,
    "LES, 3 passes": LES3,
    "LES, 2 passes": LES2,
    "GEN": "gen",
    "MaxLogit-pNorm": "MaxLogit-pNorm",
    "error predictor": "error predictor",
    "with embedding": EMBEDDED,
    "mean weights": "mean weights",
    "two networks": BOTH,
    "five networks": FIVE,
    "SAT": "SAT",
    "student": "student",
}
ACCURATE = {
    "softmax": FINAL,
    "AES": AES,
    "LES": LES,
    "LES, 3 passes": LES3,
    "SPTD": SPTD,
    UNTIED: UNTIED,
}


def decision_table(found: Sequence[Task]) -> list[str]:
    """What you have, what to use, what it gained and what it costs."""
    lines = [
        "| you have | use | passes | trainings | better in | percent less AURC, task by task |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for have, use, way in CHOICES:
        some = [task for task in found if way in task.ways]
        passes = _span([task.mean(way, "passes") for task in some], "{:.0f}")
        trainings = f"{np.mean([task.mean(way, 'trainings') for task in some]):.3g}"
        gained = ["", ""]
        if way != FINAL:
            gained = [odds(some, way), _span([task.gain(way) for task in some], "{:+.1f}")]
        lines.append(_row([have, use, passes, trainings, *gained]))
    return lines


def odds(found: Sequence[Task], way: str) -> str:
    """In how many trainings it has less AURC than the final softmax."""
    gains = [gain for task in found if way in task.ways for gain in task.gains(way)]
    return f"{sum(gain > ROUNDING for gain in gains)} of {len(gains)}"


def task_table(found: Sequence[Task]) -> list[str]:
    """A row per task: percent less AURC than the final softmax."""
    lines = [
        _row(["task", "trainings", "wrong in test", "right in training", *COLUMNS]),
        f"|---|--:|--:|--:|{'--:|' * len(COLUMNS)}",
    ]
    for task in found:
        cells = [_signed(task.gain(way)) if way in task.ways else "" for way in COLUMNS.values()]
        wrong, right = (_percent(x) for x in (task.mean(FINAL, "error"), np.mean(task.right)))
        lines.append(_row([task.name, str(len(task.right)), wrong, right, *cells]))
    return lines


def sptd_table(found: Sequence[Task]) -> list[str]:
    """E-AURC × 10³, and the share of points that are tied at the top."""
    heads = [f"SPTD, k = {k}" for k in POWERS]
    lines = [
        _row(["SPTD on", "never doubted", "softmax", *heads, f"k = {POWERS[1]}, ties broken"]),
        f"|---|--:|--:|{'--:|' * (len(heads) + 1)}",
    ]
    for task in found:
        areas = [f"{1e3 * task.mean(way, 'eaurc'):.1f}" for way in (FINAL, *heads, UNTIED)]
        lines.append(_row([task.name, _percent(np.mean(task.undoubted)), *areas]))
    return lines


def accuracy_table(found: Sequence[Task]) -> list[str]:
    """Percent right among the accepted, at coverage 50 / 80 / 95 %."""
    lines = [_row(["right among accepted", *ACCURATE]), f"|---|{'--:|' * len(ACCURATE)}"]
    for task in found:
        cells = [
            " / ".join(f"{100 * share:.1f}" for share in task.accuracy(way))
            for way in ACCURATE.values()
        ]
        lines.append(_row([task.name, *cells]))
    return lines


def bet_table(found: Sequence[Task]) -> list[str]:
    """What AES gained in each training, beside how well that fits its training points."""
    lines = [
        _row(["AES on", "right in training", "better in", "percent less AURC of each"]),
        "|---|--:|--:|---|",
    ]
    for task in sorted(found, key=lambda task: float(np.mean(task.right))):
        right = _span([100 * share for share in task.right], "{:.1f}") + " %"
        gains = " ".join(_signed(gain) for gain in task.gains(AES))
        lines.append(_row([task.name, right, odds([task], AES), gains]))
    return lines


def curve_table() -> list[str]:
    """How many labels LES needs: a row per task and number of labels, before and now."""
    told = json.loads(CURVE.read_text())
    kinds = [(method, rule) for method in ("LES", "LES (3 passes)") for rule in ("before", "now")]
    heads = [f"{method}, {rule}" for method, rule in kinds]
    lines = [
        _row(["labels", "draws", "Platt's curve", *heads]),
        f"|---|--:|--:|{'--:|' * len(heads)}",
    ]
    for task, rows in told["tasks"].items():
        for labels in dict.fromkeys(row["labels"] for row in rows):
            some = {(row["method"], row["rule"]): row for row in rows if row["labels"] == labels}
            one = some["LES", "now"]
            cells = [_learnt(some[kind]) for kind in kinds]
            lines.append(
                _row([f"{labels:,} of {task}", str(one["draws"]), str(one["fallback"]), *cells])
            )
    return lines


def _learnt(row: dict[str, Any]) -> str:
    worse = f"**{row['worse']}**" if row["worse"] else "0"
    return f"{_signed(row['mean'])} ({_signed(row['worst'])}), {worse} / {row['better']}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _signed(number: float) -> str:
    return f"{round(number, 1) + 0.0:+.1f}"


def _percent(share: float | np.floating[Any]) -> str:
    return f"{100 * share:.0f} %"


def _span(numbers: Sequence[float], form: str) -> str:
    """The least and the most, or the one that both are."""
    low, high = (form.format(round(end, 1) + 0.0) for end in (min(numbers), max(numbers)))
    return low if low == high else f"{low} … {high}"


def page(text: str, found: Sequence[Task]) -> str:
    """The page with all of these tables."""
    makers = (decision_table, task_table, sptd_table, accuracy_table, bet_table)
    for table in (*(make(found) for make in makers), curve_table()):
        text = replaced(text, table)
    return text


def main() -> None:
    """Write them."""
    PAGE.write_text(page(PAGE.read_text(), tasks()))


if __name__ == "__main__":
    main()
