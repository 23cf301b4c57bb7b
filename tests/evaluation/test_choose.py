"""Which estimator is deployed: how few points of a kind can choose one."""

from dataclasses import replace

import numpy as np
import pytest

from snapsure import AES, LES, Platt, ScoreTable, Threshold, eaurc
from snapsure.errors import Infeasible, InvalidInput
from snapsure.estimators import Final, Method, registry
from snapsure.evaluation import Folds, Run, _choose, choose
from snapsure.evaluation._choose import _list_candidates, choose_estimator
from snapsure.evaluation._compare import make_board
from snapsure.metrics import Interval
from snapsure.table._table import random_cut
from tests.support.refusals import refuses
from tests.support.runs import run_of


@pytest.fixture(scope="module")
def fading():
    """A training whose signal fades: averages rank better than its end."""
    return run_of(0, n=900, drift=0.6).table


@pytest.mark.parametrize("passes", [None, 8, 3])
def test_les_of_fewest_passes_that_is_as_good_as_the_best_and_why(fading, passes):
    choice = choose_estimator(fading, "softmax", passes, 0)
    areas = [one.eaurc for one in choice.candidates]
    assert areas == sorted(areas)
    assert all(passes is None or one.passes <= passes for one in choice.candidates)
    best, rows = choice.candidates[0], {one.method: one for one in choice.candidates}
    equal = [one for one in choice.candidates if one.behind.low <= 0 and "LES" in one.method]
    row = min(equal, key=lambda one: one.passes)
    assert choice.method == row.method
    for fact in (row.eaurc * 1e3, rows["final"].eaurc * 1e3):
        assert f"{fact:.2f}" in choice.reason
    assert f"{row.gain.estimate:.1f} % less" in choice.reason
    assert f"in {row.passes:.0f} passes" in choice.reason
    assert (row is best) == (passes == 3)
    said = f"{best.method} is best, but not significantly better, in {best.passes:.0f} passes"
    assert (said in choice.reason) == (row is not best)
    assert choice.estimator.confidence(fading).shape == (900,)  # it is fitted


@pytest.mark.parametrize(("seed", "expected"), [(10, "LES (3 passes)"), (5, "final")])
def test_les_need_not_be_significantly_better_and_others_must(seed, expected):
    rng = np.random.default_rng(seed)
    ease = rng.random(160)
    kappa = np.clip(ease + rng.normal(0, 0.25, (6, 160)), 0.01, 0.99)
    table = ScoreTable.from_kappa(kappa, rng.random(160) > ease)
    choice = choose_estimator(table, "softmax", None, 0)
    rows = {one.method: one for one in choice.candidates}
    assert {rows[name].outcome for name in ("AES", "LES", "LES (3 passes)")} == {"no difference"}
    assert rows["AES"].gain.estimate > rows["LES"].gain.estimate
    assert (rows["LES"].gain.estimate > 0) == (expected != "final")
    assert choice.method == expected


@pytest.mark.parametrize(("gain", "is_chosen"), [(0.06, True), (0.04, False)])
def test_les_is_chosen_for_a_gain_that_can_be_written_with_one_digit(
    monkeypatch, fading, gain, is_chosen
):
    """The board of the same methods, but none of them is better by more than so many percent."""

    def narrow(*arguments):
        board = make_board(*arguments)
        same = {"gain": Interval(gain, -5.0, 5.0), "outcome": "no difference", "behind": None}
        rows = [row if row.method == "final" else replace(row, **same) for row in board.rows]
        return replace(board, rows=rows)

    monkeypatch.setattr(_choose, "make_board", narrow)
    method = choose_estimator(fading, "softmax", 3, 0).method
    assert method.startswith("LES") if is_chosen else method == "final"


def test_the_best_itself_is_as_good_as_the_best(monkeypatch, fading):
    """LES, where the others are better than the final softmax, and not significantly worse."""

    def close(*arguments):
        board = make_board(*arguments)
        best, *rest = [row for row in board.rows if row.method != "final"]
        rows = [replace(best, outcome="better", behind=Interval(0.0, 0.0, 0.0))]
        rows += [replace(row, outcome="better", behind=Interval(1.0, -1.0, 3.0)) for row in rest]
        return replace(board, rows=[*rows, board["final"]])

    monkeypatch.setattr(_choose, "make_board", close)
    choice = choose_estimator(fading, "softmax", 3, 0)
    assert choice.method == choice.candidates[0].method == "LES"
    assert "is best" not in choice.reason


