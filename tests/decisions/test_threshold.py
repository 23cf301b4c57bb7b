"""Thresholds: how they are chosen, what they promise, and whether the promise is kept."""

import json
import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom, multinomial

from snapsure import Threshold, _json
from snapsure.decisions import upper_bound
from snapsure.decisions._promise import Rungs, Sample, allocate_delta, min_examples, p_value
from snapsure.errors import CorruptFile, Infeasible, InvalidInput
from tests.support.promises import draw, walk
from tests.support.refusals import refuses


@pytest.mark.parametrize(("errors", "n"), [(0, 1), (0, 50), (3, 50), (49, 50), (50, 50)])
@pytest.mark.parametrize("delta", [0.1, 0.001])
def test_the_bound_is_clopper_and_pearsons(errors, n, delta):
    bound = upper_bound(errors, n, delta)
    if errors == n:
        assert bound == 1
    else:
        assert bound == pytest.approx(beta.ppf(1 - delta, errors + 1, n - errors), rel=1e-9)
        assert binom.cdf(errors, n, bound) == pytest.approx(delta, rel=1e-6)


def test_p_values_are_binomial():
    for n in (0, 1, 7, 300):
        for risk in (0.01, 0.5):
            k = np.arange(n + 1)
            assert p_value(k, np.full(n + 1, n), risk) == pytest.approx(binom.cdf(k, n, risk))
    assert p_value(3, 2, 0.5) == 1  # one example left out of three wrong ones


@pytest.mark.parametrize(("risk", "level"), [(0.05, 0.025), (0.5, 0.25), (0.5, 0.26), (0.001, 0.9)])
def test_how_many_right_answers_it_takes(risk, level):
    n = min_examples(risk, level)
    assert (1 - risk) ** n <= level * (1 + 1e-9)
    assert n == 1 or (1 - risk) ** (n - 1) > level * (1 + 1e-9)


@pytest.mark.parametrize("risk", [0.05, 0.5])
@pytest.mark.parametrize("even", [False, True])
def test_all_that_comes_in_is_delta_and_each_share_can_reject(risk, even):
    for n in (*range(1, 300), 5000):
        counts, shares = allocate_delta(n, risk, 0.05, even=even)
        assert (counts.size == 0) == (n < min_examples(risk, 0.05) + 1)
        assert math.isclose(shares.sum(), 0.05 if counts.size else 0)
        assert all(1 < count <= n for count in counts)
        for count, share in zip(counts.tolist(), shares.tolist(), strict=True):
            assert (1 - risk) ** (count - 1) <= share * (1 + 1e-9)


def test_half_of_delta_is_at_the_first_count_and_the_rest_in_equal_shares():
    """Without an error: 0.95⁵⁹ ≤ 0.05 and 0.95⁷² ≤ 0.025; 0.95¹¹⁰ is above an eleventh of 0.025."""
    steps = [157, 221, 313, 442, 625, 884, 1250, 1768, 2500, 3536, 5000]  # by √2
    counts, shares = allocate_delta(5000, 0.05, 0.05, even=False)
    assert counts.tolist() == [73, *steps]
    assert shares == pytest.approx([0.025, *[0.025 / 11] * 11])
    counts, shares = allocate_delta(5000, 0.05, 0.05, even=True)
    assert counts.tolist() == steps
    assert shares == pytest.approx([0.05 / 11] * 11)


def test_with_few_examples_all_of_delta_is_at_the_first_count():
    for n in (60, 209):
        assert list(map(list, allocate_delta(n, 0.05, 0.05, even=False))) == [[60], [0.05]]
    for n, even in ((210, False), (209, True)):
        counts, _ = allocate_delta(n, 0.05, 0.05, even=even)
        assert counts.size > 1
        assert counts[-1] == n


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 150), st.sampled_from([0.1, 0.3]), st.booleans())
def test_the_walk_is_the_definitions(seed, n, risk, ties):
    kappa, errors = draw(seed, n)
    kappa = np.round(kappa, 1 if ties else 12)
    errors &= np.random.default_rng(seed).random(n) < 0.5
    theta, _ = walk(kappa.tolist(), errors.tolist(), [([True] * n, risk)], 0.2)
    if theta is None:
        with pytest.raises(Infeasible):
            Threshold.at_risk(kappa, errors, risk, 0.2)
        return
    chosen = Threshold.at_risk(kappa, errors, risk, 0.2)
    assert chosen.theta == theta
    assert chosen.coverage == (kappa >= theta).mean() == chosen.accepts(kappa).mean()


