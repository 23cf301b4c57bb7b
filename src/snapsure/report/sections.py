"""The sections of a chapter of the page, and how to add one.

A section is a title and a function from a `Chapter` (a table, its choice, its numbers) to blocks:
`Text`, `Heading`, `Chart`, `Table`, `Row`, `Folded`, `Cards` and `Slider`. The page renders them.

To add one, write the function and register it:

>>> def count_examples(chapter: Chapter) -> list[Block]:
...     return [Text(f"{chapter.table.y_hat.size} examples.")]
>>> register_section("How many?", count_examples)
>>> SECTIONS.pop().title
'How many?'
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from snapsure import _validate
from snapsure.evaluation import Choice, Comparison
from snapsure.report import charts
from snapsure.report.charts import Spec
from snapsure.report.examples import Examples, shorten
from snapsure.report.findings import (
    BINS,
    DELTAS,
    HINDSIGHT,
    POSITIONS,
    Example,
    Findings,
    Positions,
    final_name,
    plain,
)
from snapsure.report.tables import Column, Table, percent, tabulate_board, thousandths, write_limit
from snapsure.table import ScoreTable

_TABLE_STEP = POSITIONS // 20
_LONGEST = 80  # characters of a class name that are shown
_write_percent = partial(percent, digits=2)


@dataclass(frozen=True)
class Text:
    """A paragraph and, after it, code; a note is set smaller."""

    text: str
    note: bool = False
    code: str = ""


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite chart with its caption."""

    name: str
    spec: Spec
    caption: str


@dataclass(frozen=True)
class Row:
    """Blocks beside each other, where the screen is wide enough."""

    blocks: "Sequence[Block]"


@dataclass(frozen=True)
class Folded:
    """Blocks that a reader unfolds."""

    summary: str
    blocks: "Sequence[Block]"


@dataclass(frozen=True)
class Cards:
    """Examples; the first `seen` at once, the others folded."""

    title: str
    cards: Sequence[dict[str, Any]]
    seen: int


@dataclass(frozen=True)
class Slider:
    """The form that chooses a coverage and shows what it does."""

    labels: dict[str, str]  # by confidence
    data: dict[str, Any]  # of every position, by confidence
    start: int
    limit: str
    promised: bool
    strangers: bool
    examples: int
    chapters: int
    deltas: tuple[float, ...] = DELTAS
    positions: int = POSITIONS


Block = Text | Heading | Chart | Table | Row | Folded | Cards | Slider


@dataclass(frozen=True)
class Chapter:
    """What a section may use: one table, what was chosen for it, and its numbers."""

    name: str
    table: ScoreTable
    choice: Choice
    found: Findings
    examples: Examples
    classes: Sequence[str] | None
    chapters: int  # of the page

    def name_class(self, label: int) -> str:
        """Return the name of a class."""
        if label == _validate.NO_CLASS:
            return "none of the classes"
        if self.classes is None or label >= len(self.classes):
            return f"class {label}"
        return shorten(str(self.classes[label]), _LONGEST)

    def card(self, example: Example) -> dict[str, Any]:
        """Return what the page shows of an example."""
        assert self.table.y is not None  # a table without labels has no findings
        row = int(self.choice.rest[example.at])
        return {
            "row": row,
            "y_hat": self.name_class(int(self.table.y_hat[row])),
            "y": self.name_class(int(self.table.y[row])),
            "before": example.before,
            "now": example.now,
            "ranked": self.choice.rest.size,
            **self.examples.show(row),
        }


@dataclass(frozen=True)
class Section:
    """A title, and the function that makes its blocks."""

    title: str
    make: Callable[[Chapter], Iterable[Block]]


def accept(chapter: Chapter) -> list[Block]:
    """Show what accepting the surest answers does."""
    found = chapter.found
    positions = next(iter(found.positions.values()))
    coverage = float(positions.coverage[positions.start])
    blocks: list[Block] = []
    if found.strangers:
        blocks.append(
            Text(
                f"{found.strangers:,} of the examples belong to none of the classes, so every "
                f"answer to them is wrong. They are {percent(found.strange)} of the errors."
            )
        )
    final = final_name(found.kappa)
    labels = {name: _label_score(name, chapter) for name in found.positions}
    return [
        *blocks,
        Row(
            [
                Chart(
                    "risk",
                    charts.draw_risk(found, coverage),
                    "Share of errors among the accepted answers (risk) when only the surest are "
                    "accepted (coverage). Dotted: the error limit. Grey: the best ranking in "
                    "hindsight.",
                ),
                Chart(
                    "difference",
                    charts.draw_difference(found, coverage),
                    f"Risk of {found.method} less that of the {final} at the same coverage. Below "
                    "0 is better. Band: paired 95 % intervals, point by point.",
                ),
            ]
        ),
        Slider(
            labels=labels,
            data={name: _encode(each) for name, each in found.positions.items()},
            start=positions.start + 1,
            limit=write_limit(found.risk),
            promised=found.chosen is not None,
            strangers=bool(found.strangers),
            examples=chapter.choice.rest.size,
            chapters=chapter.chapters,
        ),
        Folded(
            "Numbers behind these charts",
            [
                _tabulate_positions(labels[name], each, found)
                for name, each in found.positions.items()
            ],
        ),
    ]


