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
    evaluate,
    nll,
    rc_curve,
    trajectories,
)
from snapsure.errors import InvalidInput
from snapsure.report.findings import DELTAS, METHODS, POSITIONS, _positions, find, plain
from tests.evaluation.test_evaluate import simulated


@pytest.fixture(scope="module")
def table():
    return simulated(n=600, snapshots=40)


@pytest.fixture(scope="module")
def found(table):
    return find(table)


def test_results_are_those_of_evaluate(table, found):
    rows = evaluate(table, names=["softmax"], methods=METHODS).boards["softmax"].rows
    expected = {row.method: row for row in rows}
    assert found.results == expected
    assert found.accuracy == 1 - table.errors.mean()


def test_positions_are_the_librarys_thresholds(table, found):
    scores = {
        "final": table.kappa("softmax")[-1],
        "AES": AES().confidence(table),
    }
    for name, each in found.positions.items():
        assert len(each.theta) == POSITIONS
        for i in range(0, POSITIONS, 7):
            chosen = Threshold.at_coverage(scores[name], (i + 1) / POSITIONS)
            accepted = chosen.accepts(scores[name])
            assert each.theta[i] == chosen.theta
            assert each.coverage[i] == chosen.coverage
            assert each.risk[i] == table.errors[accepted].mean()
            assert each.handed[i] == (~accepted).sum()
            wrong, n = int(table.errors[accepted].sum()), int(accepted.sum())
            exact = binomtest(wrong, n).proportion_ci(0.95, "exact")
            assert each.low[i] == pytest.approx(exact.low, abs=1e-9)
            assert each.high[i] == pytest.approx(exact.high, abs=1e-9)
            for delta in DELTAS:
                level = 1 - 2 * delta / (2 * POSITIONS)  # two scores; upper end of two sides
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
        both = [_positions(score, wrong, 2 * POSITIONS, ~wrong) for score in (kappa, kappa**2)]
        bound, theta = min(
            (each.bounds[0.1].min(), each.theta[each.bounds[0.1].argmin()] ** power)
            for each, power in zip(both, (1, 0.5), strict=True)
        )
        broken += (1 - theta) / 2 > bound  # the risk of κ uniform above theta, wrong with 1 − κ
    assert broken <= 30


def test_curves_are_points_of_the_rc_curve(table, found):
    whole = rc_curve(table.kappa("softmax")[-1], table.errors)
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


def test_reliability_on_the_other_half(table, found):
    fit, rest = table.split(0.5, 0)
    p = Platt().fit(fit.kappa("softmax")[-1], fit.errors).predict_proba(rest.kappa("softmax")[-1])
    raw, platt, _ = found.reliability
    assert [platt.nll, platt.brier, platt.ece] == [
        metric(p, rest.errors) for metric in (nll, brier, ece)
    ]
    assert platt.count.sum() == raw.count.sum() == rest.errors.size
    inside = (p >= 0.7) & (p < 0.8)
    assert inside.any()
    at = int(np.flatnonzero(np.isclose(platt.said, p[inside].mean()))[0])
    assert platt.right[at] == (~rest.errors[inside]).mean()
    assert platt.count[at] == inside.sum()


def test_points_and_classes(table, found):
    aes = AES().confidence(table)
    wrong = np.flatnonzero(table.errors)
    assert found.mistakes.tolist() == wrong[np.argsort(-aes[wrong], kind="stable")][:12].tolist()
    ranks = [np.argsort(np.argsort(score)) for score in (found.final, aes)]
    rise = ranks[1] - ranks[0]
    right = np.flatnonzero(~table.errors)
    assert found.moved["Right, surer by AES"][0] == right[np.argmax(rise[right])]
    assert found.moved["Right, less sure by AES"][0] == right[np.argmin(rise[right])]
    (only,) = found.classes  # the simulated points are all predicted as class 0
    accepted = Threshold.at_coverage(aes, 0.8).accepts(aes)
    assert (only.accepted, only.wrong) == (accepted.sum(), table.errors[accepted].sum())


def test_how_much_of_the_risk_is_of_points_of_none_of_the_classes(table, found):
    assert (found.strangers, found.strange) == (0, 0)
    assert not found.positions["AES"].strange.any()
    y = np.where(np.arange(table.y.size) % 7 == 0, -1, table.y)
    strangers = ScoreTable({"softmax": table.kappa("softmax")}, table.labels, y)
    with_them = find(strangers)
    assert with_them.strangers == (y == -1).sum()
    assert with_them.strange == (y == -1).sum() / strangers.errors.sum()
    aes = AES().confidence(strangers)
    for i in (0, 99, POSITIONS - 1):
        accepted = Threshold.at_coverage(aes, (i + 1) / POSITIONS).accepts(aes)
        wrong = accepted & strangers.errors
        share = (wrong & (y == -1)).sum() / max(wrong.sum(), 1)
        assert with_them.positions["AES"].strange[i] == share
    rows = evaluate(strangers, names=["softmax"], methods=METHODS).boards["softmax"].rows
    assert with_them.results == {row.method: row for row in rows}


def test_the_page_names_points_of_none_of_the_classes(table):
    assert "none of the classes" not in Report(table).html()
    y = np.where(table.errors, -1, table.y)
    strangers = ScoreTable({"softmax": table.kappa("softmax")}, table.labels, y)
    html = " ".join(Report(strangers, classes=["a", "b"]).html().split())
    assert (
        f"{table.errors.sum()} of the points belong to none of the classes, so that every answer "
        "to them is wrong: they are 100.0 % of the errors." in html
    )
    assert "<span>is none of the classes</span>" in html
    assert '<dd data-role="strange"></dd>' in html


def test_what_aes_has_not_moved_is_not_listed():
    table = simulated(snapshots=1)
    assert all(rows.size == 0 for rows in find(table).moved.values())
    few = simulated(n=60, snapshots=30)
    moved = find(few).moved
    for outcome in ("Right", "Wrong"):
        up, down = moved[f"{outcome}, surer by AES"], moved[f"{outcome}, less sure by AES"]
        assert not set(up.tolist()) & set(down.tolist())


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