@pytest.mark.parametrize("wrong", [0, 1, 4])
def test_the_example_that_a_walk_starts_at_is_not_counted_as_right(wrong):
    """With all of delta at the last example, it takes one example more than the test does."""
    enough = next(n for n in range(1, 200) if binom.cdf(wrong, n - 1, 0.1) <= 0.2)
    for n, last in ((enough, enough - 1), (enough - 1, -1)):
        sample = Sample(-np.arange(float(n)), np.arange(n) < wrong, 0.1)
        assert sample.prove(Rungs(np.array([n]), np.array([0.2]))).last == last


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.integers(60, 150), st.booleans())
def test_several_risks_at_once_are_the_definitions(seed, n, ties):
    kappa, errors = draw(seed, n)
    kappa = np.round(kappa, 1 if ties else 12)
    errors &= np.random.default_rng(seed).random(n) < 0.3
    mask = np.random.default_rng(seed + 1).random(n) < 0.7
    risks = [([True] * n, 0.2), (mask.tolist(), 0.3)]
    theta, _ = walk(kappa.tolist(), errors.tolist(), risks, 0.2, even=True)
    if theta is None:
        with refuses(Infeasible, "beside the further risks"):
            Threshold.at_risk(kappa, errors, 0.2, 0.2, within={"some": (mask, 0.3)})
        return
    chosen = Threshold.at_risk(kappa, errors, 0.2, 0.2, within={"some": (mask, 0.3)})
    assert (chosen.theta, chosen.within) == (theta, {"some": 0.3})
    assert "risk ≤ 0.2 (delta 0.2), of some ≤ 0.3" in repr(chosen)


def test_at_coverage():
    kappa = [0.9, 0.8, 0.7, 0.7, 0.1]
    assert Threshold.at_coverage(kappa, 0.4).theta == 0.8
    tied = Threshold.at_coverage(kappa, 0.5)
    assert (tied.theta, tied.coverage) == (0.7, 0.8)  # tied points are accepted together
    assert tied.accepts(kappa).tolist() == [True, True, True, True, False]
    assert Threshold.at_coverage(kappa, 1.0).theta == 0.1
    assert Threshold.at_coverage(kappa, 1.0).risk is None


def test_at_coverage_takes_no_point_more_for_a_rounding_error():
    kappa = np.arange(10) / 10
    assert Threshold.at_coverage(kappa, 0.1 + 0.2).coverage == 0.3  # 0.30000000000000004
    assert Threshold.at_coverage(kappa, 0.3 + 1e-9).coverage == 0.4
    for least in (0.1, 1e-9):
        assert Threshold.at_coverage(kappa, least).theta == 0.9


def test_at_risk_accepts_much_and_keeps_below():
    kappa, errors = draw(0, 20_000)
    chosen = Threshold.at_risk(kappa, errors, 0.2)
    # The true risk of 0.2 is at coverage 0.4.
    assert 0.37 < chosen.coverage < 0.4
    assert (chosen.risk, chosen.delta, chosen.n) == (0.2, 0.05, 20_000)
    accepted = chosen.accepts(kappa)
    assert accepted.mean() == chosen.coverage
    assert errors[accepted].mean() < 0.2


def test_a_narrow_score_is_not_compared_with_a_rounded_threshold():
    chosen = Threshold(0.7, 1.0)  # as float32, 0.7 is 0.69999999
    assert not chosen.accepts(np.array([0.7], dtype=np.float32))[0]


def test_a_sure_mistake_does_not_end_it():
    kappa = np.arange(1000, 0, -1) / 1000
    errors = np.arange(1000) < 3
    assert Threshold.at_risk(kappa, errors, 0.05).coverage == 1


def test_infeasible_says_what_can_be_promised_and_that_holds():
    for seed in range(30):
        kappa, errors = draw(seed, 1000)
        with refuses(Infeasible, "`risk`", "1000 examples", "0.05", "got 0.001") as caught:
            Threshold.at_risk(kappa, errors, 0.001)
        possible = Threshold.at_risk(kappa, errors, "smallest")
        assert caught.value.possible == possible.risk
        assert (1 - possible.theta) / 2 < possible.risk  # the true risk
        assert errors[possible.accepts(kappa)].mean() < possible.risk
    assert isinstance(caught.value, InvalidInput)


def test_where_nothing_can_be_promised():
    with refuses(Infeasible, "`risk`", "2 examples", "got 0.5", "Hold out more") as caught:
        Threshold.at_risk([0.5, 0.6], [1, 1], 0.5)
    assert caught.value.possible is None
    errors = np.arange(400) < 200
    with refuses(Infeasible, "`risk`", "further risks", "got 0.1", "Hold out more"):
        Threshold.at_risk(np.arange(400), errors, 0.1, within={"some": (errors, 0.9)})


