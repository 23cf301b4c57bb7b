"""The only place that ranks by κ: points from surest to least sure, with their ties found.

κ higher is surer, losses lower is better. Two ways in, by the kind of loss:

- `ErrorRanker` for 0/1 errors. The bits of a float of one sign sort as an integer and leave one
  bit free; the error rides in it, so a plain (vectorised) `np.sort` orders points and errors at
  once, and among tied points puts the right ones first. AURC needs nothing but where the errors
  then stand, and which ties hold both kinds. Blocks fit in the cache: at 10⁷ points n-sized
  temporaries would cost more than the sort.
- `tie_groups` for any loss, and for every curve: an argsort and one group per distinct κ.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from snapsure._types import Array, Bools, Floats, Ints, Scores
from snapsure.metrics._coarse import CoarseKeys
from snapsure.metrics._parallel import sort_on_all_cores

Keys = NDArray[np.unsignedinteger[Any]]

_BLOCK = 1 << 15
# Rows together of this size: large enough for threads, small enough for a core's cache.
_ROWS = 1 << 18


class ErrorBlock(NamedTuple):
    """Errors of a stretch of the order, the right ones among tied points standing first.

    All rows have the same points, so as many errors each. Of a tie that is mixed (right and wrong
    points of one κ) the places are given besides.
    """

    places: Ints  # (rows, errors): how many points stand before each error
    row: Ints  # (mixed ties,) its row,
    start: Ints  # its first place,
    middle: Ints  # the first place of an error in it,
    end: Ints  # one past its last place

    @classmethod
    def untied(cls, places: Ints) -> "ErrorBlock":
        """Of a stretch without mixed ties."""
        none = places.ravel()[:0]
        return cls(places, none, none, none, none)


class TieGroups(NamedTuple):
    """One entry per distinct κ, surest first."""

    theta: Floats
    end: Ints  # points with κ ≥ theta
    loss: Floats  # their summed loss


class ErrorRanker:
    """Finds where errors stand. Its memory is reused: fresh pages cost more than the reading."""

    def __init__(self) -> None:
        self._held: dict[str, Array] = {}

    def batches(self, kappa: Scores, errors: Bools) -> Iterator[Iterator[ErrorBlock]]:
        """Where the errors of κ (rows, n) stand, batch of rows by batch.

        Short rows come several to a batch, and as one block. A long row is a batch of its own, and
        its blocks are stretches of it, from the surest point on.
        """
        read: list[Keys] = []  # what has been read is written again
        for parts in _keyed_batches(kappa, errors, read):
            for keys in parts:
                # With a single row nothing else is done meanwhile: it goes to all cores.
                sort_on_all_cores(keys[0]) if len(kappa) == 1 else keys.sort(axis=1)
            yield self._read_parts(parts)
            read[:] = parts

    def coarse_batches(self, kappa: Scores, errors: Bools) -> Iterator[tuple[ErrorBlock, Ints]]:
        """The same by coarse keys: a batch of short rows as if untied, and which rows seem tied.

        Those must be ranked again by `batches`.
        """
        coarse, rows = CoarseKeys(errors), rows_at_once(errors.size)
        for low in range(0, len(kappa), rows):
            keys = coarse.of(kappa[low : low + rows])
            keys.sort(axis=1)
            tied = self._where(np.equal, self._steps(keys)) // errors.size
            yield ErrorBlock.untied(self._places(keys)), np.unique(tied)

    def _read_parts(self, parts: list[Keys]) -> Iterator[ErrorBlock]:
        offset = 0
        for keys in parts:
            for low, high in _stretches(keys):
                yield self.read(keys[:, low:high], offset + low)
            offset += keys.shape[1]

    def read(self, keys: Keys, offset: int = 0) -> ErrorBlock:
        """Read off sorted keys (rows, n), `offset` points standing before them."""
        places, step = self._places(keys, offset), self._steps(keys)
        middle = self._where(np.equal, step) + 1  # the first error after a right point of its κ
        if not middle.size:
            return ErrorBlock.untied(places)
        edges = np.concatenate(([0], self._where(np.greater, step) + 1, [keys.size]))
        group = np.searchsorted(edges, middle)
        row = middle // keys.shape[1]
        shift = offset - keys.shape[1] * row
        tie = (edges[group - 1], middle, edges[group])
        return ErrorBlock(places, row, *(place + shift for place in tie))

    def _places(self, keys: Keys, offset: int = 0) -> Ints:
        """How many points stand before each error, (rows, errors)."""
        rows, n = keys.shape
        low_byte = self._memory("low byte", keys.size, np.dtype(np.uint8))
        np.copyto(low_byte, keys.ravel(), casting="unsafe")
        low_byte &= 1
        places = np.flatnonzero(low_byte.view(np.bool_)).reshape(rows, -1)
        places += offset - n * np.arange(rows)[:, None]
        return places

    def _steps(self, keys: Keys) -> Keys:
        """What changes from each key to the next: 0 or 1 within a tie, more between two."""
        flat, n = keys.ravel(), keys.shape[1]
        step = self._memory("step", flat.size - 1, flat.dtype)
        np.bitwise_xor(flat[1:], flat[:-1], out=step)
        step[n - 1 :: n] = 2  # no tie reaches into the next row
        return step

    def _where(self, compare: np.ufunc, step: Keys) -> Ints:
        """Where a step is 1, or greater."""
        flag = self._memory("flag", step.size, np.dtype(np.bool_))
        return np.flatnonzero(compare(step, 1, out=flag))

    def _memory(self, name: str, size: int, dtype: np.dtype[Any]) -> Array:
        held = self._held.get(name)
        if held is None or held.size < size or held.dtype != dtype:
            held = self._held[name] = np.empty(size, dtype)
        return held[:size]


def rows_at_once(n: int) -> int:
    """How many rows of n points are best sorted together."""
    return max(1, _ROWS // n)


def loss_order(kappa: Scores, losses: NDArray[np.generic]) -> tuple[Ints, Bools]:
    """Order from the surest on, and where in it a new κ starts; tied points by their loss."""
    order = np.argsort(-kappa)
    new = np.empty(order.size, dtype=np.bool_)
    new[0] = True
    sorted_kappa = kappa[order]
    np.not_equal(sorted_kappa[1:], sorted_kappa[:-1], out=new[1:])
    if not new.all():
        # The rounding of a sum depends on its order: fix it, so that row order never matters.
        order = np.lexsort((losses, -kappa))
    return order, new


def expected_losses(kappa: Scores, losses: Array) -> Floats:
    """Losses from the surest point on, tied points each taking the mean of their group."""
    order, new = loss_order(kappa, losses)
    ranked = losses[order]
    if new.all():
        return ranked
    first = np.flatnonzero(new)
    size = np.diff(first, append=ranked.size)
    mean = np.add.reduceat(ranked, first) / size
    # Equal losses must keep their value to the last bit: then a perfect ranking has excess 0.
    mean = np.clip(mean, ranked[first], ranked[first + size - 1])
    return np.repeat(mean, size)


def tie_groups(kappa: Scores, losses: Array) -> TieGroups:
    """Thresholds, how many points each accepts, and the loss it lets through."""
    order, new = loss_order(kappa, losses)
    end = np.append(np.flatnonzero(new)[1:], order.size)
    loss = np.cumsum(losses[order], dtype=np.int64 if losses.dtype == np.bool_ else np.float64)
    return TieGroups(
        kappa[order[end - 1]].astype(np.float64) + 0.0, end, loss[end - 1].astype(np.float64)
    )


def _keyed_batches(kappa: Scores, errors: Bools, spare: list[Keys]) -> Iterator[list[Keys]]:
    """Keys of the rows, batch by batch; of a row that needs two sets of keys, both."""
    at_once = rows_at_once(errors.size)
    for low in range(0, len(kappa), at_once):
        batch = kappa[low : low + at_once]
        least = batch.min()
        if least >= 0 or (most := batch.max()) < 0:
            yield [_keys_of_one_sign(batch, errors, spare)]
        elif (small := _below_two(batch, least, most)) is not None:
            yield [_keys_below_two(small, errors, spare)]
        else:
            for row in batch:
                yield _keys_by_sign(row, errors, spare)


def _below_two(kappa: Scores, least: Any, most: Any) -> Scores | None:
    """κ over a power of two, all within (−2, 2), unless that rounds one of them."""
    if -2 < least and most < 2:
        return kappa
    exponent = np.frexp(max(-least, most))[1]
    small: Scores = np.ldexp(kappa, -exponent)
    return small if np.array_equal(np.ldexp(small, exponent), kappa) else None


def _keys_by_sign(row: Scores, errors: Bools, spare: list[Keys]) -> list[Keys]:
    """Keys of κ ≥ 0, then of κ < 0."""
    negative = row < 0
    return [
        _keys_of_one_sign(row[None, part], errors[part], spare)
        for part in (~negative, negative)
        if part.any()
    ]


def _keys_below_two(kappa: Scores, errors: Bools, spare: list[Keys]) -> Keys:
    """Keys of both signs: below 2 the second highest bit is free, and holds the sign."""
    bits: Array = kappa.view(np.int64 if kappa.itemsize == 8 else np.int32)
    largest = np.iinfo(bits.dtype).max
    keys = _memory(bits, spare)
    for low in range(0, errors.size, _BLOCK):
        part, read = keys[:, low : low + _BLOCK], bits[:, low : low + _BLOCK]
        size = read & largest
        part[:] = (largest // 2 + 1) - np.where(read < 0, -size, size)
        part <<= 1
        part |= errors[low : low + _BLOCK].astype(keys.dtype)
    return keys


def _memory(bits: Array, spare: list[Keys]) -> Keys:
    """Memory for keys, of what is spare if it fits."""
    dtype = np.uint64 if bits.itemsize == 8 else np.uint32
    keys = spare.pop() if spare else None
    if keys is None or keys.shape != bits.shape or keys.dtype != dtype:
        keys = np.empty(bits.shape, dtype)
    return keys


def _keys_of_one_sign(kappa: Scores, errors: Bools, spare: list[Keys]) -> Keys:
    """Keys whose rise is the fall of κ, all of one sign; the lowest bit is the error."""
    bits = kappa.view(np.uint64 if kappa.dtype == np.float64 else np.uint32)
    keys = _memory(bits, spare)
    positive = kappa.flat[0] >= 0
    for low in range(0, errors.size, _BLOCK):
        part, read = keys[:, low : low + _BLOCK], bits[:, low : low + _BLOCK]
        if positive:
            read = np.invert(read, out=part)
        # The shift drops the sign, which all share (and which −0.0 must lose).
        np.left_shift(read, 1, out=part)
        part |= errors[low : low + _BLOCK].astype(keys.dtype)
    return keys


def _stretches(keys: Keys) -> Iterator[tuple[int, int]]:
    """Bounds of the blocks of sorted keys (rows, n): a block ends where a tie ends."""
    rows, n = keys.shape
    low = 0
    while low < n:
        high = low + _BLOCK
        if rows > 1 or high >= n:
            high = n
        else:
            high = int(np.searchsorted(keys[0], keys[0, high - 1 : high] | 1, side="right")[0])
        yield low, high
        low = high
