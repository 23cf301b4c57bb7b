"""Numbers at the ends of their types: the right answer, in the unit that came, or a sentence."""

import numpy as np
import pytest

from snapsure import Monitor, Platt, ScoreTable, Threshold, bootstrap, rc_curve
from snapsure.errors import InvalidInput
from snapsure.evaluation import trajectories

N = 200
ERRORS = np.arange(N) % 7 == 0
ERRORS[:40] = True
# What float64 still tells apart, though the types are wider and some values are rounded.
WIDE = {
    "integers": 2**60 + 1024 * np.arange(N) + np.arange(N) % 3,
    "unsigned": np.uint64(2**63) + (4096 * np.arange(N) + np.arange(N) % 3).astype(np.uint64),
    "longdouble": np.arange(1, N + 1, dtype=np.longdouble) / 3,
}
# What it does not: all of them are one tie.
MERGED = {
    "integers": 2**60 + np.arange(N) % 50,
    "longdouble": 1 + np.arange(N) * np.longdouble(2) ** -63,
}
CHOICES = {
    "coverage": lambda score: Threshold.at_coverage(score, 0.5),
    "risk": lambda score: Threshold.at_risk(score, ERRORS, 0.25),
    "cost": lambda score: Threshold.at_cost(score, ERRORS, error=2, review=1),
}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("wide", WIDE)
def test_a_threshold_of_wide_scores_is_in_their_unit(wide, choice):
    score = WIDE[wide]
    chosen = CHOICES[choice](score)
    rounded = CHOICES[choice](score.astype(np.float64))
    assert (chosen.theta, chosen.coverage) == (rounded.theta, rounded.coverage)
    assert score.min() < chosen.theta <= score.max()
    together = chosen.accepts(score)
    assert together.mean() == chosen.coverage
    assert [bool(chosen.accepts(score[i : i + 1])[0]) for i in range(N)] == together.tolist()


@pytest.mark.parametrize("wide", WIDE)
def test_thresholds_of_groups_are_in_the_unit_of_wide_scores(wide):
    score, groups = WIDE[wide], np.arange(N) % 2
    chosen = Threshold.at_risk(score, ERRORS, 0.3, groups=groups)
    assert chosen.groups == (
        Threshold.at_risk(score.astype(np.float64), ERRORS, 0.3, groups=groups).groups
    )
    alone = [bool(chosen.accepts(score[i : i + 1], groups[i : i + 1])[0]) for i in range(N)]
    assert alone == chosen.accepts(score, groups).tolist()


@pytest.mark.parametrize("wide", MERGED)
def test_scores_that_float64_does_not_tell_apart_are_accepted_together(wide):
    score = MERGED[wide]
    chosen = Threshold.at_coverage(score, 0.5)
    assert (chosen.theta, chosen.coverage) == (float(score[0]), 1.0)
    assert chosen.accepts(score[::-1][:1]).all()
    curve = rc_curve(score, ERRORS)
    assert curve.theta.tolist() == [float(score[0])]
    assert curve.risk.tolist() == [ERRORS.mean()]


@pytest.mark.parametrize("wide", WIDE)
def test_platt_of_wide_scores_is_that_of_float64(wide):
    score = WIDE[wide]
    platt = Platt().fit(score, ERRORS)
    assert platt.coef_ == Platt().fit(score.astype(np.float64), ERRORS).coef_
    together = platt.predict_proba(score)
    assert together[0] < together[-1]
    assert platt.predict_proba(score[-1:])[0] == together[-1]


def test_platt_of_scores_that_float64_does_not_tell_apart_is_the_share():
    for score in MERGED.values():
        p = Platt().fit(score, ERRORS).predict_proba(score)
        np.testing.assert_allclose(p, (~ERRORS).mean(), rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-170, 1e-290, 1e150, 1e300, 1e307])
def test_platt_of_tiny_and_of_huge_scores(scale):
    rng = np.random.default_rng(0)
    kappa = rng.normal(size=500)
    errors = rng.random(500) > 1 / (1 + np.exp(-1 - 2 * kappa))
    ordinary = Platt().fit(kappa, errors)
    scaled = Platt().fit(kappa * scale, errors)
    slope, intercept = ordinary.coef_
    assert scaled.coef_ == pytest.approx((slope / scale, intercept), rel=1e-9)
    np.testing.assert_allclose(
        scaled.predict_proba(kappa * scale), ordinary.predict_proba(kappa), rtol=1e-9
    )


