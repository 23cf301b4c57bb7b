"""A threshold for each group, under one promise."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from snapsure import Threshold
from snapsure.errors import Infeasible
from snapsure.metrics import Interval
from tests.support.promises import draw, walk
from tests.support.refusals import refuses


def reference_groups(kappa, errors, groups, risk, delta):
    """Thresholds by group: delta of groups that accept all goes to the others, until none does."""
    names = sorted(set(groups.tolist()))
    share, budget = delta / len(names), delta / len(names)
    found, still = {}, names
    while still:
        left, done = 0.0, []
        for name in still:
            k, e = kappa[groups == name].tolist(), errors[groups == name].tolist()
            # the rungs stay those of the first share
            risks = [([True] * len(k), risk)]
            theta, rest = walk(k, e, risks, share, factor=budget / share)
            found[name] = math.inf if theta is None else theta
            if theta == min(k):
                done.append(name)
                left += rest
        still = [name for name in still if name not in done]
        if not done or not still:
            break
        budget += left / len(still)
    return found


@pytest.mark.parametrize("seed", range(10))
def test_thresholds_by_group_are_the_definitions(seed):
    rng = np.random.default_rng(seed)
    kappa, groups = rng.random(600), rng.integers(0, 4, 600)
    errors = rng.random(600) < np.choose(groups, [0.005, 0.01, 0.4 * (1 - kappa), 0.2])
    expected = reference_groups(kappa, errors, groups, 0.1, 0.1)
    chosen = Threshold.at_risk(kappa, errors, 0.1, 0.1, groups=groups)
    assert chosen.groups == expected
    by_hand = [k >= expected[g] for k, g in zip(kappa, groups.tolist(), strict=True)]
    assert chosen.accepts(kappa, groups).tolist() == by_hand
    assert chosen.coverage == np.mean(by_hand)
    assert chosen.theta == max(expected.values())


def test_a_group_that_accepts_everything_hands_its_delta_on():
    """Of 100 examples the last is wrong: P(so few | risk 5 %) = 0.037, above half of delta."""
    kappa = np.concatenate([np.arange(400), np.arange(100)]) / 400
    groups = np.repeat(["first", "other"], [400, 100])
    errors = np.arange(500) == 400
    assert 0.03 < binom.cdf(1, 100, 0.05) < 0.06
    clean = Threshold.at_risk(kappa, errors, 0.05, 0.06, groups=groups)
    assert clean.groups == {"first": 0, "other": 0}
    errors[:400] = True
    assert Threshold.at_risk(kappa, errors, 0.05, 0.06, groups=groups).groups == {
        "first": math.inf,
        "other": 1 / 400,
    }


def test_one_group_is_no_groups():
    kappa, errors = draw(1, 500)
    for score, wrong in ((kappa, errors), (np.full(500, 0.5), np.arange(500) < 20)):
        one = Threshold.at_risk(score, wrong, 0.3, groups=["a"] * 500)
        plain = Threshold.at_risk(score, wrong, 0.3)
        assert (one.groups, one.coverage) == ({"a": plain.theta}, plain.coverage)
    assert plain.coverage == 1


def small_groups():
    rng = np.random.default_rng(0)
    kappa = rng.random(1060)
    groups = np.repeat(["big", "s1", "s2"], [1000, 30, 30])
    return kappa, rng.random(1060) < 0.02 * (1 - kappa), groups


def test_groups_too_small_are_named():
    kappa, errors, groups = small_groups()
    named = ["`groups`", "40 examples", "0.1", "0.05", "3 groups", "30 in 's1', 30 in 's2'"]
    with refuses(Infeasible, *named, 'small="join"', 'small="review"'):
        Threshold.at_risk(kappa, errors, 0.1, groups=groups)
    with refuses(Infeasible, "1 in '4'. Hold out"):  # all five are named
        Threshold.at_risk(kappa[:5], errors[:5], 0.1, groups=np.arange(5).astype(str))
    each = np.where(groups == "big", "big", np.arange(1060).astype(str))
    with refuses(Infeasible, "'1004', too few in 55 more"):
        Threshold.at_risk(kappa, errors, 0.1, groups=each)


def test_groups_too_small_are_joined():
    kappa, errors, groups = small_groups()
    joined = Threshold.at_risk(kappa, errors, 0.1, groups=groups, small="join")
    two = np.where(groups == "big", "big", "small")
    expected = Threshold.at_risk(kappa, errors, 0.1, groups=two).groups
    assert joined.groups == {"big": expected["big"], "s1": expected["small"]} | {
        "s2": expected["small"]
    }
    few = (groups != "s2") | (np.arange(1060) > 1055)
    with refuses(Infeasible, "got 30 in 's1', 4 in 's2'", "Together", 'small="review"'):
        Threshold.at_risk(kappa[few], errors[few], 0.1, groups=groups[few], small="join")


def test_joined_groups_need_as_many_examples_as_can_prove_anything():
    """Without an error 0.9 to the examples, less the one it begins at, must reach half of delta."""
    enough = next(n for n in range(1, 200) if 0.9 ** (n - 1) <= 0.05 / 2)
    groups = np.repeat(["big", "s1", "s2"], [1000, 20, enough - 20])
    kappa, right = np.arange(groups.size), np.zeros(groups.size)
    assert Threshold.at_risk(kappa, right, 0.1, groups=groups, small="join").coverage == 1
    with refuses(Infeasible, "Together they are still too few"):
        Threshold.at_risk(kappa[1:], right[1:], 0.1, groups=groups[:-1], small="join")


def test_groups_of_as_many_examples_as_can_prove_anything_are_large_enough():
    enough = next(n for n in range(1, 200) if 0.9 ** (n - 1) <= 0.05 / 2)
    groups = np.repeat([1, 2], enough)
    kappa, right = np.arange(groups.size), np.zeros(groups.size)
    assert Threshold.at_risk(kappa, right, 0.1, groups=groups).coverage == 1
    with refuses(Infeasible, f"at least {enough} examples", f"got {enough - 1} in 1"):
        Threshold.at_risk(kappa[1:], right[1:], 0.1, groups=groups[1:])


def test_groups_too_small_go_to_review():
    kappa, errors, groups = small_groups()
    chosen = Threshold.at_risk(kappa, errors, 0.1, groups=groups, small="review")
    big = groups == "big"
    alone = Threshold.at_risk(kappa[big], errors[big], 0.1)
    assert chosen.groups == {"big": alone.theta, "s1": math.inf, "s2": math.inf}
    assert not chosen.accepts(kappa, groups)[~big].any()
    with refuses(Infeasible, "No group has enough", "hold out more"):
        Threshold.at_risk(kappa[~big], errors[~big], 0.1, groups=groups[~big], small="review")


def test_a_group_full_of_errors_goes_to_review_and_all_such_are_refused():
    kappa = np.tile(np.arange(300) / 300, 2)
    groups = np.repeat([3, 7], 300)
    chosen = Threshold.at_risk(kappa, groups == 7, 0.1, groups=groups)
    assert chosen.groups == {3: 0, 7: math.inf}
    assert (chosen.theta, chosen.coverage) == (math.inf, 0.5)
    with refuses(Infeasible, "`risk`", "some group", "0.05", "2 together", "got 0.1"):
        Threshold.at_risk(kappa, groups > 0, 0.1, groups=groups)


def test_answers_of_an_unknown_group_are_not_accepted():
    chosen = Threshold(0.5, 1.0, groups={"a": 0.5})
    assert chosen.accepts([0.9, 0.9, 0.1], groups=["a", "b", "a"]).tolist() == [True, False, False]
    as_objects = np.array(["a", "b"], dtype=object)
    assert chosen.accepts([0.9, 0.9], groups=as_objects).tolist() == [True, False]


def test_it_says_what_it_is():
    chosen = Threshold(0.9, 0.5, risk=0.1, delta=0.05, groups={"a": 0.9, "b": 0.2})
    assert repr(chosen) == (
        "<Threshold: one for each of 2 groups, coverage 0.5, risk ≤ 0.1 (delta 0.05)>"
    )
    assert repr(Threshold(0.25, 1.0)) == "<Threshold: κ ≥ 0.25, coverage 1>"
    priced = Threshold(0.25, 1.0, cost=Interval(0.5, 0.4, 0.6))
    assert repr(priced) == "<Threshold: κ ≥ 0.25, coverage 1, cost 0.5 per example>"
