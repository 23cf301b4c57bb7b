"""Promises of a risk, exactly: every outcome of small samples of known populations."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from snapsure import Threshold
from snapsure.decisions._promise import Rungs, Sample, find_smallest, upper_bound
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
    """Of ten tied examples three are wrong: among the first five as many, and one is left out."""
    sample = Sample(np.full(10, 0.5), np.arange(10) < 3, 0.9)
    assert sample.first(0, 5, sample.risks[0]) == (3, 4)
    passes = binom.cdf(3, 4, 0.9)
    assert sample.prove(Rungs(np.array([5]), np.array([passes + 1e-9]))).last == 0
    assert sample.prove(Rungs(np.array([5]), np.array([passes - 1e-9]))).last == -1


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


@pytest.mark.parametrize("wrong", [0, 1])
def test_what_can_promise_no_risk_at_all(wrong):
    with pytest.raises(Infeasible) as caught:
        Threshold.at_risk(np.arange(19), np.full(19, wrong), "smallest")
    assert caught.value.possible is None
