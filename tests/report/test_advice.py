"""The recommendation is what `Predictor.fit` deploys, with means over tables and verdicts."""

from dataclasses import replace

import numpy as np
import pytest

from snapsure import Report, ScoreTable, Threshold
from snapsure.errors import Infeasible, InvalidInput
from snapsure.evaluation import choose
from snapsure.metrics import Interval
from snapsure.report.accept import find_all_positions
from snapsure.report.advice import judge, recommend, summarise
from snapsure.report.chapter import Bar, Text
from snapsure.report.tables import Table
from tests.support.report import chapter_of, early, scored, spoilt

LIMIT = 0.3
ROUND = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)


def advise(table, risk):
    return recommend([table], [choose(table)], risk)


@pytest.mark.parametrize("table", [early(), scored(), spoilt()], ids=["early", "late", "final"])
def test_it_recommends_what_fit_deploys(table):
    expected = choose(table, risk=LIMIT)
    advice = advise(table, LIMIT)
    assert advice.method == expected.method
    assert advice.accepted == expected.accepted
    assert advice.final_accepted == expected.final_accepted
    (ours,) = advice.choices
    assert ours.threshold.theta == expected.threshold.theta
    chapter = chapter_of(table, LIMIT)
    first = find_all_positions(chapter)[chapter.deployed]
    assert first.theta[first.start] == expected.threshold.theta
    assert first.coverage[first.start] == chapter.accepted.mean()


def test_a_limit_that_is_not_given_is_round_and_can_be_promised():
    table = early()
    learn = table.rows(choose(table).learn)
    advice = advise(table, None)
    wanted = max(risk for risk in ROUND if risk <= learn.errors.mean() / 2)
    for risk in (risk for risk in ROUND if wanted <= risk < advice.risk):
        with pytest.raises(Infeasible):
            Threshold.at_risk(learn.kappa("softmax")[-1], learn.errors, risk, 0.05)
    assert advice.risk in ROUND
    assert advice.accepted > 0


@pytest.mark.parametrize(("wrong", "risk"), [(25, 0.1), (6, 0.15), (4, 0.1)])
def test_the_round_limit_is_half_of_the_error_or_the_next_that_can_be_promised(wrong, risk):
    """One in five is wrong, and ranked last: n right answers prove a risk if (1 − risk)ⁿ ≤ 0.05.

    With 4 wrong, that is the error itself, which is no limit.
    """
    kappa = np.linspace(1, 0.5, 400)
    table = ScoreTable.from_kappa(np.stack([kappa, kappa[::-1], kappa]), np.arange(400) >= 200)
    learn = np.arange(200 - 4 * wrong, 200 + wrong)
    assert recommend([table], [replace(choose(table), learn=learn)], None).risk == risk


def test_where_nothing_can_be_promised_it_says_so():
    report = Report(early(), risk=0.001)
    assert report.advice.accepted is None
    assert "cannot promise an error limit of 0.1 %" in report.html()


def test_the_final_softmax_may_be_deployed_although_another_method_ranks_better():
    table = early()
    advice = advise(table, LIMIT)
    assert advice.verdicts[0].outcome == "better"
    final = [replace(choice, method="final") for choice in advice.choices]
    use, why, *_ = replace(advice, choices=final).write()
    assert len(advise(spoilt(), LIMIT).write()) == 3  # no other method is better
    assert use == "Use the final softmax."
    assert why.startswith(f"{advice.verdicts[0].method} ranks better, but the final softmax ")


def test_it_names_the_shares_that_are_accepted_and_sent_to_review():
    advice = advise(early(), LIMIT)
    accepted, final = advice.accepted, advice.final_accepted
    *_, shares, last = advice.write()
    percents = [f"{100 * share:.1f} %" for share in (accepted, 1 - accepted, final)]
    assert percents[0] in shares
    assert percents[1] in shares
    assert percents[2] in last
    without = [replace(choice, final_accepted=None) for choice in advice.choices]
    assert "cannot keep that limit" in replace(advice, choices=without).write()[-1]


def test_a_gain_that_is_not_significant_is_not_hidden():
    advice = advise(early(), LIMIT)
    unsure = [verdict._replace(outcome="no difference") for verdict in advice.verdicts]
    assert len(replace(advice, verdicts=unsure).write()) == len(advice.write()) + 1
    assert "not significant" in replace(advice, verdicts=unsure).write()[1]


