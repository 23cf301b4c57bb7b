"""The report's numbers against the library's functions and written-out definitions."""

import numpy as np
import pytest
from scipy.stats import binomtest

from snapsure import (
    AES,
    LES,
    PES,
    Platt,
    Report,
    ScoreTable,
    Threshold,
    brier,
    ece,
    nll,
    rc_curve,
)
from snapsure.errors import Infeasible, InvalidInput
from snapsure.evaluation import choose, evaluate, trajectories
from snapsure.report.accepting import DELTAS, POSITIONS, positions_of
from snapsure.report.advice import RISKS, advise
from snapsure.report.findings import find, plain
from tests.support.runs import simulated


@pytest.fixture(scope="module")
def table():
    """The first snapshots know the errors best, and AES leaves them out: LES is recommended."""
    rng = np.random.default_rng(0)
    ease = rng.normal(size=2400)
    noise = rng.normal(size=(40, 2400)) * np.where(np.arange(40) < 12, 0.4, 1.3)[:, None]
    wrong = rng.random(2400) > 1 / (1 + np.exp(-(1 + 2 * ease)))
    kappa = 1 / (1 + np.exp(-(ease + noise)))
    return ScoreTable({"softmax": kappa}, np.zeros((40, 2400), int), wrong.astype(int))


@pytest.fixture(scope="module")
def found(table):
    return find(table)


@pytest.fixture(scope="module")
def halves(table):
    """What is learnt from, and what all thresholds, curves and points are of."""
    return table.split(0.5, 0)


@pytest.fixture(scope="module")
def scores(halves):
    """The confidences of the page, in its order: the recommended one first."""
    learn, rest = halves
    return {
        "LES": LES().fit(learn).confidence(rest),
        "AES": AES().confidence(rest),
        "final": rest.kappa("softmax")[-1],
    }


def test_results_are_those_of_choose(table, found):
    choice = choose(table)
    assert found.results == {row.method: row for row in choice.candidates}
    assert found.unseen.tolist() == choice.rest.tolist()
    assert found.accuracy == 1 - table.errors.mean()
    learn = evaluate(table.rows(choice.learn))
    for method, row in found.results.items():
        assert (row.eaurc, row.difference) == (learn[method].eaurc, learn[method].difference)


def test_positions_are_the_librarys_thresholds(halves, scores, found):
    wrong_of = halves[1].errors
    assert list(found.positions) == list(scores)
    for name, each in found.positions.items():
        assert len(each.theta) == POSITIONS
        for i in range(0, POSITIONS, 7):
            chosen = Threshold.at_coverage(scores[name], (i + 1) / POSITIONS)
            accepted = chosen.accepts(scores[name])
            assert each.theta[i] == chosen.theta
            assert each.coverage[i] == chosen.coverage
            assert each.risk[i] == wrong_of[accepted].mean()
            assert each.handed[i] == (~accepted).sum()
            wrong, n = int(wrong_of[accepted].sum()), int(accepted.sum())
            exact = binomtest(wrong, n).proportion_ci(0.95, "exact")
            assert each.low[i] == pytest.approx(exact.low, abs=1e-9)
            assert each.high[i] == pytest.approx(exact.high, abs=1e-9)
            for delta in DELTAS:
                level = 1 - 2 * delta / (3 * POSITIONS)  # three scores; upper end of two sides
                bound = binomtest(wrong, n).proportion_ci(level, "exact").high
                assert each.bounds[delta][i] == pytest.approx(bound, abs=1e-9)


@pytest.mark.slow
def test_the_guarantee_holds_for_whichever_position_is_chosen():
    """300 draws; the reader takes the lowest bound of both scores; delta is 0.1."""
    rng = np.random.default_rng(0)
    broken = 0
    for _ in range(300):
        kappa = rng.random(400)
        wrong = rng.random(400) > kappa
        both = [positions_of(score, wrong, 2 * POSITIONS, ~wrong) for score in (kappa, kappa**2)]
        bound, theta = min(
            (each.bounds[0.1].min(), each.theta[each.bounds[0.1].argmin()] ** power)
            for each, power in zip(both, (1, 0.5), strict=True)
        )
        broken += (1 - theta) / 2 > bound  # the risk of κ uniform above theta, wrong with 1 − κ
    assert broken <= 30


def test_curves_are_points_of_the_rc_curve(halves, scores, found):
    whole = rc_curve(scores["final"], halves[1].errors)
    curve = found.curves["final"]
    at = np.searchsorted(whole.coverage, curve.coverage - 1e-12)
    assert np.allclose(whole.coverage[at], curve.coverage)
    assert np.allclose(whole.risk[at], curve.risk)
    assert (curve.low <= curve.risk).all()
    assert (curve.risk <= curve.high).all()