def test_platt_far_beyond_what_it_was_fitted_on():
    platt = Platt().fit(np.arange(-10, 10) * 1e-290, np.arange(20) % 3 == 0)
    assert platt.predict_proba([-1e300, 1e300]).tolist() in ([0, 1], [1, 0])


def test_platt_of_log_odds_beyond_its_ends_gives_the_share():
    kappa = np.random.default_rng(0).random(50) * 1e-170
    p = Platt().fit(kappa, np.arange(50) < 20).predict_proba(kappa)
    np.testing.assert_allclose(p, 0.6, rtol=1e-9)


def test_platt_of_scores_so_small_that_no_slope_fits():
    with pytest.raises(InvalidInput, match=r"`kappa`.*within ±4.9e-323.*Multiply"):
        Platt().fit(np.arange(-10, 10) * 5e-324, np.arange(20) < 10)


def test_tables_and_monitors_of_longdouble():
    kappa = np.arange(1, 13, dtype=np.longdouble).reshape(2, 6) / 13
    table = ScoreTable.from_kappa(kappa)
    assert table.kappa("softmax").tolist() == kappa.astype(np.float64).tolist()
    again = ScoreTable({"own": kappa}, np.zeros((2, 6), int))
    assert again.kappa("own").tolist() == kappa.astype(np.float64).tolist()
    found = trajectories(kappa, [0, 0, 0, 0, 0, 1], fraction=0.3)
    assert found.green_kappa.tolist() == pytest.approx([5.5 / 13, 11.5 / 13])
    watch = Monitor(Threshold(0.5, 0.5), risk=0.1)
    watch.update(kappa[1])
    assert watch.coverage == 1.0


def test_a_longdouble_beyond_float64_is_refused():
    with pytest.raises(InvalidInput, match=r"^`confidence` must be finite, got 1 infinite"):
        Threshold.at_coverage(np.array([1, np.finfo(np.longdouble).max]), 0.5)
    with pytest.raises(InvalidInput, match=r"^`kappa` must be finite, got 1 infinite"):
        bootstrap(lambda k, e: k.max(), np.array([1, np.finfo(np.longdouble).max]), [0, 1])


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ([0, np.inf], "inf"),
        ([0, -np.inf], "-inf"),
        ([0, 1e30], "1e+30"),
        ([0, 2.0**63], str(2.0**63)),
        (np.array([0, 2**63], np.uint64), "9223372036854775808"),
        (np.array([0, 2**64 - 1], np.uint64), "18446744073709551615"),
    ],
)
def test_class_numbers_and_epochs_that_int64_does_not_hold(ids, told):
    for name, call in {
        "y": lambda: ScoreTable({"softmax": [[0.5, 0.5]]}, [[0, 0]], y=ids),
        "labels": lambda: ScoreTable({"softmax": [[0.5, 0.5]]}, [ids]),
        "y_hat": lambda: ScoreTable({"softmax": [[0.5, 0.5]]}, [[0, 0]], y_hat=ids),
        "epochs": lambda: ScoreTable({"softmax": [[0.5], [0.5]]}, [[0], [0]], epochs=ids),
    }.items():
        with pytest.raises(InvalidInput) as caught:
            call()
        assert str(caught.value) == (
            f"`{name}` must hold whole numbers below 2⁶³, got {told}. Pass class numbers."
        )


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i8", "u8", "f2", "f4", "f8", "g"])
def test_class_numbers_of_every_type(dtype):
    y = ScoreTable({"softmax": [[0.5, 0.5]]}, [[0, 0]], y=np.array([1, 0], dtype)).y
    assert y.tolist() == [1, 0]
    assert y.dtype == np.int64


def test_the_largest_unsigned_that_int64_holds():
    largest = np.array([2**63 - 1, 0], np.uint64)
    assert ScoreTable({"softmax": [[0.5, 0.5]]}, [largest]).y_hat.tolist() == [2**63 - 1, 0]


def test_a_whole_number_that_no_float_holds():
    with pytest.raises(InvalidInput, match=r"^`coverage` must be finite, got 1000"):
        Threshold.at_coverage([0.5], 10**400)
