"""Metrics of a stream in fixed memory.

A sketch counts right and wrong answers in fixed bins of κ. The order within a bin is unknown: its
best and worst case bound the areas.

The bits of a float, read as an integer, rise evenly through each octave and on into the next: cuts
by them are fine near 0 and near 1, where a confident network has most of its examples. Even cuts of
[0, 1] make the middle fine as well.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _validate
from snapsure._types import Floats, Ints
from snapsure.errors import InvalidInput
from snapsure.metrics._curve import RCCurve
from snapsure.metrics._intervals import Interval
from snapsure.metrics._weights import HARMONIC

# Of each 256 bins, 128 are cut evenly, 76 cut the octaves of κ from 2⁻⁷⁷ to 1/2, and 52 those of
# 1 − κ from 2⁻⁵³, the least that float64 has, to 1/2.
_MIN_BINS = 256
_EVEN, _LOWER, _UPPER = 128, 76, 52
# The exponents that float64 stores for 2⁻⁷⁷ and 2⁻⁵³.
_LOWEST, _HIGHEST = 1023 - 77, 1023 - 53
# Examples at once: their temporaries stay in the cache.
_BLOCK = 1 << 14
# Beyond this, counts are no longer exact as float64.
_MAX_EXAMPLES = 1 << 53
# An error adds less than 40, known to a few units in its last place. A sum over errors is off by
# less than this for each, which a test checks with thirty digits.
_ROUNDING = 1e-12


class RiskCoverageSketch:
    """AURC, E-AURC and the risk-coverage curve of an unbounded stream, in fixed memory.

    Examples in one bin count as tied, by the mean over their orders. Two κ share a bin only if
    they differ by less than 2 / bins, and by less than 256 / bins of κ and of 1 − κ (κ from 2⁻⁷⁷
    on). The curve is exact at every threshold it has; the areas come with guaranteed bounds.

    Parameters
    ----------
    bins : power of two ≥ 256
        16 bytes each: 1 MiB by default, for any number of examples.

    Examples
    --------
    >>> sketch, other = RiskCoverageSketch(), RiskCoverageSketch()
    >>> sketch.update([0.9, 0.8], [1, 0])
    >>> other.update([0.7, 0.6], [0, 0])
    >>> (both := sketch.merge(other))
    RiskCoverageSketch(bins=65536): 4 examples, 1 wrong
    >>> round(both.aurc(), 6)
    0.520833
    """

    def __init__(self, bins: int = 65536) -> None:
        bins = _validate.count(bins, "bins", least=_MIN_BINS)
        if bins & (bins - 1):
            raise InvalidInput(
                f"`bins` must be a power of two, got {bins}. Use {1 << bins.bit_length()}."
            )
        self._state = np.zeros((2, bins), dtype=np.int64)

    @classmethod
    def from_state(cls, state: ArrayLike) -> "RiskCoverageSketch":
        """Restore a sketch from its `state`, or from the sum of several states."""
        counts = _validate.numbers(state, "state")
        if counts.ndim != 2 or len(counts) != 2 or counts.dtype.kind not in "iu":
            raise InvalidInput(
                "`state` must hold whole numbers of shape (2, bins), "
                f"got {counts.dtype} of shape {counts.shape}. Pass what `sketch.state` returns."
            )
        sketch = cls(counts.shape[1])
        if counts.min() < 0:
            raise InvalidInput(
                f"`state` must be ≥ 0, got {counts.min()}. Add states, do not subtract them."
            )
        _refuse_too_many(int(counts.sum(dtype=np.float64)))
        sketch._state[:] = counts
        return sketch

    @property
    def state(self) -> Ints:
        """A copy of the counts: right answers of each bin, and wrong ones.

        (2, bins) of int64, from the least confident bin to the most confident. The sum of the
        states of two sketches is the state of both streams.
        """
        return self._state.copy()

    @property
    def bins(self) -> int:
        """The number of bins."""
        return self._state.shape[1]

    @property
    def n(self) -> int:
        """The number of examples so far."""
        return int(self._state.sum())

    @property
    def errors(self) -> int:
        """The number of errors so far."""
        return int(self._state[1].sum())

    def update(self, kappa: ArrayLike, errors: ArrayLike) -> None:
        """Add examples. A batch that is refused leaves the sketch unchanged.

        Parameters
        ----------
        kappa : (n,) or one number
            Confidence in [0, 1], higher is more confident; read as float64.
        errors : (n,) or one number
            0 (right) or 1 (wrong).
        """
        scores = np.atleast_1d(_validate.numbers(kappa, "kappa"))
        scores = _validate.probabilities(scores, "kappa")
        wrong = np.atleast_1d(_validate.numbers(errors, "errors"))
        wrong = _validate.errors(wrong, scores.shape)
        cells = self._state.reshape(-1)
        for low in range(0, scores.size, _BLOCK):
            part = slice(low, low + _BLOCK)
            np.add.at(cells, _find_bins(scores[part], self.bins) + self.bins * wrong[part], 1)

    def merge(self, *others: "RiskCoverageSketch") -> "RiskCoverageSketch":
        """Return the sketch of all streams together; the order of merges does not matter."""
        for other in others:
            if not isinstance(other, RiskCoverageSketch):
                raise InvalidInput(
                    f"`others` must be sketches, got {type(other).__name__}. "
                    "Restore a state by `RiskCoverageSketch.from_state`."
                )
            if other.bins != self.bins:
                raise InvalidInput(
                    f"`others` must have {self.bins} bins like this sketch, got {other.bins}. "
                    "Give all sketches the same `bins`."
                )
        _refuse_too_many(self.n + sum(other.n for other in others))
        merged = RiskCoverageSketch(self.bins)
        for sketch in (self, *others):
            merged._state += sketch._state
        return merged

    def aurc(self) -> float:
        """Compute the area under the risk-coverage curve; examples of a bin count as tied."""
        return self._bounds().estimate

    def eaurc(self) -> float:
        """Compute the excess of `aurc` over the best order; 0 for a perfect ranking of bins."""
        return self._bounds(excess=True).estimate

    def aurc_bounds(self) -> Interval:
        """Compute `aurc` and guaranteed bounds on `snapsure.aurc` of all examples.

        The bounds put the errors of each bin last, and first: at most m (1 + ln n) / 2 apart, where
        m is the fullest bin's share of the n examples. Both include 10⁻¹² of the error rate for
        rounding. A bin that fits a single float64, such as κ = 1, holds true ties and widens
        nothing.

        Examples
        --------
        The middle two of four examples share a bin, so their order is unknown.

        >>> sketch = RiskCoverageSketch(bins=256)
        >>> sketch.update([0.9, 0.6001, 0.6002, 0.3], [0, 0, 1, 1])
        >>> [round(value, 6) for value in sketch.aurc_bounds()]
        [0.270833, 0.208333, 0.333333]
        """
        return self._bounds()

    def eaurc_bounds(self) -> Interval:
        """Compute `eaurc` and bounds as of `aurc_bounds`: the best order is known exactly."""
        return self._bounds(excess=True)

    def rc_curve(self) -> RCCurve:
        """Compute selective risk against coverage, one entry per bin that is not empty.

        It is exact: accepting κ ≥ `theta[i]` has `coverage[i]` and `risk[i]` on these examples.
        """
        size, wrong = self._by_falling_kappa()
        filled = size > 0
        end, loss = np.cumsum(size)[filled], np.cumsum(wrong)[filled]
        return RCCurve(end / end[-1], loss / end, _bin_starts(self.bins)[::-1][filled])

    def __eq__(self, other: object) -> bool:
        """Compare the counts."""
        if not isinstance(other, RiskCoverageSketch):
            return NotImplemented
        return np.array_equal(self._state, other._state)

    __hash__ = None  # type: ignore[assignment]  # it changes with each update

    def __repr__(self) -> str:
        """Show the number of bins, examples and errors."""
        return f"RiskCoverageSketch(bins={self.bins}): {self.n:,} examples, {self.errors:,} wrong"

    def __reduce__(self) -> tuple[Any, ...]:
        # Ray shares one read-only array among all readers, and `np.add.at` writes to it anyway;
        # `from_state` copies.
        return RiskCoverageSketch.from_state, (self._state,)

    def _by_falling_kappa(self) -> tuple[Ints, Ints]:
        """Return the examples and the errors of each bin, most confident first."""
        if not self._state.any():
            raise InvalidInput("A sketch must hold at least one example, got none. Call `update`.")
        right, wrong = self._state[:, ::-1]
        return right + wrong, wrong

    def _bounds(self, *, excess: bool = False) -> Interval:
        size, wrong = self._by_falling_kappa()
        has_errors = wrong > 0
        n, errors, end = self.n, wrong[has_errors], np.cumsum(size)[has_errors]
        start = end - size[has_errors]

        # The best order puts all errors last.
        last = n - errors.sum() + np.cumsum(errors)
        best = HARMONIC.cost(last - errors, last, n) if excess else 0.0

        # A bin that holds one float64 alone: its examples are truly tied.
        starts = _bin_starts(self.bins)
        after = np.nextafter(starts, 2)
        is_tied = (after >= np.append(starts[1:], after[-1]))[::-1][has_errors]
        errors_last = np.where(is_tied, start, end - errors), end
        errors_first = start, np.where(is_tied, end, start + errors)

        costs = (
            HARMONIC.cost(low, high, n) - best
            for low, high in ((start, end), errors_last, errors_first)
        )
        estimate, low, high = (max(0.0, float(np.sum(errors * cost)) / n) for cost in costs)
        slack = _ROUNDING * int(errors.sum()) / n
        return Interval(estimate, max(0.0, low - slack), high + slack)


def _find_bins(kappa: Floats, bins: int) -> Ints:
    """Count the cuts ≤ κ: even ones, those of the lower half, those of the upper half."""
    unit, shift = _unit_and_shift(bins)
    even = (kappa * (_EVEN * unit)).astype(np.int64)
    lower = (kappa.view(np.int64) >> shift) - _LOWEST * unit
    # 1 − κ is exact where it has cuts. Minus 1, because κ = 1 − gap is above its cut like any κ.
    upper = ((1 - kappa).view(np.int64) - 1 >> shift) - (_HIGHEST * unit - 1)
    even += np.clip(lower, 0, _LOWER * unit - 1)
    even += _UPPER * unit - np.clip(upper, 0, _UPPER * unit)
    return even


@lru_cache(maxsize=4)
def _bin_starts(bins: int) -> Floats:
    """Return the least κ of each bin."""
    unit, shift = _unit_and_shift(bins)
    step = np.arange(_EVEN * unit, dtype=np.int64)
    even = (step + 1) / (_EVEN * unit)
    lower = (_LOWEST * unit + step[1 : _LOWER * unit] << shift).view(np.float64)
    gap = (_HIGHEST * unit + step[: _UPPER * unit] << shift).view(np.float64)
    # 1 − gap rounds only where cuts are finer than floats; bins between two floats stay empty.
    return np.sort(np.concatenate(([0.0], even, lower, 1 - gap)))


def _unit_and_shift(bins: int) -> tuple[int, int]:
    """Return the bins per octave, and how many bits of a float their cuts ignore."""
    unit = bins // _MIN_BINS
    return unit, 53 - unit.bit_length()


def _refuse_too_many(examples: int) -> None:
    # Updates alone do not reach this in years: only sums of counts are checked.
    if examples > _MAX_EXAMPLES:
        raise InvalidInput(
            f"A sketch must hold at most 2⁵³ examples, got {examples}. Merge fewer sketches."
        )
