"""Areas from where the 0/1 errors stand, for rows of scores and for resamples alike."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from snapsure._types import Bools, Floats, Scores
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
    for block, tied in ErrorRanker().coarse_batches(kappa, errors):
        rows = len(block.places)
        areas[done : done + rows] = area([block])
        again.append(done + tied)
        done += rows
        if 2 * tied.size > rows:  # as it will be with the rest
            again.append(np.arange(done, len(kappa)))
            break
    left = np.concatenate(again)
    if left.size:
        areas[left] = _exactly(kappa[left], errors, area)
    return areas


def block_area(blocks: Iterable[ErrorBlock], n: int, weights: Weights) -> Floats:
    """Σ over the errors of each row of φ(n) − φ(place), over the scale."""
    top = weights.span(n, n + 1)
    total = sum((top - weights.at(b.places)).sum(axis=1) + _untie(b, weights) for b in blocks)
    return np.asarray(total) / weights.scale(n)


def block_excess(blocks: Iterable[ErrorBlock], n: int, errors: int) -> Floats:
    """How far each row's E errors stand above where κ* has them: the j-th at place n − E + j."""
    total, best = np.zeros(1), n - errors
    for block in blocks:
        above, end = HARMONIC.at(block.places), best + block.places.shape[1]
        np.subtract(HARMONIC.span(best, end), above, out=above)
        total = total + above.sum(axis=1) + _untie(block, HARMONIC)
        best = end
    return np.maximum(0.0, total / n)


def _untie(block: ErrorBlock, weights: Weights) -> Floats:
    """What ties add: an error, sorted last among them, stands further up on average."""
    if not block.row.size:
        return np.zeros(len(block.places))
    gain = weights.rise(block.start, block.middle, block.end)
    gain *= block.end - block.middle
    added = np.bincount(block.row, weights=gain, minlength=len(block.places))
    return added.astype(np.float64, copy=False)
