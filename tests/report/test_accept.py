"""The slider's positions, the curves and their difference against written-out definitions."""

import numpy as np
import pytest
from scipy.stats import binomtest

from snapsure import Report, ScoreTable, Threshold, rc_curve
from snapsure.report.accept import (
    accept,
    find_all_positions,
    find_difference,
    find_positions,
    show_positions,
    write_threshold,
)
from snapsure.report.chapter import Row
from snapsure.report.charts import list_points
from tests.support.report import chapter_of, early, scored

POSITIONS, DELTAS = 200, (0.1, 0.05, 0.01, 0.001)  # that the page offers
LEAST_COVERAGE = 0.05


@pytest.fixture(scope="module")
def chapter():
    return chapter_of(early())


def test_positions_are_the_librarys_thresholds(chapter):
    rest, positions = chapter.rest, find_all_positions(chapter)
    assert list(positions) == list(chapter.scores) == ["LES", "AES", "final softmax"]
    for name, each in positions.items():
        score = chapter.scores[name]
        assert len(each.theta) == POSITIONS
        for i in {*range(0, POSITIONS, 7)} - {each.start}:
            chosen = Threshold.at_coverage(score, (i + 1) / POSITIONS)
            accepted = chosen.accepts(score)
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
                assert -1e-9 <= each.bounds[delta][i] - bound <= 1e-4  # rounded up


def test_a_threshold_between_two_scores_is_shown_as_it_is():
    score, wrong = np.linspace(0, 1, 1000), np.zeros(1000, bool)
    each = find_positions(score, wrong, wrong, POSITIONS, 0.40005)
    assert each.theta[each.start] == 0.40005
    assert each.coverage[each.start] == (score >= 0.40005).mean()
    none = find_positions(score, wrong, wrong, POSITIONS, 2.0)  # accepts nothing
    assert (none.theta[0], none.start) == (2.0, 0)


def test_the_table_has_twenty_shares_and_the_best_possible_risk_of_each():
    score, wrong = np.linspace(0, 1, 1000), np.arange(1000) % 10 == 0
    each = find_positions(score, wrong, np.zeros(1000, bool), POSITIONS, 0.5)
    _, folded = show_positions({"κ": each}, {"κ": "κ"}, wrong, 0.1)
    shares = np.arange(1, 21) / 20
    rows = folded.blocks[0].rows
    assert [row[0] for row in rows] == pytest.approx(shares)
    assert [row[-1] for row in rows] == pytest.approx(np.maximum(0, shares - 0.9) / shares)


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


def test_more_chapters_make_the_bound_weaker(chapter):
    one, three = (
        find_all_positions(each)["AES"].bounds[0.05]
        for each in (chapter, chapter_of(early(), chapters=3))
    )
    assert (three >= one).all()
    assert (three > one).any()


def test_curves_are_points_of_the_rc_curve_from_five_percent_on(chapter):
    whole = rc_curve(chapter.scores["final softmax"], chapter.rest.errors)
    points = list_points({"final": whole}, 200, LEAST_COVERAGE)
    assert len(points) == 200
    assert 0.05 <= points[0]["coverage"] < 0.06
    assert points[-1]["coverage"] == 1
    for point in points:
        at = int(np.argmin(abs(whole.coverage - point["coverage"])))
        assert whole.coverage[at] == pytest.approx(point["coverage"], rel=1e-5)
        assert whole.risk[at] == pytest.approx(point["risk"], rel=1e-5)


def test_the_difference_is_that_of_the_curves(chapter):
    scores, wrong = chapter.scores, chapter.rest.errors
    ours, final = (rc_curve(scores[name], wrong) for name in ("LES", "final softmax"))
    each = find_difference(scores["LES"], scores["final softmax"], wrong, 0)
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


@pytest.mark.slow
def test_examples_of_none_of_the_classes():
    table = scored()
    assert not find_all_positions(chapter_of(table))["AES"].strange.any()
    y = np.where(np.arange(table.y.size) % 7 == 0, -1, table.y)
    strangers = ScoreTable({"softmax": table.kappa("softmax")}, table.labels, y)
    chapter = chapter_of(strangers)
    positions, rest = find_all_positions(chapter)["final softmax"], chapter.rest
    final = rest.kappa("softmax")[-1]
    for i in (0, 99, POSITIONS - 1):
        accepted = Threshold.at_coverage(final, (i + 1) / POSITIONS).accepts(final)
        wrong = accepted & rest.errors
        share = (wrong & (rest.y == -1)).sum() / max(wrong.sum(), 1)
        assert positions.strange[i] == share
    html = Report(strangers, classes=[*"abcd"]).html()
    assert f"{(y == -1).sum()} of the examples belong to none of the classes" in html
    assert f"They are {100 * (y == -1).sum() / strangers.errors.sum():.1f} % of the errors" in html
    assert "<span>true <strong>none of the classes</strong></span>" in html
    assert "none of the classes" not in Report(table).html()


@pytest.mark.parametrize("risk", [0.3, 0.001])
def test_a_recommended_point_is_drawn_where_there_is_a_promise(risk):
    chapter = chapter_of(early(), risk)
    charts = next(block for block in accept(chapter) if isinstance(block, Row)).blocks
    assert ("recommended" in str(charts[0].spec)) == (chapter.choice.threshold is not None)
    assert (risk == 0.3) == (chapter.choice.threshold is not None)


def test_a_threshold_just_below_one_is_not_written_as_one():
    assert write_threshold(1 - 1.5e-9) == "1 − 1.5e-09"
    assert write_threshold(1.0) == "1"
    assert write_threshold(0.12345678) == "0.123457"
