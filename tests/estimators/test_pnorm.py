"""MaxLogit-pNorm against a slow reading of its definition, and its fallback."""

import numpy as np
import pytest
from scipy.special import softmax

from snapsure import aurc
from snapsure.errors import InvalidInput, NotFitted
from snapsure.estimators import MaxLogitPNorm
from tests.support.reference import slow_pnorm
from tests.support.tables import of_logits


def broken(seed, n=500, classes=8):
    """A classifier whose large logits mean nothing: their scale is noise."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes))
    logits[np.arange(n), rng.integers(classes, size=n)] += rng.uniform(0, 4, size=n)
    prominence = np.array([slow_pnorm(row, 3) for row in logits])
    wrong = rng.random(n) > (prominence - prominence.min()) / np.ptp(prominence)
    return logits * rng.lognormal(sigma=1.5, size=(n, 1)), wrong


def honest(seed, n=500, classes=8):
    """A classifier whose softmax is the truth."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes)) * rng.uniform(0.5, 4, size=(n, 1))
    wrong = rng.random(n) > softmax(logits, axis=1).max(axis=1)
    return logits, wrong


def test_equals_the_slow_definition():
    logits, wrong = broken(0)
    model = MaxLogitPNorm().fit(of_logits(logits, errors=wrong))
    areas = {p: aurc([slow_pnorm(row, p) for row in logits], wrong) for p in range(10)}
    assert model.p_ == min(areas, key=areas.get)
    assert min(areas.values()) < aurc(softmax(logits, axis=1).max(axis=1), wrong)
    np.testing.assert_allclose(
        model.confidence(of_logits(logits)),
        [slow_pnorm(row, model.p_) for row in logits],
        rtol=1e-12,
    )


def test_three_classes_by_hand():
    # (5, 2, −1) about its mean is (3, 0, −3). Softmax ranks the points it is fitted on wrongly: by
    # 0.91 and 0.82 where the centred maxima are 2 and 3.5, by 0.82 and 0.79 where the norms differ.
    high, wide = [[3.0, 0.0, 0.0], [6.0, 4.5, -3.0]], [[8.0, 6.5, 0.0], [2.0, 0.0, 0.0]]
    for p, norm, fit in ((0, 2, high), (1, 6, wide), (2, 18**0.5, wide), (3, 54 ** (1 / 3), wide)):
        model = MaxLogitPNorm([p]).fit(of_logits(fit, errors=[1, 0]))
        assert model.p_ == p
        assert model.confidence(of_logits([[5.0, 2.0, -1.0]]))[0] == pytest.approx(
            3 / norm, rel=1e-14
        )


def test_it_falls_back_where_softmax_is_not_worse():
    logits, wrong = honest(1)
    areas = [aurc([slow_pnorm(row, p) for row in logits], wrong) for p in range(10)]
    response = softmax(logits, axis=1).max(axis=1)
    assert aurc(response, wrong) < min(areas)
    model = MaxLogitPNorm().fit(of_logits(logits, errors=wrong))
    assert model.p_ is None
    np.testing.assert_allclose(model.confidence(of_logits(logits)), response, rtol=1e-12)


def test_it_falls_back_from_equals():
    assert MaxLogitPNorm().fit(of_logits(honest(2)[0], errors=np.zeros(500))).p_ is None


def test_two_classes_fall_back():
    logits, wrong = honest(3, classes=2)
    for errors in (wrong, ~wrong):  # even where one confidence for all examples ranks better
        assert MaxLogitPNorm().fit(of_logits(logits, errors=errors)).p_ is None


def test_a_constant_and_a_temperature_change_no_order():
    logits, wrong = broken(4)
    model = MaxLogitPNorm(range(1, 10)).fit(of_logits(logits, errors=wrong))
    plain = model.confidence(of_logits(logits))
    np.testing.assert_allclose(model.confidence(of_logits(logits + 9)), plain, rtol=1e-9)
    np.testing.assert_allclose(model.confidence(of_logits(logits / 7)), plain, rtol=1e-12)
    assert ((plain > 0) & (plain <= 1)).all()


def test_huge_logits_and_rows_of_equal_ones():
    logits, wrong = broken(5)
    model = MaxLogitPNorm([9]).fit(of_logits(logits, errors=wrong))
    assert model.p_ == 9
    np.testing.assert_allclose(
        model.confidence(of_logits(logits * 1e100)), model.confidence(of_logits(logits)), rtol=1e-12
    )
    assert model.confidence(of_logits(np.full((2, 8), 3.0))).tolist() == [0, 0]


@pytest.mark.parametrize("make", [broken, honest])
def test_saved_and_loaded(tmp_path, make):
    logits, wrong = make(1)
    model = MaxLogitPNorm(range(1, 6)).fit(of_logits(logits, errors=wrong))
    model.save(tmp_path / "p.json")
    again = MaxLogitPNorm.load(tmp_path / "p.json")
    assert (again.p_, again.grid) == (model.p_, [1, 2, 3, 4, 5])
    assert (again.confidence(of_logits(logits)) == model.confidence(of_logits(logits))).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: MaxLogitPNorm([]), "`grid` must hold at least one p, got none"),
        (lambda: MaxLogitPNorm([-1]), "`grid` must be ≥ 0, got -1"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()


def test_unfitted():
    with pytest.raises(NotFitted, match=r"MaxLogitPNorm .* Call \.fit"):
        MaxLogitPNorm().confidence(of_logits([[1.0, 2.0]]))
