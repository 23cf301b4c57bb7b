"""Exact binomial tests of a risk: errors are lower where better."""

import math

import numpy as np
from numpy.typing import ArrayLike

from snapsure._types import Floats


def upper_bound(errors: int, n: int, delta: float) -> float:
    """The largest error rate that still gives so few errors in n with probability delta."""
    if errors == n:
        return 1.0
    from scipy.special import betaincinv  # type: ignore[import-untyped]

    return float(betaincinv(errors + 1, n - errors, 1 - delta))


def so_few(errors: ArrayLike, n: ArrayLike, risk: float) -> Floats:
    """P(Binomial(n, risk) ≤ errors): small where the true risk is hardly as high as `risk`."""
    from scipy.special import betainc

    k = np.asarray(errors, dtype=np.float64)
    right = np.asarray(n, dtype=np.float64) - k
    p: Floats = betainc(np.maximum(right, 1), k + 1, 1 - risk)
    return np.where(right > 0, p, 1.0)


def needed(risk: float, level: float) -> int:
    """How many points without any error it takes to reject a risk at a level."""
    # not one more where a power of 1 − risk is the level itself
    return max(1, math.ceil(math.log(level) / math.log1p(-risk) - 1e-9))