def test_another_method_where_les_is_significantly_worse(monkeypatch, fading):
    """LES that learns nothing: the others are significantly better than the final softmax."""
    monkeypatch.setattr("snapsure.estimators._les.FEW", 10_000)
    choice = choose_estimator(fading, "softmax", None, 0)
    equal = [one for one in choice.candidates if one.behind.low <= 0]
    assert choice.method in [one.method for one in equal]
    assert "LES" not in choice.method
    assert round(next(one for one in equal if one.method == choice.method).passes) == min(
        round(one.passes) for one in equal
    )


@pytest.mark.parametrize(("most", "method"), [(900, "growing"), (899, "final")])
def test_what_needs_too_many_passes_once_it_is_fitted_is_not_deployed(
    monkeypatch, fading, most, method
):
    class Growing(AES):
        """Of the folds' 720 examples, it learns to average 4 snapshots; of all 900, perhaps 8."""

        def _learn(self, table, kappa):
            return {"epochs": table.epochs[-4 if table.y_hat.size <= most else -8 :].tolist()}

    methods = [registry.get("final"), Method("growing", Growing, needs=("snapshots",))]
    monkeypatch.setattr(registry, "_METHODS", {one.name: one for one in methods})
    choice = choose_estimator(fading, "softmax", 5, 0)
    assert [one.passes for one in choice.candidates] == [4, 1]
    assert choice.method == method


def test_every_example_is_judged_by_what_did_not_learn_from_it(fading):
    """The mean over five folds, each by the method fitted on the other four."""
    row = {one.method: one for one in choose_estimator(fading, "softmax", None, 3).candidates}
    parts, n = Folds(5, 3).parts(900), np.arange(900)
    assert (np.sort(np.concatenate([fold for _, fold in parts])) == n).all()
    areas, base = [], []
    for learn, fold in parts:
        assert (np.union1d(learn, fold) == n).all()
        rest = fading.rows(fold)
        areas.append(eaurc(LES().fit(fading.rows(learn)).confidence(rest), rest.errors))
        base.append(eaurc(rest.kappa("softmax")[-1], rest.errors))
    assert row["LES"].eaurc == pytest.approx(np.mean(areas))
    assert row["LES"].difference.estimate == pytest.approx(np.mean(areas) - np.mean(base))


def test_more_folds_than_examples():
    with pytest.raises(InvalidInput, match=r"`count` must leave an example .* got 5 of 4"):
        Folds(5).parts(4)
    assert [fold.size for _, fold in Folds(5).parts(5)] == [1] * 5


def test_several_kappas_compete_and_are_compared_with_the_final_first_one():
    rng = np.random.default_rng(0)
    ease = rng.random(2000)
    noise = rng.normal(0, [[[0.4]], [[0.05]], [[0]]], (3, 6, 2000))
    names, errors = ("softmax", "better", "unasked"), rng.random(2000) > ease
    kappas = dict(zip(names, np.clip(ease + noise, 0.01, 0.99), strict=True))
    table = ScoreTable(kappas, np.zeros((6, 2000), int), errors.astype(int))
    choice = choose(table, kappa=names[:2], risk=0.3)
    assert {row.kappa for row in choice.candidates} == {"softmax", "better"}
    assert (choice.kappa, choice.reference) == ("better", "softmax")
    assert choice.reason.startswith(
        f"{choice.method} of better ranks right above wrong better than"
    )
    expected = choice.estimator.fit(table.rows(choice.learn), "better").confidence(table)
    np.testing.assert_array_equal(choice.confidence(table), expected)
    alone = choose(table, risk=0.4)
    assert choice.promise(table, 0.4).accepted > alone.accepted > alone.final_accepted
    assert choice.promise(table, 0.4).final_accepted == alone.final_accepted

    # All examples test the first κ: where the other one accepts less, it is deployed.
    lost = replace(choice, method="final", kappa="softmax", reference="better", reason="so")
    lost = replace(lost, estimator=Final().fit(table, "softmax")).promise(table, 0.3)
    assert (lost.method, lost.kappa) == ("final", "better")
    assert lost.reason.startswith("so; but all 2000 examples can test the final better, and half")
    with pytest.raises(InvalidInput, match=r"`kappa` must name at least one κ, got none. Choose"):
        choose(table, kappa=[])


