"""The contest: numbers against the plain way, and the statistics against what they claim."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t
from sklearn.linear_model import LogisticRegression

from snapsure import AES, LES, PES, Platt, ScoreTable, augrc, aurc, compare, eaurc, nll
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.estimators import SPTD, MaxLogitPNorm, Temperature, registry
from snapsure.estimators._error_predictor import ErrorPredictor
from snapsure.evaluation import Halves, Protocol, Rival, Run
from snapsure.evaluation._archive import locate_run, open_contest, write_manifest
from snapsure.evaluation._compare import hold_contest
from snapsure.evaluation._engine import list_candidates
from tests.support.runs import CLASSES, run_of, save_runs, simulate_logits, softmax, table_of

RIVALS = (
    "temperature by NLL",
    "temperature by AURC",
    "MaxLogit-pNorm",
    "error predictor",
    "gen",
    "SPTD",
)


@pytest.fixture(scope="module")
def run():
    return run_of()


@pytest.fixture(scope="module")
def board(run):
    return compare(run).boards["data"]


def halves_of(n, seed=0):
    order = np.random.default_rng(seed).permutation(n)
    one, two = np.sort(order[: n // 2]), np.sort(order[n // 2 :])
    return [(one, two), (two, one)]


def plainly(run, scored):
    """A method judged as the definition says: (fit rows, judged rows) -> confidence, errors."""
    values = []
    for learn, rest in halves_of(run.y.size):
        kappa, errors = scored(learn, rest)
        values.append((eaurc(kappa, errors), aurc(kappa, errors), augrc(kappa, errors)))
    return np.mean(values, axis=0)


def test_every_method_is_judged_on_the_half_it_has_not_seen(run, board):
    table = run.table
    kappa, errors = table.kappa("softmax"), table.errors

    def fitted(make):
        def scored(learn, rest):
            return make().fit(table.rows(learn)).confidence(table.rows(rest)), errors[rest]

        return scored

    def predicted(learn, rest):
        logits = table.logits - table.logits.mean(axis=1, keepdims=True)
        chosen = softmax(table.logits)[np.arange(errors.size), table.y_hat]
        x = np.column_stack((logits, np.log(chosen / (1 - chosen))))
        scaled = (x - x[learn].mean(axis=0)) / x[learn].std(axis=0)
        scaled[:, -1] *= np.sqrt(10 / 0.3)  # so much wider, so much less penalised
        peer = LogisticRegression(C=0.1, tol=1e-12, max_iter=10_000)
        return peer.fit(scaled[learn], ~errors[learn]).decision_function(scaled[rest]), errors[rest]

    def snapshot(learn, rest):
        best = min(range(8), key=lambda j: (eaurc(kappa[j, learn], errors[learn]), -j))
        return kappa[best, rest], errors[rest]

    def mean(learn, rest):
        other = run.others["mean"]
        return other.kappa[rest], (other.y_hat != run.y)[rest]

    def gen(learn, rest):
        p = softmax(table.logits[rest])
        return -((p * (1 - p)) ** 0.1).sum(axis=1), errors[rest]

    expected = {
        "final": lambda learn, rest: (kappa[-1, rest], errors[rest]),
        "AES": fitted(AES),
        "PES": fitted(PES),
        "PES (paper)": fitted(lambda: PES(assign="paper")),
        "best snapshot": snapshot,
        "LES": fitted(lambda: LES(8)),
        **{f"LES ({n} passes)": fitted(partial(LES, passes=n)) for n in (4, 3, 2)},
        "SPTD": fitted(SPTD),
        "temperature by NLL": fitted(lambda: Temperature("nll")),
        "temperature by AURC": fitted(lambda: Temperature("aurc")),
        "MaxLogit-pNorm": fitted(MaxLogitPNorm),
        "error predictor": predicted,
        "gen": gen,
        "mean": mean,
    }
    for name, scored in expected.items():
        row = board[name]
        assert (row.eaurc, row.aurc, row.augrc) == pytest.approx(plainly(run, scored)), name
    on_softmax = {row.method for row in board.rows if row.kappa in (None, "softmax")}
    assert on_softmax == {*expected, "coin"}
    on_entropy = {row.method for row in board.rows if row.kappa == "entropy"}
    assert on_entropy == {"final", "AES", "PES", "LES"}


def test_gen_is_not_a_rival_of_itself():
    run = run_of(3)
    own = Run(run.table, others={"gen": run.table.kappa("softmax")[-1]})
    board = compare(own).boards["data"]
    assert [row.method for row in board.rows].count("gen") == 1
    assert board["gen"].eaurc == board["final"].eaurc


def test_with_few_errors_the_error_predictor_ranks_as_the_softmax_does():
    run = run_of(4)
    few = np.concatenate((np.flatnonzero(~run.table.errors), np.flatnonzero(run.table.errors)[:40]))
    board = compare(run.rows(np.sort(few))).boards["data"]  # halves have some 20
    assert board["error predictor"].eaurc == pytest.approx(board["final"].eaurc, rel=1e-12)


def test_probabilities_are_platts_of_the_other_half(run, board):
    kappa, errors = run.table.kappa("softmax")[-1], run.table.errors
    values = [
        nll(Platt().fit(kappa[learn], errors[learn]).predict_proba(kappa[rest]), errors[rest])
        for learn, rest in halves_of(errors.size)
    ]
    assert board["final"].nll == pytest.approx(np.mean(values))


@pytest.mark.parametrize(
    ("name", "make"), [("temperature by NLL", Temperature), ("error predictor", ErrorPredictor)]
)
def test_what_is_a_probability_is_judged_as_it_is(run, board, name, make):
    table = run.table
    values = []
    for learn, rest in halves_of(table.errors.size):
        model = make().fit(table.rows(learn))
        values.append(nll(model.confidence(table.rows(rest)), table.errors[rest]))
    assert board[name].nll == pytest.approx(np.mean(values))


def test_rivals_of_the_logits_need_no_second_kappa(run, board):
    table = run.table
    kappa = {"softmax": table.kappa("softmax")}
    one = ScoreTable(kappa, table.labels, table.y, logits=table.logits)
    rows = compare(one, methods=["final", *RIVALS], resamples=1000).boards["data"].rows
    assert {row.method: row.eaurc for row in rows} == {
        name: board[name].eaurc for name in ("final", *RIVALS)
    }


def test_one_sure_mistake_leaves_numbers():
    logits, y = simulate_logits()
    logits[:, 0, :] = 0
    logits[:, 0, (y[0] + 1) % CLASSES] = 500
    content = json.dumps(compare(table_of(logits, y, logits=logits[-1])).as_dict())
    assert "Infinity" not in content
    assert "NaN" not in content


def test_a_row_of_a_frame_has_an_interval_as_three_columns(board):
    row, flat = board["AES"], board["AES"].flat()
    for name in ("difference", "gain", "behind"):
        assert (flat[name], flat[f"{name}_low"], flat[f"{name}_high"]) == tuple(getattr(row, name))
    assert flat["method"] == "AES"
    assert "gains" not in flat


def test_the_price(board):
    def price(name):
        row = board[name]
        return row.passes, row.snapshots, row.bytes

    assert price("final") == price("temperature by NLL") == (1, 1, 1000)
    assert price("AES") == (6, 6, 6000)  # of epochs 3 … 8
    assert price("LES") == price("SPTD") == price("mean") == (8, 8, 8000)
    assert price("coin") == (1, 1, 1000)  # of which nothing was said
    assert price("best snapshot")[0] <= 2  # the chosen one, and the one that predicts
    assert board["mean"].error != board["final"].error


def test_dropout_costs_its_passes():
    logits, y = simulate_logits()
    table = table_of(logits, y)
    kappas = {name: table.kappa("softmax") for name in ("mc_dropout", "mc_dropout_variance")}
    dropped = ScoreTable(kappas, table.labels, y)
    board = compare(dropped).boards["data"]
    assert board["final"].passes == board["final", "mc_dropout_variance"].passes == 100
    assert board["AES"].passes == 600
    board = compare(Run(dropped, passes={"mc_dropout": 5})).boards["data"]
    assert board["final"].passes == 5


def test_rows_come_in_order_and_say_what_they_are(board):
    assert [row.eaurc for row in board.rows] == sorted(row.eaurc for row in board.rows)
    best, reference = board.rows[0], board["final"]
    assert best.behind == (0, 0, 0)
    assert best.verdict.endswith("; the best here")
    assert reference.gain == (0, 0, 0)
    assert reference.verdict.startswith("the reference")
    assert board["coin"].verdict.startswith("worse than the final softmax by ")
    assert board["coin"].gain.high < 0
    for row in board.rows:
        assert row.gain.low <= row.gain.estimate <= row.gain.high
        assert row.gain.estimate == pytest.approx(100 * (1 - row.eaurc / reference.eaurc))
        assert row.behind.estimate == pytest.approx(100 * (row.eaurc / best.eaurc - 1))


@pytest.mark.slow
def test_a_spoilt_end_is_found():
    """Snapshots whose signal fades: averaging must help, and the verdict says so."""
    board = compare([run_of(seed, drift=1.2, n=1500) for seed in range(3)]).boards["data"]
    row = board["AES"]
    assert row.gain.low > 0
    assert row.p_holm < 0.05
    assert row.verdict.startswith("better than the final softmax by ")


@pytest.mark.slow
def test_where_nothing_differs_little_is_found():
    """Two scores of the same quality: p below 0.05 about once in twenty data sets."""
    found = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        truth = rng.random(400)
        y = (rng.random(400) > truth).astype(int)
        scores = {name: np.clip(truth + rng.normal(0, 0.2, 400), 0, 1)[None] for name in "ab"}
        table = ScoreTable(scores, np.zeros((1, 400), dtype=int), y)
        found += compare(table, resamples=200)["final", "b"].p < 0.05
    assert found <= 13  # 6 are expected; more than 13 come once in 200 times


@pytest.mark.slow
@pytest.mark.parametrize("runs", [2, 3, 5])
def test_where_only_runs_differ_little_is_found(runs):
    """Which of two scores is better is each run's luck: of few runs little may be concluded."""
    found = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        truth = rng.random(300)
        y = (rng.random(300) > truth).astype(int)
        tables = []
        for _ in range(runs):
            noise = np.exp(rng.normal(-1.5, 0.7, 2))
            scores = {
                name: np.clip(truth + rng.normal(0, spread, 300), 0, 1)[None]
                for name, spread in zip("ab", noise, strict=True)
            }
            tables.append(ScoreTable(scores, np.zeros((1, 300), dtype=int), y))
        found += compare(tables, resamples=200)["final", "b"].p < 0.05
    assert found <= 12  # 5 are expected; more than 12 come once in 700 times