@pytest.mark.parametrize("table", [early(), spoilt()], ids=["LES", "final"])
def test_below_are_bars_notes_and_every_method(table):
    advice, chapter = advise(table, LIMIT), chapter_of(table, LIMIT)
    *blocks, methods = summarise(advice, [chapter], "code")
    bars = [block for block in blocks if isinstance(block, Bar)]
    shares = [advice.accepted, advice.final_accepted][: 1 + (advice.method != "final")]
    assert [(bar.share, bar.label) for bar in bars] == [
        (share, f"{100 * share:.1f} %") for share in shares
    ]
    accepted, size, promise, deploy = blocks[len(bars) :]
    assert all(isinstance(note, Text) and note.is_note for note in blocks[len(bars) :])
    assert "30 %" in accepted.text
    assert "mean" not in accepted.text + size.text
    assert "1 in 20" in promise.text
    assert deploy.code == "code"
    assert isinstance(methods, Table)
    assert [tuple(row[:3]) for row in methods.rows] == [
        (verdict.method, verdict.gain, verdict.passes) for verdict in advice.verdicts
    ]
    without = [verdict._replace(gain=None) for verdict in advice.verdicts]
    none = [replace(choice, accepted=0.5, final_accepted=None) for choice in advice.choices]
    blocks = summarise(replace(advice, verdicts=without, choices=none), [chapter, chapter], "")
    assert {row[1] for row in blocks[-2].rows} == {"–"}
    assert "(mean of 2 tables)" in blocks[len(bars)].text
    if len(bars) > 1:
        assert (blocks[1].share, blocks[1].label) == (0.0, "cannot keep this limit")


def test_without_both_a_folder_and_a_model_it_deploys_by_python():
    advice = advise(early(), LIMIT)
    for given in ((None, None), ("scores", None), (None, "net:make")):
        assert advice.write_deployment(*given, 0).startswith("Predictor.fit(")
    assert advice.write_deployment("scores", "net:make", 0).startswith("snapsure fit scores ")


def test_several_tables_have_the_mean_of_what_each_accepts():
    tables = [scored(seed=seed) for seed in range(3)]
    advice = recommend(tables, [choose(table) for table in tables], LIMIT)
    each = [choose(table, risk=LIMIT) for table in tables]
    assert advice.accepted == pytest.approx(np.mean([one.accepted for one in each]))
    assert advice.final_accepted == pytest.approx(
        np.mean([one.final_accepted or 0 for one in each])
    )
    aes = next(verdict for verdict in advice.verdicts if verdict.method == "AES")
    rows = [row for one in each for row in one.candidates if row.method == "AES"]
    ours, final = (
        np.mean([getattr(row, field) for row in rows]) for field in ("eaurc", "reference_eaurc")
    )
    assert aes.gain.estimate == pytest.approx(100 * (1 - ours / final))


@pytest.mark.parametrize(
    ("ends", "outcome"),
    [
        ((0.8, 3.0), "better"),
        ((-3.0, -0.8), "worse"),
        ((-1.0, 2.0), "no difference"),
        ((0.04, 2.0), "borderline"),
        ((-2.0, 0.01), "borderline"),
        ((0.05, 2.0), "better"),  # written as 0.1
    ],
)
def test_verdicts(ends, outcome):
    """Ends of the gain in percent, where the final softmax has an E-AURC of 1."""
    low, high = ends
    row = choose(scored()).candidates[0]
    difference = Interval(-0.01, -high / 100, -low / 100)
    verdict = judge([replace(row, difference=difference, reference_eaurc=1.0)])
    assert verdict.outcome == outcome
    assert tuple(verdict.gain) == pytest.approx((1, low, high))
    assert judge([replace(row, reference_eaurc=0.0)]).gain is None  # there is nothing to gain


def test_refusals():
    kappa = np.full((2, 20), 0.5)
    right = ScoreTable({"softmax": kappa}, np.zeros((2, 20), int), np.zeros(20, int))
    with pytest.raises(InvalidInput, match=r"`table`.*got 0 wrong of \d+\. Score more examples"):
        Report(right)
    with pytest.raises(InvalidInput, match=r"`kappa`.*softmax, got 'nn_distance'"):
        Report(scored(), kappa="nn_distance")
    with pytest.raises(InvalidInput, match=r"`risk`.*got 1"):
        advise(scored(), 1.0)
