"""What accepting the surest points does: thresholds, risks, and how sure these are.

Intervals of a risk are exact binomial ones (Clopper-Pearson, 95 %, pointwise). The guaranteed risk
is the one-sided bound at delta over the number of choices a reader has (positions of the slider,
scores, chapters), so that it holds for whichever is chosen after looking at all of them.
"""

from dataclasses import dataclass

import numpy as np

from snapsure._types import Bools, Floats, Ints
from snapsure.decisions import upper_bound
from snapsure.evaluation._trajectories import best_curve
from snapsure.metrics._rank import tie_groups

POSITIONS = 200  # of the slider, in even steps of coverage
DELTAS = (0.1, 0.05, 0.01, 0.001)
_CURVE_POINTS = 200  # what a screen can show


@dataclass(frozen=True)
class Positions:
    """What each position of the slider means: thresholds, and what they do."""

    coverage: Floats
    theta: Floats
    risk: Floats
    low: Floats
    high: Floats
    handed: Ints
    strange: Floats  # share of the accepted errors at points of none of the classes
    bounds: dict[float, Floats]


@dataclass(frozen=True)
class Curve:
    """Risk against coverage, thinned, with its band."""

    coverage: Floats
    risk: Floats
    low: Floats
    high: Floats


def accepted(score: Floats, wrong: Bools, counts: Ints) -> tuple[Floats, Ints, Floats]:
    """Thresholds that accept at least so many, how many they accept, and errors among those."""
    theta, end, loss = tie_groups(score, wrong)
    at = np.searchsorted(end, counts)
    return theta[at].astype(np.float64), end[at], loss[at].astype(np.float64)


def interval(errors: Floats, n: Ints, level: float = 0.95) -> tuple[Floats, Floats]:
    """Clopper-Pearson, two-sided."""
    tail = (1 - level) / 2
    high = np.array([upper_bound(int(e), int(m), tail) for e, m in zip(errors, n, strict=True)])
    right = n - errors
    low = np.array([1 - upper_bound(int(r), int(m), tail) for r, m in zip(right, n, strict=True)])
    return low, high


def positions_of(score: Floats, wrong: Bools, choices: int, strange: Bools) -> Positions:
    """Of every position; a bound holds for each of so many choices at once."""
    counts = np.ceil(np.arange(1, POSITIONS + 1) / POSITIONS * score.size - 1e-9).astype(np.int64)
    theta, n, errors = accepted(score, wrong, counts)
    low, high = interval(errors, n)
    pairs = list(zip(errors.astype(int).tolist(), n.tolist(), strict=True))
    bounds = {
        delta: np.array([upper_bound(e, m, delta / choices) for e, m in pairs]) for delta in DELTAS
    }
    theirs = accepted(score, strange, counts)[2] / np.maximum(errors, 1)
    handed = score.size - n
    return Positions(n / score.size, theta, errors / n, low, high, handed, theirs, bounds)


def curve_of(score: Floats, wrong: Bools) -> Curve:
    """Of a score, with its band."""
    counts = np.unique(np.linspace(1, score.size, _CURVE_POINTS).astype(np.int64))
    _, n, errors = accepted(score, wrong, counts)
    n, first = np.unique(n, return_index=True)
    errors = errors[first]
    low, high = interval(errors, n)
    return Curve(n / score.size, errors / n, low, high)


def best_of_hindsight(wrong: Bools) -> Curve:
    """κ* has no band: it is what these points would have allowed."""
    whole = best_curve(wrong)
    at = np.unique(np.linspace(0, wrong.size - 1, _CURVE_POINTS).astype(np.int64))
    risk = whole.risk[at]
    return Curve(whole.coverage[at], risk, risk, risk)
