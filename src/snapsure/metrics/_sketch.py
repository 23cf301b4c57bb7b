"""Metrics of a stream in fixed memory. κ higher is surer, errors lower is better.

A sketch counts, for each of many fixed bins of κ, the points that were right and those that were
wrong. Sketches of one stream or of many add up, whole numbers all, so the order of merges changes
no bit. What the bins do not tell is the order within a bin: the best and the worst bound the areas.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _validate
from snapsure._types import Array, Bools, Floats, Ints
from snapsure.errors import InvalidInput
from snapsure.metrics._bins import FEWEST_BINS, bin_of, holds_one_float, thetas
from snapsure.metrics._bootstrap import Interval
from snapsure.metrics._curve import RCCurve
from snapsure.metrics._weights import HARMONIC

# Points at once: their temporaries stay in the cache.
_BLOCK = 1 << 14
# Beyond this, counts are no longer exact as float64.
_MOST_POINTS = 1 << 53
# What an error adds is below 40, and known to a few units in its last place. Summed over all errors
# it is off by less than this for each, which a test holds against thirty digits.
_ROUNDING = 1e-12


class RiskCoverageSketch:
    """AURC, E-AURC and the risk-coverage curve of an unbounded stream, in fixed memory.

    Points whose κ falls into one bin count as tied, by the mean over their orders. Two κ share a
    bin only if they differ by less than 2 / bins, and by less than 256 / bins of κ and of 1 − κ
    (κ from 2⁻⁷⁷ on). The curve is exact at every threshold it gives; the areas come with bounds
    that hold for certain.

    Parameters
    ----------
    bins : power of two ≥ 256
        16 bytes each: 1 MiB by default, however many points are seen.

    Raises
    ------
    InvalidInput
        For a number of bins that is no power of two, or below 256.

    Examples
    --------
    >>> sketch = RiskCoverageSketch()
    >>> sketch.update([0.9, 0.8], [1, 0])
    >>> other = RiskCoverageSketch()
    >>> other.update([0.7, 0.6], [0, 0])
    >>> both = sketch.merge(other)
    >>> both
    RiskCoverageSketch(bins=65536): 4 points, 1 wrong
    >>> round(both.aurc(), 6)
    0.520833
    """

    def __init__(self, bins: int = 65536) -> None:
        bins = _validate.count(bins, "bins", least=FEWEST_BINS)
        if bins & (bins - 1):
            raise InvalidInput(
                f"`bins` must be a power of two, got {bins}: pass {1 << bins.bit_length()}"
            )
        self._state = np.zeros((2, bins), dtype=np.int64)

    @classmethod
    def from_state(cls, state: ArrayLike) -> "RiskCoverageSketch":
        """Make the sketch whose `state` this is, or the sum of several states.

        Examples
        --------
        >>> sketch = RiskCoverageSketch(bins=256)
        >>> sketch.update([0.9, 0.8], [1, 0])
        >>> RiskCoverageSketch.from_state(sketch.state + sketch.state).n
        4
        """
        counts = _validate.numbers(state, "state")
        if counts.ndim != 2 or len(counts) != 2 or counts.dtype.kind not in "iu":
            raise InvalidInput(
                "`state` must hold whole numbers of shape (2, bins), "
                f"got {counts.dtype} of shape {counts.shape}: pass what `sketch.state` gave"
            )
        sketch = cls(counts.shape[1])
        if counts.min() < 0:
            raise InvalidInput(
                f"`state` must be ≥ 0, got {counts.min()}: add states, do not subtract them"
            )
        _refuse_too_many(int(counts.sum(dtype=np.float64)))
        sketch._state[:] = counts
        return sketch

    @property
    def state(self) -> Ints:
        """A copy of all there is: how many points of each bin were right, how many wrong.

        (2, bins) of int64, from the least sure bin to the surest. The sum of the states of two
        sketches is the state of both streams.
        """
        return self._state.copy()

    @property
    def bins(self) -> int:
        """How many bins."""
        return self._state.shape[1]

    @property
    def n(self) -> int:
        """How many points were seen."""
        return int(self._state.sum())

    @property
    def errors(self) -> int:
        """How many of them were wrong."""
        return int(self._state[1].sum())

    def update(self, kappa: ArrayLike, errors: ArrayLike) -> None:
        """Take in more points. A batch that is refused leaves the sketch as it was.

        Parameters
        ----------
        kappa : (n,) or one number
            Confidence in [0, 1], higher is surer; read as float64.
        errors : (n,) or one number
            0 (right) or 1 (wrong).

        Raises
        ------
        InvalidInput
            For κ outside [0, 1], other losses than 0/1, NaN, empty input, shapes that differ.

        Examples
        --------
        >>> sketch = RiskCoverageSketch()
        >>> sketch.update(0.9, 0)
        >>> sketch.update([0.8, 0.7], [0, 1])
        >>> sketch.n, sketch.errors
        (3, 1)
        """
        scores = _validate.probabilities(_column(kappa, "kappa"), "kappa")
        wrong = _validate.errors(_column(errors, "errors"), scores.shape)
        cells = self._state.reshape(-1)
        for low in range(0, scores.size, _BLOCK):
            part = slice(low, low + _BLOCK)
            np.add.at(cells, bin_of(scores[part], self.bins) + self.bins * wrong[part], 1)

    def merge(self, *others: "RiskCoverageSketch") -> "RiskCoverageSketch":
        """Sketch of all their points together, in whatever order they are merged.

        Examples
        --------
        >>> parts = [RiskCoverageSketch() for _ in range(3)]
        >>> for part in parts:
        ...     part.update([0.9, 0.8], [0, 1])
        >>> RiskCoverageSketch().merge(*parts).n
        6
        """
        for other in others:
            if not isinstance(other, RiskCoverageSketch):
                raise InvalidInput(
                    f"`others` must be sketches, got {type(other).__name__}: "
                    "make one of a state by `RiskCoverageSketch.from_state`"
                )
            if other.bins != self.bins:
                raise InvalidInput(
                    f"`others` must have {self.bins} bins, as this sketch has, got {other.bins}: "
                    "give all sketches the same `bins`"
                )
        _refuse_too_many(self.n + sum(other.n for other in others))
        merged = RiskCoverageSketch(self.bins)
        for sketch in (self, *others):
            merged._state += sketch._state
        return merged

    def aurc(self) -> float:
        """Area under the risk-coverage curve, the points of a bin counting as tied."""
        return self.aurc_bounds().estimate

    def eaurc(self) -> float:
        """Excess of `aurc` over the best order in hindsight; 0 for a perfect ranking of bins."""
        return self.eaurc_bounds().estimate

    def aurc_bounds(self) -> Interval:
        """`aurc`, and the bounds between which `snapsure.aurc` of all points lies for certain.

        The bounds put the errors of each bin last, and first: at most m (1 + ln n) / 2 apart, m
        being the fullest bin's share of the n points. On either side 10⁻¹² of the error rate is
        added for rounding. A bin that has room for one float64 only, such as κ = 1, holds true
        ties and widens nothing.

        Returns
        -------
        Interval
            (estimate, low, high)

        Examples
        --------
        The middle two of four points share a bin, and could stand either way round.

        >>> sketch = RiskCoverageSketch(bins=256)
        >>> sketch.update([0.9, 0.6001, 0.6002, 0.3], [0, 0, 1, 1])
        >>> [round(value, 6) for value in sketch.aurc_bounds()]
        [0.270833, 0.208333, 0.333333]
        """
        return self._error_bins().areas()

    def eaurc_bounds(self) -> Interval:
        """`eaurc`, and the bounds between which `snapsure.eaurc` of all points lies for certain.

        As far apart as those of `aurc_bounds`: the best order in hindsight is known exactly.
        """
        bins = self._error_bins()
        return bins.areas(above=bins.least_costs())

    def rc_curve(self) -> RCCurve:
        """Selective risk against coverage, one point per bin that holds any.

        Exact: accepting κ ≥ `theta[i]` gave `coverage[i]` and `risk[i]` on the points seen.

        Examples
        --------
        >>> sketch = RiskCoverageSketch()
        >>> sketch.update([1.0, 0.75, 0.75, 0.5], [0, 0, 1, 1])
        >>> curve = sketch.rc_curve()
        >>> curve.coverage.tolist(), curve.theta.tolist()
        ([0.25, 0.75, 1.0], [1.0, 0.75, 0.5])
        """
        size, wrong = self._from_the_surest()
        some = size > 0
        end, loss = np.cumsum(size)[some], np.cumsum(wrong)[some]
        return RCCurve(end / end[-1], loss / end, thetas(self.bins)[::-1][some])

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same counts in the same bins."""
        if not isinstance(other, RiskCoverageSketch):
            return NotImplemented
        return np.array_equal(self._state, other._state)

    __hash__ = None  # type: ignore[assignment]  # it changes with each update

    def __repr__(self) -> str:
        """What it holds."""
        return f"RiskCoverageSketch(bins={self.bins}): {self.n:,} points, {self.errors:,} wrong"

    def __reduce__(self) -> tuple[Any, ...]:
        # Ray gives all who ask for an array the same memory, read-only, and `np.add.at` writes to
        # it all the same; `from_state` copies.
        return RiskCoverageSketch.from_state, (self._state,)

    def _from_the_surest(self) -> tuple[Ints, Ints]:
        """Points and errors of each bin."""
        if not self._state.any():
            raise InvalidInput("a sketch must hold at least one point, got none: call `update`")
        right, wrong = self._state[:, ::-1]
        return right + wrong, wrong

    def _error_bins(self) -> "_ErrorBins":
        size, wrong = self._from_the_surest()
        some = wrong > 0
        end, size = np.cumsum(size)[some], size[some]
        tied = holds_one_float(self.bins)[::-1][some]
        return _ErrorBins(self.n, wrong[some], end - size, end, tied)