@pytest.mark.slow
def test_data_sets_have_luck_of_their_own():
    runs = [run_of(0), run_of(1)]
    candidates = list_candidates(runs[0], [registry.get("final")], ["softmax"])
    judged = [hold_contest(runs, candidates, "eaurc", Halves(), 100, (0, i)) for i in (0, 1)]
    assert np.array_equal(judged[0].replicates, judged[1].replicates)
    assert not np.array_equal(judged[0].luck, judged[1].luck)
    assert judged[0].luck.std() > 0


def test_too_few_errors_to_learn_from_fall_back_to_the_final_kappa():
    rng = np.random.default_rng(0)
    y = np.zeros(400, dtype=int)
    labels = np.zeros((6, 400), dtype=int)
    labels[:, :20] = 1
    good = np.where(labels == 1, 0.2, 0.8) + rng.uniform(-0.1, 0.1, labels.shape)
    table = ScoreTable({"softmax": good, "noise": rng.random(labels.shape)}, labels, y)
    board = compare(table).boards["data"]
    assert board["LES"].eaurc == 0
    assert board["LES", "noise"].eaurc > 0


def test_another_classifier_is_told(board):
    assert board["mean"].verdict.endswith(f"; its classifier is wrong on {board['mean'].error:.1%}")
    assert "classifier" not in board["coin"].verdict