def test_the_smallest_risk_is_one_for_all_examples():
    kappa, errors = draw(0, 100)
    for further in ({"groups": [0] * 100}, {"within": {"some": (errors, 0.9)}}):
        with refuses(InvalidInput, "`risk`", "a number", "'smallest'", "0.05"):
            Threshold.at_risk(kappa, errors, "smallest", **further)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("error", [0, 1, 3, 1000])
def test_the_cheapest_threshold(seed, error):
    kappa, errors = draw(seed, 300)
    kappa = np.round(kappa, 2)
    costs = {math.inf: 1.0}
    for theta in kappa.tolist():
        accepted = kappa >= theta
        costs[theta] = (error * errors[accepted].sum() + (~accepted).sum()) / 300
    chosen = Threshold.at_cost(kappa, errors, error=error, review=1)
    assert costs[chosen.theta] == pytest.approx(min(costs.values()))
    assert chosen.coverage == chosen.accepts(kappa).mean()
    # Chosen on the same points, it looked cheaper than it is.
    assert chosen.cost.low <= chosen.cost.estimate <= chosen.cost.high
    assert chosen.cost.estimate >= costs[chosen.theta] - 1e-9


def test_what_choosing_flatters_is_that_of_all_resamples():
    """Eight points in two ties, one of four wrong and two of four: 165 resamples, each by hand."""
    error, review = 2.0, 1.0
    kappa, errors = np.repeat([0.9, 0.5], 4), np.array([1, 0, 0, 0, 1, 1, 0, 0])
    chances, costs, flattered = [], [], []
    whole = [review * 8, error * 1 + review * 4, error * 3]  # none accepted, four, all: of equals,
    # the one that accepts fewest is chosen
    for wrong, also, right in product(range(9), repeat=3):
        rest = 8 - wrong - also - right
        if rest < 0:
            continue
        drawn = (wrong, also, right, rest)
        chances.append(multinomial.pmf(drawn, 8, [1 / 8, 2 / 8, 3 / 8, 2 / 8]))
        own = [review * 8, error * wrong + review * (also + rest), error * (wrong + also)]
        best = int(np.argmin(own))
        costs.append(own[1] / 8)
        flattered.append(((whole[best] - own[best]) - (whole[1] - own[1])) / 8)
    chances, costs, flattered = map(np.array, (chances, costs, flattered))
    optimism = chances @ flattered
    chosen = Threshold.at_cost(kappa, errors, error=error, review=review)
    assert chosen.theta == 0.9
    noise = np.sqrt(chances @ (flattered - optimism) ** 2 / 1000)
    found = chosen.cost.estimate - whole[1] / 8
    assert abs(found - optimism) < 4 * noise < optimism
    for end, share in ((chosen.cost.low, 0.025), (chosen.cost.high, 0.975)):
        at = end - found
        assert chances[costs < at - 1e-9].sum() < share + 0.015
        assert chances[costs < at + 1e-9].sum() > share - 0.015


def test_all_or_none_may_be_cheapest():
    kappa = [0.9, 0.8, 0.7]
    assert Threshold.at_cost(kappa, [0, 0, 0], error=9, review=1).coverage == 1
    none = Threshold.at_cost(kappa, [1, 1, 1], error=9, review=1)
    assert (none.theta, none.coverage, none.accepts(kappa).any()) == (math.inf, 0, False)
    assert none.cost == (1, 1, 1)


def test_the_interval_of_a_single_threshold_is_that_of_a_share():
    """All points tied, a tenth wrong: accepting all is the cheapest, and nothing flatters it."""
    chosen = Threshold.at_cost(np.full(400, 0.5), np.arange(400) < 40, error=0.5, review=0.25)
    assert (chosen.coverage, chosen.cost.estimate) == (1.0, pytest.approx(0.05))
    half = 0.5 * 1.96 * math.sqrt(0.1 * 0.9 / 400)
    assert (chosen.cost.low, chosen.cost.high) == pytest.approx(
        (0.05 - half, 0.05 + half), abs=3e-3
    )


