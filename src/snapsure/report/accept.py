"""The section that says what accepting the surest answers does: two charts and a slider.

Intervals of a risk are exact binomial ones (Clopper-Pearson, 95 %, pointwise). The bound at a
position of the slider is one-sided, at delta over the number of choices that a reader has
(positions, confidences, chapters), so it holds for whichever is chosen after looking at all.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from snapsure import _validate
from snapsure._types import Bools, Floats, Ints
from snapsure.decisions import Threshold, upper_bound
from snapsure.evaluation._trajectories import best_curve
from snapsure.metrics import rc_curve
from snapsure.metrics._rank import tie_groups
from snapsure.report import charts
from snapsure.report.chapter import Block, Chapter, Chart, Folded, Row, Slider, Text
from snapsure.report.tables import Column, Table, percent, write_limit
from snapsure.table import ScoreTable

DELTAS = (0.1, 0.05, 0.01, 0.001)
POSITIONS = 200  # of the slider, in even steps of coverage
_TABLE_STEP = POSITIONS // 20
_RESAMPLES, _RESAMPLED = 400, 20_000_000  # of the difference; at most so many examples in all


CAPTION = (
    "Share of errors among the accepted answers (risk) when only the surest are accepted "
    "(coverage). Dotted: the error limit. Grey: the best ranking in hindsight."
)


class Positions(NamedTuple):
    """What each position of the slider does; `start` is the one of the threshold."""

    coverage: Floats
    theta: Floats
    risk: Floats
    low: Floats
    high: Floats
    reviewed: Ints  # examples sent to review
    strange: Floats  # share of the accepted errors that belong to none of the classes
    bounds: dict[float, Floats]  # by delta
    start: int


class Difference(NamedTuple):
    """Risk of a method less that of the final softmax at the same coverage, with a 95 % band."""

    coverage: Floats
    risk: Floats
    low: Floats
    high: Floats


_upper_bounds = np.vectorize(upper_bound, otypes=[np.float64])


def bound_risk(wrong: Floats | Ints, n: Ints) -> tuple[Floats, Floats]:
    """Return the two-sided 95 % Clopper-Pearson interval of error rates."""
    tail, errors = 0.025, wrong.astype(np.int64)
    return 1 - _upper_bounds(n - errors, n, tail), _upper_bounds(errors, n, tail)


def find_positions(
    score: Floats, wrong: Bools, strange: Bools, choices: int, threshold: float
) -> Positions:
    """Compute what each position accepts; a bound holds for each of so many choices at once.

    The position nearest to the threshold is moved onto it. Bounds are rounded up to the digits
    that the page shows, so that they still hold.
    """
    n = score.size
    theta, end, errors = tie_groups(score, wrong)
    counts = np.ceil(np.arange(1, POSITIONS + 1) / POSITIONS * n - 1e-9).astype(np.int64)
    at = np.searchsorted(end, counts)
    last = max(0, int((theta >= threshold).sum()) - 1)
    start = min(max(round(float(end[last]) / n * POSITIONS), 1), POSITIONS) - 1
    at[start] = last
    accepted, errors, theta = end[at], errors[at], theta[at]
    theta[start] = threshold
    low, high = bound_risk(errors, accepted)
    return Positions(
        coverage=accepted / n,
        theta=theta,
        risk=errors / accepted,
        low=low,
        high=high,
        reviewed=n - accepted,
        strange=tie_groups(score, strange).loss[at] / np.maximum(errors, 1),
        bounds={
            delta: np.ceil(_upper_bounds(errors.astype(int), accepted, delta / choices) * 1e4) / 1e4
            for delta in DELTAS
        },
        start=start,
    )


def find_difference(ours: Floats, final: Floats, wrong: Bools, seed: int) -> Difference:
    """Compute the difference of two risks at the same coverage, with a paired bootstrap band."""
    coverage = np.linspace(charts.LEAST_COVERAGE, 1, 96)
    groups = []
    for score in (ours, final):
        order = np.argsort(-score, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(score[order])), wrong.size - 1)
        groups.append((order, ends))

    def differ(weight: Ints) -> Floats:
        risks = []
        for order, ends in groups:
            # Tied examples are accepted in proportion, which is the mean over their orders.
            accepted = np.append(0, np.cumsum(weight[order])[ends])
            errors = np.append(0, np.cumsum(weight[order] * wrong[order])[ends])
            risks.append(np.interp(coverage * wrong.size, accepted, errors))
        difference: Floats = (risks[0] - risks[1]) / (coverage * wrong.size)
        return difference

    rng = np.random.default_rng(seed)
    resamples = int(min(_RESAMPLES, max(50, _RESAMPLED // wrong.size)))
    drawn = [
        differ(np.bincount(rng.integers(0, wrong.size, wrong.size), minlength=wrong.size))
        for _ in range(resamples)
    ]
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    return Difference(coverage, differ(np.ones(wrong.size, np.int64)), low, high)


def find_strange(table: ScoreTable) -> Bools:
    """Find the errors at examples of none of the classes."""
    known = (table.labels != _validate.NO_CLASS).all()
    strange: Bools = table.errors & (table.y == _validate.NO_CLASS) & known
    return strange


def find_all_positions(chapter: Chapter) -> dict[str, Positions]:
    """Compute the positions of every confidence; all begin at the recommended coverage."""
    strange = find_strange(chapter.rest)
    choices = POSITIONS * len(chapter.scores) * chapter.chapters
    share = max(chapter.accepted.mean(), 1 / chapter.accepted.size)
    thresholds = {
        name: Threshold.at_coverage(score, share).theta for name, score in chapter.scores.items()
    }
    thresholds[chapter.deployed] = chapter.threshold.theta
    return {
        name: find_positions(score, chapter.rest.errors, strange, choices, thresholds[name])
        for name, score in chapter.scores.items()
    }


def accept(chapter: Chapter) -> list[Block]:
    """Show what accepting the surest answers does."""
    rest, scores, accepted = chapter.rest, chapter.scores, chapter.accepted
    is_promised = chapter.choice.threshold is not None
    curves = {name: rc_curve(score, rest.errors) for name, score in scores.items()}
    difference = find_difference(
        scores[chapter.method], scores[chapter.final], rest.errors, chapter.seed
    )
    positions = find_all_positions(chapter)
    first = positions[chapter.deployed]
    coverage = float(first.coverage[first.start])
    chosen = None
    if is_promised and accepted.any():
        chosen = coverage, float(first.risk[first.start])

    risk = charts.draw_risk(curves, best_curve(rest.errors), chapter.risk, chosen, coverage)
    blocks: list[Block] = []
    strangers = find_strange(chapter.table)
    if strangers.any():
        share = percent(strangers.sum() / chapter.table.errors.sum())
        blocks.append(
            Text(
                f"{strangers.sum():,} of the examples belong to none of the classes, so every "
                f"answer to them is wrong. They are {share} of the errors."
            )
        )
    labels = {name: name for name in scores}
    labels["AES"] = f"AES (mean {chapter.choice.kappa} of several snapshots)"
    labels[chapter.deployed] = f"{chapter.deployed}, as deployed (probability of being right)"
    return [
        *blocks,
        Row(
            [
                Chart("risk", risk, CAPTION),
                Chart(
                    "difference",
                    charts.draw_difference(difference, chapter.method, chapter.final, coverage),
                    f"Risk of {chapter.method} minus that of the {chapter.final} at the same "
                    "coverage, in percentage points. Below 0 is better. Band: paired 95 % "
                    "intervals, pointwise.",
                ),
            ]
        ),
        *show_positions(
            positions,
            labels,
            rest.errors,
            chapter.risk,
            is_promised=is_promised,
            has_strangers=bool(strangers.any()),
            chapters=chapter.chapters,
        ),
    ]


def show_positions(
    positions: Mapping[str, Positions],
    labels: dict[str, str],
    wrong: Bools,
    risk: float,
    *,
    is_promised: bool = True,
    has_strangers: bool = False,
    chapters: int = 1,
) -> list[Block]:
    """Show the slider and its numbers as tables, the first confidence chosen."""
    slider = Slider(
        labels=labels,
        data={
            name: charts.to_plain(each._asdict(), 9)
            | {
                "theta": each.theta.tolist(),  # all digits: it is copied
                "written": [write_threshold(theta) for theta in each.theta.tolist()],
            }
            for name, each in positions.items()
        },
        start=next(iter(positions.values())).start + 1,
        limit=write_limit(risk),
        is_promised=is_promised,
        has_strangers=has_strangers,
        examples=wrong.size,
        chapters=chapters,
        deltas=DELTAS,
        positions=POSITIONS,
    )
    tables = [_tabulate_positions(labels[name], each, wrong) for name, each in positions.items()]
    return [slider, Folded("Numbers behind these charts", tables)]


def _tabulate_positions(label: str, each: Positions, wrong: Bools) -> Table:
    # In hindsight, errors are accepted only after every right answer.
    least = np.maximum(0, wrong.sum() - each.reviewed) / (wrong.size - each.reviewed)
    write_risk = partial(percent, digits=2)
    columns = [
        Column("accepted", percent),
        Column("accept ≥", write_threshold),
        Column("risk", write_risk),
        Column("95 % interval"),
        Column("bound", write_risk),
        Column("sent to review", "{:,}".format),
        Column("best possible risk", write_risk),
    ]
    rows = [
        (
            *(each.coverage[i], each.theta[i], each.risk[i]),
            f"{write_risk(each.low[i])} … {write_risk(each.high[i])}",
            *(each.bounds[0.05][i], each.reviewed[i], least[i]),
        )
        for i in range(_TABLE_STEP - 1, POSITIONS, _TABLE_STEP)
    ]
    return Table(columns, rows, f"{label}. The bound fails for 1 in 20, in all rows together.")


def write_threshold(theta: float) -> str:
    """Write six digits; just below 1 these would be 1."""
    text = f"{theta:.6g}"
    return f"1 − {1 - theta:.3g}" if text == "1" and theta < 1 else text
