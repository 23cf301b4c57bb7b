"""The monitor against the definition, answer by answer, and against what it promises."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betaln
from scipy.stats import binomtest

from snapsure import Monitor, Threshold, _json
from snapsure.decisions._monitor import Bets, RankCuts, rate_interval, start_weights
from snapsure.errors import CorruptFile, InvalidInput
from tests.support.refusals import refuses

THRESHOLD = Threshold(0.5, 0.5)
# What is bet on, as multiples of the odds: more errors; more or fewer confidences above a cut.
RISK_ODDS = (1.2, 1.5, 2, 3, 6, 15)
SHIFT_ODDS = (1 / 3, 2 / 3, 3 / 2, 3)


def watch(held_out=None, risk=0.1, **settings):
    return Monitor(THRESHOLD, held_out, risk=risk, **settings)


def reference(seed=0, n=200):
    return np.random.default_rng(seed).random(n)


def stream(seed, n, ties=False):
    """κ, and errors of 10 % among the accepted, some not known."""
    rng = np.random.default_rng([seed, 1])
    kappa = rng.random(n).round(1) if ties else rng.random(n)
    errors = (rng.random(n) < 0.1).astype(float)
    errors[rng.random(n) < 0.3] = np.nan
    return kappa, errors


def weight(s):
    """Of a start at the s-th point: half at once, half spread thinner and thinner."""
    later = [0.5 / (1 + math.log1p(t / 1000)) for t in (s - 1, s)]
    return later[0] - later[1] + (0.5 if s == 1 else 0)


def slow_evidence(answers, odds):
    """The definition: every bet, started at every point. Answers are lists of (yes, chance)."""
    t = len(answers)
    total = 0.0
    for question in range(len(answers[0])):
        for m in odds:
            for s in range(1, t + 1):
                wealth = weight(s)
                for i in range(s - 1, t):
                    yes, chance = answers[i][question]
                    claimed = m * chance / (1 - chance + m * chance)
                    wealth *= claimed / chance if yes else (1 - claimed) / (1 - chance)
                total += wealth
    bets = len(answers[0]) * len(odds)
    return total / bets + 1 - sum(weight(s) for s in range(1, t + 1))


def slow_ranks(held_out, kappa, seed=0):
    """For each value and cut: is it above, and the share of gaps of all before that are."""
    pairs = sorted(
        zip(held_out, np.random.default_rng([seed, 0]).random(len(held_out)), strict=True)
    )
    cuts = [pairs[j * (len(pairs) + 1) // 16 - 1] for j in range(1, 16)]
    ties = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 1])))
    answers = []
    for value in kappa:
        new = (value, ties.random())
        gaps = [(sum(old > cut for old in pairs) + 1) / (len(pairs) + 1) for cut in cuts]
        answers.append([(new > cut, chance) for cut, chance in zip(cuts, gaps, strict=True)])
        pairs.append(new)
    return answers


@pytest.mark.parametrize("ties", [False, True])
def test_evidence_is_the_definitions(ties):
    held_out = reference(n=50).round(1) if ties else reference(n=50)
    kappa, errors = stream(2, 60, ties)
    kappa[30:] **= 3
    monitor = watch(held_out)
    monitor.update(kappa, errors)
    shift = slow_evidence(slow_ranks(held_out, kappa), SHIFT_ODDS)
    assert monitor._state.shift_bets.now == pytest.approx(math.log(shift), abs=1e-9)
    counted = [(e == 1, 0.1) for k, e in zip(kappa, errors, strict=True) if k >= 0.5 and e == e]
    risk = slow_evidence([[answer] for answer in counted], RISK_ODDS)
    assert monitor._state.risk_bets.now == pytest.approx(math.log(risk), abs=1e-9)
    assert monitor.labelled == len(counted)


def test_weights_of_the_starts_sum_to_one():
    weights, waiting = start_weights(0, 5000)
    assert weights == pytest.approx([weight(s) for s in range(1, 5001)], rel=1e-9)
    assert waiting == pytest.approx(1 - np.cumsum(weights))
    assert start_weights(3000, 5)[0] == pytest.approx(weights[3000:3005], rel=1e-12)
    far = 10**15  # where a difference of what waits would be nothing but rounding
    assert start_weights(far, 1)[0][0] == pytest.approx(
        0.5 / far / (1 + math.log(far / 1000)) ** 2, rel=1e-6
    )


@pytest.mark.parametrize(("rate", "fair"), [(0.2, True), (0.1, False)])
def test_bets_on_the_risk_are_fair_at_the_promise_and_lose_below_it(rate, fair):
    """The mean of the evidence over all streams of ten answers."""
    mean = 0.0
    for answers in itertools.product([False, True], repeat=10):
        bets = Bets.start(len(RISK_ODDS))
        bets.play(np.array(answers)[:, None], np.array([[0.2]]), RISK_ODDS, level=100.0)
        mean += math.exp(bets.now) * rate ** sum(answers) * (1 - rate) ** (10 - sum(answers))
    assert mean == pytest.approx(1) if fair else mean < 0.95


def test_bets_on_ranks_are_fair_whatever_the_distribution():
    """The mean of the evidence over all ranks of two values among fifteen others, the fewest."""
    held_out = np.arange(1.0, 16)
    mean = 0.0
    for first, second in itertools.product(range(16), range(17)):
        order = sorted([*held_out, first + 0.5])
        edges = [0.0, *order, 17.0]
        values = np.array([first + 0.5, (edges[second] + edges[second + 1]) / 2])
        bets = Bets.start(15 * len(SHIFT_ODDS))
        bets.play(*RankCuts.of(held_out, seed=0).place(values), SHIFT_ODDS, level=100.0)
        mean += math.exp(bets.now) / (16 * 17)
    assert mean == pytest.approx(1)


def test_an_alarm_is_raised_at_the_first_answer_whose_evidence_reaches_the_level():
    """It holds the richest question, and the mean of what its bets claim, by their wealth."""
    rng = np.random.default_rng(5)
    yes, chance = rng.random((150, 2)) < [0.2, 0.4], rng.uniform(0.1, 0.3, (150, 2))
    evidence = []
    bets = Bets.start(2 * len(RISK_ODDS))
    for row in range(150):
        bets.play(yes[[row]], chance[[row]], RISK_ODDS, level=np.inf)
        evidence.append(bets.now)
        if bets.now > 3:
            break
    wealth = np.exp(bets.log_wealth).reshape(len(RISK_ODDS), 2)
    odds = np.array(RISK_ODDS) * chance[row, 1] / (1 - chance[row, 1])
    observed = np.average(odds / (1 + odds), weights=wealth[:, 1])
    assert max(evidence[:-1]) < evidence[-1]
    assert wealth[:, 1].sum() > wealth[:, 0].sum()

    whole = Bets.start(2 * len(RISK_ODDS))
    whole.play(yes, chance, RISK_ODDS, level=evidence[-1] - 1e-9)
    assert whole.crossing == pytest.approx((row + 1, 1, chance[row, 1], observed))
    level = np.inf
    for point in (None, row + 1):  # a level that is reached exactly is reached
        part = Bets.start(2 * len(RISK_ODDS))
        part.play(yes[: row + 1], chance[: row + 1], RISK_ODDS, level)
        level = part.peak
        assert (part.crossing and part.crossing.point) == point


@given(st.lists(st.integers(1, 400), max_size=6), st.booleans())
def test_how_the_stream_is_cut_does_not_matter(sizes, ties):
    kappa, errors = stream(3, 1000, ties)
    kappa[600:] **= 2
    held_out = reference().round(1) if ties else reference()
    whole, parts = watch(held_out), watch(held_out)
    whole.update(kappa, errors)
    for piece in np.split(np.arange(1000), np.minimum(np.cumsum(sizes), 1000)):
        if piece.size:
            parts.update(kappa[piece], errors[piece])
    assert same(parts, whole)
    assert whole.alarms
    assert parts._state.cuts == whole._state.cuts  # the random order of ties too
    later = watch(held_out)
    later.update(kappa)
    later.feedback(kappa, errors)
    assert same(later, whole)


def same(a, b):
    counts = [(m.seen, m.coverage, m.labelled, m.risk) for m in (a, b)]
    where = [[(alarm.kind, alarm.since, alarm.cut) for alarm in m.alarms] for m in (a, b)]
    evidence = [
        [v for bets in m._state.bets.values() for v in (bets.now, bets.peak)] for m in (a, b)
    ]
    return (
        counts[0] == counts[1]
        and where[0] == where[1]
        and np.allclose(*evidence, rtol=0, atol=1e-9)
    )


def test_saved_and_resumed_is_as_if_it_never_stopped(tmp_path):
    path = tmp_path / "monitor.json"
    unbroken = watch(reference(), seed=3)
    watch(reference(), seed=3).save(path)
    for seed in range(4):
        batch = stream(seed, 700, ties=seed % 2 == 0)
        unbroken.update(*batch)
        resumed = Monitor.load(path)
        resumed.update(*batch)
        resumed.save(path)
    assert Monitor.load(path).as_dict() == unbroken.as_dict()
    assert Monitor.load(path).alarms == unbroken.alarms


def test_memory_is_fixed(tmp_path):
    sizes = []
    for n in (100, 100_000):
        monitor = watch(reference(n=n))
        monitor.update(*stream(0, n))
        monitor.save(tmp_path / "monitor.json")
        content = json.loads((tmp_path / "monitor.json").read_text())
        sizes.append(sum(len(part) for part in (*content["cuts"].values(),) if type(part) is list))
        sizes.append(sum(len(content[f"{kind}_bets"]["log_wealth"]) for kind in ("risk", "shift")))
    assert sizes[:2] == sizes[2:] == [45, 66]


def test_no_evidence_is_too_great():
    monitor = watch(reference(), risk=0.001)
    monitor.update(np.full(5000, 0.999), np.ones(5000))
    assert monitor._state.risk_bets.peak > 5000
    assert monitor.evidence["risk"] == math.exp(709)
    monitor.update(reference(1, 5000), np.zeros(5000))
    assert np.isfinite(monitor._state.risk_bets.now)
    assert [alarm.kind for alarm in monitor.alarms] == ["risk", "shift"]


def changed(seed, n=20_000, **change):
    """A monitor after a long good time, and then 4,000 answers of which something is changed."""
    rng = np.random.default_rng([seed, 2])
    monitor = watch(rng.random(2000))
    monitor.update(rng.random(n), rng.random(n) < 0.1)
    assert monitor.alarms == []
    kappa = rng.random(4000) ** change.get("power", 1)
    monitor.update(kappa, rng.random(4000) < change.get("rate", 0.1))
    return monitor


def test_a_higher_error_rate_is_found_by_labels_alone():
    (alarm,) = changed(0, rate=0.2).alarms
    assert (alarm.kind, alarm.cut) == ("risk", None)
    assert alarm.expected == 0.1
    assert 0.15 < alarm.observed < 0.3
    assert alarm.since < 0.51 * 20_000 + 1000
    for fact in (f"{alarm.observed:.3g}", "0.1", f"{alarm.since:,}", f"{alarm.evidence:.3g}"):
        assert fact in str(alarm)


def test_less_sure_answers_are_found_without_labels():
    (alarm,) = changed(0, power=1.5).alarms
    assert alarm.kind == "shift"
    assert 20_000 < alarm.since < 22_000
    assert alarm.observed < alarm.expected == pytest.approx(1 - alarm.cut, abs=0.03)
    assert alarm.evidence >= 2 / 0.05
    for fact in (f"{alarm.observed:.3g}", f"{alarm.cut:.4g}", f"{alarm.expected:.3g}"):
        assert fact in str(alarm)


def test_which_alarms_are_on():
    kappa = reference(n=2000)
    promising = Threshold.at_risk(kappa, kappa < 0.1, risk=0.2)
    assert Monitor(promising)._state.promise == promising.risk == 0.2
    assert watch().evidence == {"risk": 1.0}
    assert Monitor(THRESHOLD, reference()).evidence == {"shift": 1.0}
    both = watch(reference())
    assert both.evidence == {"risk": 1.0, "shift": 1.0}
    assert watch()._state.level == math.log(1 / 0.05)
    assert both._state.level == math.log(2 / 0.05)


def test_what_there_is_to_read():
    monitor = watch()
    assert (monitor.seen, monitor.coverage, monitor.labelled, monitor.risk) == (0, None, 0, None)
    assert repr(monitor) == "<Monitor: 0 answers, no alarm>"
    monitor.update(0.9)
    monitor.update([0.9, 0.5, 0.2], [None, 0, 1])
    monitor.feedback(0.9, True)
    assert (monitor.seen, monitor.coverage, monitor.labelled) == (4, 0.75, 2)
    assert monitor.risk.estimate == 0.5
    assert repr(monitor) == (
        "<Monitor: 4 answers, 75.0% accepted (50.0% at fitting), 2 labelled: risk 0.5 (at most "
        "0.1 promised), no alarm>"
    )
    silent = Monitor(THRESHOLD, reference())
    silent.update([0.9], [0])
    assert repr(silent) == (
        "<Monitor: 1 answer, 100.0% accepted (50.0% at fitting), 1 labelled: risk 0, no alarm>"
    )


@pytest.mark.parametrize(("yes", "n"), [(0, 1), (0, 40), (3, 40), (40, 40), (700, 20_000)])
def test_the_interval_ends_where_the_bets_have_won(yes, n):
    interval = rate_interval(yes, n, 0.05)
    assert interval.low <= interval.estimate == yes / n <= interval.high
    assert (interval.low == 0) == (yes == 0)
    assert (interval.high == 1) == (yes == n)
    for p in interval[1:]:
        if 0 < p < 1:
            won = betaln(yes + 0.5, n - yes + 0.5) - betaln(0.5, 0.5)
            won -= yes * math.log(p) + (n - yes) * math.log1p(-p)
            assert won == pytest.approx(math.log(20), abs=1e-6)


def monitors(k=3, **change):
    made = []
    for seed in range(k):
        monitor = watch(reference(n=1000))
        monitor.update(*stream(seed, 3000))
        made.append(monitor)
    kappa, _ = stream(9, 2000)
    made[1].update(kappa ** change.get("power", 1), np.random.default_rng(0).random(2000) < 0.3)
    return made


def test_merged_counts_add_up_in_any_order():
    a, b, c = monitors(power=2)
    merged = a.merge(b, c)
    assert merged.seen == 11_000
    assert merged.labelled == a.labelled + b.labelled + c.labelled
    assert merged.coverage == pytest.approx(
        sum(m.seen * m.coverage for m in (a, b, c)) / merged.seen
    )
    assert [alarm.kind for alarm in merged.alarms] == ["risk", "shift"]
    assert merged.alarms == b.alarms
    for other in (c.merge(a, b), a.merge(b).merge(c), a.merge(c.merge(b)), b.merge(a.merge(c))):
        assert repr(other) == repr(merged)
        assert (other.alarms, other.evidence, other.risk) == (
            merged.alarms,
            merged.evidence,
            merged.risk,
        )
    assert repr(merged).startswith("<Monitor: 11,000 answers of 3 streams, ")


def test_a_merge_leaves_its_parts_alone_and_is_for_reading(tmp_path):
    a, b, _ = monitors()
    before = json.dumps([a.as_dict(), b.as_dict()])
    merged = a.merge(b)
    assert json.dumps([a.as_dict(), b.as_dict()]) == before
    for change in (lambda: merged.update([0.5]), lambda: merged.feedback([0.5], [0])):
        with refuses(InvalidInput, "merged", "2 streams"):
            change()
    merged.save(tmp_path / "merged.json")
    assert Monitor.load(tmp_path / "merged.json").as_dict() == merged.as_dict()
    alone = a.merge()
    alone.update([0.5])
    assert alone.seen == a.seen + 1


def test_of_many_streams_one_must_show_the_evidence_for_all():
    monitor = watch()
    while not monitor.alarms:
        monitor.update(0.9, 1)
    assert 20 <= monitor.evidence["risk"] < 20 * 15
    others = [watch() for _ in range(15)]
    assert monitor.merge(*others).alarms == []
    while monitor.evidence["risk"] < 20 * 16:
        monitor.update(0.9, 1)
    assert monitor.merge(*others).alarms == monitor.alarms


def test_of_equal_evidence_the_first_alarm_counts():
    late = watch()
    late.update(np.full(50, 0.9), np.ones(50))
    content = late.as_dict()
    (point, *rest) = content["risk_bets"]["crossing"]
    content["risk_bets"]["crossing"] = [point - 1, *rest]
    early = Monitor.from_dict(content)
    assert late.merge(early).alarms == early.merge(late).alarms == early.alarms != late.alarms


def grouped():
    return Threshold(0.5, 0.5, risk=0.1, delta=0.05, groups={"a": 0.5, "b": 0.4})


@pytest.mark.parametrize(
    ("act", "facts"),
    [
        (lambda: Monitor(0.5), ["`threshold`", "float", "at_risk"]),
        (lambda: Monitor(grouped()), ["`threshold`", "2 groups", "one monitor per group"]),
        (lambda: Monitor(THRESHOLD), ["no risk", "`confidence`", "`risk`"]),
        (lambda: watch([0.5] * 14), ["`confidence`", "15", "got 14"]),
        (lambda: watch(alpha=5), ["`alpha`", "got 5", "0.05"]),
        (lambda: watch(alpha=1), ["`alpha`", "got 1", "0.95"]),
        (lambda: watch(risk=1), ["`risk`", "got 1", "0.95"]),
        (lambda: watch(seed=-1), ["`seed`", "got -1"]),
        (lambda: watch().update([0.5, np.nan]), ["`confidence`", "1 NaN", "row 1"]),
        (lambda: watch().update([]), ["`confidence`", "(0,)"]),
        (lambda: watch().update([[0.5]]), ["`confidence`", "(1, 1)"]),
        (lambda: watch().update([0.5, 0.6], [0]), ["`errors`", "`confidence`", "1 for 2"]),
        (lambda: watch().update([0.5, 0.6], [0, -1]), ["`errors`", "-1 at row 1", "NaN"]),
        (lambda: watch().update([0.5, 0.6], [[0, 1], [1]]), ["`errors`", "different lengths"]),
        (lambda: watch().update([0.5, 0.6], iter([0, 1])), ["`errors`", "iterator"]),
        (lambda: watch().feedback([0.5, 0.6], [[0, 1]]), ["`errors`", "(1, 2)"]),
        (lambda: watch().merge(3), ["`others`", "int"]),
        (lambda: watch().merge(watch(alpha=0.1)), ["`others`", "alpha 0.1", "alpha 0.05"]),
    ],
)
def test_what_is_refused(act, facts):
    with refuses(InvalidInput, *facts):
        act()


def test_one_label_may_come_as_a_number_of_any_kind():
    monitor = watch()
    for alone in (1, 1.0, np.float64(1), np.array(1), torch.tensor(1), True):
        monitor.feedback(0.7, alone)
    assert (monitor.labelled, monitor.risk.estimate) == (6, 1)


def test_a_refused_batch_changes_nothing():
    monitor = watch(reference())
    monitor.update(*stream(0, 100))
    before = json.dumps(monitor.as_dict())
    with pytest.raises(InvalidInput):
        monitor.update([0.5, 0.6], [0, 2])
    assert json.dumps(monitor.as_dict()) == before


@pytest.mark.parametrize(
    ("part", "value"),
    [
        (None, {"wrong": -0.5}),
        (None, {"wrong": 1e308}),
        (None, {"accepted": 1, "seen": 0}),
        (None, dict.fromkeys(["promise", "risk_bets", "cuts", "shift_bets"])),
        ("cuts", {"kappa": [1.0]}),
        ("cuts", {"gaps": 1}),
        ("cuts", {"gaps": 201 - 201 // 16}),  # those above the lowest cut
        ("shift_bets", {"crossing": [1, 15, 0.5, 0.5]}),
        ("risk_bets", {"crossing": [1, 1, 0.5, 0.5]}),
        ("risk_bets", {"log_wealth": [1.0]}),
        ("shift_bets", {"points": -1}),
        ("shift_bets", {"log_wealth": ["1"]}),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, part, value):
    path = tmp_path / "monitor.json"
    watch(reference()).save(path)
    content = json.loads(path.read_text())
    del content["sha256"]
    (content if part is None else content[part]).update(value)
    with refuses(InvalidInput, "`state`", "as_dict", "again"):
        Monitor.from_dict(content)
    path.write_bytes(_json.text(content))
    with pytest.raises(CorruptFile, match="must be a saved Monitor"):
        Monitor.load(path)


@pytest.mark.slow
@pytest.mark.parametrize("ties", [False, True])
def test_false_alarms_are_at_most_alpha(ties):
    """At the edge of both hypotheses: errors exactly as promised, held-out points drawn anew."""
    streams, alpha, false = 400, 0.2, 0
    for seed in range(streams):
        rng = np.random.default_rng([seed, 3])
        held_out, kappa = rng.random(300), rng.random(10_000)
        if ties:
            held_out, kappa = held_out.round(1), kappa.round(1)
        monitor = watch(held_out, risk=0.05, alpha=alpha, seed=seed)
        monitor.update(kappa, rng.random(kappa.size) < 0.05)
        false += bool(monitor.alarms)
    assert binomtest(false, streams, alpha, alternative="greater").pvalue > 1e-3


def test_a_bet_on_the_mean_of_a_batch_is_fair_whatever_its_answers_share():
    """All answers of a batch wrong with probability 5 %, or each alone: the mean wealth is 1."""
    for outcomes in ({1.0: 0.05, 0.0: 0.95}, {0.0: 0.95**2, 0.5: 2 * 0.05 * 0.95, 1.0: 0.05**2}):
        mean = 0.0
        for share, chance in outcomes.items():
            bets = Bets.start(2)
            bets.play(np.array([[share]]), np.array([[0.05]]), (1.5, 6.0), level=9.0)
            mean += chance * math.exp(bets.now)
        assert mean == pytest.approx(1)


def dependent(rng, batches, size=20):
    """Batches whose answers are all equal: confidences, and errors with P(wrong) = 1 − κ."""
    kappa = rng.random(batches)
    wrong = rng.random(batches) > kappa
    return zip(np.repeat(kappa, size).reshape(batches, size), wrong, strict=True)


def test_dependent_answers_alarm_falsely_unless_they_come_in_batches():
    alarms = {True: 0, False: 0}
    for seed in range(12):
        rng = np.random.default_rng(seed)
        for batch in alarms:
            # Above 0.8 the risk is 0.1, as promised.
            monitor = Monitor(Threshold(0.8, 0.2), rng.random(500), risk=0.1, batch=batch)
            for kappa, wrong in dependent(rng, 200):
                monitor.update(kappa, np.full(kappa.size, wrong))
            alarms[batch] += bool(monitor.alarms)
    assert alarms[False] > 6
    assert binomtest(alarms[True], 12, 0.05, alternative="greater").pvalue > 1e-4


def test_batches_count_once_and_continue_from_a_file(tmp_path):
    monitor = Monitor(Threshold(0.5, 0.5), np.linspace(0, 1, 100), risk=0.1, batch=True)
    monitor.update([0.9, 0.8, 0.1], [1, 0, 1])
    monitor.feedback([0.1, 0.2], [1, 1])  # none accepted
    monitor.feedback([0.9, 0.7], [1, 1])
    assert (monitor.seen, monitor.labelled, monitor.risk.estimate) == (3, 2, 0.75)
    assert "2 batches labelled" in repr(monitor)
    monitor.save(tmp_path / "monitor.json")
    again = Monitor.load(tmp_path / "monitor.json")
    for each in (monitor, again):
        each.update(np.linspace(0, 1, 50))
    assert again.as_dict() == monitor.as_dict()
    alone = Monitor(Threshold(0.5, 0.5), np.linspace(0, 1, 100), risk=0.1)
    with refuses(InvalidInput, "`others`", "on risk and shift by batch for theta"):
        alone.merge(monitor)


def test_a_batch_is_found_to_be_worse():
    rng = np.random.default_rng(0)
    monitor = Monitor(Threshold(0.8, 0.2), rng.random(500), risk=0.1, batch=True)
    for _ in range(300):
        monitor.update(0.8 + 0.2 * rng.random(5), rng.random(5) < 0.3)
    assert [alarm.kind for alarm in monitor.alarms] == ["risk", "shift"]


def test_the_expected_risk_is_the_mean_doubt_of_accepted_answers():
    monitor = Monitor(Threshold(0.5, 0.5), risk=0.1)
    assert monitor.expected_risk is None
    monitor.update([0.9, 0.6, 0.2])
    monitor.update([0.3])
    assert monitor.expected_risk == pytest.approx(0.25)
    assert monitor.merge(monitor).expected_risk == pytest.approx(0.25)
    for outside in (1.5, -0.5):  # no probability
        ends = Monitor(Threshold(-1.0, 0.5), risk=0.1)
        ends.update([0.0, 1.0])
        assert ends.expected_risk == 0.5
        ends.update([outside])
        assert ends.expected_risk is None
        assert Monitor.from_dict(ends.as_dict()).expected_risk is None
