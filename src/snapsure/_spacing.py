"""Evenly spaced epochs: `Evenly` records the epochs that `AES` averages."""

import math

import numpy as np

from snapsure._types import Ints


def beginning(last: int, start: float, first: int) -> int:
    """Return ⌊start · last⌋, but no epoch before the first or after the last."""
    return min(last, max(first, math.floor(start * last + 1e-9)))


def evenly_spaced(first: int, last: int, k: int) -> Ints:
    """Return linspace(first, last, k) rounded, both ends included, each once; of one, the last."""
    if k == 1:
        return np.array([last])
    base = first if last > 2**53 else 0  # beyond, not every whole number is a float64
    grid = np.rint(np.linspace(first - base, last - base, k))
    return np.unique([base + min(int(epoch), last - base) for epoch in grid])


def nearest(epochs: Ints, wanted: Ints) -> Ints:
    """Return indices of the epochs nearest to those wanted, each once; of two, the later."""
    distance = np.abs(epochs[::-1][None, :] - wanted[:, None])
    return np.unique(epochs.size - 1 - distance.argmin(axis=1))


def choose(epochs: Ints, k: int, start: float) -> Ints:
    """Return indices of k epochs, evenly spaced from the fraction `start` of the training on.

    Where there are fewer than k, all of them.
    """
    begin = beginning(int(epochs[-1]), start, int(epochs[0]))
    inside = np.flatnonzero(epochs >= begin)
    if k >= inside.size:
        return np.union1d(inside, nearest(epochs, np.array([begin])))
    return nearest(epochs, evenly_spaced(begin, int(epochs[-1]), k))