@pytest.mark.parametrize(("large", "resamples"), [(900, 1000), (899, 200)])
def test_many_examples_have_fewer_resamples(monkeypatch, fading, large, resamples):
    monkeypatch.setattr(_choose, "_LARGE", large)
    candidates = choose_estimator(fading, "softmax", None, 0).candidates
    assert min(one.p for one in candidates) == 2 / (1 + resamples)  # no p-value is smaller


@pytest.mark.parametrize(("passes", "within"), [(None, ""), (5, " within 5 passes")])
def test_the_final_snapshot_where_others_are_the_same(passes, within):
    kappa = np.random.default_rng(0).random(60)
    wrong = np.random.default_rng(1).random(60) > kappa
    same = ScoreTable.from_kappa(np.tile(kappa, (4, 1)), wrong)
    choice = choose_estimator(same, "softmax", passes, 0)
    assert isinstance(choice.estimator, Final)
    expected = Platt().fit(kappa, wrong).predict_proba(kappa)
    np.testing.assert_array_equal(choice.confidence(same), expected)
    others = [one.method for one in choice.candidates if one.method != "final"]
    assert {*others} == {*("AES", "LES", "LES (3 passes)", "PES", "best snapshot")}
    assert choice.reason == (
        f"the final softmax alone: {', '.join(others)}{within} are not significantly better on "
        "these examples"
    )
    alone = ScoreTable.from_kappa(kappa[None], wrong)
    assert choose_estimator(alone, "softmax", passes, 0).reason == (
        f"the final softmax: there is nothing else to choose{within}"
    )


