"""Intervals where errors are few: the delete-one jackknife with Student's t.

With few errors a resample often misses the ones that matter, and percentile intervals are too
narrow. The jackknife (Quenouille 1956, Tukey 1958) leaves out each example once; its standard error
and Student's t of (errors − 1) degrees of freedom give an interval that holds its level.
"""

from collections.abc import Sequence

import numpy as np

from snapsure._types import Bools, Floats, Metric, Scores
from snapsure.metrics._areas import augrc, eaurc, optimal_area
from snapsure.metrics._bootstrap import Comparison, Interval, bootstrap_each
from snapsure.metrics._rank import rank_by_kappa
from snapsure.metrics._weights import HARMONIC, LINEAR

FEW = 50  # errors; with fewer, intervals are of the jackknife


def compute_intervals(
    metric: Metric, comparisons: Sequence[Comparison], resamples: int, level: float, seed: int
) -> list[Interval]:
    """Compute intervals of areas of 0/1 errors, by the jackknife where errors are few.

    The others are those of `bootstrap_each`, and so are the estimates.
    """
    many = [i for i, (_, errors) in enumerate(comparisons) if np.count_nonzero(errors) >= FEW]
    found = bootstrap_each(metric, [comparisons[i] for i in many], resamples, level, seed)
    intervals = dict(zip(many, found, strict=True))
    for i, (named, given) in enumerate(comparisons):
        if i not in intervals:
            errors = np.asarray(given, dtype=np.bool_)
            scored = [(np.asarray(score, dtype=np.float64), errors) for score in named.values()]
            intervals[i] = jackknife_interval(metric, scored, level)
    return [intervals[i] for i in range(len(comparisons))]


def jackknife_interval(
    metric: Metric, scored: Sequence[tuple[Floats, Bools]], level: float
) -> Interval:
    """Compute the interval of a metric of (κ, errors), or of the first's minus the second's.

    Two are of the same examples, and may be of different classifiers, with errors of their own.
    """
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    estimates = [float(metric(*one)) for one in scored]
    values = [leave_one_out(metric, *one) for one in scored]
    estimate, left_out = estimates[0], values[0]
    if len(scored) == 2:
        estimate, left_out = estimate - estimates[1], left_out - values[1]
    degrees = max(1, min(int(errors.sum()) for _, errors in scored) - 1)
    half = float(jackknife_error(left_out)) * float(stdtrit(degrees, (1 + level) / 2))
    return Interval(estimate, estimate - half, estimate + half)


def leave_one_out(metric: Metric, kappa: Scores, errors: Bools) -> Floats:
    """Compute AURC, E-AURC or AUGRC without each example in turn, (n,): exact, in one sort.

    Examples ranked above the one left out keep their places, those below move up by one, and those
    tied with it share one place less. So the value depends only on the tie, and on whether the
    example is an error.
    """
    n = errors.size
    if n == 1:
        return np.zeros(1)
    order, is_new = rank_by_kappa(kappa, errors)
    start = np.flatnonzero(is_new)
    end = np.append(start[1:], n)
    wrong = np.add.reduceat(errors[order].astype(np.int64), start)

    weights = LINEAR if metric is augrc else HARMONIC
    above, below, own = (np.zeros(start.size) for _ in range(3))
    above[1:] = np.cumsum(wrong[:-1] * weights.cost(start[:-1], end[:-1], n - 1))
    moved = wrong[1:] * weights.cost(start[1:] - 1, end[1:] - 1, n - 1)
    below[:-1] = np.cumsum(moved[::-1])[::-1]
    is_tie = end - start > 1
    own[is_tie] = weights.cost(start[is_tie], end[is_tie] - 1, n - 1)

    by_kind = []  # without a right example of the tie, and without a wrong one
    for kind in (0, 1):
        values = (above + below + (wrong - kind) * own) / weights.scale(n - 1)
        if metric is eaurc:
            left = min(max(0, int(wrong.sum()) - kind), n - 1)  # there may be no such example
            values = np.maximum(0.0, values - optimal_area(n - 1, left))
        by_kind.append(values)
    left_out = np.empty(n)
    left_out[order] = np.where(
        errors[order], *(np.repeat(each, end - start) for each in by_kind[::-1])
    )
    return left_out


def jackknife_error(left_out: Floats) -> Floats:
    """Compute the standard error from values that leave out one example each, the last axis."""
    n = left_out.shape[-1]
    error: Floats = np.sqrt((n - 1) * left_out.var(axis=-1))
    return error