def _label_score(name: str, chapter: Chapter) -> str:
    found = chapter.found
    if name == next(iter(found.positions)):
        return f"{name}, as deployed (probability of being right)"
    if name == "AES":
        return f"AES (mean {found.kappa} of {len(found.averaged)} snapshots)"
    return name


def _encode(each: Positions) -> dict[str, Any]:
    return {
        "coverage": plain(each.coverage),
        "theta": each.theta.tolist(),  # all digits: it is copied
        "written": [write_threshold(theta) for theta in each.theta.tolist()],
        "risk": each.risk.tolist(),
        "low": plain(each.low),
        "high": plain(each.high),
        "reviewed": plain(each.reviewed),
        "strange": plain(each.strange),
        "bounds": {f"{delta:g}": _round_up(bounds) for delta, bounds in each.bounds.items()},
    }


def _tabulate_positions(label: str, each: Positions, found: Findings) -> Table:
    best = found.curves[HINDSIGHT]
    bounds = _round_up(each.bounds[0.05])
    rows = []
    for i in range(_TABLE_STEP - 1, POSITIONS, _TABLE_STEP):
        at = min(int(np.searchsorted(best.coverage, each.coverage[i])), len(best.coverage) - 1)
        ends = f"{_write_percent(each.low[i])} … {_write_percent(each.high[i])}"
        rows.append(
            [
                *(each.coverage[i], each.theta[i], each.risk[i], ends, bounds[i]),
                *(each.reviewed[i], best.risk[at]),
            ]
        )
    columns = [
        Column("accepted", percent),
        Column("accept ≥", write_threshold),
        Column("risk", _write_percent),
        Column("95 %"),
        Column("bound", _write_percent),
        Column("sent to review", "{:,}".format),
        Column("best possible risk", _write_percent),
    ]
    return Table(columns, rows, f"{label}. The bound holds but for 1 in 20, at every row at once.")


def write_threshold(theta: float) -> str:
    """Write six digits; just below 1 these would be 1."""
    text = f"{theta:.6g}"
    return f"1 − {1 - theta:.3g}" if text == "1" and theta < 1 else text


def _round_up(bounds: Any) -> list[float]:
    """Round bounds up to the digits that are shown, so that they still hold."""
    rounded: list[float] = (np.ceil(bounds * 1e4) / 1e4).round(4).tolist()
    return rounded


def follow_training(chapter: Chapter) -> list[Block]:
    """Show what training did to the confidence."""
    found = chapter.found
    groups, last = found.groups, found.epochs[-1]
    best = (
        f"were ranked best at epoch {found.epochs[groups.best]} of {last}; since then their E-AURC "
        f"×10³ has risen by {thousandths(groups.lost)}"
        if groups.lost > 0
        else f"are ranked best by the final snapshot, of epoch {last}"
    )
    drawn = [
        Chart(f"training-{i}", spec, caption)
        for i, (caption, spec) in enumerate(charts.draw_training(found))
    ]
    layers = Table(
        [
            Column("layer"),
            Column("cut off by epoch"),
            Column("up to κ =", "{:.9g}".format),
            Column("ranked by epoch"),
            Column("examples", "{:,}".format),
        ],
        [
            (str(i), layer.cut_epoch, layer.edge, layer.epoch, layer.examples)
            for i, layer in enumerate(found.layers, 1)
        ],
        "Layers of PES (pointwise early stopping), least sure first, fitted on all examples",
    )
    epochs = Table(
        [
            Column("epoch"),
            Column("accuracy", percent),
            *(Column(head, "{:.4f}".format) for head in ("κ, surer", "κ, less sure")),
            *(Column(f"E-AURC ×10³, {group}", thousandths) for group in ("surer", "less sure")),
        ],
        [
            *zip(
                *(found.epochs, found.accuracies, groups.green_kappa, groups.red_kappa),
                *(groups.green_eaurc, groups.red_eaurc),
                strict=True,
            )
        ],
    )
    return [
        Text(
            f"E-AURC says what an imperfect ranking costs; lower is better. The surest "
            f"{found.surer:.0%} of the examples {best}. AES (averaged early stopping) averages "
            f"{len(found.averaged)} snapshots: epochs {', '.join(map(str, found.averaged))}."
        ),
        Row(drawn[:2]),
        Folded(
            "Accuracy, mean κ, layers of PES, and the numbers behind these charts",
            [Row(drawn[2:]), layers, epochs],
        ),
    ]


