"""Calibration: against scikit-learn, and where there is no ordinary answer."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from snapsure import Platt, ece, nll
from snapsure.calibration import Isotonic, Temperature
from snapsure.errors import NotFitted

RNG = np.random.default_rng(0)
KAPPA = RNG.random(2000)
ERRORS = RNG.random(2000) > 1 / (1 + np.exp(-(5 * KAPPA - 1)))


def test_platt_equals_scikit_learns_unpenalised_regression():
    peer = LogisticRegression(C=1e10, tol=1e-12, max_iter=10_000).fit(KAPPA[:, None], ~ERRORS)
    platt = Platt().fit(KAPPA, ERRORS)
    assert platt.coef_ == pytest.approx((peer.coef_[0, 0], peer.intercept_[0]), rel=1e-4)
    expected = peer.predict_proba(KAPPA[:, None])[:, 1]
    np.testing.assert_allclose(platt.predict_proba(KAPPA), expected, atol=1e-6)


def test_platt_finds_the_curve_that_made_the_data():
    slope, intercept = Platt().fit(KAPPA, ERRORS).coef_
    assert slope == pytest.approx(5, abs=1)
    assert intercept == pytest.approx(-1, abs=0.4)


def test_scores_of_any_scale():
    wide = Platt().fit(KAPPA * 1e6 - 3e5, ERRORS).predict_proba(KAPPA * 1e6 - 3e5)
    np.testing.assert_allclose(wide, Platt().fit(KAPPA, ERRORS).predict_proba(KAPPA), rtol=1e-9)


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


@pytest.mark.parametrize("constant", [0.1, 0.3, 0.7, 0.9, 1 / 3, 1.0])
@pytest.mark.parametrize("n", [10, 100, 1000])
def test_constant_kappa_gives_the_share_of_right_points(constant, n):
    platt = Platt().fit(np.full(n, constant), np.arange(n) < 0.3 * n)
    p = platt.predict_proba([constant - 1e-3, constant, constant + 1e-3])
    np.testing.assert_allclose(p, 0.7, rtol=1e-6)


def test_one_point():
    assert 0 < Platt().fit([0.3], [1]).predict_proba([0.3])[0] < 0.5


@pytest.mark.parametrize("kind", [Platt, Temperature, Isotonic])
def test_all_calibrate(kind):
    half = slice(None, 1000), slice(1000, None)
    p = kind().fit(KAPPA[half[0]], ERRORS[half[0]]).predict_proba(KAPPA[half[1]])
    assert ((p >= 0) & (p <= 1)).all()
    before = ece(KAPPA[half[1]], ERRORS[half[1]])
    assert ece(p, ERRORS[half[1]]) < before
    name = kind.__name__
    with pytest.raises(NotFitted) as caught:
        kind().predict_proba([0.5])
    assert str(caught.value) == (
        f"{name} must be fitted before it is used, got one that is not: call .fit"
    )


@pytest.mark.parametrize("kind", [Platt, Temperature, Isotonic])
@pytest.mark.parametrize("errors", [np.zeros(20), np.ones(20), np.arange(20) < 10])
@pytest.mark.parametrize("kappa", [np.linspace(0, 1, 20), np.full(20, 0.5), np.full(20, 1.0)])
def test_edges_give_an_answer_without_a_warning(kind, errors, kappa):
    p = kind().fit(kappa, errors).predict_proba(kappa)
    assert np.isfinite(p).all()


def test_temperature_keeps_what_is_calibrated_and_cools_what_is_too_sure():
    rng = np.random.default_rng(1)
    p = rng.uniform(0.3, 0.95, 20_000)
    errors = rng.random(20_000) > p
    assert Temperature().fit(p, errors).temperature_ == pytest.approx(1, abs=0.05)
    logits = np.log(p / (1 - p))
    sure = 1 / (1 + np.exp(-3 * logits))
    assert Temperature().fit(sure, errors).temperature_ == pytest.approx(3, abs=0.2)