def test_along_training(table, found):
    expected = trajectories(table.kappa("softmax"), table.errors, 0.5)
    assert found.surer == 0.5
    assert np.array_equal(found.groups.green_eaurc, expected.green_eaurc)
    assert np.array_equal(found.groups.red_eaurc, expected.red_eaurc)
    assert found.averaged.tolist() == AES().snapshots(table.epochs)
    pes = PES().fit(table)
    layers = [(each.epoch, each.cut, each.edge) for each in pes.layers_]
    assert [(layer.epoch, layer.cut_epoch, layer.edge) for layer in found.layers] == layers
    assert sum(layer.points for layer in found.layers) == found.points
    first = table.kappa("softmax")[-1] <= pes.layers_[0].edge
    assert found.layers[0].points == first.sum()
    assert np.array_equal(found.accuracies, (table.labels == table.y).mean(axis=1))


def test_the_surer_group_grows_until_it_has_errors():
    rng = np.random.default_rng(0)
    kappa = np.sort(rng.random((3, 1000)), axis=1)
    wrong = np.zeros(1000, int)
    wrong[:300:10] = 1  # none among the surest 70 %
    found = find(ScoreTable({"softmax": kappa}, np.zeros((3, 1000), int), wrong))
    assert found.surer == 0.8
    red = trajectories(kappa, wrong, 0.2)
    assert np.allclose(found.groups.red_kappa, red.red_kappa)


def test_reliability_on_the_other_half(halves, scores, found):
    fit, rest = halves
    p = Platt().fit(fit.kappa("softmax")[-1], fit.errors).predict_proba(rest.kappa("softmax")[-1])
    raw, platt, les = found.reliability
    assert [each.name for each in found.reliability] == [
        "final κ as it is",
        "final κ, Platt",
        "LES",
    ]
    for each, stated in ((raw, scores["final"]), (platt, p), (les, scores["LES"])):
        assert [each.nll, each.brier, each.ece] == [
            metric(stated, rest.errors) for metric in (nll, brier, ece)
        ]
        assert each.count.sum() == rest.errors.size
    inside = (p >= 0.7) & (p < 0.8)
    assert inside.any()
    at = int(np.flatnonzero(np.isclose(platt.said, p[inside].mean()))[0])
    right, n = int((~rest.errors[inside]).sum()), int(inside.sum())
    assert (platt.right[at], platt.count[at]) == (right / n, n)
    exact = binomtest(right, n).proportion_ci(0.95, "exact")
    assert platt.low[at] == pytest.approx(exact.low, abs=1e-9)
    assert platt.high[at] == pytest.approx(exact.high, abs=1e-9)


def test_points_and_classes(table, halves, scores, found):
    rest, les = halves[1], scores["LES"]
    wrong = np.flatnonzero(rest.errors)
    surest = wrong[np.argsort(-les[wrong], kind="stable")][:12]
    assert [point.at for point in found.mistakes] == surest.tolist()
    final, now = (1 + np.argsort(np.argsort(-scores[name])) for name in ("final", "LES"))
    for point in (*found.mistakes, *(each for some in found.moved.values() for each in some)):
        assert (point.before, point.now) == (final[point.at], now[point.at])
    right = np.flatnonzero(~rest.errors)
    rise = final - now
    assert found.moved["Right, moved up"][0].at == right[np.argmax(rise[right])]
    assert found.moved["Right, moved down"][0].at == right[np.argmin(rise[right])]
    assert table.errors[found.unseen].tolist() == rest.errors.tolist()
    (only,) = found.classes  # the simulated points are all predicted as class 0
    accepted = Threshold.at_coverage(les, 0.8).accepts(les)
    assert (only.accepted, only.wrong) == (accepted.sum(), rest.errors[accepted].sum())


def test_equals_share_the_middle_of_their_ranks():
    from snapsure.report.points import ranks

    assert ranks(np.array([0.9, 0.5, 0.5, 0.1])).tolist() == [1, 2.5, 2.5, 4]


def test_how_much_of_the_risk_is_of_points_of_none_of_the_classes(table, found):
    assert (found.strangers, found.strange) == (0, 0)
    assert not found.positions["AES"].strange.any()
    y = np.where(np.arange(table.y.size) % 7 == 0, -1, table.y)
    strangers = ScoreTable({"softmax": table.kappa("softmax")}, table.labels, y)
    with_them = find(strangers)
    assert with_them.strangers == (y == -1).sum()
    assert with_them.strange == (y == -1).sum() / strangers.errors.sum()
    rest = strangers.split(0.5, 0)[1]
    aes = AES().confidence(rest)
    for i in (0, 99, POSITIONS - 1):
        accepted = Threshold.at_coverage(aes, (i + 1) / POSITIONS).accepts(aes)
        wrong = accepted & rest.errors
        share = (wrong & (rest.y == -1)).sum() / max(wrong.sum(), 1)
        assert with_them.positions["AES"].strange[i] == share
    assert with_them.results == {row.method: row for row in choose(strangers).candidates}


