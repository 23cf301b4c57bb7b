"""The threshold that costs least, and what it costs."""

from typing import NamedTuple

import numpy as np

from snapsure._types import Bools, Floats, Ints, Scores
from snapsure.metrics._bootstrap import Interval
from snapsure.metrics._rank import tie_groups

RESAMPLES, LEVEL = 1000, 0.95
_STEPS = 1000  # thresholds that a resample chooses among


class Cheapest(NamedTuple):
    """A threshold (infinite where nothing is accepted), its coverage and its cost per point."""

    theta: float
    coverage: float
    cost: Interval


def cheapest(score: Scores, wrong: Bools, error: float, review: float, seed: int) -> Cheapest:
    """Try every threshold, and accepting none; of equals, the one that accepts fewest."""
    n = score.size
    theta, end, loss = tie_groups(score, wrong)
    accepted, errors = np.append(0, end), np.append(0, loss.astype(np.int64))
    costs = (error * errors + review * (n - accepted)) / n
    at = int(np.argmin(costs))
    spread, optimism = _resampled(accepted, errors, at, error, review, seed)
    estimate = float(costs[at]) + optimism
    low, high = np.quantile(spread, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) + optimism
    return Cheapest(
        float(theta[at - 1]) if at else np.inf,
        float(accepted[at] / n),
        Interval(estimate, float(low), float(high)),
    )


def _resampled(
    accepted: Ints, errors: Ints, at: int, error: float, review: float, seed: int
) -> tuple[Floats, float]:
    """Costs of threshold `at` on resamples, and by how much choosing flatters the chosen one.

    Optimism (Efron 1983): on each resample the cheapest threshold is chosen anew; it costs more on
    the points themselves than on the resample it was chosen on, and the mean of that is added. What
    threshold `at` does there is subtracted: 0 on average, it takes most of the noise with it.
    """
    n = int(accepted[-1])
    kept = np.unique(np.append(np.linspace(0, accepted.size - 1, _STEPS).astype(np.int64), at))
    m, k = accepted[kept], errors[kept]
    wrong, right = np.diff(k), np.diff(m) - np.diff(k)
    rng = np.random.Generator(np.random.SFC64(seed))
    cells = np.concatenate([wrong, right]) / n
    own, optimism = np.searchsorted(kept, at), 0.0
    whole = error * k + review * (n - m)
    spread = np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        drawn = rng.multinomial(n, cells)
        k_drawn = np.append(0, np.cumsum(drawn[: wrong.size]))
        m_drawn = k_drawn + np.append(0, np.cumsum(drawn[wrong.size :]))
        costs = error * k_drawn + review * (n - m_drawn)
        best = int(np.argmin(costs))
        flattered = (whole[best] - costs[best]) - (whole[own] - costs[own])
        optimism += float(flattered) / n / RESAMPLES
        spread[i] = costs[own] / n
    return spread, optimism
