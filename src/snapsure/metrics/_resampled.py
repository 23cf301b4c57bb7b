"""Areas of resamples from how often each point was drawn: the points are ordered once, never again.

Draws of a point are neighbours in the order, so a cumulative count says where the errors of a
resample stand, and a prefix sum of what places cost says what they add. Right points cost nothing:
only the edges of stretches of errors are looked up, and those of ties that hold both kinds.
"""

from typing import NamedTuple

import numpy as np

from snapsure._types import Bools, Floats, Ints, Scores
from snapsure.metrics._draws import Counts, Lanes
from snapsure.metrics._rank import loss_order
from snapsure.metrics._weights import HARMONIC, Weights


class Edges(NamedTuple):
    """How many drawn points stand before each edge, (edges, resamples)."""

    start: Lanes  # of stretches of errors alone
    end: Lanes
    tie_start: Lanes  # of ties of right and wrong points, the right ones standing first,
    tie_middle: Lanes  # where their errors begin
    tie_end: Lanes

    def errors(self) -> Ints:
        """How many errors each resample has."""
        alone, tied = self.end - self.start, self.tie_end - self.tie_middle
        errors: Ints = alone.sum(axis=0, dtype=np.int64) + tied.sum(axis=0, dtype=np.int64)
        return errors


class ErrorEdges:
    """Where errors stand in the order of κ (n,), whatever is drawn."""

    def __init__(self, kappa: Scores, errors: Bools) -> None:
        self._order, new = loss_order(kappa, errors)
        first = np.flatnonzero(new)
        size = np.diff(first, append=errors.size)
        wrong = np.add.reduceat(errors[self._order].astype(np.int64), first)
        mixed = (wrong > 0) & (wrong < size)
        alone = errors[self._order] & ~np.repeat(mixed, size)
        turns = np.diff(alone.astype(np.int8), prepend=0, append=0)
        tie_end = (first + size)[mixed]
        self._edges = (
            np.flatnonzero(turns == 1),
            np.flatnonzero(turns == -1),
            first[mixed],
            tie_end - wrong[mixed],
            tie_end,
        )

    def of(self, counts: Counts) -> Edges:
        """Where they stand in resamples of these counts."""
        return Edges(*counts.before(self._order, self._edges))


class PlaceCosts:
    """Prefix sums of φ(a) − φ(n) over the places a = 0, 1, …, n − 1."""

    def __init__(self, n: int, weights: Weights) -> None:
        # Less φ(n), because sums that stay small keep their digits.
        costs = weights.span(0, n) - weights.span(n, n + 1)
        self._upto = np.concatenate(([0.0], np.cumsum(costs)))

    def of(self, edges: Edges) -> Floats:
        """Σ of φ(place) − φ(n) over the errors of each resample, tied ones by their mean."""
        cost: Floats = (self._upto.take(edges.end) - self._upto.take(edges.start)).sum(axis=0)
        if len(edges.tie_end):
            wrong, drawn = edges.tie_end - edges.tie_middle, edges.tie_end - edges.tie_start
            shared = self._upto.take(edges.tie_end) - self._upto.take(edges.tie_start)
            cost += (wrong / np.maximum(drawn, 1) * shared).sum(axis=0)
        return cost

    def best(self, errors: Ints) -> Floats:
        """The same of κ*, which has the errors last."""
        costs: Floats = self._upto[-1] - self._upto[self._upto.size - 1 - errors]
        return costs


class ResampledArea:
    """An area of resamples of n points with 0/1 errors."""

    def __init__(self, n: int, weights: Weights) -> None:
        self._scale, self._places = weights.scale(n), PlaceCosts(n, weights)

    def __call__(self, edges: Edges) -> Floats:
        """Area of each resample."""
        return -self._places.of(edges) / self._scale


class ResampledExcess:
    """E-AURC of resamples of n points with 0/1 errors, as it is or over that of a random order."""

    def __init__(self, n: int, *, normalised: bool = False) -> None:
        self._n, self._normalised, self._places = n, normalised, PlaceCosts(n, HARMONIC)

    def __call__(self, edges: Edges) -> Floats:
        """How far each resample's errors stand above where κ* has them."""
        cost, errors = self._places.of(edges), edges.errors()
        excess: Floats = np.maximum(0.0, (self._places.best(errors) - cost) / self._n)
        if not self._normalised:
            return excess
        right = self._n - errors
        gap = right * (HARMONIC.span(self._n, self._n + 1) - HARMONIC.at(right)) / self._n
        ranked = (right > 0) & (errors > 0)
        return np.divide(excess, gap, out=np.zeros_like(excess), where=ranked)