def test_what_costs_nothing():
    kappa, errors = draw(1, 300)
    assert Threshold.at_cost(kappa, errors, error=0, review=0.5).coverage == 1
    free = Threshold.at_cost(kappa, errors, error=0.5, review=0)
    assert not errors[free.accepts(kappa)].any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Threshold.at_risk(*draw(4, 1000), 0.3),
        lambda: Threshold.at_risk(*draw(4, 1000), 0.3, within={"a": (np.arange(1000) > 99, 0.4)}),
        lambda: Threshold.at_risk(
            *draw(4, 1000), 0.3, groups=np.arange(1000) % 2, groups_are="classes"
        ),
        lambda: Threshold.at_cost(*draw(4, 1000), error=5, review=1),
        lambda: Threshold.at_coverage(draw(4, 1000)[0], 0.5),
        lambda: Threshold(math.inf, 0.0, groups={"x": math.inf, "y": 0.25}),
    ],
)
def test_saved_and_loaded(tmp_path, make):
    chosen = make()
    chosen.save(tmp_path / "threshold.json")
    content = json.loads((tmp_path / "threshold.json").read_text(), parse_constant=pytest.fail)
    assert (content["risk"], content["delta"], content["n"]) == (
        chosen.risk,
        chosen.delta,
        chosen.n,
    )
    again = Threshold.load(tmp_path / "threshold.json")
    assert vars(again) == vars(chosen)
    assert repr(again) == repr(chosen)


def test_a_file_that_is_none_is_refused(tmp_path):
    (tmp_path / "threshold.json").write_bytes(
        _json.text({"format": "snapsure Threshold 2", "theta": 1})
    )
    with pytest.raises(CorruptFile, match=r"must be a saved Threshold.*`coverage`"):
        Threshold.load(tmp_path / "threshold.json")


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        (lambda: Threshold.at_coverage([0.1], 0), ["`coverage`", "got 0", "0.8"]),
        (lambda: Threshold.at_risk([0.1], [0], 5), ["`risk`", "got 5", "0.05"]),
        (lambda: Threshold.at_risk([0.1], [0], 1.0), ["`risk`", "got 1.0", "0.95"]),
        (lambda: Threshold.at_risk([0.5], [0], 0.1, delta=1), ["`delta`", "got 1", "0.95"]),
        (lambda: Threshold.at_risk([0.1], [0.5], 0.1), ["`errors`", "0.5 at row 0"]),
        (
            lambda: Threshold.at_risk([0.1], [0], 0.1, small="drop"),
            ["`small`", '"refuse"', '"join"', '"review"', "'drop'"],
        ),
        (
            lambda: Threshold.at_risk([0.1], [0], 0.1, groups=[0.5]),
            ["`groups`", "float64", "(1,)"],
        ),
        (
            lambda: Threshold.at_risk([0.1, 0.2], [0, 1], 0.1, groups=["a"]),
            ["`groups`", "`confidence`", "1 for 2"],
        ),
        (
            lambda: Threshold.at_risk([0.1], [0], 0.1, groups=[1], groups_are="class"),
            ["`groups_are`", '"given"', '"classes"', "'class'"],
        ),
        (
            lambda: Threshold.at_risk([0.1], [0], 0.1, groups=["a"], groups_are="classes"),
            ["`groups`", "numbers", "'a'", '"given"'],
        ),
        (
            lambda: Threshold.at_risk([0.1], [0], 0.1, groups=[1], within={"a": ([True], 0.1)}),
            ["`within`", "`groups`", "got both"],
        ),
        *(
            (
                lambda pair=pair: Threshold.at_risk([0.1], [0], 0.1, within={"a": pair}),
                ["`within['a']`", *facts],
            )
            for pair, facts in [
                (0.1, ["float", "(y_hat == 3, 0.01)"]),
                (([False], 0.1), ["True", "y_hat == 3"]),
                (([3], 0.1), ["int64", "y_hat == 3"]),
                (([True], 2), ["got 2", "0.02"]),
                (([True], 1.0), ["got 1.0", "0.95"]),
            ]
        ),
        (lambda: Threshold.at_cost([0.1], [0], error=-1, review=1), ["`error`", "got -1"]),
        (lambda: Threshold.at_cost([0.1], [0], error=1, review=-1), ["`review`", "got -1"]),
        (
            lambda: Threshold.at_cost([0.1] * 10, [0] * 10, error=1e308, review=1),
            ["`error`", "10 examples", "1e+308", "larger unit"],
        ),
        (
            lambda: Threshold.at_cost([0.1], [0], error=1, review=1, seed=-1),
            ["`seed`", "got -1"],
        ),
        (
            lambda: Threshold(0.5, 1.0).accepts([0.1], groups=["a"]),
            ["`groups`", "left out", "`at_risk`"],
        ),
        (
            lambda: Threshold(0.5, 1.0, groups={"a": 0.5}).accepts([0.1]),
            ["`groups`", "got None", "1 group"],
        ),
        (
            lambda: Threshold(0.5, 1.0, groups={"a": 0.5}).accepts([0.1], groups=[1]),
            ["`groups`", "str", "got int"],
        ),
    ],
)
def test_refusals(call, facts):
    with refuses(InvalidInput, *facts):
        call()