@pytest.mark.slow
def test_the_same_run_again_changes_nothing_but_that_seeds_do():
    run = run_of()
    once, thrice = compare(run).boards["data"], compare([run] * 3).boards["data"]
    for row in once.rows:
        assert thrice[row.method, row.kappa].gain == pytest.approx(row.gain)
    assert (once.runs, thrice.runs) == (1, 3)

    better, worse = (run_of(1, n=2000, drift=drift) for drift in (1.3, -1.5))
    apart = [compare(one).boards["data"]["AES"].gain for one in (better, worse)]
    together = compare([better, worse]).boards["data"]["AES"].gain
    width = together.high - together.low
    assert width > max(gain.high - gain.low for gain in apart)


@pytest.mark.slow
def test_several_data_sets_count_the_same():
    sets = {"small": run_of(0, n=300), "large": [run_of(s, n=900, y_of=5) for s in (1, 2)]}
    comparison = compare(sets)
    pooled = comparison.pooled
    assert list(comparison.boards) == ["small", "large"]
    assert (pooled.runs, pooled.examples) == (3, 1200)
    for row in pooled.rows:
        parts = [board[row.method, row.kappa] for board in comparison.boards.values()]
        ratios = [1 - part.gain.estimate / 100 for part in parts]
        assert row.gain.estimate == pytest.approx(100 * (1 - np.sqrt(np.prod(ratios))))
        assert row.eaurc == pytest.approx(np.mean([part.eaurc for part in parts]))
    assert compare(sets["small"]).pooled is None


