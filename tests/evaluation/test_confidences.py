"""Confidences point by point, against the same steps written out."""

import numpy as np
import pytest

from snapsure import AES, LES, PES, Platt, ScoreTable
from snapsure.errors import InvalidInput
from snapsure.estimators import BestSnapshot, Final
from snapsure.evaluation import confidences
from tests.support.runs import simulated


@pytest.fixture(scope="module")
def table():
    return simulated()


def by_hand(table, make, name, seed):
    """Fitted on one half, asked for the other, and the other way round."""
    order = np.random.default_rng(seed).permutation(table.y_hat.size)
    halves = [np.sort(half) for half in (order[: order.size // 2], order[order.size // 2 :])]
    p = np.full(order.size, np.nan)
    for learn, rest in (halves, halves[::-1]):
        estimator = make().fit(table.rows(learn), name)
        p[rest] = estimator.confidence(table.rows(rest))
        if not estimator.calibrated:
            curve = Platt().fit(estimator.confidence(table.rows(learn)), table.errors[learn])
            p[rest] = curve.predict_proba(p[rest])
    return p


@pytest.mark.parametrize("seed", [0, 3])
def test_every_point_by_what_the_other_half_taught(table, seed):
    makers = {"final": Final, "AES": AES, "LES": LES, "PES": PES, "best snapshot": BestSnapshot}
    for name in table.names:
        found = confidences(table, kappa=name, seed=seed)
        assert list(found) == list(makers)
        for method, make in makers.items():
            np.testing.assert_array_equal(found[method], by_hand(table, make, name, seed))


def test_sure_points_keep_their_order():
    """Probabilities within a millionth of 1 are not cut off, as they are for a mean NLL."""
    rng = np.random.default_rng(0)
    odds = np.concatenate([rng.normal(0, 1, 2000), rng.normal(20, 1, 200)])
    kappa = 1 / (1 + np.exp(-odds))
    wrong = rng.random(2200) > kappa
    table = ScoreTable.from_kappa(kappa[None], errors=wrong)
    (p,) = confidences(table, methods=["final"]).values()
    sure = p[2000:]
    assert (sure > 1 - 1e-6).all()
    assert np.unique(sure).size > 190


def test_which_are_asked_for(table):
    asked = confidences(table, kappa="mc_dropout", methods=["LES", "final"])
    assert list(asked) == ["LES", "final"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kappa": "entropy"}, "must be one of softmax, mc_dropout, got 'entropy'"),
        ({"methods": ["AES k=31"]}, "`methods` must be some of final, .*got 'AES k=31'"),
    ],
)
def test_refusals(table, options, words):
    with pytest.raises(InvalidInput, match=words):
        confidences(table, **options)


def test_labels_must_be_known():
    with pytest.raises(InvalidInput, match=r"^`y` must be known"):
        confidences(ScoreTable.from_kappa([[0.1, 0.2]]))


@pytest.mark.parametrize("wrong", [4, 16])
def test_four_points_of_a_kind_are_enough(wrong):
    kappa = np.random.default_rng(0).random((2, 20))
    assert confidences(ScoreTable.from_kappa(kappa, np.arange(20) < wrong), methods=["final"])
    other = 3 if wrong == 4 else 17
    with pytest.raises(InvalidInput, match=f"`table` .* got {other} wrong of 20. Score more"):
        confidences(ScoreTable.from_kappa(kappa, np.arange(20) < other))


def test_halves_without_an_error_still_answer():
    """By chance one half may have none: Platt's curve knows how to do without."""
    wrong = np.zeros(40, bool)
    order = np.random.default_rng(0).permutation(40)
    wrong[order[:4]] = True  # all in the first half
    table = ScoreTable.from_kappa(np.random.default_rng(1).random((3, 40)), errors=wrong)
    for p in confidences(table).values():
        assert ((p >= 0) & (p <= 1)).all()
