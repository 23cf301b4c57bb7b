"""Intervals of metrics of (κ, losses): percentile bootstrap, and a jackknife where errors are few.

Examples are resampled, so an interval reflects the luck of the test set, not of the training. Rows
are put in a fixed order first: neither row order nor the number of cores changes an interval.

With few errors a resample often misses the ones that matter, and percentile intervals are too
narrow. The jackknife (Quenouille 1956, Tukey 1958) leaves out each example once; its standard error
and Student's t of (errors − 1) degrees of freedom give an interval that holds its level.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _validate
from snapsure._types import Bools, Floats, Metric, Scores
from snapsure.errors import InvalidInput
from snapsure.metrics._areas import augrc, eaurc, optimal_area
from snapsure.metrics._rank import rank_by_kappa
from snapsure.metrics._resample import AREAS, Resampler, make_resampler, resample, to_float
from snapsure.metrics._weights import HARMONIC, LINEAR

FEW = 50  # errors; with fewer, intervals are of the jackknife
# One score by its name, or two whose difference is of interest; and the losses.
Comparison = tuple[Mapping[str, ArrayLike], ArrayLike]


class Interval(NamedTuple):
    """An estimate and the interval around it.

    Examples
    --------
    >>> estimate, low, high = Interval(0.12, 0.10, 0.15)
    >>> low <= estimate <= high
    True
    """

    estimate: float
    low: float
    high: float


def bootstrap(
    metric: Metric,
    kappa: ArrayLike,
    losses: ArrayLike,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Compute a metric of all examples with its percentile bootstrap interval.

    Parameters
    ----------
    metric : callable
        Any metric of this package, or your own function of two arrays.
    kappa, losses : (n,)
        As the metric takes them.
    resamples, level, seed
        The number of resamples, the interval's level in (0, 1), and the seed that fixes it.

    Examples
    --------
    >>> from snapsure import aurc
    >>> interval = bootstrap(aurc, [0.9, 0.8, 0.7, 0.6], [0, 1, 0, 1])
    >>> interval.low < interval.estimate < interval.high
    True
    """
    return bootstrap_each(metric, [({"kappa": kappa}, losses)], resamples, level, seed)[0]


def bootstrap_difference(
    metric: Metric,
    kappa_a: ArrayLike,
    kappa_b: ArrayLike,
    losses: ArrayLike,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Compute metric(κ_a) − metric(κ_b) on the same examples, with its paired interval.

    Both scores see the same resamples, so what they share cancels. Arguments as for `bootstrap`.

    Examples
    --------
    >>> from snapsure import aurc
    >>> kappa = [0.9, 0.8, 0.7, 0.6]
    >>> bootstrap_difference(aurc, kappa, kappa, [0, 1, 0, 1])
    Interval(estimate=0.0, low=0.0, high=0.0)
    """
    scores = {"kappa_a": kappa_a, "kappa_b": kappa_b}
    return bootstrap_each(metric, [(scores, losses)], resamples, level, seed)[0]


def bootstrap_each(
    metric: Metric, comparisons: Sequence[Comparison], resamples: int, level: float, seed: int
) -> list[Interval]:
    """Compute the interval of each comparison as if it were alone.

    Comparisons of equally many examples share the draws, which are made once.
    """
    resamples = _validate.count(resamples, "resamples")
    seed = _validate.count(seed, "seed", least=0)
    tail = (1 - _validate.fraction(level, "level", open_above=True)) / 2
    prepared = [_prepare(metric, *each) for each in comparisons]
    groups: dict[tuple[int, bool], list[int]] = {}
    for i, (_, resampler) in enumerate(prepared):
        groups.setdefault((resampler.n, resampler.uses_counts), []).append(i)

    intervals = {}
    for group in groups.values():
        found = resample([prepared[i][1] for i in group], resamples, seed)
        for i, values in zip(group, found, strict=True):
            low, high = np.quantile(values, [tail, 1 - tail])
            intervals[i] = Interval(prepared[i][0], float(low), float(high))
    return [intervals[i] for i in range(len(prepared))]


def bootstrap_values(
    metric: Metric, scored: Sequence[tuple[Floats, Bools]], resamples: int, seed: int
) -> Floats:
    """Return the metric of each (κ, errors) on the same resamples, (pairs, resamples)."""
    return np.array(resample([make_resampler(metric, *pair) for pair in scored], resamples, seed))


def _prepare(
    metric: Metric, named: Mapping[str, ArrayLike], losses: ArrayLike
) -> tuple[float, Resampler]:
    """Return the estimate, and what resamples it."""
    # Our areas look at the order alone; other metrics may look at values.
    read = _validate.kappa if any(metric is area for area in AREAS) else _validate.scores
    scores: list[Any] = [read(value, name) for name, value in named.items()]
    names = list(named)
    loss = _validate.losses(losses, scores[0].shape, of=names[0])
    for name, score in zip(names[1:], scores[1:], strict=True):
        _validate.same_length(names[0], loss.shape, name, score.size)
    if not callable(metric):
        raise InvalidInput(f"`metric` must be a function, got {metric!r}. Pass e.g. snapsure.aurc.")

    order = np.lexsort((loss, *scores))
    scores, loss = [score[order] for score in scores], loss[order]
    estimates = [to_float(metric(score, loss)) for score in scores]
    resamplers = [make_resampler(metric, score, loss) for score in scores]
    if len(scores) == 2:
        return estimates[0] - estimates[1], resamplers[0].minus(resamplers[1])
    return estimates[0], resamplers[0]


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

    estimate, left_out = float(metric(*scored[0])), leave_one_out(metric, *scored[0])
    for other in scored[1:]:
        estimate -= float(metric(*other))
        left_out = left_out - leave_one_out(metric, *other)
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
    order, start = rank_by_kappa(kappa, errors)
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