def test_what_one_data_set_lacks_is_not_pooled():
    logits, y = simulate_logits()
    comparison = compare({"with": run_of(), "without": table_of(logits, y)})
    names = {row.method for row in comparison.pooled.rows}
    assert "temperature by NLL" not in names
    assert "temperature by NLL" in {row.method for row in comparison.boards["with"].rows}
    assert {"final", "SPTD", "LES"} <= names


def test_packed_tables_without_labels_have_no_sptd():
    logits, y = simulate_logits()
    table = table_of(logits, y)
    plain = ScoreTable(
        {"softmax": table.kappa("softmax")}, np.broadcast_to(table.y_hat, table.labels.shape), y
    )
    assert "SPTD" not in {row.method for row in compare(plain).boards["data"].rows}


@pytest.mark.slow
def test_seeds_fix_everything_and_order_of_rows_does_not_matter_much():
    run = run_of()
    first, again, other = compare(run), compare(run), compare(run, seed=1)
    assert first == again
    assert first != other


def test_as_plain_data(run):
    content = json.loads(json.dumps(compare(run).as_dict()))
    assert content["resamples"] == 2000
    (board,) = content["boards"]
    assert (board["reference"], board["kappa"]) == ("final", "softmax")
    assert set(board["rows"][0]["gain"]) == {"estimate", "low", "high"}


def test_perfect_rankings_are_numbers_too():
    """One that is perfect, and then nothing but such."""
    logits, y = simulate_logits()
    table = table_of(logits, y)
    perfect = 1.0 - table.errors
    board = compare(Run(table, others={"oracle": perfect})).boards["data"]
    assert board.rows[0].method == "oracle"
    assert board["oracle"].gain.estimate == pytest.approx(100, abs=0.2)
    alone = ScoreTable({"oracle": perfect[None], "twin": perfect[None]}, table.labels[-1:], y)
    twin = compare(alone)["final", "twin"]
    assert twin.gain == twin.behind == (0, 0, 0)
    assert twin.verdict.startswith("no significant difference from the final oracle")


def test_another_reference(run):
    entropy = compare(run, kappa="entropy").boards["data"]
    assert entropy["final"].outcome == "reference"
    assert entropy["final"].kappa == entropy["best snapshot"].kappa == "entropy"
    assert entropy["AES", "softmax"].kappa == "softmax"
    les = compare(run, reference="LES").boards["data"]
    assert les["LES"].outcome == "reference"
    assert les["LES"].gain == (0, 0, 0)
    assert compare(run, reference="SPTD")["SPTD"].outcome == "reference"


def test_without_a_correction_each_p_value_decides(run):
    corrected, plain = compare(run), compare(run, correction="none")
    outcomes = {row.outcome: row for row in plain.boards["data"].rows if row.outcome != "reference"}
    assert {"better", "worse", "no difference"} >= set(outcomes)
    for row in plain.boards["data"].rows:
        same = corrected[row.method, row.kappa]
        assert (row.p, row.gain, row.p_holm) == (same.p, same.gain, None)
        if row.outcome != "reference":
            assert (row.outcome == "no difference") == (row.p >= 0.05)
            assert (same.outcome == "no difference") == (same.p_holm >= 0.05)


