"""`evaluate` against the same steps written out."""

import inspect
import pkgutil
from dataclasses import is_dataclass
from importlib import import_module

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
    compare,
    eaurc,
    evaluate,
    nll,
)
from snapsure.errors import InvalidInput
from snapsure.evaluation import Halves, Run, Splits
from snapsure.evaluation._methods import SHOWN, methods_of


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


def rows_of(comparison):
    return {(r.kappa, r.method): r for board in comparison.boards.values() for r in board.rows}


@pytest.fixture(scope="module")
def results(table):
    return rows_of(evaluate(table, protocol=Splits(3), resamples=200))


def test_every_method_on_every_kappa(table, results):
    assert list(results) == [(name, method) for name in table.names for method in SHOWN]


def test_each_aes_averages_as_many_as_its_name_says():
    table = ScoreTable.from_kappa(np.full((3, 5), 0.5), [0, 1, 0, 1, 0])
    made = {method.kind: method.make() for method in methods_of(Run(table), SHOWN)}
    assert {kind: one.k for kind, one in made.items() if isinstance(one, AES)} == {
        f"AES k={k}": k for k in (10, 30, 50)
    }


def test_methods_that_learn_nothing_are_judged_on_all_points(table, results):
    for name in table.names:
        final = table.kappa(name)[-1]
        for k in (10, 30, 50):
            row = results[name, f"AES k={k}"]
            score = AES(k).fit(table, name).confidence(table)
            assert row.eaurc == eaurc(score, table.errors)
            assert row.reference_eaurc == eaurc(final, table.errors)
            assert row.gain.estimate == pytest.approx(100 * (1 - row.eaurc / row.reference_eaurc))
            assert row.difference == bootstrap_difference(
                eaurc, score, final, table.errors, resamples=200
            )


def test_methods_that_learn_are_judged_on_what_they_have_not_seen(table, results):
    kappa = "softmax"
    pes, les = [], []
    for seed in range(3):
        fit, rest = table.split(0.7, seed)
        learnt = PES().fit(fit)
        score = learnt.confidence(rest)
        p = Platt().fit(learnt.confidence(fit), fit.errors).predict_proba(score)
        final = eaurc(rest.kappa(kappa)[-1], rest.errors)
        pes.append((eaurc(score, rest.errors), final, nll(p, rest.errors), brier(p, rest.errors)))
        p = LES().fit(fit).confidence(rest)
        les.append((eaurc(p, rest.errors), final, nll(p, rest.errors), brier(p, rest.errors)))
    for method, numbers in (("PES", pes), ("LES", les)):
        row = results[kappa, method]
        np.testing.assert_allclose(
            (row.eaurc, row.reference_eaurc, row.nll, row.brier),
            np.mean(numbers, axis=0),
            rtol=1e-12,
        )
        assert row.difference.low <= row.difference.estimate <= row.difference.high
        assert row.difference.estimate == pytest.approx(row.eaurc - row.reference_eaurc)
        areas = [area for area, *_ in numbers]
        assert row.standard_error == pytest.approx(np.std(areas, ddof=1) / 3**0.5)


def test_the_final_kappa_gains_nothing_on_itself(results):
    row = results["softmax", "final"]
    assert row.gain == (0, 0, 0)
    assert row.verdict == "the reference"
    assert row.difference == (0, 0, 0)


def test_averages_over_tables():
    tables = [simulated(seed) for seed in (1, 2)]
    each = [rows_of(evaluate(t, protocol=Splits(2), resamples=50)) for t in tables]
    both = evaluate(tables, protocol=Splits(2), resamples=50)
    assert both.boards["softmax"].runs == 2
    for key, mean in rows_of(both).items():
        a, b = each[0][key], each[1][key]
        assert mean.eaurc == pytest.approx((a.eaurc + b.eaurc) / 2)
        assert mean.nll == pytest.approx((a.nll + b.nll) / 2)
        assert mean.difference.low == pytest.approx((a.difference.low + b.difference.low) / 2)
        assert mean.gains == pytest.approx((a.gain.estimate, b.gain.estimate))


