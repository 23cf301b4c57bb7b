"""Keys of 32 bits for rows of float64: sorted twice as fast, where they tell points apart.

κ is mapped to 31 bits by a line that falls, which never turns an order round: rounding a
difference, a product or a fraction away keeps the order, and equal κ stay equal. What is lost is
that points may seem tied which are not. Where a right and a wrong point seem so, the row must be
ranked by all of its bits; where none do, errors stand where they would stand.
"""

import math

import numpy as np
from numpy.typing import NDArray

from snapsure._types import Array, Bools, Scores

Coarse = NDArray[np.uint32]

_LARGEST = 2**31 - 1
_FEWEST_ROWS = 8  # one row is sorted twice to see whether it is worth it
# Of n points so many pairs seem tied by chance: n² / 2³². Beyond this most rows have one.
_LONGEST = 1 << 16


class CoarseKeys:
    """Keys whose rise is the fall of κ; the lowest bit is the error. Their memory is reused."""

    def __init__(self, errors: Bools) -> None:
        self._errors = errors.astype(np.uint32)
        self._keys: Coarse = np.empty(0, np.uint32)

    def of(self, kappa: Scores) -> Coarse:
        """Keys of the rows of κ (rows, n); good until the next are asked for."""
        if self._keys.size < kappa.size:
            self._keys = np.empty(kappa.size, np.uint32)
        keys = self._keys[: kappa.size].reshape(kappa.shape)
        least, most = float(kappa.min()), float(kappa.max())
        span, reach = most - least, max(-least, most)
        if reach > 2 * span:  # far from 0, as seen from each other
            kappa, most, reach = kappa - most, 0.0, span
        longest = max(span, reach)
        scale = _LARGEST / longest if longest > 0 else 0.0
        if 0 < scale < math.inf:
            np.multiply(kappa, -scale, out=keys.view(np.int32), casting="unsafe")
            keys <<= 1
            # The surest comes to 0, modulo 2³².
            keys += self._errors + np.uint32(2 * int(most * scale) % 2**32)
        else:  # all are one, or float64 has no room for the line: all seem tied
            keys[:] = self._errors
        return keys


def tell_apart(kappa: Scores, errors: Bools) -> bool:
    """Whether coarse keys are worth it for rows of κ (rows, n), by the last, mostly the surest."""
    if len(kappa) < _FEWEST_ROWS or kappa.itemsize != 8 or errors.size > _LONGEST:
        return False
    keys: Array = np.sort(CoarseKeys(errors).of(kappa[-1:])[0])
    return not bool((keys[1:] ^ keys[:-1] == 1).any())