def test_a_method_that_is_not_there_is_refused_with_those_that_are(run):
    result = compare(run, methods=["final", "AES"], resamples=200)
    with pytest.raises(InvalidInput, match="must be one of AES, final, got 'LES'"):
        result["LES"]
    with pytest.raises(InvalidInput, match=r"κ of AES must be one of .*entropy.*, got 'margin'"):
        result.boards["data"]["AES", "margin"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reference": "luck"}, "`reference` .* got 'luck' .* Choose one of final"),
        ({"kappa": "luck"}, "must be one of softmax, entropy, got 'luck'"),
        ({"methods": ["luck"]}, "`methods` must be some of final, .*coin.*, got 'luck'"),
        ({"resamples": 100}, "`resamples` must be at least 840 to compare 21 methods, got 100"),
        ({"metric": "accuracy"}, "`metric` must be .*eaurc.*, got 'accuracy'"),
        ({"correction": "bonferroni"}, "`correction` must be .*holm.*, got 'bonferroni'"),
        ({"seed": -1}, "`seed` must be"),
        ({"level": 1}, r"`level` must lie in \(0, 1\), got 1"),
    ],
)
def test_options_that_are_refused(run, options, words):
    with pytest.raises(InvalidInput, match=words):
        compare(run, **options)


def test_runs_that_are_refused():
    logits, y = simulate_logits()
    table = table_of(logits, y)
    right = ScoreTable({"softmax": table.kappa("softmax")}, table.labels, table.y_hat)
    for runs, words in (
        ({"mine": []}, r"`runs\['mine'\]` must hold at least one run, got none"),
        ({}, "`runs` must hold at least one data set, got none"),
        ("scores", r"`runs` must be score tables or runs, got str. .* ScoreTable.open"),
        ([run_of(0), run_of(0, y_of=1)], r"`runs\['data'\]` .* got other labels in run 1"),
        (right, r"`runs\['data'\]` \(run 0\) .* got 0 wrong of 600"),
    ):
        with pytest.raises(InvalidInput, match=words):
            compare(runs)


@pytest.mark.parametrize("logits", ["shorter", "others"])
def test_logits_of_other_examples_are_refused(logits):
    z, y = simulate_logits()
    given = z[-1][:-1] if logits == "shorter" else -z[-1]
    with pytest.raises(InvalidInput, match="`logits` must be"):
        table_of(z, y).with_logits(given)


def test_few_errors_leave_out_one_example_at_a_time():
    """Gain, difference and p-value by brute force over both halves, and Student's t."""
    rng = np.random.default_rng(3)
    ease = rng.normal(size=300)
    kappa = 1 / (1 + np.exp(-(ease + rng.normal(size=(8, 300)))))
    table = ScoreTable.from_kappa(kappa, np.isin(np.arange(300), np.argsort(ease)[:60:2]))
    row = compare(table, methods=["final", "AES"], resamples=20_000)["AES"]

    ours, final = AES().confidence(table), kappa[-1]
    order = np.random.default_rng(0).permutation(300)
    halves = [np.sort(order[:150]), np.sort(order[150:])]
    areas = []
    for left_out in range(-1, 300):  # at first all examples
        rows = [half[half != left_out] for half in halves]
        areas.append([np.mean([eaurc(k[r], table.errors[r]) for r in rows]) for k in (ours, final)])
    for statistic, found in (
        (lambda own, base: own - base, row.difference),
        (lambda own, base: np.log(own / base), [np.log1p(-end / 100) for end in row.gain]),
    ):
        estimate, *values = (statistic(*pair) for pair in areas)
        spread = np.sqrt(299 / 300 * np.sum((values - np.mean(values)) ** 2))
        assert found[0] == pytest.approx(estimate)
        half = t.ppf(0.975, 29) * spread
        assert sorted(found)[0] == pytest.approx(estimate - half, abs=0.05 * half)
        assert sorted(found)[2] == pytest.approx(estimate + half, abs=0.05 * half)
    assert row.p == pytest.approx(2 * t.sf(abs(estimate) / spread, 29), abs=0.02)


@pytest.mark.parametrize(("wrong", "draws"), [(4, 300), (49, 300), (50, 20_000)])
def test_fifty_errors_are_enough_to_resample_examples(wrong, draws):
    """With fewer, each of the 300 examples is left out once, and Student's t has their number."""
    kappa = np.random.default_rng(0).random((1, 300))
    run = Run(ScoreTable.from_kappa(kappa, np.arange(300) < wrong))
    candidates = list_candidates(run, [registry.get("final")], ["softmax"])
    contest = hold_contest([run], candidates, "eaurc", Halves(), 20_000, (0, 0))
    assert contest.replicates.shape == (1, draws)
    assert (contest.t is None) == (wrong == 50)
    if wrong < 50:
        assert np.quantile(contest.t, 0.9) == pytest.approx(t.ppf(0.9, wrong - 1), rel=0.03)


