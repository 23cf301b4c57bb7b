"""Answers of known risk, and the walk that proves a promise, written as its definition reads."""

import numpy as np
from scipy.stats import binom

from snapsure.decisions._promise import allocate_delta


def draw(seed, n):
    """κ and errors with P(wrong | κ) = 1 − κ: above θ the true risk is (1 − θ) / 2."""
    rng = np.random.default_rng(seed)
    kappa = rng.random(n)
    return kappa, rng.random(n) > kappa


def walk(kappa, errors, risks, delta, *, even=False, factor=1.0):
    """The last threshold that is proved (None for none), and the delta left at the end.

    `risks` are (mask, limit); the rungs are those of delta, with `factor` times its shares.
    """
    counts, shares = allocate_delta(len(kappa), min(limit for _, limit in risks), delta, even=even)
    best, carried, seen = None, 0.0, 0
    for theta in sorted(set(kappa), reverse=True):
        count = sum(k >= theta for k in kappa)
        added = factor * sum(s for c, s in zip(counts, shares, strict=True) if seen < c <= count)
        seen = count
        if not carried and not added:
            continue
        starts_here, carried = not carried, carried + added
        for mask, limit in risks:
            accepted = [i for i, k in enumerate(kappa) if k >= theta and mask[i]]
            wrong = sum(errors[i] for i in accepted)
            if binom.cdf(wrong, len(accepted) - starts_here, limit) > carried:
                carried = 0.0
        if carried:
            best = theta
    return best, carried
