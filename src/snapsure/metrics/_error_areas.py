"""Areas from where the 0/1 errors stand, for rows of scores and for resamples alike."""

from collections.abc import Iterable

import numpy as np

from snapsure._types import Bools, Floats, Ints, Scores
from snapsure.metrics._rank import ErrorBlock, ErrorRanker
from snapsure.metrics._weights import HARMONIC, Weights


def error_area(kappa: Scores, errors: Bools, weights: Weights) -> Floats:
    """Area of each row of κ (rows, n)."""
    batches = ErrorRanker().batches(kappa, errors)
    return np.concatenate([block_area(blocks, errors.size, weights) for blocks in batches])


def error_excess(kappa: Scores, errors: Bools) -> Floats:
    """E-AURC of each row of κ (rows, n)."""
    total = int(np.count_nonzero(errors))
    batches = ErrorRanker().batches(kappa, errors)
    return np.concatenate([block_excess(blocks, errors.size, total) for blocks in batches])


def block_area(blocks: Iterable[ErrorBlock], n: int, weights: Weights) -> Floats:
    """Σ over the errors of each row of φ(n) − φ(place), over the scale."""
    top = weights.span(n, n + 1)
    total = sum(_row_sums(top - weights.at(b.places), b) + _untie(b, weights) for b in blocks)
    return np.asarray(total) / weights.scale(n)


def block_excess(blocks: Iterable[ErrorBlock], n: int, errors: Ints | int) -> Floats:
    """How far each row's E errors stand above where κ* has them: the j-th at place n − E + j."""
    total, best = np.zeros(1), np.asarray(n - errors)
    for block in blocks:
        first, ends = np.broadcast_arrays(best, best + block.counts)
        spans = _spans(first, ends)
        total = (
            total + _row_sums(spans - HARMONIC.at(block.places), block) + _untie(block, HARMONIC)
        )
        best = ends
    return np.maximum(0.0, total / n)


def _spans(first: Ints, ends: Ints) -> Floats:
    """H over first … end − 1, row after row."""
    ranges = list(zip(first.tolist(), ends.tolist(), strict=True))
    if len({*ranges}) == 1:
        return np.tile(HARMONIC.span(*ranges[0]), len(ranges))
    return np.concatenate([HARMONIC.span(low, high) for low, high in ranges])


def _row_sums(values: Floats, block: ErrorBlock) -> Floats:
    counts = block.counts
    if (counts == counts[0]).all():
        sums: Floats = values.reshape(counts.size, -1).sum(axis=1)
        return sums
    sums = np.zeros(counts.size)
    some = counts > 0
    first = np.cumsum(counts) - counts
    sums[some] = np.add.reduceat(values, first[some])
    return sums


def _untie(block: ErrorBlock, weights: Weights) -> Floats:
    """What ties add: an error, sorted last among them, stands further up on average."""
    if not block.row.size:
        return np.zeros(block.counts.size)
    gain = weights.rise(block.start, block.middle, block.end)
    gain *= block.end - block.middle
    added = np.bincount(block.row, weights=gain, minlength=block.counts.size)
    return added.astype(np.float64, copy=False)