def test_another_protocol(table):
    """Halves: what learns nothing is judged on them, too."""
    row = rows_of(evaluate(table, protocol=Halves(), resamples=50))["softmax", "AES k=30"]
    order = np.random.default_rng(0).permutation(400)
    halves = [table.rows(np.sort(part)) for part in (order[:200], order[200:])]
    areas = [eaurc(AES().confidence(half), half.errors) for half in halves]
    assert row.eaurc == pytest.approx(np.mean(areas))


def test_the_same_numbers_as_compare(table):
    """One softmax has one NLL, whoever asks."""
    ours = rows_of(evaluate(table, protocol=Halves(), resamples=50))
    theirs = compare(table, resamples=1000).boards["data"]
    for mine, name in (
        ("final", "softmax"),
        ("AES k=30", "AES of softmax"),
        ("LES", "LES of softmax"),
    ):
        for field in ("eaurc", "aurc", "augrc", "nll", "brier", "error", "passes", "snapshots"):
            expected = getattr(theirs[name], field)
            assert getattr(ours["softmax", mine], field) == pytest.approx(expected), (name, field)


def test_verdicts_follow_the_interval(results):
    for row in results.values():
        if row.method == "final":
            continue
        _, low, high = row.difference
        said = row.verdict.split(" than ")[0] if " than " in row.verdict else "no"
        expected = "better" if high < 0 else "worse" if low > 0 else "no"
        assert said == expected


@pytest.mark.parametrize(
    ("share", "sentence"),
    [
        (1.0, "`share` must lie in (0, 1), got 1.0: write 95 % as 0.95"),
        (
            0.001,
            "`share` must leave points on both sides, got 0.001 of 400: choose another, or score "
            "more points",
        ),
    ],
)
def test_points_on_one_side_are_no_split(table, share, sentence):
    with pytest.raises(InvalidInput) as caught:
        evaluate(table, protocol=Splits(share=share))
    assert str(caught.value) == sentence


def test_what_is_asked_and_found_cannot_be_changed():
    place = "snapsure.evaluation"
    modules = [
        import_module(f"{place}.{module.name}")
        for module in pkgutil.iter_modules(import_module(place).__path__)
    ]
    classes = [
        one
        for module in modules
        for _, one in inspect.getmembers(module, is_dataclass)
        if one.__module__ == module.__name__
    ]
    assert {Splits, Halves} <= {*classes}
    assert [one.__name__ for one in classes if not one.__dataclass_params__.frozen] == []


@pytest.mark.parametrize("judge", [evaluate, compare])
def test_unknown_kinds(table, judge):
    with pytest.raises(InvalidInput) as caught:
        judge(table, methods=["final", "luck"])
    assert str(caught.value) == (
        "`methods` must be some of final, AES k=10, AES k=30, AES k=50, PES, LES, LES in 4 "
        "passes, LES in 3 passes, LES in 2 passes, PES to the letter, best snapshot, rival, "
        "got 'luck': choose among these"
    )


def test_an_unknown_kappa(table):
    with pytest.raises(InvalidInput) as caught:
        evaluate(table, names=["luck"])
    assert str(caught.value) == (
        "`name` must be one of softmax, mc_dropout, got 'luck': score that κ first, or choose one "
        "of these"
    )


@pytest.mark.parametrize(("y", "wrong"), [(np.zeros(20), 0), (np.ones(20), 20)])
def test_nothing_to_compare(y, wrong):
    table = ScoreTable({"softmax": np.ones((2, 20)) / 2}, np.zeros((2, 20), int), y)
    with pytest.raises(InvalidInput) as caught:
        evaluate(table)
    assert str(caught.value) == (
        f"`tables` must have right and wrong points to compare methods, got {wrong} wrong of 20: "
        "score more points"
    )
