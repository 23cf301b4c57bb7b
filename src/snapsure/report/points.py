"""Points worth a look: the surest mistakes, those whose rank changed, the riskiest classes."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from snapsure._types import Bools, Floats, Ints
from snapsure.report.accepting import accepted, interval

SHOWN = 12  # points and classes listed
CLASS_COVERAGE = 0.8


@dataclass(frozen=True)
class Point:
    """One of the ranked points, and its rank, 1 being the surest."""

    at: int  # among the ranked
    before: int  # by the final κ
    now: int


@dataclass(frozen=True)
class ClassRisk:
    """How often a class is wrong where it was accepted."""

    label: int
    accepted: int
    wrong: int
    risk: float
    low: float
    high: float


def ranks(score: Floats) -> Floats:
    """Rank of each point, 1 the surest; of equals, the middle of their places."""
    ordered = np.sort(-score)
    above, upto = (np.searchsorted(ordered, -score, side=side) for side in ("left", "right"))
    rank: Floats = (above + upto + 1) / 2
    return rank


def mistakes(wrong: Bools, before: Floats, now: Floats) -> list[Point]:
    """The surest errors."""
    rows = np.flatnonzero(wrong)
    return _points(rows[np.argsort(now[rows], kind="stable")][:SHOWN], before, now)


def moved(wrong: Bools, before: Floats, now: Floats) -> dict[str, list[Point]]:
    """Points whose rank changed most, right and wrong, both ways."""
    rise = before - now
    found = {}
    for outcome, those in (("Right", np.flatnonzero(~wrong)), ("Wrong", np.flatnonzero(wrong))):
        order = those[np.argsort(-rise[those], kind="stable")]
        up, down = order[rise[order] > 0], order[rise[order] < 0][::-1]
        found[f"{outcome}, moved up"] = _points(up[: SHOWN // 2], before, now)
        found[f"{outcome}, moved down"] = _points(down[: SHOWN // 2], before, now)
    return found


def _points(rows: Iterable[int], before: Floats, now: Floats) -> list[Point]:
    return [Point(int(row), int(before[row]), int(now[row])) for row in rows]


def risky_classes(score: Floats, y_hat: Ints, wrong: Bools) -> list[ClassRisk]:
    """Predicted classes by their risk among the surest points, the riskiest first."""
    count = np.array([int(np.ceil(CLASS_COVERAGE * score.size - 1e-9))])
    theta, _, _ = accepted(score, wrong, count)
    those = score >= theta[0]
    number = np.bincount(y_hat[those])
    errors = np.bincount(y_hat[those], wrong[those], number.size).astype(np.float64)
    labels = np.flatnonzero(number)
    labels = labels[np.argsort(-errors[labels] / number[labels], kind="stable")][:SHOWN]
    low, high = interval(errors[labels], number[labels])
    return [
        ClassRisk(int(label), int(number[label]), int(errors[label]), risk, below, above)
        for label, risk, below, above in zip(
            labels,
            (errors[labels] / number[labels]).tolist(),
            low.tolist(),
            high.tolist(),
            strict=True,
        )
    ]
