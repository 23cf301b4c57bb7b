"""The report's numbers against the library's functions and written-out definitions."""

import numpy as np
import pytest
from scipy.stats import binomtest

from snapsure import (
    AES,
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
from snapsure.evaluation import choose, trajectories
from snapsure.metrics import Interval
from snapsure.report.findings import (
    DELTAS,
    POSITIONS,
    RISKS,
    Verdict,
    find,
    find_difference,
    find_positions,
    plain,
    rank,
    recommend,
)
from tests.support.report import early, scored, spoilt

RISK, LIMIT = 0.15, 0.3


def found_of(table, risk=RISK, **options):
    (choice,) = recommend([table], ["softmax"], risk, 0).choices
    return find(table, choice, risk, **options)


@pytest.fixture(scope="module")
def table():
    return early()


@pytest.fixture(scope="module")
def choice(table):
    return choose(table, risk=RISK)


@pytest.fixture(scope="module")
def found(table):
    return found_of(table)


@pytest.fixture(scope="module")
def rest(table, choice):
    """What nothing was fitted on: thresholds, curves and examples are of it."""
    return table.rows(choice.rest)


@pytest.fixture(scope="module")
def scores(choice, rest):
    """The confidences of the page, in its order: what is deployed first."""
    return {
        "LES": choice.confidence(rest),
        "AES": AES().confidence(rest),
        "final softmax": rest.kappa("softmax")[-1],
    }


@pytest.mark.parametrize("table", [early(), scored(), spoilt()], ids=["early", "late", "final"])
def test_it_recommends_what_fit_deploys(table):
    expected = choose(table, risk=LIMIT)
    advice = recommend([table], ["softmax"], LIMIT, 0)
    assert advice.method == expected.method
    assert advice.accepted == expected.accepted
    assert advice.final_accepted == expected.final_accepted
    (ours,) = advice.choices
    assert ours.threshold.theta == expected.threshold.theta
    found = find(table, ours, LIMIT)
    first = next(iter(found.positions.values()))
    assert first.coverage[first.start] == expected.accepted
    assert first.theta[first.start] == expected.threshold.theta
    assert found.chosen[0] == expected.accepted


def test_a_limit_that_is_not_given_is_round_and_can_be_promised(table, choice):
    learn = table.rows(choice.learn)
    advice = recommend([table], ["softmax"], None, 0)
    wanted = max(risk for risk in RISKS if risk <= learn.errors.mean() / 2)
    for risk in (risk for risk in RISKS if wanted <= risk < advice.risk):
        with pytest.raises(Infeasible):
            Threshold.at_risk(learn.kappa("softmax")[-1], learn.errors, risk, 0.05)
    assert advice.risk in RISKS
    assert advice.accepted > 0


def test_where_nothing_can_be_promised_it_says_so(table):
    report = Report(table, risk=0.001)
    assert report.advice.accepted is None
    assert "cannot promise an error limit of 0.1 %" in report.html()


def test_several_tables_have_the_mean_of_what_each_accepts():
    tables = [scored(seed=seed) for seed in range(3)]
    advice = recommend(tables, ["softmax"] * 3, LIMIT, 0)
    each = [choose(table, risk=LIMIT) for table in tables]
    assert advice.accepted == pytest.approx(np.mean([one.accepted for one in each]))
    assert advice.final_accepted == pytest.approx(
        np.mean([one.final_accepted or 0 for one in each])
    )
    aes = next(verdict for verdict in advice.verdicts if verdict.method == "AES")
    rows = [row for one in each for row in one.candidates if row.method == "AES"]
    assert aes.eaurc == pytest.approx(np.mean([row.eaurc for row in rows]))
    assert aes.difference.high == pytest.approx(np.mean([row.difference.high for row in rows]))


@pytest.mark.parametrize(
    ("ends", "answer"),
    [
        ((0.8, 3.0), "better"),
        ((-3.0, -0.8), "worse"),
        ((-1.0, 2.0), "no difference"),
        ((0.04, 2.0), "borderline"),
        ((-2.0, 0.01), "borderline"),
    ],
)
def test_verdicts(ends, answer):
    low, high = ends
    gain, difference = Interval(1, low, high), Interval(-0.01, -high / 100, -low / 100)
    assert Verdict("AES", 1, 0.1, 1, gain, difference).answer == answer


def test_positions_are_the_librarys_thresholds(rest, scores, found):
    assert list(found.positions) == list(scores)
    for name, each in found.positions.items():
        assert len(each.theta) == POSITIONS
        for i in {*range(0, POSITIONS, 7)} - {each.start}:
            chosen = Threshold.at_coverage(scores[name], (i + 1) / POSITIONS)
            accepted = chosen.accepts(scores[name])
            assert each.theta[i] == chosen.theta
            assert each.coverage[i] == chosen.coverage
            assert each.risk[i] == rest.errors[accepted].mean()
            assert each.reviewed[i] == (~accepted).sum()
            wrong, n = int(rest.errors[accepted].sum()), int(accepted.sum())
            exact = binomtest(wrong, n).proportion_ci(0.95, "exact")
            assert each.low[i] == pytest.approx(exact.low, abs=1e-9)
            assert each.high[i] == pytest.approx(exact.high, abs=1e-9)
            for delta in DELTAS:
                level = 1 - 2 * delta / (3 * POSITIONS)  # three scores; upper end of two sides
                bound = binomtest(wrong, n).proportion_ci(level, "exact").high
                assert each.bounds[delta][i] == pytest.approx(bound, abs=1e-9)


@pytest.mark.slow
def test_the_bound_holds_for_whichever_position_is_chosen():
    """300 draws; the reader takes the lowest bound of both scores; delta is 0.1."""
    rng = np.random.default_rng(0)
    broken = 0
    for _ in range(300):
        kappa = rng.random(400)
        wrong = rng.random(400) > kappa
        both = [find_positions(s, wrong, ~wrong, 2 * POSITIONS, 0.5) for s in (kappa, kappa**2)]
        bound, theta = min(
            (each.bounds[0.1].min(), each.theta[each.bounds[0.1].argmin()] ** power)
            for each, power in zip(both, (1, 0.5), strict=True)
        )
        broken += (1 - theta) / 2 > bound  # the risk of κ uniform above theta, wrong with 1 − κ
    assert broken <= 30


def test_more_chapters_make_the_bound_weaker(table, found):
    three = found_of(table, chapters=3).positions["AES"].bounds[0.05]
    assert (three >= found.positions["AES"].bounds[0.05]).all()
    assert (three > found.positions["AES"].bounds[0.05]).any()


def test_curves_are_points_of_the_rc_curve_from_five_percent_on(rest, scores, found):
    whole = rc_curve(scores["final softmax"], rest.errors)
    curve = found.curves["final softmax"]
    assert 0.05 <= curve.coverage[0] < 0.06
    at = np.searchsorted(whole.coverage, curve.coverage - 1e-12)
    assert np.allclose(whole.coverage[at], curve.coverage)
    assert np.allclose(whole.risk[at], curve.risk)


def test_the_difference_is_that_of_the_curves(rest, scores, found):
    ours, final = (rc_curve(scores[name], rest.errors) for name in ("LES", "final softmax"))
    each = found.difference
    for i in range(0, len(each.coverage), 9):
        expected = [
            np.interp(each.coverage[i], curve.coverage, curve.risk * curve.coverage)
            / each.coverage[i]
            for curve in (ours, final)
        ]
        assert each.risk[i] == pytest.approx(expected[0] - expected[1], abs=1e-12)
    assert (each.low <= each.high).all()
    assert each.risk[-1] == each.low[-1] == each.high[-1] == 0  # all is accepted by both


@pytest.mark.slow
def test_the_band_of_the_difference_covers():
    """200 draws of 500 examples whose true difference at half coverage comes from a million."""

    def draw(rng, n):
        ease = rng.random(n)
        good, bad = (ease + rng.normal(0, noise, n) for noise in (0.1, 0.5))
        return good, bad, rng.random(n) > ease

    good, bad, wrong = draw(np.random.default_rng(0), 1_000_000)
    truth = wrong[good > np.median(good)].mean() - wrong[bad > np.median(bad)].mean()
    covered = 0
    for seed in range(1, 201):
        each = find_difference(*draw(np.random.default_rng(seed), 500), seed)
        at = int(np.argmin(abs(each.coverage - 0.5)))
        covered += each.low[at] <= truth <= each.high[at]
    assert covered >= 178  # 89 %: three standard errors below 95


def test_equal_scores_differ_nowhere():
    score = np.repeat([0.3, 0.6, 0.9], 50)
    wrong = np.random.default_rng(0).random(150) > score
    each = find_difference(score, score**2, wrong, 0)
    assert not each.risk.any()
    assert not each.low.any()


def test_along_training(table, found):
    expected = trajectories(table.kappa("softmax"), table.errors, 0.5)
    assert found.surer == 0.5
    assert np.array_equal(found.groups.green_eaurc, expected.green_eaurc)
    assert np.array_equal(found.groups.red_eaurc, expected.red_eaurc)
    assert found.averaged.tolist() == AES().snapshots(table.epochs)
    pes = PES().fit(table)
    layers = [(each.epoch, each.cut, each.edge) for each in pes.layers_]
    assert [(layer.epoch, layer.cut_epoch, layer.edge) for layer in found.layers] == layers
    assert sum(layer.examples for layer in found.layers) == table.y.size
    first = table.kappa("softmax")[-1] <= pes.layers_[0].edge
    assert found.layers[0].examples == first.sum()
    assert np.array_equal(found.accuracies, (table.labels == table.y).mean(axis=1))


def test_the_surer_group_grows_until_it_has_errors():
    rng = np.random.default_rng(0)
    kappa = np.sort(rng.random((3, 1000)), axis=1)
    wrong = np.zeros(1000, int)
    wrong[:300:10] = 1  # none among the surest 70 %
    found = found_of(ScoreTable({"softmax": kappa}, np.zeros((3, 1000), int), wrong))
    assert found.surer == 0.8
    red = trajectories(kappa, wrong, 0.2)
    assert np.allclose(found.groups.red_kappa, red.red_kappa)


def test_reliability_on_the_other_half(table, choice, rest, scores, found):
    learn = table.rows(choice.learn)
    platt = Platt().fit(learn.kappa("softmax")[-1], learn.errors)
    p = platt.predict_proba(scores["final softmax"])
    raw, calibrated, les = found.reliability
    assert les.name == "LES"
    for each, stated in ((raw, scores["final softmax"]), (calibrated, p), (les, scores["LES"])):
        assert [each.nll, each.brier, each.ece] == [
            metric(stated, rest.errors) for metric in (nll, brier, ece)
        ]
        assert each.count.sum() == rest.errors.size
    inside = (p >= 0.7) & (p < 0.8)
    assert inside.any()
    at = int(np.flatnonzero(np.isclose(calibrated.stated, p[inside].mean()))[0])
    right, n = int((~rest.errors[inside]).sum()), int(inside.sum())
    assert (calibrated.right[at], calibrated.count[at]) == (right / n, n)
    exact = binomtest(right, n).proportion_ci(0.95, "exact")
    assert calibrated.low[at] == pytest.approx(exact.low, abs=1e-9)
    assert calibrated.high[at] == pytest.approx(exact.high, abs=1e-9)


def test_examples(rest, scores, found):
    les = scores["LES"]
    wrong = np.flatnonzero(rest.errors)
    surest = wrong[np.argsort(-les[wrong], kind="stable")][:12]
    assert [example.at for example in found.mistakes] == surest.tolist()
    final, now = (1 + np.argsort(np.argsort(-scores[name])) for name in ("final softmax", "LES"))
    for each in (*found.mistakes, *(each for some in found.moved.values() for each in some)):
        assert (each.before, each.now) == (final[each.at], now[each.at])
    right = np.flatnonzero(~rest.errors)
    rise = final - now
    assert found.moved["Right, moved up"][0].at == right[np.argmax(rise[right])]
    assert found.moved["Right, moved down"][0].at == right[np.argmin(rise[right])]


def test_classes_are_judged_at_the_recommended_threshold():
    table = scored()
    expected = choose(table, risk=LIMIT)
    rest = table.rows(expected.rest)
    accepted = expected.threshold.accepts(expected.confidence(rest))
    classes = found_of(table, LIMIT).classes
    assert [each.risk for each in classes] == sorted((each.risk for each in classes), reverse=True)
    for each in classes:
        those = accepted & (rest.y_hat == each.label)
        assert (each.accepted, each.wrong) == (those.sum(), rest.errors[those].sum())


def test_equals_share_the_middle_of_their_ranks():
    assert rank(np.array([0.9, 0.5, 0.5, 0.1])).tolist() == [1, 2.5, 2.5, 4]


def test_examples_of_none_of_the_classes():
    table = scored()
    found = found_of(table)
    assert (found.strangers, found.strange) == (0, 0)
    assert not found.positions["AES"].strange.any()
    y = np.where(np.arange(table.y.size) % 7 == 0, -1, table.y)
    strangers = ScoreTable({"softmax": table.kappa("softmax")}, table.labels, y)
    with_them = found_of(strangers)
    assert with_them.strangers == (y == -1).sum()
    assert with_them.strange == (y == -1).sum() / strangers.errors.sum()
    rest = strangers.rows(choose(strangers).rest)
    final = rest.kappa("softmax")[-1]
    for i in (0, 99, POSITIONS - 1):
        accepted = Threshold.at_coverage(final, (i + 1) / POSITIONS).accepts(final)
        wrong = accepted & rest.errors
        share = (wrong & (rest.y == -1)).sum() / max(wrong.sum(), 1)
        assert with_them.positions["final softmax"].strange[i] == share
    html = Report(strangers, classes=["a", "b"]).html()
    assert f"{with_them.strangers} of the examples belong to none of the classes" in html
    assert "<span>true <strong>none of the classes</strong></span>" in html
    assert "none of the classes" not in Report(table).html()


def test_what_has_not_moved_is_not_listed():
    assert not any(found_of(scored(snapshots=1)).moved.values())
    moved = found_of(scored(n=60)).moved
    for outcome in ("Right", "Wrong"):
        up, down = moved[f"{outcome}, moved up"], moved[f"{outcome}, moved down"]
        assert not {each.at for each in up} & {each.at for each in down}
        assert all(each.now < each.before for each in up)
        assert all(each.now > each.before for each in down)


def test_refusals():
    kappa = np.full((2, 20), 0.5)
    right = ScoreTable({"softmax": kappa}, np.zeros((2, 20), int), np.zeros(20, int))
    with pytest.raises(InvalidInput, match=r"`table`.*got 0 wrong of 20\. Score more examples"):
        Report(right)
    with pytest.raises(InvalidInput, match="must be one of softmax"):
        Report(scored(), kappa="nn_distance")


def test_plain_numbers():
    assert plain({0.1: np.array([1 / 3]), "n": np.int64(3)}) == {"0.1": [0.333333], "n": 3}
