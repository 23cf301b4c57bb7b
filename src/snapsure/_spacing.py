"""Evenly spaced epochs: what `Evenly` records is what `AES` averages."""

import math

import numpy as np

from snapsure._types import Ints


def beginning(last: int, start: float, first: int) -> int:
    """⌊start · last⌋, and not before the first."""
    return max(first, math.floor(start * last + 1e-9))


def evenly_spaced(first: int, last: int, k: int) -> Ints:
    """linspace(first, last, k) rounded, both ends in, each once; a single one is the last."""
    grid = np.linspace(first, last, k) if k > 1 else np.array([last])
    return np.unique(np.rint(grid).astype(np.int64))


def nearest(epochs: Ints, wanted: Ints) -> Ints:
    """Indices of the epochs nearest to those wanted, each once; of two as near, the later."""
    distance = np.abs(epochs[::-1][None, :] - wanted[:, None])
    return np.unique(epochs.size - 1 - distance.argmin(axis=1))


def choose(epochs: Ints, k: int, start: float) -> Ints:
    """Indices of k epochs evenly spaced from the fraction `start` on; of fewer, all."""
    begin = beginning(int(epochs[-1]), start, int(epochs[0]))
    inside = np.flatnonzero(epochs >= begin)
    if k >= inside.size:
        return np.union1d(inside, nearest(epochs, np.array([begin])))
    return nearest(epochs, evenly_spaced(begin, int(epochs[-1]), k))