class _ErrorBins(NamedTuple):
    """Bins with errors, surest first: how many, and the places of all points of the bin."""

    n: int
    errors: Ints
    start: Ints
    end: Ints
    tied: Bools  # all of one κ

    def areas(self, above: Floats | float = 0.0) -> Interval:
        """Area, less what costs are given: with errors anywhere in their bin, last, and first."""
        last = np.where(self.tied, self.start, self.end - self.errors)
        first = np.where(self.tied, self.end, self.start + self.errors)
        places = (self.start, self.end), (last, self.end), (self.start, first)
        costs = (HARMONIC.cost(low, high, self.n) - above for low, high in places)
        estimate, low, high = (max(0.0, float(np.sum(self.errors * c)) / self.n) for c in costs)
        slack = _ROUNDING * int(self.errors.sum()) / self.n
        return Interval(estimate, max(0.0, low - slack), high + slack)

    def least_costs(self) -> Floats:
        """What these errors cost each in the best order of all: at its end, in the same order."""
        end = self.n - self.errors.sum() + np.cumsum(self.errors)
        return HARMONIC.cost(end - self.errors, end, self.n)


def _column(value: ArrayLike, name: str) -> Array:
    return np.atleast_1d(_validate.numbers(value, name))


def _refuse_too_many(points: int) -> None:
    # Updates alone do not get there in years: only sums of counts are checked.
    if points > _MOST_POINTS:
        raise InvalidInput(
            f"a sketch must hold at most 2⁵³ points, got {points}: merge fewer sketches"
        )
