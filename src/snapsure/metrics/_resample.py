"""Draw resamples, and compute metrics of them from how often each example is drawn.

Examples are ranked once. Copies of an example are neighbours in the order, so a cumulative count
gives the places of a resample's errors, and a prefix sum over places gives what they add to an
area. Right answers add nothing: only the edges of runs of errors are looked up, and those of ties
that hold right and wrong answers.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from snapsure._types import Array, Bools, Floats, Ints, Losses, Metric
from snapsure.errors import InvalidInput
from snapsure.metrics._areas import augrc, aurc, eaurc, naurc
from snapsure.metrics._parallel import LONG, map_shares
from snapsure.metrics._probability import brier, log_losses, nll, squared_distances
from snapsure.metrics._rank import rank_by_kappa
from snapsure.metrics._weights import HARMONIC, LINEAR

Lanes = NDArray[np.unsignedinteger[Any]]
# How many resamples to draw, and the seed to draw them from.
Stream = tuple[int, np.random.SeedSequence]

AREAS: tuple[Metric, ...] = (aurc, augrc, eaurc, naurc)

# Rows that one stream draws, if possible. Another number gives other intervals.
_STREAM = 1 << 17
# Streams that share a look-up of places.
_STREAMS_AT_ONCE = 4
# Rows drawn at once: they stay in a core's cache, except with threads, which wait for each other
# after every call.
_PIECE, _LONG_PIECE = 1 << 16, 1 << 18
_CALL = 1 << 14  # rows of short resamples that are counted in one call
_WORD = np.dtype(np.uint64)


class RowStream:
    """Uniform random rows below n: what NumPy's `integers` draws by SFC64, in half its time.

    Lemire's method (2019): take the upper half of a word times n, unless the lower half would make
    some rows more likely; then skip the word.
    """

    def __init__(self, seed: np.random.SeedSequence, n: int) -> None:
        self._bits, self._n = np.random.SFC64(seed), n
        self._unused: NDArray[np.uint32] = np.empty(0, np.uint32)

    def draw(self, rows: Ints) -> Ints:
        """Fill `rows`, which must be contiguous, and return it."""
        left = flat = rows.reshape(-1).view(np.uint64)
        while left.size:
            words = self._words(left.size)
            lower = words * np.uint32(self._n)  # modulo 2³²
            least = 2**32 % self._n
            if lower.min() < least:
                words = words[lower >= least]
            left[: words.size] = words
            left = left[words.size :]
        flat *= np.uint64(self._n)
        flat >>= np.uint64(32)
        return rows

    def _words(self, count: int) -> NDArray[np.uint32]:
        """Return halves of random 64-bit words, the lower half first."""
        missing = (count - self._unused.size + 1) // 2
        if missing > 0:
            halves = self._bits.random_raw(missing).astype("<u8", copy=False).view("<u4")
            if not self._unused.size and halves.size == count:
                return halves
            self._unused = np.concatenate((self._unused, halves))
        words, self._unused = np.split(self._unused, [count])
        return words


class DrawCounts:
    """How often each of n examples is drawn in some resamples. Memory is reused.

    Resamples lie side by side in 64-bit words, each in as few bits as n needs: one addition adds
    several, and no sum overflows into its neighbour, because none exceeds n.
    """

    def __init__(self, n: int) -> None:
        self._n, self._piece = n, _PIECE if n < LONG else _LONG_PIECE
        self._rows: Ints = np.empty(self._piece, np.int64)
        self._ones: NDArray[np.uint8] = np.ones(max(_CALL, min(n, self._piece)), np.uint8)
        self._resize(0)

    def count(self, streams: Sequence[Stream]) -> None:
        """Count the draws of the streams' resamples, in place of those before.

        The counts are bytes, which stay in a core's cache: n draws take one of n examples 256
        times with probability below 10⁻⁵⁰⁰.
        """
        total = sum(size for size, _ in streams)
        if total != len(self._bytes):
            self._resize(total)
        self._bytes[:] = 0

        begin, at_once = 0, max(1, self._piece // self._n)
        for size, seed in streams:
            rows, counts = RowStream(seed, self._n), self._bytes[begin : begin + size]
            for low in range(0, size, at_once):
                part = counts[low : low + at_once]
                for done in range(0, self._n, self._piece):
                    width = min(self._piece, self._n - done)
                    drawn = rows.draw(self._rows[: len(part) * width])
                    self._add(drawn.reshape(-1, width), part)
            begin += size
        self._lanes[:, :total] = self._bytes.T

    def by_example(self) -> Lanes:
        """Return the counts, (n, resamples)."""
        return self._lanes[:, : len(self._bytes)]

    def before(self, order: Ints, places: Sequence[Ints]) -> list[Lanes]:
        """Return how many draws rank above places of an order, (places, resamples) each."""
        sums = self._before.view(_WORD)
        # Another mode would copy `out`.
        np.take(self._lanes.view(_WORD), order, axis=0, out=sums[1:], mode="clip")
        np.cumsum(sums[1:], axis=0, out=sums[1:])
        # `take` copies whole rows, indexing would copy element by element.
        return [self._before.take(at, axis=0)[:, : len(self._bytes)] for at in places]

    def _resize(self, resamples: int) -> None:
        lane = np.dtype(np.uint16 if self._n <= np.iinfo(np.uint16).max else np.uint32)
        lanes = _WORD.itemsize // lane.itemsize
        width = -(-resamples // lanes) * lanes
        self._bytes: NDArray[np.uint8] = np.empty((resamples, self._n), np.uint8)
        self._lanes: Lanes = np.zeros((self._n, width), lane)
        self._before: Lanes = np.zeros((self._n + 1, width), lane)

    def _add(self, rows: Ints, counts: NDArray[np.uint8]) -> None:
        """Add the draws of each resample, (resamples, draws), to its counts."""
        together = max(1, _CALL // self._n)
        offset = self._n * np.arange(together)[:, None]
        for low in range(0, len(rows), together):
            at = rows[low : low + together]
            if together > 1:
                at += offset[: len(at)]
            np.add.at(counts[low : low + together].ravel(), at.ravel(), self._ones[: at.size])


class Resampler(NamedTuple):
    """Computes a metric of n examples on resamples of them."""

    n: int
    values: Callable[[Any], Floats]  # the metric of each resample, from its draws
    uses_counts: bool  # the draws are DrawCounts; otherwise they are rows, (resamples, n)

    def minus(self, other: "Resampler") -> "Resampler":
        """Return the difference of two on the same resamples."""
        return self._replace(values=lambda draws: self.values(draws) - other.values(draws))


def make_resampler(metric: Metric, kappa: Array, losses: Losses) -> Resampler:
    """Return the fastest resampler for a metric."""
    if losses.dtype == np.bool_:
        if any(metric is area for area in AREAS):
            return Resampler(losses.size, _resample_area(metric, kappa, losses), True)
        if metric is nll or metric is brier:
            added = (log_losses if metric is nll else squared_distances)(kappa, losses)
            # Not by a matrix product, whose last bit may depend on the number of cores.
            return Resampler(
                added.size,
                lambda counts: np.einsum("i,ij->j", added, counts.by_example()) / added.size,
                True,
            )
    return Resampler(
        losses.size,
        lambda draws: np.array([to_float(metric(kappa[rows], losses[rows])) for rows in draws]),
        False,
    )


def _resample_area(metric: Metric, kappa: Array, errors: Bools) -> Callable[[DrawCounts], Floats]:
    """Return a function that computes an area of 0/1 errors from counts."""
    n = errors.size
    order, first = rank_by_kappa(kappa, errors)
    size = np.diff(first, append=n)
    wrong = np.add.reduceat(errors[order].astype(np.int64), first)
    is_mixed = (wrong > 0) & (wrong < size)
    is_alone = errors[order] & ~np.repeat(is_mixed, size)
    turns = np.diff(is_alone.astype(np.int8), prepend=0, append=0)
    last = (first + size)[is_mixed]
    # Edges of runs of errors alone, then of mixed ties, where right answers come first.
    runs = np.flatnonzero(turns == 1), np.flatnonzero(turns == -1)
    edges = (*runs, first[is_mixed], last - wrong[is_mixed], last)

    # Prefix sums of φ(a) − φ(n) over places a: minus φ(n), sums stay small and keep digits.
    weights = LINEAR if metric is augrc else HARMONIC
    costs = weights.span(0, n) - weights.span(n, n + 1)
    before = np.concatenate(([0.0], np.cumsum(costs)))

    def values(counts: DrawCounts) -> Floats:
        start, end, tie_start, tie_middle, tie_end = counts.before(order, edges)
        cost: Floats = (before.take(end) - before.take(start)).sum(axis=0)
        if len(tie_end):  # errors in a tie cost its mean
            share = (tie_end - tie_middle) / np.maximum(tie_end - tie_start, 1)
            cost += (share * (before.take(tie_end) - before.take(tie_start))).sum(axis=0)
        if metric is aurc or metric is augrc:
            return -cost / weights.scale(n)

        errors = (end - start).sum(axis=0, dtype=np.int64)
        errors += (tie_end - tie_middle).sum(axis=0, dtype=np.int64)
        right = n - errors
        best = before[-1] - before[right]  # all errors last
        excess: Floats = np.maximum(0.0, (best - cost) / n)
        if metric is eaurc:
            return excess
        gap = right * (HARMONIC.span(n, n + 1) - HARMONIC.at(right)) / n
        is_ranked = (right > 0) & (errors > 0)
        return np.divide(excess, gap, out=np.zeros_like(excess), where=is_ranked)

    return values


def resample(resamplers: Sequence[Resampler], resamples: int, seed: int) -> list[Floats]:
    """Return the values (resamples,) of each resampler; all see the same resamples.

    All resamplers must be of the same n, and all or none use counts.
    """
    n = resamplers[0].n
    size = max(1, _STREAM // n)
    sizes = [min(size, resamples - done) for done in range(0, resamples, size)]
    streams = list(zip(sizes, np.random.SeedSequence(seed).spawn(len(sizes)), strict=True))

    if resamplers[0].uses_counts:
        steps = range(0, len(streams), _STREAMS_AT_ONCE)
        batches = [streams[low : low + _STREAMS_AT_ONCE] for low in steps]

        def count_batches(part: Sequence[Sequence[Stream]]) -> list[list[Floats]]:
            counts, values = DrawCounts(n), []
            for batch in part:
                counts.count(batch)
                values.append([each.values(counts) for each in resamplers])
            return values

        # On short calls threads would wait for each other.
        values = map_shares(count_batches, batches) if n >= LONG else count_batches(batches)
    else:  # no threads: the metric may be the user's
        draws = (RowStream(seed, n).draw(np.empty((size, n), np.int64)) for size, seed in streams)
        values = [[each.values(rows) for each in resamplers] for rows in draws]
    return [np.concatenate(each) for each in zip(*values, strict=True)]


def to_float(value: Any) -> float:
    """Refuse what a metric returns unless it is one finite number."""
    if np.ndim(value) != 0 or value is None:
        got = "None" if value is None else f"shape {np.shape(value)}"
        raise InvalidInput(f"`metric` must return one number, got {got}. Return a float.")
    if not np.isfinite(value):
        raise InvalidInput(
            f"`metric` must return a finite number, got {value}. A probability of 0 or 1 that is "
            "wrong makes nll infinite; clip it."
        )
    return float(value)
