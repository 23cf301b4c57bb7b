"""What an error costs at each place in the order, for each area.

Let a be the number of examples ranked above an error. Without ties, the error adds
(φ(n) − φ(a)) / scale(n) to the area:

- AURC: φ(a) = H_a, the harmonic number, because the i-th risk divides by i;
- AUGRC: φ(a) = a, because the generalised risk divides by n.

Tied examples take the mean of φ over the places they share, which has a closed form.
"""

from functools import lru_cache

import numpy as np

from snapsure._types import Floats, Ints

# Harmonic numbers below this are looked up; beyond it, two terms of Stirling's series are exact.
_TABLE = 1 << 17
# From here on, the series of H_b − H_a up to the sixth power is exact to the last bit.
_SERIES = 64


class Harmonic:
    """φ(a) = H_a: the weights of AURC."""

    def at(self, place: Ints) -> Floats:
        """Return φ at the places: looked up where a is small, by Stirling's series elsewhere."""
        if place.size == 0 or place.max() < _TABLE:
            return _harmonic_table()[place]

        x = place.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            reciprocal = 1 / x
            result = np.log(x, out=x)
            result += np.euler_gamma
            result += reciprocal * (0.5 - reciprocal / 12)
        near = place < _TABLE
        if near.any():
            result[near] = _harmonic_table()[place[near]]
        return result

    def span(self, start: int, end: int) -> Floats:
        """Return φ at start, …, end − 1."""
        return _harmonic_table()[start:end] if end <= _TABLE else self.at(np.arange(start, end))

    def rise(self, start: Ints, middle: Ints, end: Ints) -> Floats:
        """Return the mean of φ over [middle, end) minus its mean over [start, end).

        A mean is H_b − 1 + a (H_b − H_a) / (b − a): the first terms cancel.
        """
        return self._mean_above(middle, end) - self._mean_above(start, end)

    def cost(self, start: Ints, end: Ints, n: int) -> Floats:
        """Return the mean of φ(n) − φ(a) over the places a in [start, end), none of them empty."""
        return 1 - self._mean_above(start, end) + self._difference(end, np.full_like(end, n))

    def scale(self, n: int) -> float:
        """Return what the sum over errors is divided by."""
        return float(n)

    def risk(self, loss: Floats, accepted: Ints, n: int) -> Floats:
        """Return the risk that the area averages, where `accepted` of n examples cost `loss`."""
        return loss / accepted

    def _mean_above(self, start: Ints, end: Ints) -> Floats:
        """Return a (H_b − H_a) / (b − a)."""
        return start * self._difference(start, end) / (end - start)

    def _difference(self, start: Ints, end: Ints) -> Floats:
        """Return H_b − H_a without cancellation, however small b − a is against a."""
        a, b = start.astype(np.float64), end.astype(np.float64)
        size = b - a
        with np.errstate(divide="ignore", invalid="ignore"):
            difference = np.log1p(size / a) - size / (2 * a * b) + _series(a) - _series(b)
        near = start < _SERIES
        if near.any():
            difference[near] = self.at(end[near]) - self.at(start[near])
        return difference


class Linear:
    """φ(a) = a: the weights of AUGRC, whose n risks each divide by n. Methods as of `Harmonic`."""

    def at(self, place: Ints) -> Floats:
        return place.astype(np.float64)

    def span(self, start: int, end: int) -> Floats:
        return np.arange(start, end, dtype=np.float64)

    def rise(self, start: Ints, middle: Ints, end: Ints) -> Floats:
        return (middle - start) / 2

    def cost(self, start: Ints, end: Ints, n: int) -> Floats:
        return n - (start + end - 1) / 2

    def scale(self, n: int) -> float:
        return float(n) ** 2

    def risk(self, loss: Floats, accepted: Ints, n: int) -> Floats:
        return loss / n


Weights = Harmonic | Linear
HARMONIC, LINEAR = Harmonic(), Linear()


@lru_cache(maxsize=1)
def _harmonic_table() -> Floats:
    """Return H_0, …, H_{_TABLE − 1}, summed in extended precision and rounded once."""
    terms = 1 / np.arange(1, _TABLE, dtype=np.longdouble)
    return np.concatenate(([0.0], np.cumsum(terms))).astype(np.float64)


def _series(x: Floats) -> Floats:
    """Return ln x + γ + 1/(2x) − H_x."""
    y = 1 / (x * x)
    return y * (1 / 12 - y * (1 / 120 - y / 252))
