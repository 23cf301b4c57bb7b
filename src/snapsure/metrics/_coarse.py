"""Keys of 32 bits for rows of float64: sorted twice as fast, where they tell points apart.

κ is mapped to 31 bits by a line that falls, which never turns an order round: rounding a
difference, a product or a fraction away keeps the order, and equal κ stay equal. What is lost is
that points may seem tied which are not. Where a right and a wrong point seem so, the row must be
ranked by all of its bits; where none do, errors stand where they would stand.
"""

import math

import numpy as np
from numpy.typing import NDArray

from snapsure._types import Array, Bools, Floats, Scores

Coarse = NDArray[np.uint32]

_LARGEST = 2**31 - 1
_FEWEST_ROWS = 8  # one row is sorted twice to see whether it is worth it
# Of n points so many pairs seem tied by chance: n² / 2³². Beyond this most rows have one.
_LONGEST = 1 << 16


class CoarseKeys:
    """Keys whose rise is the fall of κ; the lowest bit is the error. Their memory is reused."""

    def __init__(self, errors: Bools) -> None:
        self._errors = errors.astype(np.uint32)
        self._falls: Floats = np.empty(0)
        self._keys: Coarse = np.empty(0, np.uint32)

    def of(self, kappa: Scores) -> Coarse:
        """Keys of the rows of κ (rows, n); good until the next are asked for."""
        least, most = float(kappa.min()), float(kappa.max())
        scale = _LARGEST / (most - least) if most > least else 0.0
        if self._keys.size < kappa.size:
            self._falls, self._keys = np.empty(kappa.size), np.empty(kappa.size, np.uint32)
        keys = self._keys[: kappa.size].reshape(kappa.shape)
        if 0 < scale < math.inf:
            falls = self._falls[: kappa.size].reshape(kappa.shape)
            np.subtract(most, kappa, out=falls)
            falls *= scale
            np.copyto(keys.view(np.int32), falls, casting="unsafe")
            keys <<= 1
        else:  # all are one, or float64 has no room for the line: all seem tied
            keys[:] = 0
        keys |= self._errors
        return keys


def tell_apart(kappa: Scores, errors: Bools) -> bool:
    """Whether coarse keys are worth it for rows of κ (rows, n), by the last, mostly the surest."""
    if len(kappa) < _FEWEST_ROWS or kappa.itemsize != 8 or errors.size > _LONGEST:
        return False
    keys: Array = np.sort(CoarseKeys(errors).of(kappa[-1:])[0])
    return not bool((keys[1:] ^ keys[:-1] == 1).any())
