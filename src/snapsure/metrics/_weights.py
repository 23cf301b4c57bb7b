"""What an error costs by its place in the order, for each area.

With a = the number of points surer than an error, an untied error adds (φ(n) − φ(a)) / scale(n):

- AURC: φ(a) = H_a, the harmonic number, because the i-th risk divides by i;
- AUGRC: φ(a) = a, because the generalised risk divides by n.

Tied points take the mean of φ over the places they share, which is a closed form.
"""

from abc import ABC, abstractmethod
from functools import lru_cache

import numpy as np

from snapsure._types import Floats, Ints

# Up to here harmonic numbers are looked up; beyond, two terms of Stirling's series are exact.
_TABLE = 1 << 17
# From here on the series of H_b − H_a, taken to the sixth power, is exact to the last bit.
_SERIES = 64


class Weights(ABC):
    """φ, its values at places, and its means over the places of tied points."""

    @abstractmethod
    def at(self, place: Ints) -> Floats:
        """φ at places."""

    @abstractmethod
    def rise(self, start: Ints, middle: Ints, end: Ints) -> Floats:
        """Mean of φ over [middle, end) less its mean over [start, end), none being empty."""

    @abstractmethod
    def scale(self, n: int) -> float:
        """What the sum over errors is divided by."""

    @abstractmethod
    def risk(self, loss: Floats, accepted: Ints, n: int) -> Floats:
        """The risk that the area averages, where `accepted` of n points let `loss` through."""

    def span(self, start: int, end: int) -> Floats:
        """φ at start, …, end − 1."""
        return self.at(np.arange(start, end))


class Harmonic(Weights):
    """φ(a) = H_a: the weights of AURC."""

    def at(self, place: Ints) -> Floats:
        """H_a by table where a is small, by its series elsewhere."""
        if place.size == 0 or place.max() < _TABLE:
            return _table()[place]
        x = place.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            reciprocal = 1 / x
            result = np.log(x, out=x)
            result += np.euler_gamma
            result += reciprocal * (0.5 - reciprocal / 12)
        near = place < _TABLE
        if near.any():
            result[near] = _table()[place[near]]
        return result

    def rise(self, start: Ints, middle: Ints, end: Ints) -> Floats:
        """Difference of means, each H_b − 1 + a (H_b − H_a) / (b − a): its first terms cancel."""
        return _mean_above(middle, end) - _mean_above(start, end)

    def span(self, start: int, end: int) -> Floats:
        """H_a for neighbouring a: a slice of the table where it reaches."""
        if end <= _TABLE:
            return _table()[start:end]
        return super().span(start, end)

    def cost(self, start: Ints, end: Ints, n: int) -> Floats:
        """Mean of H_n − H_a over the places a in [start, end), none being empty."""
        return 1 - _mean_above(start, end) + _difference(end, np.full_like(end, n))

    def scale(self, n: int) -> float:
        """The n risks are averaged."""
        return float(n)

    def risk(self, loss: Floats, accepted: Ints, n: int) -> Floats:
        """Mean loss of the accepted points."""
        return loss / accepted


class Linear(Weights):
    """φ(a) = a: the weights of AUGRC."""

    def at(self, place: Ints) -> Floats:
        """The place itself."""
        return place.astype(np.float64)

    def rise(self, start: Ints, middle: Ints, end: Ints) -> Floats:
        """Half of what the range was cut by."""
        return (middle - start) / 2

    def scale(self, n: int) -> float:
        """The n generalised risks, each over n, are averaged."""
        return float(n) ** 2

    def risk(self, loss: Floats, accepted: Ints, n: int) -> Floats:
        """Loss per point, accepted or not."""
        return loss / n


HARMONIC, LINEAR = Harmonic(), Linear()


@lru_cache(maxsize=1)
def _table() -> Floats:
    """H_0, …, H_{_TABLE − 1}, summed in extended precision and rounded once."""
    terms = 1 / np.arange(1, _TABLE, dtype=np.longdouble)
    return np.concatenate(([0.0], np.cumsum(terms))).astype(np.float64)


def _mean_above(start: Ints, end: Ints) -> Floats:
    """Compute a (H_b − H_a) / (b − a)."""
    return start * _difference(start, end) / (end - start)


def _difference(start: Ints, end: Ints) -> Floats:
    """H_b − H_a, b − a as small against a as may be, without cancellation."""
    a, b = start.astype(np.float64), end.astype(np.float64)
    size = b - a
    near = start < _SERIES
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = np.log1p(size / a) - size / (2 * a * b) + _series(a) - _series(b)
    if near.any():
        difference[near] = HARMONIC.at(end[near]) - HARMONIC.at(start[near])
    return difference


def _series(x: Floats) -> Floats:
    """ln x + γ + 1/(2x) − H_x."""
    y = 1 / (x * x)
    return y * (1 / 12 - y * (1 / 120 - y / 252))
