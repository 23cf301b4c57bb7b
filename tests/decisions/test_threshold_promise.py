"""Simulations: are promises of a risk kept, and how much do they accept?"""

import math
from contextlib import suppress

import numpy as np
import pytest
from scipy.stats import binomtest

from snapsure import Threshold
from snapsure.errors import Infeasible
from tests.support.promises import draw

# Risks as a function of u, the share of more confident examples; each with its mean up to u.
ORDINARY = lambda u: 0.3 * u**2, lambda c: 0.1 * c**2
REGIMES = {
    # name: (examples, risk, P(wrong | u), true risk at coverage c, levels of κ or None)
    "ordinary": (1000, 0.05, *ORDINARY, None),
    "tiny": (75, 0.05, *ORDINARY, None),
    "ties": (1000, 0.05, *ORDINARY, 17),
    "heavy ties": (300, 0.05, *ORDINARY, 3),
    "flat, at the edge": (500, 0.05, lambda u: 0.0501 + 0 * u, lambda c: 0.0501 + 0 * c, None),
    "flat, ties": (500, 0.05, lambda u: 0.0501 + 0 * u, lambda c: 0.0501 + 0 * c, 9),
    "upside down": (1000, 0.05, lambda u: 0.12 * (1 - u), lambda c: 0.12 * (1 - c / 2), None),
    "sure mistakes": (
        2000,
        0.05,
        lambda u: np.where(u < 0.01, 1.0, 0.3 * u**2),
        lambda c: (np.minimum(c, 0.01) - 0.1 * np.minimum(c, 0.01) ** 3 + 0.1 * c**3) / c,
        None,
    ),
    "waves": (
        1000,
        0.05,
        lambda u: 0.05 * (1 + np.cos(40 * u)),
        lambda c: 0.05 * (1 + np.sin(40 * c) / (40 * c)),
        None,
    ),
}


def share_accepted(theta, levels):
    """The true coverage: κ = 1 − u, or the upper edge of its level."""
    return 1 - theta if levels is None else 1 - (math.ceil(round(theta * levels, 9)) - 1) / levels


def assert_kept(is_broken, draws=400, delta=0.1):
    """`is_broken` makes a promise from a generator and delta, if one is possible."""
    broken = 0
    for seed in range(draws):
        with suppress(Infeasible):
            broken += is_broken(np.random.default_rng(seed), delta)
    assert binomtest(broken, draws, delta, alternative="greater").pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("regime", REGIMES)
def test_promises_are_broken_at_most_delta_of_the_time(regime):
    n, risk, wrong, true_risk, levels = REGIMES[regime]

    def is_broken(rng, delta):
        u = rng.random(n)
        kappa = 1 - u if levels is None else np.ceil((1 - u) * levels) / levels
        chosen = Threshold.at_risk(kappa, rng.random(n) < wrong(u), risk, delta)
        return true_risk(share_accepted(chosen.theta, levels)) > risk

    assert_kept(is_broken)


@pytest.mark.slow
def test_promises_for_all_groups_at_once_are_broken_at_most_delta_of_the_time():
    def is_broken(rng, delta):
        u, group = rng.random(1200), rng.integers(0, 4, 1200)
        wrong = np.choose(group, [0.001 + 0 * u, 0.0501 + 0 * u, 0.3 * u**2, 0.0501 + 0 * u])
        errors = rng.random(1200) < wrong
        theta = Threshold.at_risk(1 - u, errors, 0.05, delta, groups=group).groups
        third = theta[2] < math.inf and 0.1 * (1 - theta[2]) ** 2 > 0.05
        return theta[1] < math.inf or theta[3] < math.inf or third

    assert_kept(is_broken)


@pytest.mark.slow
def test_promises_of_two_risks_are_broken_at_most_delta_of_the_time():
    def is_broken(rng, delta):
        u, mask = rng.random(1500), rng.random(1500) < 0.5
        errors = rng.random(1500) < np.where(mask, 0.0501, 0.01)
        Threshold.at_risk(1 - u, errors, 0.05, delta, within={"some": (mask, 0.05)})
        return True

    assert_kept(is_broken)


@pytest.mark.parametrize(
    ("n", "risk", "sure_mistakes", "least"),
    # What half of delta for the walk and half for a grid of its own accepts: both together more.
    [
        (1000, 0.05, 0, 0.543),
        (200, 0.05, 0, 0.054),
        (5000, 0.05, 0, 0.649),
        (5000, 0.02, 0, 0.362),
        (1000, 0.05, 3, 0.248),
    ],
)
def test_it_accepts_much(n, risk, sure_mistakes, least):
    coverage = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        u = np.sort(rng.random(n))
        errors = rng.random(n) < 0.3 * u**2
        errors[:sure_mistakes] = True
        try:
            coverage.append(Threshold.at_risk(1 - u, errors, risk).coverage)
        except Infeasible:
            coverage.append(0)
    assert np.mean(coverage) >= least


@pytest.mark.slow
def test_the_interval_of_the_cost_covers_what_it_costs():
    """Above θ a share 1 − θ is accepted, (1 − θ) / 2 of it wrong."""
    covered, apparent, estimate, true = 0, [], [], []
    for seed in range(60):
        kappa, errors = draw(seed, 200)
        chosen = Threshold.at_cost(kappa, errors, error=4, review=1)
        share = max(1 - chosen.theta, 0)
        true.append(4 * share**2 / 2 + 1 - share)
        covered += chosen.cost.low <= true[-1] <= chosen.cost.high
        estimate.append(chosen.cost.estimate)
        accepted = chosen.accepts(kappa)
        apparent.append((4 * errors[accepted].sum() + (~accepted).sum()) / 200)
    assert binomtest(covered, 60, 0.93, alternative="less").pvalue > 1e-4
    assert abs(np.mean(estimate) - np.mean(true)) < abs(np.mean(apparent) - np.mean(true)) / 2


@pytest.mark.parametrize(("risk", "n"), [(0.1, 30), (0.05, 60), (0.02, 150), (0.01, 300)])
def test_the_fewest_examples_that_can_promise_anything(risk, n):
    """Without an error: so many can, and one fewer cannot (docs/how-to/decide.md has them)."""
    assert Threshold.at_risk(np.linspace(0, 1, n), np.zeros(n), risk).risk == risk
    with pytest.raises(Infeasible):
        Threshold.at_risk(np.linspace(0, 1, n - 1), np.zeros(n - 1), risk)