def test_the_page_names_points_of_none_of_the_classes(table):
    assert "none of the classes" not in Report(table).html()
    y = np.where(table.errors, -1, table.y)
    strangers = ScoreTable({"softmax": table.kappa("softmax")}, table.labels, y)
    html = " ".join(Report(strangers, classes=["a", "b"]).html().split())
    assert (
        f"{table.errors.sum()} of the points belong to none of the classes, so that every answer "
        "to them is wrong: they are 100.0 % of the errors." in html
    )
    assert "<span>true <strong>none of the classes</strong></span>" in html
    assert '<dd data-role="strange"></dd>' in html


def test_what_has_not_moved_is_not_listed():
    table = simulated(snapshots=1)
    assert not any(find(table).moved.values())
    few = simulated(n=60, snapshots=30)
    moved = find(few).moved
    for outcome in ("Right", "Wrong"):
        up, down = moved[f"{outcome}, moved up"], moved[f"{outcome}, moved down"]
        assert not {point.at for point in up} & {point.at for point in down}
        assert all(point.now < point.before for point in up)
        assert all(point.now > point.before for point in down)


def test_more_chapters_to_choose_from_make_the_guarantee_weaker(table, found):
    three = find(table, chapters=3).positions["AES"].bounds[0.05]
    assert (three >= found.positions["AES"].bounds[0.05]).all()
    assert (three > found.positions["AES"].bounds[0.05]).any()


def test_refusals():
    kappa = np.full((2, 20), 0.5)
    right = ScoreTable({"softmax": kappa}, np.zeros((2, 20), int), np.zeros(20, int))
    with pytest.raises(InvalidInput) as refusal:
        find(right)
    assert str(refusal.value) == (
        "`table` must have at least ten points, right and wrong ones, got 0 wrong of 20: score "
        "more points"
    )
    with pytest.raises(InvalidInput, match="`name` must be one of softmax, mc_dropout"):
        find(simulated(), "nn_distance")


def test_plain_numbers():
    assert plain({0.1: np.array([1 / 3]), "n": np.int64(3)}) == {"0.1": [0.333333], "n": 3}


@pytest.mark.parametrize("seed", [0, 3])
def test_what_is_recommended_is_what_fit_deploys(table, seed):
    """The same method, split, threshold and shares: `Predictor.fit` calls `choose` too."""
    choice = choose(table, risk=0.25, seed=seed)
    advice = advise([table], [choose(table, seed=seed)], 0.25)
    assert (advice.method, advice.risk) == (choice.method, 0.25)
    assert advice.accepted == [choice.accepted]
    assert advice.plain == [choice.final_accepted]
    assert advice.choices[0].threshold.theta == choice.threshold.theta


def test_the_recommendation_accepts_what_the_library_promises(halves, scores, table):
    advice = advise([table], [choose(table)], 0.25)
    rest = halves[1]

    def share(name):
        promised = Threshold.at_risk(scores[name], rest.errors, 0.25, 0.05)
        return promised.accepts(scores[name]).mean()

    assert advice.method == "LES"
    assert advice.accepted == [pytest.approx(share("LES"))]
    assert advice.plain == [pytest.approx(share("final"))]
    use, promise, instead = advice.sentences("softmax")
    assert "LES" in use
    assert f"{100 * share('LES'):.0f} %" in promise
    assert "25 %" in promise
    assert f"{100 * share('final'):.0f} %" in instead


def test_of_several_tables_the_method_of_most_is_recommended(table):
    flat = simulated(n=900)
    kappa = np.tile(flat.kappa("softmax")[-1], (12, 1))
    same = ScoreTable.from_kappa(kappa, flat.errors)
    tables = [same, table, table]
    choices = [choose(each) for each in tables]
    assert [choice.method for choice in choices] == ["final", "LES", "LES"]
    advice = advise(tables, choices, 0.25)
    assert advice.method == "LES"
    areas = [{row.method: row.eaurc for row in choice.candidates}["LES"] for choice in choices]
    assert advice.results["LES"].eaurc == pytest.approx(np.mean(areas))


def test_a_risk_that_is_not_given_is_round_and_can_be_promised(halves, table):
    learn, _ = halves
    advice = advise([table], [choose(table)], None)
    wanted = max(risk for risk in RISKS if risk <= learn.errors.mean() / 2)
    for risk in (risk for risk in RISKS if wanted <= risk < advice.risk):
        with pytest.raises(Infeasible):
            Threshold.at_risk(learn.kappa("softmax")[-1], learn.errors, risk, 0.05)
    assert advice.risk in RISKS
    assert advice.accepted[0] > 0


def test_where_nothing_can_be_promised_it_says_so(table):
    advice = advise([table], [choose(table)], 0.001)
    assert (advice.accepted, advice.plain) == ([None], [None])
    use, *others = advice.sentences("softmax")
    assert "LES" in use
    assert "0.1 % can be promised" in others[0]
    flat = simulated(snapshots=1)
    advice = advise([flat], [choose(flat)], 0.001)
    assert advice.method == "final"
    assert "final margin" in advice.sentences("margin")[0]
