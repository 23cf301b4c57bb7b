"""Rows drawn for resamples, and how often each point is among them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from snapsure._types import Ints
from snapsure.metrics._parallel import LONG

Lanes = NDArray[np.unsignedinteger[Any]]
Stream = tuple[int, np.random.SeedSequence]  # how many resamples it draws

# Rows drawn at once: they stay in a core's cache, unless there are threads, which wait for each
# other at the end of every call.
_PIECE, _LONG_PIECE = 1 << 16, 1 << 18
_CALL = 1 << 14  # rows of short resamples that are counted together
_WORD = np.dtype(np.uint64)


class Rows:
    """Rows below n, each as likely: what NumPy's `integers` draws by SFC64, in half its time.

    By Lemire's method (2019): the upper half of a word times n, unless the lower half is one of
    those that would make some rows likelier; then the word is passed over.
    """

    def __init__(self, seed: np.random.SeedSequence, n: int) -> None:
        self._bits, self._n = np.random.SFC64(seed), n
        self._left: NDArray[np.uint32] = np.empty(0, np.uint32)

    def draw(self, rows: Ints) -> Ints:
        """Fill `rows`, which must be contiguous, with the next ones; return it."""
        left = some = rows.reshape(-1).view(np.uint64)
        while left.size:
            words = self._fair_words(left.size)
            left[: words.size] = words
            left = left[words.size :]
        some *= np.uint64(self._n)
        some >>= np.uint64(32)
        return rows

    def _fair_words(self, count: int) -> NDArray[np.uint32]:
        """The next so many, less those that are passed over."""
        words, least = self._words(count), 2**32 % self._n
        lower = words * np.uint32(self._n)  # less what is beyond 32 bits
        return words[lower >= least] if lower.min() < least else words

    def _words(self, count: int) -> NDArray[np.uint32]:
        """Halves of 64 bits, the lower one first."""
        more = (count - self._left.size + 1) // 2
        if more > 0:
            halves = self._bits.random_raw(more).astype("<u8", copy=False).view("<u4")
            if not self._left.size and halves.size == count:
                return halves
            self._left = np.concatenate((self._left, halves))
        words, self._left = np.split(self._left, [count])
        return words


class Counter:
    """Counts of n points in resamples. Its memory is reused: fresh pages cost more than drawing."""

    def __init__(self, n: int) -> None:
        self._n, self._piece = n, _PIECE if n < LONG else _LONG_PIECE
        self._rows: Ints = np.empty(self._piece, np.int64)
        self._ones: NDArray[np.uint8] = np.ones(max(_CALL, min(n, self._piece)), np.uint8)
        self._drawn: NDArray[np.uint8] = np.empty((0, n), np.uint8)
        self._counts: Counts | None = None

    def count(self, streams: Sequence[Stream]) -> "Counts":
        """Resamples of each stream; good until the next are counted.

        They are counted in bytes, which stay in a core's cache: n draws take one of n points 256
        times with a chance below 10⁻⁵⁰⁰.
        """
        n, resamples = self._n, sum(size for size, _ in streams)
        if self._counts is None or self._counts.resamples != resamples:
            self._drawn, self._counts = np.empty((resamples, n), np.uint8), Counts(n, resamples)
        self._drawn[:] = 0
        begin = 0
        for size, seed in streams:
            self._add(Rows(seed, n), self._drawn[begin : begin + size])
            begin += size
        self._counts.fill(self._drawn)
        return self._counts

    def _add(self, rows: Rows, counts: NDArray[np.uint8]) -> None:
        """Count a stream's rows in its resamples, (resamples, n)."""
        n, drawn_at_once = self._n, max(1, self._piece // self._n)
        for low in range(0, len(counts), drawn_at_once):
            some = counts[low : low + drawn_at_once]
            for done in range(0, n, self._piece):
                width = min(self._piece, n - done)
                at = rows.draw(self._rows[: len(some) * width])
                self._tally(at.reshape(-1, width), some)

    def _tally(self, rows: Ints, counts: NDArray[np.uint8]) -> None:
        """Add what was drawn of each resample, (resamples, draws)."""
        together = max(1, _CALL // self._n)
        offset = self._n * np.arange(together)[:, None]
        for low in range(0, len(rows), together):
            at = rows[low : low + together]
            if together > 1:
                at += offset[: len(at)]
            np.add.at(counts[low : low + together].ravel(), at.ravel(), self._ones[: at.size])


class Counts:
    """How often each of n points was drawn, in some resamples.

    Resamples lie side by side in words of 64 bits, in as few bits as n takes: one addition adds
    several, and no sum of counts reaches into its neighbour, since none is above n.
    """

    def __init__(self, n: int, resamples: int) -> None:
        self.resamples = resamples
        lane = np.dtype(np.uint16 if n <= np.iinfo(np.uint16).max else np.uint32)
        lanes = _WORD.itemsize // lane.itemsize
        width = -(-resamples // lanes) * lanes
        self._lanes, self._before = np.zeros((n, width), lane), np.zeros((n + 1, width), lane)

    def fill(self, drawn: NDArray[np.uint8]) -> None:
        """Take the counts of each resample, (resamples, n)."""
        self._lanes[:, : self.resamples] = drawn.T

    def by_point(self) -> Lanes:
        """Of each point, (n, resamples)."""
        return self._lanes[:, : self.resamples]

    def before(self, order: Ints, places: Sequence[Ints]) -> list[Lanes]:
        """How many drawn points stand before places of an order, (places, resamples)."""
        sums = self._before.view(_WORD)
        # With another mode `out` would be copied.
        np.take(self._lanes.view(_WORD), order, axis=0, out=sums[1:], mode="clip")
        np.cumsum(sums[1:], axis=0, out=sums[1:])
        # `take` copies whole rows, where indexing would copy number by number.
        return [self._before.take(at, axis=0)[:, : self.resamples] for at in places]
