"""The sections of a chapter of the page, and how to add one.

A section is a title and a function from a `Chapter` (a table, its choice, its confidences) to
blocks: `Text`, `Heading`, `Chart`, `Bar`, `Table`, `Row`, `Folded`, `Cards` and `Slider`. The page
renders them. `register_section` adds one.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from snapsure._types import Bools, Floats, Ints
from snapsure.decisions import Platt
from snapsure.estimators import AES, PES
from snapsure.estimators.registry import FINAL
from snapsure.evaluation import Comparison, Trajectories, trajectories
from snapsure.metrics import brier, ece, nll
from snapsure.report import charts
from snapsure.report.accept import accept, bound_risk
from snapsure.report.chapter import Block, Cards, Chapter, Chart, Folded, Heading, Row, Text
from snapsure.report.charts import BINS
from snapsure.report.tables import Column, Table, percent, tabulate_board, thousandths

EXAMPLES = 12  # examples and classes listed
_SHARES = (0.5, 0.8, 0.9)  # of the surer group along training: the first with enough errors …
_ENOUGH = 10  # … to rank


def follow_training(chapter: Chapter) -> list[Block]:
    """Show what training did to the confidence."""
    table, kappa = chapter.table, chapter.choice.kappa
    groups, surer = group_by_confidence(table.kappa(kappa), table.errors)
    accuracies = (table.labels == table.y).mean(axis=1)
    averaged = AES().snapshots(table.epochs)
    pes = PES().fit(table, kappa)
    sizes = np.bincount(pes.layer_of(table), minlength=len(pes.layers_))

    best, last = table.epochs[groups.best], table.epochs[-1]
    ranked = f"are ranked best by the final snapshot, of epoch {last}"
    if best != last:
        ranked = f"were ranked best at epoch {best} of {last}"
        if thousandths(groups.lost) != thousandths(0):
            ranked += f"; since then their E-AURC ×10³ has risen by {thousandths(groups.lost)}"
    drawn = [
        Chart(f"training-{i}", spec, caption)
        for i, (caption, spec) in enumerate(
            charts.draw_training(table.epochs, groups, surer, accuracies, averaged)
        )
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
            (str(i), layer.cut, layer.edge, layer.epoch, size)
            for i, (layer, size) in enumerate(zip(pes.layers_, sizes, strict=True), 1)
        ],
        "Layers of PES (pointwise early stopping), least sure first, fitted on all examples",
    )
    numbers: dict[str, tuple[Any, Callable[[Any], str]]] = {
        "epoch": (table.epochs, str),
        "accuracy": (accuracies, percent),
        "κ, surer": (groups.green_kappa, "{:.4f}".format),
        "κ, less sure": (groups.red_kappa, "{:.4f}".format),
        "E-AURC ×10³, surer": (groups.green_eaurc, thousandths),
        "E-AURC ×10³, less sure": (groups.red_eaurc, thousandths),
    }
    epochs = Table(
        [Column(head, form) for head, (_, form) in numbers.items()],
        [*zip(*(values for values, _ in numbers.values()), strict=True)],
    )
    return [
        Text(
            f"E-AURC measures what an imperfect ranking costs; lower is better. The surest "
            f"{surer:.0%} of the examples {ranked}. AES (averaged early stopping) averages "
            f"{len(averaged)} snapshots, from epoch {averaged[0]} to {averaged[-1]}."
        ),
        Row(drawn[:2]),
        Folded(
            "Accuracy, mean κ, layers of PES, and the numbers behind these charts",
            [Row(drawn[2:]), layers, epochs],
        ),
    ]


def group_by_confidence(kappa: Floats, wrong: Bools) -> tuple[Trajectories, float]:
    """Follow the surer half and the other along training; more than half if it has few errors.

    Returns the numbers of both groups, and the surer one's share of the examples.
    """
    order = np.argsort(-kappa[-1], kind="stable")
    errors = {share: int(wrong[order][: round(share * wrong.size)].sum()) for share in _SHARES}
    surer = next((share for share, count in errors.items() if count >= _ENOUGH), _SHARES[-1])
    green, red = trajectories(kappa, wrong, surer), trajectories(kappa, wrong, 1 - surer)
    return green._replace(red_kappa=red.red_kappa, red_eaurc=red.red_eaurc), surer


class Bins(NamedTuple):
    """How often a stated probability was right, bin by bin, with 95 % intervals."""

    stated: Floats
    right: Floats
    low: Floats
    high: Floats
    examples: Ints


def calibrate(chapter: Chapter) -> list[Block]:
    """Show whether the confidence can be read as a probability."""
    wrong, stated = chapter.rest.errors, state_probabilities(chapter)
    bins = {name: count_bins(p, wrong) for name, p in stated.items()}
    losses = Table(
        [
            Column("probability", text=True),
            *(Column(head, "{:.4f}".format) for head in ("NLL", "Brier", "ECE")),
        ],
        [(name, nll(p, wrong), brier(p, wrong), ece(p, wrong)) for name, p in stated.items()],
        "Negative log-likelihood, Brier score, and expected calibration error: lower is better",
    )
    columns = [
        *(Column(head, percent) for head in ("stated", "right")),
        Column("95 % interval"),
        Column("examples", "{:,}".format),
    ]
    return [
        Chart(
            "reliability",
            charts.draw_reliability(bins),
            "On the dashed diagonal, answers stated at 70 % are right 70 % of the time. "
            "Calibration learns from one half of the examples; the chart shows the other half. "
            "Bars: 95 % intervals.",
        ),
        Chart("bins", charts.draw_bins(bins), "Number of examples in each of these bins."),
        losses,
        Folded(
            "Numbers behind this chart",
            [
                Table(
                    columns,
                    [
                        (each[0], each[1], f"{percent(each[2])} … {percent(each[3])}", each[4])
                        for each in zip(*values, strict=True)
                    ],
                    f"{name}, {BINS} bins",
                )
                for name, values in bins.items()
            ],
        ),
    ]


def state_probabilities(chapter: Chapter) -> dict[str, Floats]:
    """Return probabilities: the final softmax as it is and calibrated, and the deployed one."""
    kappa, final = chapter.choice.kappa, chapter.final
    learn = chapter.table.rows(chapter.choice.learn)
    last = chapter.rest.kappa(kappa)[-1]
    platt = Platt().fit(learn.kappa(kappa)[-1], learn.errors)
    stated = {f"{final}, as it is": last, f"{final}, calibrated": platt.predict_proba(last)}
    if chapter.choice.method == FINAL:
        learned = AES().fit(chapter.table, kappa).confidence(learn)
        calibration = Platt().fit(learned, learn.errors)
        stated["AES, calibrated"] = calibration.predict_proba(chapter.scores["AES"])
    else:
        stated[chapter.deployed] = chapter.scores[chapter.deployed]
    return stated


def count_bins(p: Floats, wrong: Bools) -> Bins:
    """Count stated probabilities and right answers in bins of equal width; drop empty ones."""
    bins = np.minimum((p * BINS).astype(int), BINS - 1)
    count = np.bincount(bins, minlength=BINS)
    used = count > 0
    errors, total = (np.bincount(bins, each, minlength=BINS)[used] for each in (wrong, p))
    count = count[used]
    low, high = bound_risk(errors, count)
    return Bins(total / count, (count - errors) / count, 1 - high, 1 - low, count)


def show_examples(chapter: Chapter) -> list[Block]:
    """Show the surest mistakes, what moved most, and the riskiest classes."""
    rest, method = chapter.rest, chapter.method
    true = rest.y
    assert true is not None  # a table without labels is refused
    ranks = {name: rank(score) for name, score in chapter.scores.items()}
    before, now = ranks[chapter.final], ranks[method]
    mistakes = find_mistakes(rest.errors, ranks[chapter.deployed])
    moved = find_moved(rest.errors, before, now)

    def make_cards(title: str, rows: Ints, after: Floats, visible: int) -> Cards:
        cards = []
        for i in rows.tolist():
            row = int(chapter.choice.rest[i])
            y_hat, y = (chapter.name_class(int(labels[i])) for labels in (rest.y_hat, true))
            ranks = {"before": int(before[i]), "now": int(after[i])}
            cards.append({"row": row, "y_hat": y_hat, "y": y} | ranks | chapter.examples.show(row))
        return Cards(title, cards, visible)

    where = f"{chapter.deployed} at the recommended threshold"
    if chapter.choice.threshold is None:
        where = f"the surest 80 % by {chapter.deployed}"
    classes = Table(
        [
            Column("class", text=True),
            *(Column(head, "{:,}".format) for head in ("accepted", "wrong")),
            Column("risk", percent),
            Column("95 % interval"),
        ],
        [
            (
                *(chapter.name_class(label), accepted, wrong, wrong / accepted),
                f"{percent(low)} … {percent(high)}",
            )
            for label, accepted, wrong, low, high in find_classes(
                chapter.accepted, rest.y_hat, rest.errors
            )
        ],
        f"Predicted classes among the answers accepted by {where}",
    )
    return [
        Text(
            f"Rank 1 is the surest of {rest.errors.size:,} examples that nothing was fitted on. → "
            f"leads from the rank by the {chapter.final} to the rank by {method}.",
            is_note=True,
        ),
        Heading("The surest mistakes"),
        make_cards("", mistakes, ranks[chapter.deployed], 6),
        Heading(f"Moved most by {method}"),
        Row([make_cards(title, rows, now, 2) for title, rows in moved.items()]),
        Heading("Classes with the highest risk among accepted answers"),
        classes,
    ]


def rank(score: Floats) -> Floats:
    """Rank examples, 1 the surest; equals share the middle of their places."""
    ordered = np.sort(-score)
    above, upto = (np.searchsorted(ordered, -score, side=side) for side in ("left", "right"))
    ranks: Floats = (above + upto + 1) / 2
    return ranks


def find_mistakes(wrong: Bools, ranks: Floats) -> Ints:
    """Find the surest wrong answers, the surest first."""
    rows = np.flatnonzero(wrong)
    return rows[np.argsort(ranks[rows], kind="stable")][:EXAMPLES]


def find_moved(wrong: Bools, before: Floats, now: Floats) -> dict[str, Ints]:
    """Find the right and the wrong answers whose rank changed most, up and down."""
    rise, moved = before - now, {}
    for outcome, rows in (("Right", np.flatnonzero(~wrong)), ("Wrong", np.flatnonzero(wrong))):
        order = rows[np.argsort(-rise[rows], kind="stable")]
        moved[f"{outcome}, moved up"] = order[rise[order] > 0][: EXAMPLES // 2]
        moved[f"{outcome}, moved down"] = order[rise[order] < 0][::-1][: EXAMPLES // 2]
    return moved


def find_classes(
    accepted: Bools, y_hat: Ints, wrong: Bools
) -> list[tuple[int, int, int, float, float]]:
    """Find the riskiest predicted classes: label, accepted, wrong, and ends of the interval."""
    number = np.bincount(y_hat[accepted])
    errors = np.bincount(y_hat[accepted], wrong[accepted], number.size).astype(int)
    labels = np.flatnonzero(number)
    labels = labels[np.argsort(-errors[labels] / number[labels], kind="stable")][:EXAMPLES]
    low, high = bound_risk(errors[labels], number[labels])
    columns = (each.tolist() for each in (labels, number[labels], errors[labels], low, high))
    return [*zip(*columns, strict=True)]


class Section(NamedTuple):
    """A title, and the function that makes the blocks."""

    title: str
    make: Callable[[Chapter], Iterable[Block]]


SECTIONS: list[Section] = [
    Section("Accept, or send to review?", accept),
    Section("Along training", follow_training),
    Section("Can the number be read as a probability?", calibrate),
    Section("Examples worth a look", show_examples),
]


def register_section(title: str, make: Callable[[Chapter], Iterable[Block]]) -> None:
    """Add a section to every chapter of every page made from now on: its heading and function.

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
    """Show every method of `compare`, beside its cost."""
    blocks: list[Block] = [
        Text(
            "Methods that learn were fitted on one half of the examples and judged on the other, "
            "and vice versa. Passes: forward passes per answer."
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
                f"Gain over {board.reference_label} against forward passes per answer. ▼ at the "
                "lower edge: further below; the table has all numbers.",
            ),
            tabulate_board(board, contest).select(heads),
        ]
    return blocks