class Repeated(Protocol):
    """The same half to judge, so many times: it says no more than once."""

    def __init__(self, times):
        self.times = times

    def parts(self, n):
        return [(np.arange(n // 2), np.arange(n // 2, n))] * self.times


def test_examples_that_are_judged_twice_count_once():
    rng = np.random.default_rng(0)
    kappa = rng.random((8, 300))
    table = ScoreTable.from_kappa(kappa, kappa.mean(axis=0) < 0.4 - 0.1 * rng.random(300))
    assert 4 <= table.errors[150:].sum() < 50
    once, thrice = (
        compare(table, methods=["final", "AES", "LES"], protocol=Repeated(times))
        for times in (1, 3)
    )
    for row in once.boards["data"].rows:
        same = thrice[row.method]
        width = row.difference.high - row.difference.low
        assert same.difference == pytest.approx(row.difference, abs=0.01 * width)


@pytest.mark.parametrize("wrong", [4, 596])
def test_four_points_of_a_kind_are_enough(wrong):
    kappa = np.random.default_rng(0).random((2, 600))
    table = ScoreTable.from_kappa(kappa, np.arange(600) % 150 == 0)
    if wrong > 300:
        table = ScoreTable.from_kappa(kappa, ~table.errors)
    assert compare(table, methods=["final", "AES"], resamples=80).resamples == 80
    fewer = ScoreTable.from_kappa(kappa[:, 1:], table.errors[1:])
    with pytest.raises(InvalidInput, match=f"got {wrong - (wrong < 300)} wrong of 599"):
        compare(fewer)


def test_resamples_that_can_just_tell_methods_apart(run):
    compare(run, methods=["final"], resamples=80)  # 2 κ: 2 · 2 / 0.05
    with pytest.raises(InvalidInput, match=r"`resamples` must be at least 80 .*, got 79"):
        compare(run, methods=["final"], resamples=79)


def test_boards_are_of_the_metric_asked_for(run):
    """To the last: order, gains, differences and p-values are AURC's where AURC is asked for."""
    board = compare(run, metric="aurc", resamples=1000).boards["data"]
    areas = [row.aurc for row in board.rows]
    assert (areas, board.measure) == (sorted(areas), "AURC")
    base = board["final"].aurc
    for row in board.rows:
        assert row.gain.estimate == pytest.approx(100 * (1 - row.aurc / base))
        assert row.difference.estimate == pytest.approx(row.aurc - base)
        assert row.difference.low <= row.difference.estimate <= row.difference.high
    same = compare(run, resamples=1000).boards["data"]
    order = [(row.method, row.kappa) for row in board.rows]
    assert order != [(row.method, row.kappa) for row in same.rows]
    for row in board.rows:
        assert row.eaurc == same[row.method, row.kappa].eaurc


def test_what_it_takes_to_train_is_shown(tmp_path):
    logits, y = simulate_logits()
    table = table_of(logits, y, logits=logits[-1])
    other = Run(table, others={"twin": Rival((y % 3) / 3, table.y_hat, trainings=2)})
    save_runs({"a": [other]}, {}, tmp_path)
    (again,) = open_contest(tmp_path)["a"]
    board = compare(again, resamples=1000).boards["data"]
    assert (board["twin"].trainings, board["final"].trainings) == (2, 1)


class Trap:
    """Leaves a file where it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def test_a_contest_is_opened_without_running_what_is_in_it(tmp_path, run):
    save_runs({"a": [run]}, {}, tmp_path)
    path, mark = locate_run(tmp_path, "a", 0), tmp_path / "has-run"
    with np.load(path) as file:
        arrays = {**file, "other.mean": np.array([Trap(mark)], dtype=object)}
    np.savez(path, **arrays)
    write_manifest({"a": 1}, {}, tmp_path)  # whoever made it wrote a valid hash
    with pytest.raises(CorruptFile, match="must hold a whole contest, got one that cannot be read"):
        open_contest(tmp_path)
    assert not mark.exists()


def test_the_number_of_cores_changes_no_board(monkeypatch):
    runs = [run_of(0), run_of(1), run_of(2)]
    monkeypatch.setattr("snapsure.evaluation._compare.LONG", 1)  # or one thread takes all of them
    monkeypatch.setattr("snapsure.metrics._parallel._cores", lambda: 1)
    alone = compare(runs)
    monkeypatch.setattr("snapsure.metrics._parallel._cores", lambda: 8)
    assert compare(runs).as_dict() == alone.as_dict()
