"""Calibration: against scikit-learn, and where there is no ordinary answer."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from snapsure import Platt, ece, nll
from snapsure.errors import InvalidInput, NotFitted
from tests.support.refusals import refuses

RNG = np.random.default_rng(0)
KAPPA = RNG.random(2000)
ERRORS = RNG.random(2000) > 1 / (1 + np.exp(-(5 * KAPPA - 1)))


@pytest.mark.parametrize("scale", [1.0, 7.0])
def test_platt_equals_scikit_learns_unpenalised_regression(scale):
    """Of the log-odds of what lies in [0, 1], else of the score itself."""
    score = KAPPA * scale
    x = np.log(KAPPA / (1 - KAPPA)) if scale == 1 else score
    peer = LogisticRegression(C=1e10, tol=1e-12, max_iter=10_000).fit(x[:, None], ~ERRORS)
    platt = Platt().fit(score, ERRORS)
    assert platt.log_odds_ == (scale == 1)
    assert platt.coef_ == pytest.approx((peer.coef_[0, 0], peer.intercept_[0]), rel=1e-4)
    expected = peer.predict_proba(x[:, None])[:, 1]
    np.testing.assert_allclose(platt.predict_proba(score), expected, atol=1e-6)


def test_a_probability_that_is_honest_stays_as_it_is():
    rng = np.random.default_rng(1)
    p = rng.random(200_000)
    slope, intercept = Platt().fit(p, rng.random(200_000) > p).coef_
    assert slope == pytest.approx(1, abs=0.02)
    assert intercept == pytest.approx(0, abs=0.02)


def test_scores_of_any_scale():
    wide = Platt().fit(KAPPA * 1e6 - 3e5, ERRORS).predict_proba(KAPPA * 1e6 - 3e5)
    plain = Platt().fit(KAPPA + 1, ERRORS).predict_proba(KAPPA + 1)
    np.testing.assert_allclose(wide, plain, rtol=1e-9)


@pytest.mark.parametrize(("error", "share"), [(0, 11 / 12), (1, 1 / 12)])
def test_one_class_only_is_platts_own_target(error, share):
    p = Platt().fit(np.linspace(0, 1, 10), np.full(10, error)).predict_proba([0.0, 0.5, 1.0])
    np.testing.assert_allclose(p, share, rtol=1e-6)


def test_perfectly_separable_data_stays_finite():
    errors = np.arange(100) < 30
    p = Platt().fit(np.arange(100) / 100, errors).predict_proba(np.arange(100) / 100)
    assert ((p > 0) & (p < 1)).all()
    assert (np.diff(p) > 0).all()
    assert nll(p, errors) < 0.2
    reverse = Platt().fit(np.arange(100) / 100, ~errors).predict_proba([0.1, 0.9])
    assert reverse[0] > reverse[1]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("scale", [1, 7])  # of the log-odds, and of the score itself
def test_right_and_wrong_points_that_touch_are_separable(sign, scale):
    """Both kinds have one κ in common and a curve could still grow without end: Platt's targets."""
    kappa = np.array([0.1, 0.2, 0.3, 0.5, 0.5, 0.5, 0.7, 0.9])
    errors = np.array([1, 1, 1, 1, 0, 0, 0, 0], bool)
    score = scale * (kappa if sign > 0 else 1 - kappa)
    x = np.log(score / (1 - score)) if scale == 1 else score
    target = np.where(errors, 1 / 6, 5 / 6)

    def loss(curve):
        z = curve[0] * x + curve[1]
        return np.sum(np.logaddexp(0, z) - target * z)

    peer = minimize(loss, np.zeros(2), tol=1e-12).x
    assert Platt().fit(score, errors).coef_ == pytest.approx(tuple(peer), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("constant", [0.1, 0.3, 0.7, 0.9, 1 / 3, 1.0])
@pytest.mark.parametrize("n", [10, 100, 1000])
def test_constant_kappa_gives_the_share_of_right_points(constant, n):
    platt = Platt().fit(np.full(n, constant), np.arange(n) < 0.3 * n)
    p = platt.predict_proba([constant - 1e-3, constant, constant + 1e-3])
    np.testing.assert_allclose(p, 0.7, rtol=1e-6)


def test_one_point():
    assert 0 < Platt().fit([0.3], [1]).predict_proba([0.3])[0] < 0.5


def test_it_calibrates():
    half = slice(None, 1000), slice(1000, None)
    p = Platt().fit(KAPPA[half[0]], ERRORS[half[0]]).predict_proba(KAPPA[half[1]])
    assert ((p >= 0) & (p <= 1)).all()
    assert ece(p, ERRORS[half[1]]) < ece(KAPPA[half[1]], ERRORS[half[1]])


@pytest.mark.parametrize("errors", [np.zeros(20), np.ones(20), np.arange(20) < 10])
@pytest.mark.parametrize("kappa", [np.linspace(0, 1, 20), np.full(20, 0.5), np.full(20, 1.0)])
def test_edges_give_an_answer_without_a_warning(errors, kappa):
    p = Platt().fit(kappa, errors).predict_proba(kappa)
    assert np.isfinite(p).all()


def test_scores_beyond_those_fitted_count_as_the_ends():
    platt = Platt().fit(KAPPA, ERRORS)
    ends, beyond = platt.predict_proba([0.0, 1.0]), platt.predict_proba([-3.0, 1.5])
    assert beyond.tolist() == ends.tolist()
    plain = Platt().fit(KAPPA * 2, ERRORS)  # its slope times these overflows
    assert plain.predict_proba([-1.7e308, 1.7e308]).tolist() == [0, 1]


@pytest.mark.parametrize("scale", [1.0, 7.0])
def test_saved_and_loaded(tmp_path, scale):
    platt = Platt().fit(KAPPA * scale, ERRORS)
    platt.save(tmp_path / "platt.json")
    again = Platt.load(tmp_path / "platt.json")
    assert (again.predict_proba(KAPPA) == platt.predict_proba(KAPPA)).all()


def test_unfitted():
    with refuses(NotFitted, "Platt", "`fit`"):
        Platt().predict_proba([0.5])


def test_scores_too_small_for_a_finite_slope():
    with refuses(InvalidInput, "`kappa`", "±5e-320", "Multiply"):
        Platt().fit(np.linspace(-5e-320, 5e-320, 2000), ERRORS)


@pytest.mark.parametrize(("low", "high", "are"), [(0, 1, True), (-0.1, 1, False), (0, 1.1, False)])
def test_log_odds_are_taken_of_probabilities_alone(low, high, are):
    score = np.linspace(low, high, 40)
    platt = Platt().fit(score, np.arange(40) % 3 == 0)
    assert platt.as_dict()["log_odds"] is are
