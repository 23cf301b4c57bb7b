"""Numbers that several views of an evaluation share."""

from collections.abc import Iterable, Sequence

import numpy as np

from snapsure._types import Bools
from snapsure.metrics import Interval, RCCurve, rc_curve


def gain(ours: float, final: float) -> float | None:
    """Percent of an area that is saved; None where there is nothing to save."""
    return 100 * (1 - ours / final) if final > 0 else None


def mean_interval(intervals: Iterable[Interval]) -> Interval:
    """Mean of the estimates, and of the ends: at least as wide as the interval of the mean."""
    return Interval(*(float(np.mean(ends)) for ends in zip(*intervals, strict=True)))


def standard_error(values: Sequence[float]) -> float:
    """Of the mean of some values."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def best_curve(errors: Bools) -> RCCurve:
    """The risk-coverage curve of κ*: one point per place, where κ* itself has but two scores."""
    place = np.argsort(np.argsort(errors, kind="stable"), kind="stable")
    return rc_curve(-place, errors)
