"""Percentile bootstrap intervals for any metric (κ, losses) -> number.

Points are resampled, so an interval speaks of the test set's luck, not of the training's. Rows are
put in a fixed order first: row order and the number of cores never change an interval.

The areas over 0/1 errors, NLL and Brier score take a short cut: the points are ordered once, and
the metric follows from how often each was drawn.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _validate
from snapsure._types import Array, Bools, Floats, Ints
from snapsure.errors import InvalidInput
from snapsure.metrics._areas import augrc, aurc, eaurc, naurc
from snapsure.metrics._draws import Counter, Counts, Rows, Stream
from snapsure.metrics._parallel import LONG, ahead, in_shares
from snapsure.metrics._probability import brier, log_losses, nll, squared_distances
from snapsure.metrics._resampled import Edges, ErrorEdges, ResampledArea, ResampledExcess
from snapsure.metrics._weights import HARMONIC, LINEAR

Metric = Callable[[Any, Any], Any]
EdgesArea = Callable[[Edges], Floats]


# Some resamples: their rows (resamples, n), or how often each point is in them.
Draw = Ints | Counts
_STREAM = 1 << 17  # rows that a stream draws, if it can be: another number, other intervals
# Streams: looking up where a point stands serves all of them.
_AT_ONCE = 4

# Names and values of one score, or of two whose difference is asked for; and the losses.
Asked = tuple[Sequence[tuple[str, ArrayLike]], ArrayLike]


class Interval(NamedTuple):
    """An estimate and the interval around it."""

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
    """Metric of (κ, losses) with its percentile bootstrap interval.

    Parameters
    ----------
    metric : callable
        Any of this package's metrics, or your own function of two arrays.
    kappa, losses : (n,)
        As the metric takes them.
    resamples, level, seed
        How many resamples, the interval's level in (0, 1), and the seed that fixes it.

    Returns
    -------
    Interval
        (estimate, low, high); the estimate is the metric of all points.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> kappa = rng.random(1000)
    >>> errors = rng.random(1000) > kappa
    >>> interval = bootstrap(aurc, kappa, errors)
    >>> interval.low < interval.estimate < interval.high
    True
    """
    asked = [([("kappa", kappa)], losses)]
    return intervals_of(metric, asked, resamples, level, seed)[0]


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
    """metric(κ_a) − metric(κ_b) on the same points, with its paired bootstrap interval.

    Both scores see the same resamples, so what they share cancels. Arguments as for `bootstrap`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> kappa = rng.random(1000)
    >>> errors = rng.random(1000) > kappa
    >>> bootstrap_difference(aurc, kappa, kappa, errors)
    Interval(estimate=0.0, low=0.0, high=0.0)
    """
    scores = [("kappa_a", kappa_a), ("kappa_b", kappa_b)]
    return intervals_of(metric, [(scores, losses)], resamples, level, seed)[0]


def paired_values(
    metric: Metric,
    scored: Sequence[tuple[Floats, Bools]],
    resamples: int,
    seed: int,
) -> Floats:
    """Metric of each (κ, errors) on each resample, (pairs, resamples); all see the same rows."""
    return np.array(_resample([_resampler(metric, *pair) for pair in scored], resamples, seed))


def intervals_of(
    metric: Metric, asked: Sequence[Asked], resamples: int, level: float, seed: int
) -> list[Interval]:
    """The interval of a metric of one score, or of the difference of two, for all that are asked.

    Each is what it would be alone: those of as many points share the draws, which are made once.
    """
    resamples = _validate.count(resamples, "resamples")
    seed = _validate.count(seed, "seed", least=0)
    tail = (1 - _validate.fraction(level, "level", open_above=True)) / 2
    ready = [_prepared(metric, *each) for each in asked]
    found = [np.zeros(resamples)] * len(ready)
    for n in {each.n for each in ready}:
        alike = [i for i, each in enumerate(ready) if each.n == n and each.resamplers]
        some = [resampler for i in alike for resampler in ready[i].resamplers]
        drawn = iter(_resample(some, resamples, seed) if some else ())
        for i in alike:
            values = [next(drawn) for _ in ready[i].resamplers]
            found[i] = values[0] - values[1] if len(values) == 2 else values[0]
    ends = [map(float, np.quantile(values, [tail, 1 - tail])) for values in found]
    return [Interval(each.estimate, *end) for each, end in zip(ready, ends, strict=True)]


class _Prepared(NamedTuple):
    n: int
    estimate: float
    resamplers: list["_Resampler"]  # one, or two to take the difference of; none: it is always 0


def _prepared(
    metric: Metric, named_scores: Sequence[tuple[str, ArrayLike]], losses: ArrayLike
) -> _Prepared:
    scores = [_validate.kappa(value, name) for name, value in named_scores]
    own = all(metric is not area for area, _ in _AREAS)
    if own:  # a metric of the user's may look at values; ours look at the order alone
        scores = [_validate.scores(value, name) for name, value in named_scores]
    loss = _validate.losses(losses, scores[0].shape, of=named_scores[0][0])
    if len(scores) == 2:
        _validate.same_length("kappa_a", scores[0].shape, "kappa_b", scores[1].size)
    if not callable(metric):
        raise InvalidInput(f"`metric` must be a function, got {metric!r}: pass e.g. snapsure.aurc")
    if len(scores) == 2 and not own and np.array_equal(scores[0], scores[1]):
        return _Prepared(loss.size, 0.0, [])
    order = np.lexsort((loss, *scores))
    scores, loss = [score[order] for score in scores], loss[order]
    estimates = [_single(metric(score, loss)) for score in scores]
    estimate = estimates[0] - estimates[1] if len(scores) == 2 else estimates[0]
    return _Prepared(loss.size, estimate, [_resampler(metric, score, loss) for score in scores])


def _single(value: Any) -> float:
    if np.ndim(value) != 0 or value is None:
        got = "None" if value is None else f"shape {np.shape(value)}"
        raise InvalidInput(f"`metric` must give one number, got {got}: return a float")
    if not np.isfinite(value):
        raise InvalidInput(
            f"`metric` must give a finite number, got {value}: "
            "a probability of 0 or 1 that was wrong makes nll infinite; clip it"
        )
    return float(value)


def _resample(resamplers: list["_Resampler"], resamples: int, seed: int) -> list[Floats]:
    """Values of each resampler, all of them on the same resamples."""
    n = resamplers[0].losses.size
    batch = max(1, _STREAM // n)
    sizes = [min(batch, resamples - done) for done in range(0, resamples, batch)]
    streams = list(zip(sizes, np.random.SeedSequence(seed).spawn(len(sizes)), strict=True))

    def values(draw: Draw) -> list[Floats]:
        return [each.values(draw) for each in resamplers]

    if all(each.counts for each in resamplers):
        some = [streams[low : low + _AT_ONCE] for low in range(0, len(streams), _AT_ONCE)]

        def counted(part: Sequence[Sequence[Stream]]) -> list[list[Floats]]:
            counter = Counter(n)
            return [values(counter.count(each)) for each in part]

        # Short calls would make threads wait for each other.
        batches = in_shares(counted, some) if n >= LONG else counted(some)
    else:  # a metric of the user's is called by one thread only
        rows = ahead(lambda part: Rows(part[1], n).draw(np.empty((part[0], n), np.int64)), streams)
        batches = [values(draw) for draw in rows]
    return [np.concatenate(each) for each in zip(*batches, strict=True)]


class _Resampler(ABC):
    """From drawn rows (resamples, n), or how often each was drawn, to the metric of each."""

    counts: bool  # whether it asks how often each point was drawn

    def __init__(self, losses: Array) -> None:
        self.losses = losses

    @abstractmethod
    def values(self, draw: Any) -> Floats:
        """The metric of each resample."""


class _AnyMetric(_Resampler):
    """Calls the metric on each resample."""

    counts = False

    def __init__(self, metric: Metric, kappa: Array, losses: Array) -> None:
        super().__init__(losses)
        self._metric, self._kappa = metric, kappa

    def values(self, draw: Ints) -> Floats:
        drawn = ((self._kappa[rows], self.losses[rows]) for rows in draw)
        return np.array([_single(self._metric(kappa, losses)) for kappa, losses in drawn])


class _ErrorArea(_Resampler):
    """Knows the order of the points, and so where the errors of any resample stand."""

    counts = True

    def __init__(self, area: EdgesArea, kappa: Array, errors: Bools) -> None:
        super().__init__(errors)
        self._area, self._edges = area, ErrorEdges(kappa, errors)

    def values(self, draw: Counts) -> Floats:
        return self._area(self._edges.of(draw))


class _Mean(_Resampler):
    """Knows what each point adds to a mean."""

    counts = True

    def __init__(self, added: Floats, errors: Bools) -> None:
        super().__init__(errors)
        self._added = added

    def values(self, draw: Counts) -> Floats:
        # Not by a matrix product, whose last bit may depend on the number of cores.
        means: Floats = np.einsum("i,ij->j", self._added, draw.by_point()) / self._added.size
        return means


def _resampler(metric: Metric, kappa: Array, losses: Array) -> _Resampler:
    if losses.dtype == np.bool_:
        for known, area in _AREAS:
            if known is metric:
                return _ErrorArea(area(losses.size), kappa, losses)
        for known, added in _MEANS:
            if known is metric:
                return _Mean(added(kappa, losses), losses)
    return _AnyMetric(metric, kappa, losses)


_AREAS: list[tuple[Metric, Callable[[int], EdgesArea]]] = [
    (aurc, lambda n: ResampledArea(n, HARMONIC)),
    (augrc, lambda n: ResampledArea(n, LINEAR)),
    (eaurc, lambda n: ResampledExcess(n)),
    (naurc, lambda n: ResampledExcess(n, normalised=True)),
]

_MEANS: list[tuple[Metric, Callable[[Floats, Bools], Floats]]] = [
    (nll, log_losses),
    (brier, squared_distances),
]
