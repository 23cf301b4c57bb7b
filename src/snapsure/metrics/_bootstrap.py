"""Percentile bootstrap intervals for any metric of (κ, losses).

Examples are resampled, so an interval reflects the luck of the test set, not of the training. Rows
are put in a fixed order first: neither row order nor the number of cores changes an interval.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _validate
from snapsure._types import Bools, Floats, Metric
from snapsure.errors import InvalidInput
from snapsure.metrics._resample import AREAS, Resampler, make_resampler, resample, to_float

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
    """Compute a metric of (κ, losses) with its percentile bootstrap interval.

    Parameters
    ----------
    metric : callable
        Any metric of this package, or your own function of two arrays.
    kappa, losses : (n,)
        As the metric takes them.
    resamples, level, seed
        The number of resamples, the interval's level in (0, 1), and the seed that fixes it.

    Returns
    -------
    Interval
        (estimate, low, high); the estimate is the metric of all examples.

    Examples
    --------
    >>> import snapsure
    >>> rng = np.random.default_rng(0)
    >>> kappa = rng.random(1000)
    >>> errors = rng.random(1000) > kappa
    >>> interval = bootstrap(snapsure.aurc, kappa, errors)
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
    >>> import snapsure
    >>> rng = np.random.default_rng(0)
    >>> kappa = rng.random(1000)
    >>> errors = rng.random(1000) > kappa
    >>> bootstrap_difference(snapsure.aurc, kappa, kappa, errors)
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
