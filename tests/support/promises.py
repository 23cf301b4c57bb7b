"""Answers of known risk, and the walk that proves a promise, written as its definition reads."""

import math
from itertools import pairwise

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
    rungs = allocate_delta(len(kappa), min(limit for _, limit in risks), delta, even=even)
    shares = {int(c): factor * s for c, s in zip(*rungs, strict=True)}
    best, carried = None, 0.0
    edges = [math.inf, *sorted(set(kappa), reverse=True)]
    for above, theta in pairwise(edges):
        tie = [i for i, k in enumerate(kappa) if theta <= k < above]
        before = [i for i, k in enumerate(kappa) if k >= above]
        accepted = before + tie
        # A rung inside this tie starts a walk where the examples up to it prove the risk.
        for count in range(len(before) + 1, len(accepted) + 1):
            if count not in shares:
                continue
            if not carried:
                first = [worst_of(tie, count - len(before), errors, mask) for mask, _ in risks]
                starts = all(
                    cdf(
                        sum(errors[i] for i in before if mask[i]) + wrong,
                        sum(mask[i] for i in before) + counted - 1,
                        limit,
                    )
                    <= shares[count]
                    for (mask, limit), (wrong, counted) in zip(risks, first, strict=True)
                )
                if not starts:
                    continue
            carried += shares[count]
        if carried and all(
            cdf(
                sum(errors[i] for i in accepted if mask[i]),
                sum(mask[i] for i in accepted),
                limit,
            )
            <= carried
            for mask, limit in risks
        ):
            best = theta
        else:
            carried = 0.0
    return best, carried


def worst_of(tie, size, errors, mask):
    """Errors and counted examples among the `size` of a tie that come first in the worst order."""
    order = sorted(tie, key=lambda i: (not (mask[i] and errors[i]), bool(mask[i])))[:size]
    return sum(mask[i] and errors[i] for i in order), sum(mask[i] for i in order)


def cdf(wrong, n, limit):
    """P(at most so many errors), 1 where all are wrong."""
    return 1.0 if wrong >= n else binom.cdf(wrong, n, limit)
