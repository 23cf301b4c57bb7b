"""`evaluate` against the same steps written out."""

import inspect
import pkgutil
from dataclasses import is_dataclass
from functools import partial
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
from snapsure.estimators import Method, registry
from snapsure.evaluation import Halves, Splits, confidences
from tests.support.runs import run_of, simulated

AVERAGED = {f"AES (k={k})": Method(f"AES (k={k})", partial(AES, k)) for k in (10, 30, 50)}
METHODS = ("final", *AVERAGED.values(), "PES", "LES")


@pytest.fixture(scope="module")
def table():
    return simulated()


def rows_of(comparison):
    return {(r.kappa, r.method): r for board in comparison.boards.values() for r in board.rows}


@pytest.fixture(scope="module")
def results(table):
    return rows_of(evaluate(table, methods=METHODS, protocol=Splits(3), resamples=200))


def test_every_method_on_every_kappa(table, results):
    names = ["final", *AVERAGED, "PES", "LES"]
    assert list(results) == [(name, method) for name in table.names for method in names]


def test_by_default_what_may_be_deployed_is_shown(table):
    result = evaluate(table, kappa="softmax", protocol=Splits(1), resamples=20)
    shown = [row.method for row in result.boards["softmax"].rows]
    assert [*shown, "averaged weights"] == [
        name
        for name in registry.names()
        if registry.get(name).is_candidate and not name.endswith("passes)")
    ]
    assert shown == ["final", "AES", "LES", "PES", "best snapshot"]


def test_the_final_snapshot_is_always_there(table):
    result = evaluate(table, methods=["AES"], protocol=Splits(1), resamples=20)
    assert result["final"].outcome == "reference"


def test_results_are_found_by_method_and_kappa(table):
    result = evaluate(table, methods=["final", "AES"], protocol=Splits(1), resamples=20)
    assert result["AES"] is result["AES", "softmax"] is result.boards["softmax"]["AES"]
    assert result["AES", "mc_dropout"] is result.boards["mc_dropout"]["AES"]
    only = evaluate(table, kappa="mc_dropout", methods=["AES"], protocol=Splits(1), resamples=20)
    assert only["AES"].kappa == "mc_dropout"
    with pytest.raises(InvalidInput, match="must be one of final, AES, got 'LES'"):
        result["LES"]
    with pytest.raises(InvalidInput, match="must be one of softmax, mc_dropout, got 'entropy'"):
        result["AES", "entropy"]


def test_printed_it_shows_its_boards(table):
    result = evaluate(table, methods=["final", "AES"], protocol=Splits(1), resamples=20)
    text = str(result)
    for part in ("softmax", "mc_dropout", "AES", f"{1e3 * result['AES'].eaurc:.2f}"):
        assert part in text


def test_a_printed_board_shows_its_table(table):
    board = evaluate(table, methods=["final", "AES"], protocol=Splits(1), resamples=20).boards[
        "mc_dropout"
    ]
    assert repr(board) == "<Board: mc_dropout; 2 methods>"
    for part in ("mc_dropout: 1 run ", "AES", f"{1e3 * board['AES'].eaurc:.2f}"):
        assert part in str(board)
    assert "<table" in board._repr_html_()


def test_rivals_of_the_logits_take_part():
    table = run_of().table
    result = evaluate(
        table, kappa="softmax", methods=["temperature by NLL"], protocol=Splits(2), resamples=20
    )
    assert result["temperature by NLL"].kappa is None
    assert result["temperature by NLL"].reference_eaurc > 0


def test_methods_that_learn_nothing_are_judged_on_all_points(table, results):
    for name in table.names:
        final = table.kappa(name)[-1]
        for k in (10, 30, 50):
            row = results[name, f"AES (k={k})"]
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
    row = rows_of(evaluate(table, protocol=Halves(), resamples=50))["softmax", "AES"]
    order = np.random.default_rng(0).permutation(400)
    halves = [table.rows(np.sort(part)) for part in (order[:200], order[200:])]
    areas = [eaurc(AES().confidence(half), half.errors) for half in halves]
    assert row.eaurc == pytest.approx(np.mean(areas))


def test_the_same_numbers_as_compare(table):
    """One softmax has one NLL, whoever asks."""
    ours = rows_of(evaluate(table, protocol=Halves(), resamples=50))
    theirs = compare(table, resamples=1000).boards["data"]
    for name in ("final", "AES", "LES"):
        for field in ("eaurc", "aurc", "augrc", "nll", "brier", "error", "passes", "snapshots"):
            expected = getattr(theirs[name], field)
            assert getattr(ours["softmax", name], field) == pytest.approx(expected), (name, field)


def test_verdicts_follow_the_interval(results):
    for row in results.values():
        if row.method == "final":
            continue
        _, low, high = row.difference
        said = row.verdict.split(" than ")[0] if " than " in row.verdict else "no"
        expected = "better" if high < 0 else "worse" if low > 0 else "no"
        assert said == expected


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (1.0, r"`share` must lie in \(0, 1\), got 1.0"),
        (0.001, "`share` .* got 0.001 of 400"),
        (0.999, "`share` .* got 0.999 of 400"),
    ],
)
def test_points_on_one_side_are_no_split(table, share, words):
    with pytest.raises(InvalidInput, match=words):
        evaluate(table, protocol=Splits(share=share))


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


