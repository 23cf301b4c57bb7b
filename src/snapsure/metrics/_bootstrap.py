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
from snapsure.metrics._parallel import ahead
from snapsure.metrics._probability import brier, log_losses, nll, squared_distances
from snapsure.metrics._rank import rows_at_once
from snapsure.metrics._resampled import (
    Counts,
    Edges,
    ErrorEdges,
    ResampledArea,
    ResampledExcess,
    counted,
)
from snapsure.metrics._weights import HARMONIC, LINEAR

Metric = Callable[[Any, Any], Any]
EdgesArea = Callable[[Edges], Floats]


class _Draw(NamedTuple):
    """Some resamples: their rows (resamples, n), and how often each point is in them."""

    rows: Ints | None
    counts: Counts | None


# Draws by n, resamples and seed: whoever asks for many intervals need not draw for each. Larger
# ones are not kept.
Kept = dict[tuple[int, int, int], list[_Draw]]
_MOST_KEPT = 1 << 24  # counts: 64 MB


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
    return interval_of(metric, [("kappa", kappa)], losses, resamples, level, seed)


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
    return interval_of(metric, scores, losses, resamples, level, seed)


def paired_values(
    metric: Metric,
    scored: Sequence[tuple[Floats, Bools]],
    resamples: int,
    seed: int,
) -> Floats:
    """Metric of each (κ, errors) on each resample, (pairs, resamples); all see the same rows."""
    return np.array(_resample([_resampler(metric, *pair) for pair in scored], resamples, seed))


def interval_of(
    metric: Metric,
    named_scores: list[tuple[str, ArrayLike]],
    losses: ArrayLike,
    resamples: int,
    level: float,
    seed: int,
    kept: Kept | None = None,
) -> Interval:
    """The interval of a metric of one score, or of the difference of two; draws go to `kept`."""
    scores = [_validate.kappa(value, name) for name, value in named_scores]
    own = all(metric is not area for area, _ in _AREAS)
    if own:  # a metric of the user's may look at values; ours look at the order alone
        scores = [_validate.numbers(value, name).astype(np.float64) for name, value in named_scores]
    loss = _validate.losses(losses, scores[0].shape, of=named_scores[0][0])
    if len(scores) == 2:
        _validate.same_length("kappa_a", scores[0].shape, "kappa_b", scores[1].size)
    if not callable(metric):
        raise InvalidInput(f"`metric` must be a function, got {metric!r}: pass e.g. snapsure.aurc")
    resamples = _validate.count(resamples, "resamples")
    seed = _validate.count(seed, "seed", least=0)
    tail = (1 - _validate.fraction(level, "level", open_above=True)) / 2

    order = np.lexsort((loss, *scores))
    scores, loss = [score[order] for score in scores], loss[order]
    estimates = [_single(metric(score, loss)) for score in scores]
    resamplers = [_resampler(metric, score, loss) for score in scores]
    drawn = _resample(resamplers, resamples, seed, kept)
    difference = drawn[0] - drawn[1] if len(scores) == 2 else drawn[0]
    low, high = np.quantile(difference, [tail, 1 - tail])
    estimate = estimates[0] - estimates[1] if len(scores) == 2 else estimates[0]
    return Interval(estimate, float(low), float(high))


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


def _resample(
    resamplers: list["_Resampler"], resamples: int, seed: int, kept: Kept | None = None
) -> list[Floats]:
    """Values of each resampler, all of them on the same resamples."""
    n = resamplers[0].losses.size
    batch = rows_at_once(n)
    sizes = [min(batch, resamples - done) for done in range(0, resamples, batch)]
    seeds = np.random.SeedSequence(seed).spawn(len(sizes))
    counting = any(each.counts for each in resamplers)

    def draw(piece: tuple[int, np.random.SeedSequence]) -> _Draw:
        size, stream = piece
        rng = np.random.Generator(np.random.SFC64(stream))
        rows = rng.integers(0, n, size=(size, n))
        return _Draw(rows, counted(rows) if counting else None)

    def prepare(draw: _Draw) -> list[Any]:
        return [each.prepare(draw) for each in resamplers]

    pieces = zip(sizes, seeds, strict=True)
    small = n * resamples <= _MOST_KEPT and all(each.counts for each in resamplers)
    if kept is None or not small:
        drawn = ahead(lambda piece: prepare(draw(piece)), pieces)
    else:
        key = (n, resamples, seed)
        if key not in kept:
            kept[key] = list(ahead(lambda piece: draw(piece)._replace(rows=None), pieces))
        drawn = ahead(prepare, kept[key])
    batches = [
        [resampler.values(ready) for resampler, ready in zip(resamplers, each, strict=True)]
        for each in drawn
    ]
    return [np.concatenate(values) for values in zip(*batches, strict=True)]


class _Resampler(ABC):
    """From drawn rows (resamples, n), or how often each was drawn, to the metric of each."""

    counts: bool  # whether it asks how often each point was drawn

    def __init__(self, losses: Array) -> None:
        self.losses = losses

    @abstractmethod
    def prepare(self, draw: _Draw) -> Any:
        """Do what can be done on another thread."""

    @abstractmethod
    def values(self, prepared: Any) -> Floats:
        """Do the rest."""


class _AnyMetric(_Resampler):
    """Calls the metric on each resample."""

    counts = False

    def __init__(self, metric: Metric, kappa: Array, losses: Array) -> None:
        super().__init__(losses)
        self._metric, self._kappa = metric, kappa

    def prepare(self, draw: _Draw) -> Ints:
        assert draw.rows is not None
        return draw.rows

    def values(self, prepared: Ints) -> Floats:
        drawn = ((self._kappa[rows], self.losses[rows]) for rows in prepared)
        return np.array([_single(self._metric(kappa, losses)) for kappa, losses in drawn])


class _ErrorArea(_Resampler):
    """Knows the order of the points, and so where the errors of any resample stand."""

    counts = True

    def __init__(self, area: EdgesArea, kappa: Array, errors: Bools) -> None:
        super().__init__(errors)
        self._area, self._edges = area, ErrorEdges(kappa, errors)

    def prepare(self, draw: _Draw) -> Edges:
        assert draw.counts is not None
        return self._edges.of(draw.counts)

    def values(self, prepared: Edges) -> Floats:
        return self._area(prepared)


class _Mean(_Resampler):
    """Knows what each point adds to a mean."""

    counts = True

    def __init__(self, added: Floats, errors: Bools) -> None:
        super().__init__(errors)
        self._added = added

    def prepare(self, draw: _Draw) -> Floats:
        assert draw.counts is not None
        # Not by a matrix product, whose last bit may depend on the number of cores.
        means: Floats = np.einsum("i,ij->j", self._added, draw.counts) / self._added.size
        return means

    def values(self, prepared: Floats) -> Floats:
        return prepared


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