def test_what_cannot_be_paid_for_or_is_not_there():
    kappa = np.random.default_rng(0).random((2, 40))
    settings = {"kappas": {"mc": {"passes": 7}}}
    table = ScoreTable(
        {"mc": kappa}, np.zeros((2, 40), int), np.arange(40) < 9, provenance=settings
    )
    for asked, passes, sentence in (
        (
            "mc",
            6,
            r"`passes` must be at least 7, .* got 6. Allow more",
        ),
        (
            "mc",
            7.5,
            r"`passes` must be a whole number ≥ 1, got 7.5",
        ),
        (
            "softmax",
            None,
            "`kappa` must be one that the table has, mc, got 'softmax'",
        ),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            choose_estimator(table, asked, passes, 0)


@pytest.mark.parametrize("wrong", [2, 38])
def test_two_points_of_each_kind_can_choose(wrong):
    kappa = np.random.default_rng(0).random((1, 40))
    table = ScoreTable.from_kappa(kappa, np.arange(40) < wrong)
    assert isinstance(choose_estimator(table, "softmax", None, 0).estimator, Final)


@pytest.mark.parametrize("wrong", [0, 1, 39, 40])
def test_fewer_cannot(wrong):
    kappa = np.random.default_rng(0).random((1, 40))
    table = ScoreTable.from_kappa(kappa, np.arange(40) < wrong)
    with pytest.raises(InvalidInput, match=f"`table` .* got {wrong} wrong of 40. Score more"):
        choose_estimator(table, "softmax", None, 0)


@pytest.mark.parametrize(("snapshots", "passes", "k"), [(40, None, 30), (40, 40, 30), (40, 5, 5)])
def test_aes_averages_as_many_as_may_be_passed_and_at_most_thirty(snapshots, passes, k):
    table = ScoreTable.from_kappa(np.full((snapshots, 5), 0.5), [0, 1, 0, 1, 0])
    candidates = _list_candidates(Run(table), "softmax", passes)
    made = {candidate.method: candidate.make() for candidate in candidates}
    assert made["AES"].k == k
    assert made["LES"].passes == passes


@pytest.mark.parametrize(("passes", "count"), [(7, 1), (13, 1), (14, 5), (None, 5)])
def test_where_one_snapshot_can_be_paid_for_there_is_nothing_to_choose(passes, count):
    table = ScoreTable.from_kappa(np.full((3, 5), 0.5), [0, 1, 0, 1, 0], name="mc")
    assert len(_list_candidates(Run(table, passes={"mc": 7}), "mc", passes)) == count


def test_one_half_chooses_and_the_other_tests_what_was_chosen(fading):
    choice = choose(fading, risk=0.4, delta=0.1, seed=3)
    learn, rest = fading.split(0.5, 3)
    expected = choose_estimator(learn, "softmax", None, 3)
    assert (choice.method, choice.reason) == (expected.method, expected.reason)
    assert fading.rows(choice.learn).y.tolist() == learn.y.tolist()
    assert fading.rows(choice.rest).y.tolist() == rest.y.tolist()

    confidence = choice.confidence(rest)
    np.testing.assert_array_equal(confidence, expected.confidence(rest))
    threshold = Threshold.at_risk(confidence, rest.errors, 0.4, (1 - 0.8) * 0.1)
    assert (choice.threshold.theta, choice.threshold.delta) == (threshold.theta, 0.1)
    assert choice.accepted == pytest.approx(threshold.accepts(confidence).mean())
    final = fading.kappa("softmax")[-1]
    alone = Threshold.at_risk(final, fading.errors, 0.4, 0.1)
    assert choice.final_accepted == alone.accepts(final[choice.rest]).mean()
    assert choice.accepted > choice.final_accepted


@pytest.fixture(scope="module")
def worse():
    """A choice of AES where the final snapshot ranks better: the table, and the choice."""
    rng = np.random.default_rng(0)
    ease = rng.random(900)
    kappa = np.stack([rng.random(900), np.clip(ease, 0.01, 0.99)])
    table = ScoreTable.from_kappa(kappa, rng.random(900) > ease)
    choice = choose(table)
    learn = table.rows(choice.learn)
    aes = AES().fit(learn)
    platt = Platt().fit(aes.confidence(learn), learn.errors)
    return table, replace(choice, method="AES", estimator=aes, calibration=platt, reason="so")


def test_all_examples_test_the_final_softmax_and_it_is_deployed_where_it_accepts_more(worse):
    table, found = worse
    choice = found.promise(table, 0.3, 0.1)
    assert (choice.method, choice.threshold.delta, choice.threshold.n) == ("final", 0.1, 900)
    assert choice.reason.startswith("so; but all 900 examples can test the final softmax, and half")
    both = found.promise(table, 0.9)
    assert both.method == "final"
    assert "accepts 100.0% at this risk instead of 100.0%" in both.reason
    final = table.kappa("softmax")[-1]
    threshold = Threshold.at_risk(final, table.errors, 0.3, 0.8 * 0.1)
    accepted = choice.threshold.accepts(choice.confidence(table))
    np.testing.assert_array_equal(accepted, threshold.accepts(final))
    assert choice.threshold.coverage == accepted.mean()
    assert choice.accepted == accepted[choice.rest].mean()
    # Its probability was fitted by the half that chose.
    learn = table.rows(choice.learn)
    platt = Platt().fit(learn.kappa("softmax")[-1], learn.errors)
    np.testing.assert_array_equal(choice.confidence(table), platt.predict_proba(final))


def test_a_risk_chosen_by_the_half_that_chose_is_tested_by_the_other_half_alone(worse):
    table, found = worse
    choice = found.promise(table, 0.45, 0.1, risk_is_fixed=False)
    assert choice.method == "AES"
    rest = table.rows(choice.rest)
    expected = Threshold.at_risk(choice.confidence(rest), rest.errors, 0.45, 0.1)
    assert choice.threshold.theta == expected.theta


def test_where_nothing_else_can_be_chosen_all_of_delta_is_for_the_final_softmax():
    rng = np.random.default_rng(0)
    kappa = rng.random(600)
    alone = ScoreTable.from_kappa(kappa[None], rng.random(600) > kappa)
    choice = choose(alone, risk=0.3)
    assert choice.accepted == choice.final_accepted
    expected = Threshold.at_risk(kappa, alone.errors, 0.3)
    assert choice.threshold.coverage == expected.coverage


@pytest.mark.parametrize("is_constant", [False, True])
def test_a_curve_that_does_not_keep_the_order_is_not_deployed(is_constant):
    """On the half that chooses, a surer answer is wrong more often, or all are as sure."""
    rng = np.random.default_rng(1)
    kappa, errors = rng.random(2000), rng.random(2000) < 0.05
    if is_constant:
        kappa[:] = 0.5
    learn, _ = random_cut(2000, 1000, 0)
    errors[learn] = rng.random(1000) < 0.2 * kappa[learn]
    choice = choose(ScoreTable.from_kappa(kappa[None], errors), risk=0.3)
    assert (choice.method, choice.calibration) == ("final", None)
    expected = Threshold.at_risk(kappa, errors, 0.3)
    assert (choice.threshold.theta, choice.threshold.coverage) == (expected.theta, 1)


def test_the_smallest_risk_of_both(worse):
    table, found = worse
    choice = found.promise(table, "smallest", 0.1)
    rest, final = table.rows(found.rest), table.kappa("softmax")[-1]
    by_method = Threshold.at_risk(found.confidence(rest), rest.errors, "smallest", 0.2 * 0.1)
    by_final = Threshold.at_risk(final, table.errors, "smallest", 0.8 * 0.1)
    assert by_final.risk < by_method.risk
    assert (choice.method, choice.threshold.risk) == ("final", by_final.risk)
    assert f"{by_final.risk:.3g} instead of {by_method.risk:.3g}" in choice.reason
    with pytest.raises(Infeasible) as caught:
        found.promise(table, 1e-4, 0.1)
    assert caught.value.possible == choice.threshold.risk


def test_without_a_risk_nothing_is_promised(fading):
    choice = choose(fading)
    assert (choice.threshold, choice.accepted, choice.final_accepted) == (None, None, None)
    assert choice.promise(fading, 0.3).accepted == choose(fading, risk=0.3).accepted


def test_a_risk_that_the_final_softmax_cannot_promise(fading):
    choice = choose(fading, risk=0.2)
    assert choice.accepted > 0
    assert choice.final_accepted is None


def test_ten_examples_are_enough_for_halves_and_folds():
    kappa = np.random.default_rng(0).random((1, 10))
    assert choose(ScoreTable.from_kappa(kappa, np.arange(10) % 2)).method == "final"


@pytest.mark.parametrize("delta", [0, 1])
def test_promises_that_always_or_never_hold(worse, delta):
    table, found = worse
    with refuses(InvalidInput, "`delta` must lie in (0, 1)", f"got {delta}"):
        found.promise(table, 0.3, delta)


@pytest.mark.parametrize("n", [1, 4, 9])
def test_too_few_examples_for_halves_and_folds(n):
    table = ScoreTable.from_kappa(np.linspace(0, 1, n)[None], np.arange(n) % 2)
    with refuses(InvalidInput, "`table`", "at least 10 examples", f"got {n}", "Score more"):
        choose(table)


def test_what_is_no_table():
    with pytest.raises(InvalidInput, match="`table` must be a ScoreTable, got list"):
        choose([[0.5]])


@pytest.mark.parametrize("epochs", [[1, 2], [2]])
def test_one_pass_where_the_final_logits_know_more_than_their_softmax(epochs):
    rng = np.random.default_rng(0)
    wrong = rng.random(1200) < 0.4
    known = 1 / (1 + np.exp(np.where(wrong, 1, -1) + rng.normal(0, 1, 1200)))
    kappa, labels = rng.random((2, 1200)), np.zeros((2, 1200), int)
    final = np.stack([known, *rng.random((4, 1200))], axis=1)
    table = ScoreTable({"softmax": kappa}, labels, wrong.astype(int), final=final).select(epochs)
    choice = choose_estimator(table, "softmax", 1, 0)
    assert choice.method == "LES"
    assert choice.estimator.snapshots(table.epochs) == [2]
    assert [one.passes for one in choice.candidates] == [1, 1]
