"""Thresholds, and whether the promise of a risk is kept."""

import numpy as np
import pytest
from scipy.stats import beta, binom, binomtest

from snapsure import Threshold
from snapsure.errors import Infeasible, InvalidInput
from snapsure.threshold import upper_bound


def draw(seed, n):
    """P(wrong | κ) = 1 − κ: above θ the true risk is (1 − θ) / 2."""
    rng = np.random.default_rng(seed)
    kappa = rng.random(n)
    return kappa, rng.random(n) > kappa


@pytest.mark.parametrize(("errors", "n"), [(0, 1), (0, 50), (3, 50), (49, 50), (50, 50)])
@pytest.mark.parametrize("delta", [0.1, 0.001])
def test_the_bound_is_clopper_and_pearsons(errors, n, delta):
    bound = upper_bound(errors, n, delta)
    if errors == n:
        assert bound == 1
    else:
        assert bound == pytest.approx(beta.ppf(1 - delta, errors + 1, n - errors), rel=1e-9)
        assert binom.cdf(errors, n, bound) == pytest.approx(delta, rel=1e-6)


def test_at_coverage():
    kappa = [0.9, 0.8, 0.7, 0.7, 0.1]
    assert Threshold.at_coverage(kappa, 0.4).theta == 0.8
    tied = Threshold.at_coverage(kappa, 0.5)
    assert (tied.theta, tied.coverage) == (0.7, 0.8)  # tied points are accepted together
    assert tied.accepts(kappa).tolist() == [True, True, True, True, False]
    assert Threshold.at_coverage(kappa, 1.0).theta == 0.1


def test_at_risk_accepts_much_and_keeps_below():
    kappa, errors = draw(0, 20_000)
    chosen = Threshold.at_risk(kappa, errors, 0.2, delta=0.01)
    # The true risk of 0.2 is at coverage 0.4.
    assert 0.36 < chosen.coverage < 0.4
    assert chosen.risk_bound <= 0.2
    accepted = chosen.accepts(kappa)
    assert accepted.mean() == chosen.coverage
    assert errors[accepted].mean() < chosen.risk_bound


@pytest.mark.parametrize("delta", [0.1, 0.01])
def test_the_promise_is_broken_at_most_about_delta_of_the_time(delta):
    risk, draws, broken, made, below = 0.15, 1000, 0, 0, 0
    for seed in range(draws):
        kappa, errors = draw(seed, 2000)
        try:
            chosen = Threshold.at_risk(kappa, errors, risk, delta)
        except Infeasible:
            continue
        made += 1
        broken += (1 - chosen.theta) / 2 > risk
        below += (1 - chosen.theta) / 2 > chosen.risk_bound
    assert made > 700
    # More than delta only by chance: the test rejects one in a thousand true promises.
    for count in (broken, below):
        assert binomtest(count, draws, delta, alternative="greater").pvalue > 0.001


def test_tied_scores_are_accepted_together():
    kappa = np.repeat([0.9, 0.5], 500)
    errors = np.concatenate([np.zeros(500), np.arange(500) < 250])
    chosen = Threshold.at_risk(kappa, errors, 0.05)
    assert (chosen.theta, chosen.coverage) == (0.9, 0.5)


def test_infeasible_says_what_could_be_promised_and_that_can_be():
    for seed in range(100):
        kappa, errors = draw(seed, 200)
        with pytest.raises(Infeasible) as caught:
            Threshold.at_risk(kappa, errors, 0.001)
        message = str(caught.value)
        assert message.startswith(
            "`risk` must be one that 200 points can promise at delta = 0.001, got 0.001: "
            "the smallest is 0."
        )
        smallest = float(message.split("the smallest is ")[1].split(",")[0])
        assert Threshold.at_risk(kappa, errors, smallest).coverage > 0
    assert isinstance(caught.value, InvalidInput)


def test_where_nothing_can_be_promised():
    with pytest.raises(Infeasible) as caught:
        Threshold.at_risk([0.5, 0.6], [1, 1], 0.5)
    assert str(caught.value) == (
        "`risk` must be one that 2 points can promise at delta = 0.001, got 0.5: "
        "none can be promised; hold out more points"
    )


def test_saved_and_loaded(tmp_path):
    kappa, errors = draw(4, 1000)
    chosen = Threshold.at_risk(kappa, errors, 0.3)
    chosen.save(tmp_path / "threshold.json")
    again = Threshold.load(tmp_path / "threshold.json")
    assert (again.theta, again.coverage, again.risk_bound) == (
        chosen.theta,
        chosen.coverage,
        chosen.risk_bound,
    )
    assert (again.accepts(kappa) == chosen.accepts(kappa)).all()


def test_row_order_changes_nothing():
    kappa, errors = draw(2, 500)
    order = np.random.default_rng(3).permutation(500)
    a = Threshold.at_risk(kappa, errors, 0.3)
    b = Threshold.at_risk(kappa[order], errors[order], 0.3)
    assert (a.theta, a.coverage, a.risk_bound) == (b.theta, b.coverage, b.risk_bound)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: Threshold.at_coverage([0.1], 0),
            "`coverage` must lie in (0, 1], got 0: write 80 % as 0.8",
        ),
        (
            lambda: Threshold.at_risk([0.1], [0], 1.0),
            "`risk` must lie in (0, 1), got 1.0: write 95 % as 0.95",
        ),
        (
            lambda: Threshold.at_risk([0.1], [0.5], 0.1),
            "`errors` must be 0 (right) or 1 (wrong), got 0.5 at row 0: threshold the loss first",
        ),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(InvalidInput) as caught:
        call()
    assert str(caught.value) == sentence
