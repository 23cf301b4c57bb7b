"""The curve and what is read off it."""

import numpy as np
import pytest

from snapsure import coverage_at_risk, rc_curve, risk_at_coverage

KAPPA, ERRORS = [0.9, 0.8, 0.8, 0.8, 0.1], [0, 1, 0, 0, 1]


def test_thresholds_are_in_the_unit_of_the_scores():
    big = 2**60
    curve = rc_curve(np.array([big, big + 1024]), [1, 0])
    assert curve.theta.tolist() == [float(big + 1024), float(big)]
    for dtype in ("i8", "u8", "g"):
        assert rc_curve(np.array([1, 2, 3], dtype), [0, 0, 0]).theta.tolist() == [3, 2, 1]
        curve = rc_curve(np.array([big, big + 1024, big + 2048], dtype), [0, 0, 0])
        assert curve.theta.tolist() == [float(big + 2048), float(big + 1024), float(big)]
    third = np.array([1, 2], np.longdouble) / 3
    assert rc_curve(third, [0, 0]).theta.tolist() == [2 / 3, 1 / 3]


def test_theta_has_no_minus_zero():
    assert not np.signbit(rc_curve([-0.0], [0]).theta[0])


def test_risk_at_coverage_shares_out_the_tie_at_the_edge():
    # Of the three tied points, one wrong, two are accepted: 2/3 of an error in three points.
    assert risk_at_coverage(KAPPA, ERRORS, 0.6) == pytest.approx(2 / 9, rel=1e-15)


def test_risk_at_coverage_within_the_surest_tie():
    assert risk_at_coverage([0.9, 0.9, 0.9, 0.1], [1, 1, 0, 0], 0.25) == pytest.approx(2 / 3)
    assert risk_at_coverage([0.9, 0.9, 0.9, 0.1], [1, 1, 0, 0], 0.5) == pytest.approx(2 / 3)


@pytest.mark.parametrize(("coverage", "accepted"), [(0.07, 7), (0.0701, 8), (1e-9, 1), (1.0, 100)])
def test_risk_at_coverage_accepts_the_ceiling(coverage, accepted):
    kappa = np.arange(100, 0, -1)
    losses = np.arange(100.0)
    expected = losses[:accepted].mean()
    assert risk_at_coverage(kappa, losses, coverage) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("risk", "coverage"), [(0.0, 0.2), (0.2, 0.2), (0.25, 0.8), (0.4, 1.0), (1.0, 1.0)]
)
def test_coverage_at_risk_takes_the_furthest_threshold(risk, coverage):
    assert coverage_at_risk(KAPPA, ERRORS, risk) == coverage
    assert coverage_at_risk(KAPPA, 10 * np.asarray(ERRORS), 10 * risk) == coverage


def test_coverage_at_risk_looks_past_an_early_mistake():
    # One error among ten, the surest: only accepting all ten brings the risk to 10 %.
    assert coverage_at_risk(np.arange(10), [0] * 9 + [1], 0.1) == 1.0


def test_coverage_at_risk_is_zero_where_nothing_fits():
    assert coverage_at_risk([0.9, 0.1], [1, 1], 0.5) == 0.0


def test_coverage_at_risk_forgives_the_last_bit_of_a_sum():
    assert coverage_at_risk([3, 2, 1], [0.1, 0.1, 0.1], 0.1) == 1.0
    assert coverage_at_risk([3, 2, 1], [0.1, 0.2, 0.3], 0.2) == 1.0
    for n in range(1, 100):
        assert coverage_at_risk(np.arange(n), np.full(n, 0.1), 0.1) == 1.0