def calibrate(chapter: Chapter) -> list[Block]:
    """Show whether the confidence can be read as a probability."""
    found = chapter.found
    losses = Table(
        [
            Column("probability", text=True),
            *(Column(head, "{:.4f}".format) for head in ("NLL", "Brier", "ECE")),
        ],
        [(each.name, each.nll, each.brier, each.ece) for each in found.reliability],
        "Lower is better in every column",
    )
    bins = [
        Table(
            [
                *(Column(head, percent) for head in ("stated", "right")),
                Column("95 %"),
                Column("examples", "{:,}".format),
            ],
            [
                (stated, right, f"{percent(low)} … {percent(high)}", count)
                for stated, right, low, high, count in zip(
                    *(each.stated, each.right, each.low, each.high, each.count), strict=True
                )
            ],
            f"{each.name}, {BINS} bins",
        )
        for each in found.reliability
    ]
    return [
        Chart(
            "reliability",
            charts.draw_reliability(found),
            "On the dashed diagonal, answers stated at 70 % are right 70 % of the time. "
            "Calibration learns on one half of the examples; this is the other. Bars: 95 % "
            "intervals.",
        ),
        Chart("bins", charts.draw_bins(found), "How many examples each of these bins has."),
        losses,
        Folded("Numbers behind this chart", bins),
    ]


def show_examples(chapter: Chapter) -> list[Block]:
    """Show the surest mistakes, what moved most, and the riskiest classes."""
    found, choice = chapter.found, chapter.choice
    first = next(iter(found.positions))
    classes = Table(
        [
            Column("class", text=True),
            *(Column(head, "{:,}".format) for head in ("accepted", "wrong")),
            Column("risk", percent),
            Column("95 %"),
        ],
        [
            (
                *(chapter.name_class(each.label), each.accepted, each.wrong, each.risk),
                f"{percent(each.low)} … {percent(each.high)}",
            )
            for each in found.classes
        ],
        "Predicted classes among the answers accepted by "
        + (
            f"{first} at the recommended threshold"
            if choice.threshold is not None
            else f"the surest 80 % by {first}"
        ),
    )
    return [
        Text(
            f"Rank 1 is the surest of {choice.rest.size:,} examples that nothing was fitted on. → "
            f"leads from the rank by the {final_name(found.kappa)} to that by {found.method}.",
            note=True,
        ),
        Heading("The surest mistakes"),
        Cards("", [chapter.card(each) for each in found.mistakes], 6),
        Heading(f"Moved most by {found.method}"),
        Row(
            [
                Cards(title, [chapter.card(each) for each in examples], 2)
                for title, examples in found.moved.items()
            ]
        ),
        Heading("Classes with the highest risk among accepted answers"),
        classes,
    ]


SECTIONS: list[Section] = [
    Section("Accept, or send to review?", accept),
    Section("Along training", follow_training),
    Section("Can the number be read as a probability?", calibrate),
    Section("Examples worth a look", show_examples),
]


def register_section(title: str, make: Callable[[Chapter], Iterable[Block]]) -> None:
    """Add a section to every chapter of every page made from now on.

    Parameters
    ----------
    title : str
        The heading.
    make : callable
        Takes a `Chapter`, returns blocks.

    Examples
    --------
    >>> def count_examples(chapter):
    ...     return [Text(f"{chapter.table.y_hat.size} examples.")]
    >>> register_section("How many?", count_examples)
    >>> SECTIONS.pop().title
    'How many?'
    """
    SECTIONS.append(Section(title, make))


def show_contest(contest: Comparison) -> list[Block]:
    """Show every method of `compare`, beside its price."""
    blocks: list[Block] = [
        Text(
            "Methods that learn were fitted on one half of the examples and judged on the other, "
            "and the other way round. Passes: forward passes per answer."
        )
    ]
    boards = contest.every
    for i, board in enumerate(boards):
        if len(boards) > 1:
            blocks.append(Heading(board.name))
        heads = ("method", board.measure, "gain, %", "p", "passes", "verdict")
        blocks += [
            Chart(
                f"board-{i}",
                charts.draw_board(board),
                f"Gain over {board.reference_label} against forward passes per answer. Methods "
                "further below stand at the lower edge; the table has all numbers.",
            ),
            tabulate_board(board, contest).select(heads),
        ]
    return blocks
