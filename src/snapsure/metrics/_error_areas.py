"""Areas from where the 0/1 errors stand, for rows of scores and for resamples alike."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from snapsure._types import Bools, Floats, Ints, Scores
from snapsure.metrics._coarse import tell_apart
from snapsure.metrics._parallel import in_shares
from snapsure.metrics._rank import ErrorBlock, ErrorRanker, rows_at_once
from snapsure.metrics._weights import HARMONIC, Weights

OfBlocks = Callable[[Iterable[ErrorBlock]], Floats]


def error_area(kappa: Scores, errors: Bools, weights: Weights) -> Floats:
    """Area of each row of κ (rows, n)."""
    return _by_row(kappa, errors, lambda blocks: block_area(blocks, errors.size, weights))


def error_excess(kappa: Scores, errors: Bools) -> Floats:
    """E-AURC of each row of κ (rows, n)."""
    total = int(np.count_nonzero(errors))
    return _by_row(kappa, errors, lambda blocks: block_excess(blocks, errors.size, total))


def _by_row(kappa: Scores, errors: Bools, area: OfBlocks) -> Floats:
    """Area of each row, each core taking a share of the rows."""
    some = _coarsely if tell_apart(kappa, errors) else _exactly
    if len(kappa) <= rows_at_once(errors.size):
        return some(kappa, errors, area)

    def of_share(rows: Sequence[int]) -> list[Floats]:
        return [some(kappa[rows[0] : rows[-1] + 1], errors, area)]

    return np.concatenate(in_shares(of_share, range(len(kappa))))


def _exactly(kappa: Scores, errors: Bools, area: OfBlocks) -> Floats:
    return np.concatenate([area(blocks) for blocks in ErrorRanker().batches(kappa, errors)])


def _coarsely(kappa: Scores, errors: Bools, area: OfBlocks) -> Floats:
    """By coarse keys, and rows that these leave tied by all of their bits."""
    areas, again, done = np.empty(len(kappa)), [], 0
    for block in ErrorRanker().coarse_batches(kappa, errors):
        tied = np.unique(block.row)
        areas[done : done + block.counts.size] = area([block.without_ties()])
        again.append(done + tied)
        done += block.counts.size
        if 2 * tied.size > block.counts.size:  # as it will be with the rest
            again.append(np.arange(done, len(kappa)))
            break
    rows = np.concatenate(again)
    if rows.size:
        areas[rows] = _exactly(kappa[rows], errors, area)
    return areas


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
        above = _spans(first, ends, HARMONIC.at(block.places))
        total = total + _row_sums(above, block) + _untie(block, HARMONIC)
        best = ends
    return np.maximum(0.0, total / n)


def _spans(first: Ints, ends: Ints, less: Floats) -> Floats:
    """H over first … end − 1, row after row, less these."""
    ranges = list(zip(first.tolist(), ends.tolist(), strict=True))
    if len({*ranges}) == 1:
        by_row = less.reshape(len(ranges), -1)
        np.subtract(HARMONIC.span(*ranges[0]), by_row, out=by_row)
        return less
    return np.concatenate([HARMONIC.span(low, high) for low, high in ranges]) - less


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