def test_of_one_snapshot_every_method_is_shown_but_ranked_once(table):
    """Averages of it are the final softmax: `compare` would correct p-values for each of them."""
    alone = table.select(table.epochs[-1:])
    methods = ["final", "AES"]
    result = evaluate(alone, kappa="softmax", methods=methods, resamples=20)
    assert result["AES"].eaurc == result["final"].eaurc
    p = confidences(alone, methods=methods)
    assert (p["AES"] == p["final"]).all()
    ranked = compare(alone, methods=methods, resamples=200).boards["data"].rows
    assert {row.method for row in ranked} == {"final"}


def test_few_snapshots_have_one_row_of_aes():
    rng = np.random.default_rng(0)
    kappa = rng.random((4, 200))
    short = ScoreTable.from_kappa(kappa, rng.random(200) > kappa.mean(axis=0))
    for result in (evaluate(short, protocol=Splits(1), resamples=20), compare(short)):
        methods = [row.method for board in result.every for row in board.rows]
        assert [method for method in methods if method.startswith("AES")] == ["AES"]


def test_tables_with_different_kappas_are_refused_by_their_number(table):
    other = ScoreTable({"entropy": table.kappa("softmax")}, table.labels, table.y)
    words = r"`tables` \(table 1\) must be one of entropy, got 'softmax'"
    with pytest.raises(InvalidInput, match=words):
        evaluate([table, other])
    with pytest.raises(InvalidInput, match=r"`runs\['b'\]` \(run 0\) .* entropy, got 'softmax'"):
        compare({"a": table, "b": other})
    with pytest.raises(InvalidInput, match=r"`runs\['data'\]` \(run 1\) .* entropy, got"):
        compare([table, other])


@pytest.mark.parametrize("judge", [evaluate, compare])
def test_unknown_methods_are_refused_with_those_there_are(table, judge):
    with pytest.raises(InvalidInput, match=r"`methods` must be some of final, AES.*got 'luck'"):
        judge(table, methods=["final", "luck"])


def test_an_unknown_kappa(table):
    with pytest.raises(InvalidInput, match="must be one of softmax, mc_dropout, got 'luck'"):
        evaluate(table, kappa=["luck"])


@pytest.mark.parametrize("value", ["scores", np.ones((2, 20)), [np.ones(20)]])
def test_only_tables_are_evaluated(value):
    with pytest.raises(InvalidInput, match=r"must be a ScoreTable, got (str|ndarray)\..*open"):
        evaluate(value)


@pytest.mark.parametrize(("y", "wrong"), [(np.zeros(20), 0), (np.ones(20), 20)])
def test_nothing_to_compare(y, wrong):
    table = ScoreTable({"softmax": np.ones((2, 20)) / 2}, np.zeros((2, 20), int), y)
    with pytest.raises(InvalidInput, match=f"`tables` .* got {wrong} wrong of 20. Score more"):
        evaluate(table)


@pytest.mark.parametrize("wrong", [1, 59])
def test_one_example_of_a_kind_is_enough(wrong):
    kappa = np.random.default_rng(0).random((3, 60))
    table = ScoreTable.from_kappa(kappa, np.arange(60) < wrong)
    result = evaluate(table, methods=("final", "AES"), resamples=20)
    assert all(np.isfinite(row.eaurc) for row in result.boards["softmax"].rows)


def test_where_the_final_kappa_is_perfect_there_is_nothing_to_gain():
    wrong = np.arange(60) < 20
    perfect = np.where(wrong, 0.1, 0.9)
    table = ScoreTable.from_kappa(np.vstack((1 - perfect, perfect)), wrong)
    row = evaluate(table, resamples=20)["AES"]
    assert (row.reference_eaurc, row.gain, row.gains) == (0, None, (None,))
    assert row.verdict == "no significant difference from the final softmax"
    assert (row.flat()["gain"], row.flat()["gain_low"]) == (None, None)


@pytest.mark.parametrize("word", ["better", "worse"])
def test_a_verdict_tells_by_how_much(word):
    table = simulated(n=1000)
    kappa = table.kappa("softmax")
    rows = kappa[::-1] if word == "better" else np.vstack((1 - kappa[-1:], kappa[-1:]))
    row = evaluate(ScoreTable.from_kappa(rows, table.errors), resamples=100)["AES"]
    assert row.outcome == word
    assert row.verdict == f"{word} than the final softmax by {abs(row.gain.estimate):.1f} %"
    final = row.reference_eaurc
    assert row.gain == pytest.approx(
        (
            100 * (1 - row.eaurc / final),
            -100 * row.difference.high / final,
            -100 * row.difference.low / final,
        )
    )
