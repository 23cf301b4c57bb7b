"""Evenly spaced epochs: what `Evenly` records is what `AES` averages."""

import math

import numpy as np
from numpy.typing import NDArray


def evenly_spaced(total: int, k: int, start: float) -> NDArray[np.int64]:
    """linspace(⌊start · total⌋, total, k) rounded, both ends in, each epoch once, none below 1.

    A single one is the last.
    """
    begin = max(1, math.floor(start * total + 1e-9))
    grid = np.linspace(begin, total, k) if k > 1 else np.array([total])
    return np.unique(np.rint(grid).astype(np.int64))


def nearest(epochs: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices of the epochs nearest to those wanted, each once; of two as near, the later."""
    distance = np.abs(epochs[::-1][None, :] - wanted[:, None])
    return np.unique(epochs.size - 1 - distance.argmin(axis=1))
