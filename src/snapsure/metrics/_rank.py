"""Rank examples by κ, most confident first, and find their ties. Nothing else here sorts by κ.

Two ways in, by the kind of loss:

- `reduce_errors` for 0/1 errors. The bits of floats of one sign sort as integers and leave one bit
  free, which holds the error: one plain (vectorised) `np.sort` orders κ and errors at once, and
  puts right answers first among tied examples. An area needs nothing but the places of the errors
  and the ties that hold both kinds. Blocks fit in the cache: at 10⁷ examples, temporaries of size n
  would cost more than the sort.
- `tie_groups` for any loss, and for every curve: an argsort, and one group per distinct κ.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from snapsure._types import Array, Bools, Floats, Ints, Scores
from snapsure.metrics._parallel import map_shares, sort_parallel

Keys = NDArray[np.unsignedinteger[Any]]

_BLOCK = 1 << 15
# Elements of the rows that are sorted together: enough for threads, few enough for a core's cache.
_BATCH = 1 << 18
# Coarse keys are worth it from this many rows on: one row is sorted twice to find out.
_COARSE_ROWS = 8
# About n² / 2³² pairs of n examples seem tied by chance: beyond this, most rows have such a pair.
_COARSE_SIZE = 1 << 16
_COARSE_MAX = 2**31 - 1


class ErrorBlock(NamedTuple):
    """The places of errors in a stretch of the order; right answers come first within a tie.

    All rows hold the same examples, hence equally many errors. The last four fields describe the
    mixed ties: those that hold right and wrong answers.
    """

    places: Ints  # (rows, errors): how many examples rank above each error
    row: Ints  # (mixed ties,): the row of the tie,
    start: Ints  # its first place,
    middle: Ints  # the place of its first error,
    end: Ints  # one past its last place


# Computes an area of some rows from their blocks, in order of falling confidence.
Area = Callable[[Iterable[ErrorBlock]], Floats]


class TieGroups(NamedTuple):
    """One entry per distinct κ, most confident first."""

    theta: Floats
    end: Ints  # how many examples have κ ≥ theta
    loss: Floats  # their summed loss


def tie_groups(kappa: Scores, losses: Array) -> TieGroups:
    """Return all thresholds, how many examples each accepts, and the loss it lets through."""
    order, start = rank_by_kappa(kappa, losses)
    end = np.append(start[1:], order.size)
    loss = np.cumsum(losses[order], dtype=np.int64 if losses.dtype == np.bool_ else np.float64)
    theta = kappa[order[end - 1]].astype(np.float64) + 0.0
    return TieGroups(theta, end, loss[end - 1].astype(np.float64))


def rank_by_kappa(kappa: Scores, losses: Array) -> tuple[Ints, Ints]:
    """Return the order, most confident first, and the places in it where a new κ starts.

    Tied examples are ordered by their loss: the rounding of a sum depends on its order, and must
    not depend on the order of the rows.
    """
    order = np.argsort(-kappa)
    ranked = kappa[order]
    start = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
    if start.size < order.size:
        order = np.lexsort((losses, -kappa))
    return order, start


def expected_losses(kappa: Scores, losses: Array) -> Floats:
    """Return losses, most confident first; each tied example takes the mean of its group."""
    order, first = rank_by_kappa(kappa, losses)
    ranked = losses[order]
    if first.size == order.size:
        return ranked

    size = np.diff(first, append=ranked.size)
    mean = np.add.reduceat(ranked, first) / size
    # Equal losses must keep their value to the last bit, so that a perfect ranking has excess 0.
    mean = np.clip(mean, ranked[first], ranked[first + size - 1])
    return np.repeat(mean, size)


def reduce_errors(kappa: Scores, errors: Bools, area: Area) -> Floats:
    """Compute an area of each row of κ (rows, n) from blocks that say where its errors rank.

    Each core ranks a share of the rows.
    """
    reduce = _reduce_coarse if can_use_coarse_keys(kappa, errors) else _reduce_exact
    if len(kappa) <= _rows_per_batch(errors.size):
        return reduce(kappa, errors, area)
    shares = map_shares(
        lambda rows: [reduce(kappa[rows[0] : rows[-1] + 1], errors, area)], range(len(kappa))
    )
    return np.concatenate(shares)


def can_use_coarse_keys(kappa: Scores, errors: Bools) -> bool:
    """Decide whether coarse keys are worth it, by the last row, usually the most confident."""
    if len(kappa) < _COARSE_ROWS or kappa.itemsize != 8 or errors.size > _COARSE_SIZE:
        return False
    keys = np.sort(_Ranker().coarse_keys(kappa[-1:], errors.astype(np.uint32))[0])
    return not bool((keys[1:] ^ keys[:-1] == 1).any())


def _rows_per_batch(n: int) -> int:
    return max(1, _BATCH // n)


def _reduce_exact(kappa: Scores, errors: Bools, area: Area) -> Floats:
    return np.concatenate([area(blocks) for blocks in _Ranker().rank(kappa, errors)])


def _reduce_coarse(kappa: Scores, errors: Bools, area: Area) -> Floats:
    """Rank by coarse keys, and rank rows with ties again by all their bits."""
    areas, ranker, again = np.empty(len(kappa)), _Ranker(), np.zeros(len(kappa), np.bool_)
    wrong, step = errors.astype(np.uint32), _rows_per_batch(errors.size)
    for low in range(0, len(kappa), step):
        keys = ranker.coarse_keys(kappa[low : low + step], wrong)
        keys.sort(axis=1)
        tied = np.unique(ranker.where(np.equal, ranker.steps(keys)) // errors.size)
        places, none = ranker.places(keys), np.empty(0, np.int64)
        high = low + len(keys)
        areas[low:high] = area([ErrorBlock(places, none, none, none, none)])
        again[low + tied] = True
        if 2 * tied.size > len(keys):  # the rest will be like this batch
            again[high:] = True
            break

    if again.any():
        areas[again] = _reduce_exact(kappa[again], errors, area)
    return areas


class _Ranker:
    """Sorts keys of κ and reads errors off them. It reuses memory: fresh pages cost more."""

    def __init__(self) -> None:
        self._buffers: dict[str, Array] = {}

    def rank(self, kappa: Scores, errors: Bools) -> Iterator[Iterator[ErrorBlock]]:
        """Yield the blocks of each batch of rows of κ (rows, n).

        Short rows share a batch and form one block. A long row is a batch of its own, and its
        blocks are stretches of it.
        """
        step = _rows_per_batch(errors.size)
        for low in range(0, len(kappa), step):
            keys = self._exact_keys(kappa[low : low + step], errors)
            # A single row can use all cores: nothing else runs meanwhile.
            sort_parallel(keys[0]) if len(kappa) == 1 else keys.sort(axis=1)
            yield self._blocks(keys)

    def _exact_keys(self, kappa: Scores, errors: Bools) -> Keys:
        """Return keys that rise as κ falls, with the error as their lowest bit.

        κ of one sign leaves the highest bit free. Else κ is brought into (−2, 2), where the second
        highest bit is free too and holds the sign.
        """
        least, most = kappa.min(), kappa.max()
        both_signs = least < 0 <= most
        if both_signs and (least <= -2 or most >= 2):
            exponent = np.frexp(max(-least, most))[1]
            small = np.ldexp(kappa, -exponent)
            if np.array_equal(np.ldexp(small, exponent), kappa):
                kappa = small
            else:  # the least underflow: their ranks sort as they do
                ranks = np.unique(kappa, return_inverse=True)[1]
                kappa, both_signs = ranks.reshape(kappa.shape).astype(np.float64), False

        bits = kappa.view(np.uint64 if kappa.itemsize == 8 else np.uint32)
        signed: Array = kappa.view(np.int64 if kappa.itemsize == 8 else np.int32)
        largest, positive = np.iinfo(signed.dtype).max, kappa.flat[0] >= 0
        keys = self._buffer("keys", bits.size, bits.dtype).reshape(bits.shape)
        for low in range(0, errors.size, _BLOCK):
            at = slice(low, low + _BLOCK)
            part = keys[:, at]
            if both_signs:
                size = signed[:, at] & largest
                part[:] = (largest // 2 + 1) - np.where(signed[:, at] < 0, -size, size)
                part <<= 1
            else:  # the shift drops the sign, which all share (and which −0.0 must lose)
                read = np.invert(bits[:, at], out=part) if positive else bits[:, at]
                np.left_shift(read, 1, out=part)
            part |= errors[at].astype(keys.dtype)
        return keys

    def _blocks(self, keys: Keys) -> Iterator[ErrorBlock]:
        """Yield the blocks of sorted keys; a block of a long row ends where a tie ends."""
        (rows, n), low = keys.shape, 0
        while low < n:
            high = n if rows > 1 else min(low + _BLOCK, n)
            if high < n:
                last = keys[0, high - 1 : high] | 1
                high = int(np.searchsorted(keys[0], last, side="right")[0])
            yield self._block(keys[:, low:high], low)
            low = high

    def _block(self, keys: Keys, offset: int) -> ErrorBlock:
        """Read sorted keys (rows, n) above which `offset` examples rank."""
        places, steps = self.places(keys, offset), self.steps(keys)
        middle = self.where(np.equal, steps) + 1  # the first error after a right answer of its κ
        if not middle.size:
            return ErrorBlock(places, middle, middle, middle, middle)

        edges = np.concatenate(([0], self.where(np.greater, steps) + 1, [keys.size]))
        group = np.searchsorted(edges, middle)
        row = middle // keys.shape[1]
        shift = offset - keys.shape[1] * row
        return ErrorBlock(
            places, row, edges[group - 1] + shift, middle + shift, edges[group] + shift
        )

    def coarse_keys(self, kappa: Scores, errors: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return keys of 32 bits for rows of float64: they sort twice as fast.

        A falling line maps κ to 31 bits; rounding never reverses an order, and equal κ stay equal.
        But different κ may get equal keys: a row in which a right and a wrong answer then seem
        tied must be ranked by all its bits. Without such ties the errors' places are exact.
        """
        keys = self._buffer("coarse", kappa.size, np.dtype(np.uint32)).reshape(kappa.shape)
        least, most = float(kappa.min()), float(kappa.max())
        span, reach = most - least, max(-least, most)
        if reach > 2 * span:  # far from 0 compared with the differences
            kappa, most, reach = kappa - most, 0.0, span
        longest = max(span, reach)
        scale = _COARSE_MAX / longest if longest > 0 else 0.0

        if 0 < scale < math.inf:
            np.multiply(kappa, -scale, out=keys.view(np.int32), casting="unsafe")
            keys <<= 1
            # The greatest κ becomes 0, modulo 2³².
            keys += errors + np.uint32(2 * int(most * scale) % 2**32)
        else:  # all κ are equal, or the slope overflows: all seem tied
            keys[:] = errors
        return keys

    def places(self, keys: Keys, offset: int = 0) -> Ints:
        """Return how many examples rank above each error, (rows, errors)."""
        rows, n = keys.shape
        low_byte = self._buffer("low byte", keys.size, np.dtype(np.uint8))
        np.copyto(low_byte, keys.ravel(), casting="unsafe")
        low_byte &= 1
        places = np.flatnonzero(low_byte.view(np.bool_)).reshape(rows, -1)
        places += offset - n * np.arange(rows)[:, None]
        return places

    def steps(self, keys: Keys) -> Keys:
        """Return what changes from each key to the next: 0 or 1 within a tie, more elsewhere."""
        flat, n = keys.ravel(), keys.shape[1]
        steps = self._buffer("steps", flat.size - 1, flat.dtype)
        np.bitwise_xor(flat[1:], flat[:-1], out=steps)
        steps[n - 1 :: n] = 2  # no tie reaches into the next row
        return steps

    def where(self, compare: np.ufunc, steps: Keys) -> Ints:
        """Return where steps are equal to 1, or greater."""
        flags = self._buffer("flags", steps.size, np.dtype(np.bool_))
        return np.flatnonzero(compare(steps, 1, out=flags))

    def _buffer(self, name: str, size: int, dtype: np.dtype[Any]) -> Array:
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size or buffer.dtype != dtype:
            buffer = self._buffers[name] = np.empty(size, dtype)
        return buffer[:size]
