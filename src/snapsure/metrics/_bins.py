"""Bins of κ in [0, 1], fixed in advance, fine where κ crowds.

A float's bits, read as an integer, rise evenly through an octave and on into the next: cut by them,
bins are fine near 0 and near 1, where a confident network has most of its points. Even cuts of
[0, 1] add to them, and make the middle fine as well.
"""

from functools import lru_cache

import numpy as np

from snapsure._types import Bools, Floats, Ints

# Of each 256 bins 128 are cut evenly, 76 cut the octaves of κ from 2⁻⁷⁷ to 1/2, and 52 those of
# 1 − κ from 2⁻⁵³, the least that float64 has, to 1/2.
FEWEST_BINS = 256
_EVEN, _LOWER, _UPPER = 128, 76, 52
# Where 2⁻⁷⁷ and 2⁻⁵³ stand among the octaves of float64, whose exponents are counted from 1023 on.
_LOWEST, _HIGHEST = 1023 - 77, 1023 - 53


def bin_of(kappa: Floats, bins: int) -> Ints:
    """How many cuts are ≤ κ: even ones, those of the lower half, those of the upper."""
    unit, shift = _unit_and_shift(bins)
    even = (kappa * (_EVEN * unit)).astype(np.int64)
    lower = (kappa.view(np.int64) >> shift) - _LOWEST * unit
    # 1 − κ is exact where it has cuts. Less one: κ = 1 − gap is above its cut, as any other κ is.
    upper = ((1 - kappa).view(np.int64) - 1 >> shift) - (_HIGHEST * unit - 1)
    even += np.clip(lower, 0, _LOWER * unit - 1)
    even += _UPPER * unit - np.clip(upper, 0, _UPPER * unit)
    return even


@lru_cache(maxsize=4)
def thetas(bins: int) -> Floats:
    """Give the least κ of each bin."""
    unit, shift = _unit_and_shift(bins)
    step = np.arange(_EVEN * unit, dtype=np.int64)
    even = (step + 1) / (_EVEN * unit)
    lower = (_LOWEST * unit + step[1 : _LOWER * unit] << shift).view(np.float64)
    gap = (_HIGHEST * unit + step[: _UPPER * unit] << shift).view(np.float64)
    # 1 − gap is rounded only where cuts are finer than floats; bins between two floats stay empty.
    return np.sort(np.concatenate(([0.0], even, lower, 1 - gap)))


def holds_one_float(bins: int) -> Bools:
    """Whether all points of a bin must have the same κ."""
    after = np.nextafter(thetas(bins), 2)
    return after >= np.append(thetas(bins)[1:], after[-1])


def _unit_and_shift(bins: int) -> tuple[int, int]:
    """Bins to an octave, and how many bits of a float their cuts do not look at."""
    unit = bins // FEWEST_BINS
    return unit, 53 - unit.bit_length()
