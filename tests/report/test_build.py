"""What reports compute, against the same steps written out."""

import numpy as np
import pytest

from snapsure import (
    AES,
    LES,
    PES,
    Platt,
    ScoreTable,
    bootstrap_difference,
    brier,
    eaurc,
    nll,
)
from snapsure.errors import InvalidInput
from snapsure.report.build import METHODS, average, evaluate


def simulated(seed=0, n=400, snapshots=12):
    rng = np.random.default_rng(seed)
    ease = rng.normal(size=n)
    noise = rng.normal(size=(snapshots, n)) * np.linspace(2, 0.7, snapshots)[:, None]
    kappa = 1 / (1 + np.exp(-(ease + noise)))
    wrong = rng.random(n) > 1 / (1 + np.exp(-(1 + ease)))
    return ScoreTable(
        {"softmax": kappa, "mc_dropout": kappa**2}, np.zeros((snapshots, n), int), wrong.astype(int)
    )


@pytest.fixture(scope="module")
def table():
    return simulated()


@pytest.fixture(scope="module")
def results(table):
    return {(r.kappa, r.method): r for r in evaluate(table, splits=3, resamples=200)}


def test_every_method_on_every_kappa(table, results):
    assert list(results) == [(name, method.name) for name in table.names for method in METHODS]


def test_methods_that_learn_nothing_are_judged_on_all_points(table, results):
    for name in table.names:
        final = table.kappa(name)[-1]
        for k in (10, 30, 50):
            row = results[name, f"AES k={k}"]
            score = AES(k).confidence(table.kappa(name), table.epochs)
            assert row.eaurc == eaurc(score, table.errors)
            assert row.final_eaurc == eaurc(final, table.errors)
            assert row.improvement == pytest.approx(100 * (1 - row.eaurc / row.final_eaurc))
            assert row.difference == bootstrap_difference(
                eaurc, score, final, table.errors, resamples=200
            )


def test_methods_that_learn_are_judged_on_what_they_have_not_seen(table, results):
    kappa = "softmax"
    pes, les = [], []
    for seed in range(3):
        fit, rest = table.split(0.7, seed)
        learnt = PES().fit(fit.kappa(kappa), fit.errors)
        score = learnt.confidence(rest.kappa(kappa))
        p = Platt().fit(learnt.confidence(fit.kappa(kappa)), fit.errors).predict_proba(score)
        final = eaurc(rest.kappa(kappa)[-1], rest.errors)
        pes.append((eaurc(score, rest.errors), final, nll(p, rest.errors), brier(p, rest.errors)))
        p = LES().fit(fit.kappa(kappa), fit.errors, fit.epochs).confidence(rest.kappa(kappa))
        les.append((eaurc(p, rest.errors), final, nll(p, rest.errors), brier(p, rest.errors)))
    for method, numbers in (("PES", pes), ("LES", les)):
        row = results[kappa, method]
        np.testing.assert_allclose(
            (row.eaurc, row.final_eaurc, row.nll, row.brier), np.mean(numbers, axis=0), rtol=1e-12
        )
        assert row.difference.low <= row.difference.estimate <= row.difference.high
        assert row.difference.estimate == pytest.approx(row.eaurc - row.final_eaurc)


def test_the_final_kappa_gains_nothing_on_itself(results):
    row = results["softmax", "final"]
    assert row.improvement == 0
    assert row.difference == (0, 0, 0)


def test_averages_over_tables():
    each = [evaluate(simulated(seed), splits=2, resamples=50) for seed in (1, 2)]
    for mean, a, b in zip(average(each), *each, strict=True):
        assert (mean.kappa, mean.method) == (a.kappa, a.method)
        assert mean.eaurc == pytest.approx((a.eaurc + b.eaurc) / 2)
        assert mean.difference.low == pytest.approx((a.difference.low + b.difference.low) / 2)
        assert mean.gains == (a.improvement, b.improvement)


@pytest.mark.parametrize(("y", "wrong"), [(np.zeros(20), 0), (np.ones(20), 20)])
def test_nothing_to_compare(y, wrong):
    table = ScoreTable({"softmax": np.ones((2, 20)) / 2}, np.zeros((2, 20), int), y)
    with pytest.raises(InvalidInput) as caught:
        evaluate(table)
    assert str(caught.value) == (
        f"`table` must have right and wrong points to compare methods, got {wrong} wrong of 20: "
        "score more points"
    )
