"""Promises of a risk, exactly: every outcome of small samples of known populations."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from snapsure import Threshold
from snapsure.decisions._promise import Rungs, Sample, find_smallest, p_value, upper_bound
from snapsure.errors import Infeasible

# Populations of three tied confidences: the share of each, and how often it is wrong.
POPULATIONS = {
    "the surer, the fewer errors": ([0.4, 0.3, 0.3], [0.05, 0.3, 0.7]),
    "all exactly at the limit": ([0.3, 0.4, 0.3], [0.4, 0.4, 0.4]),
    "upside down": ([0.2, 0.4, 0.4], [0.9, 0.4, 0.3]),
    "the surest are wrong, the others hardly": ([0.3, 0.6, 0.1], [1.0, 0.1001, 0.5]),
    "up, down and up": ([0.25, 0.5, 0.25], [0.41, 0.39, 0.42]),
    "one confidence": ([0.0, 1.0, 0.0], [0.0, 0.401, 0.0]),
}
LIMIT, N = 0.4, 11
# Rungs that no rule of ours would choose are as valid.
RUNGS = {
    "one": Rungs(np.array([6]), np.array([0.3])),
    "two": Rungs(np.array([4, 8]), np.array([0.2, 0.1])),
    "many": Rungs(np.array([3, 5, 7, 9, 11]), np.full(5, 0.06)),
}


def outcomes(shares, wrong):
    """Every sample of N examples up to its order: confidences, errors, and its probability."""
    cells = [(level, error) for level in range(3) for error in (0, 1)]
    chance = [
        shares[level] * (wrong[level] if error else 1 - wrong[level]) for level, error in cells
    ]
    for bars in itertools.combinations(range(N + 5), 5):
        counts = np.diff([-1, *bars, N + 5]) - 1
        if any(count and not p for count, p in zip(counts, chance, strict=True)):
            continue
        ways = math.factorial(N)
        for count in counts.tolist():
            ways //= math.factorial(count)
        p = ways * math.prod(p**k for p, k in zip(chance, counts.tolist(), strict=True))
        level, error = (np.repeat([cell[i] for cell in cells], counts) for i in (0, 1))
        yield 2.0 - level, error.astype(bool), p


def true_risk(shares, wrong, theta):
    """The risk of what is accepted: of confidences 2, 1, 0 those from theta on."""
    levels = [level for level in range(3) if 2.0 - level >= theta]
    total = sum(shares[level] for level in levels)
    return sum(shares[level] * wrong[level] for level in levels) / total


@pytest.mark.parametrize("rungs", RUNGS)
@pytest.mark.parametrize("name", POPULATIONS)
def test_a_promise_is_broken_with_probability_delta_at_most(name, rungs):
    shares, wrong = POPULATIONS[name]
    broken = 0.0
    for kappa, errors, p in outcomes(shares, wrong):
        sample = Sample(kappa, errors, LIMIT)
        last = sample.prove(RUNGS[rungs]).last
        if last >= 0 and true_risk(shares, wrong, sample.theta[last]) > LIMIT:
            broken += p
    assert broken <= RUNGS[rungs].delta.sum() + 1e-9


@pytest.mark.parametrize("name", POPULATIONS)
def test_the_smallest_risk_is_broken_with_probability_delta_at_most(name, monkeypatch):
    monkeypatch.setattr("snapsure.decisions._promise._LEAST", 3)
    shares, wrong = POPULATIONS[name]
    broken = promised = 0.0
    for kappa, errors, p in outcomes(shares, wrong):
        sample = Sample(kappa, errors, LIMIT)
        risk, at = find_smallest(sample, 0.3)
        if at >= 0:
            promised += p
            broken += p * (true_risk(shares, wrong, sample.theta[at]) > risk)
    assert broken <= 0.3 + 1e-9
    assert promised > 0.3


def test_a_rung_within_a_tie_counts_its_errors_first():
    """Of ten tied examples three are wrong: among the first five as many, and one is left out.

    A risk of six of them counts its errors, then the four others, and then what is right.
    """
    wrong, mask = np.arange(10) < 3, np.arange(10) < 6
    sample = Sample(np.full(10, 0.5), wrong, 0.9, within=[(mask, 0.9)])
    assert sample.first(0, 5, sample.risks[0]) == (3, 4)
    for count, first in ((2, (2, 1)), (3, (3, 2)), (7, (3, 2)), (8, (3, 3)), (10, (3, 5))):
        assert sample.first(0, count, sample.risks[1]) == first
    sample = Sample(np.full(10, 0.5), wrong, 0.9)
    passes = binom.cdf(3, 4, 0.9)
    assert sample.prove(Rungs(np.array([5]), np.array([passes + 1e-9]))).last == 0
    assert sample.prove(Rungs(np.array([5]), np.array([passes - 1e-9]))).last == -1


def test_a_rung_whose_tie_is_not_proved_proves_nothing_above_it():
    """Ten are right; of the ten tied below them, all wrong, a rung within the tie takes one."""
    kappa = np.append(np.arange(20.0, 10, -1), np.zeros(10))
    sample = Sample(kappa, kappa == 0, 0.5)
    share = binom.cdf(1, 10, 0.5)
    assert share < binom.cdf(10, 20, 0.5)
    assert sample.prove(Rungs(np.array([11]), np.array([share + 1e-9]))).last == -1


def test_a_probability_of_exactly_the_delta_at_hand_proves():
    """Eight right ones are enough to start at, and the tenth of twelve examples is wrong."""
    sample = Sample(-np.arange(12.0), np.arange(12) == 9, 0.5)
    start, error = p_value(0, 7, 0.5).item(), p_value(1, 10, 0.5).item()
    assert start < error
    for share, last in ((start, 8), (error, 11)):
        assert sample.prove(Rungs(np.array([8]), np.array([share]))).last == last


def test_the_smallest_risk_is_the_least_of_its_bounds():
    """Without ties: counts 100, 71, 50, 36, 25, each at a fifth of delta, one example left out."""
    kappa = np.arange(100, 0, -1) / 100
    errors = np.isin(np.arange(100), [30, 60, 90])
    counts = [100, 71, 50, 36, 25]
    bounds = {c: upper_bound(int(errors[:c].sum()), c - 1, 0.05 / 5) for c in counts}
    best = min(bounds, key=bounds.__getitem__)
    chosen = Threshold.at_risk(kappa, errors, "smallest")
    assert chosen.risk == math.ceil(bounds[best] * 1e4) / 1e4
    assert (chosen.theta, chosen.coverage) == (kappa[best - 1], best / 100)
    with pytest.raises(Infeasible) as caught:
        Threshold.at_risk(kappa, errors, 0.01)
    assert caught.value.possible == chosen.risk


def test_of_equal_smallest_risks_the_one_that_accepts_most_is_promised():
    """As many as 52, 37 and 26 are accepted: 4 of 51 and 2 of 36 wrong have the same bound."""
    errors = np.isin(np.arange(52), [0, 1, 40, 50])
    bounds = {math.ceil(upper_bound(k, n, 0.05 / 3) * 1e4) / 1e4 for k, n in ((4, 51), (2, 36))}
    chosen = Threshold.at_risk(-np.arange(52), errors, "smallest")
    assert ({chosen.risk}, chosen.coverage) == (bounds, 1)


@pytest.mark.parametrize(("n", "wrong"), [(19, 0), (19, 1), (100, 1)])
def test_what_can_promise_no_risk_at_all(n, wrong):
    with pytest.raises(Infeasible) as caught:
        Threshold.at_risk(np.arange(n), np.full(n, wrong), "smallest")
    assert caught.value.possible is None


def test_twenty_examples_are_the_fewest_with_a_smallest_risk():
    chosen = Threshold.at_risk(np.arange(20), np.zeros(20), "smallest")
    assert chosen.risk == math.ceil((1 - 0.05 ** (1 / 19)) * 1e4) / 1e4
