"""The contest: numbers against the plain way, and the statistics against what they claim."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from snapsure import AES, LES, PES, Platt, ScoreTable, augrc, aurc, compare, eaurc, nll
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.estimators import SPTD, MaxLogitPNorm, Temperature
from snapsure.evaluation import Halves, Run
from snapsure.evaluation._archive import open_contest, place, save
from snapsure.evaluation._board import _holm
from snapsure.evaluation._contest import contest
from snapsure.evaluation._error_predictor import ErrorPredictor
from snapsure.evaluation._methods import RANKED

CLASSES = 4


def simulated(seed=0, n=600, snapshots=8, drift=0.0, y_of=0):
    """Logits of a training whose later snapshots are noisier, on points that `y_of` fixes."""
    points = np.random.default_rng(y_of)
    y = points.integers(0, CLASSES, n)
    ease = points.normal(1.0, 1.0, n)
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1, (snapshots, n, CLASSES)) + rng.normal(0, 0.7, (n, CLASSES))
    logits[:, np.arange(n), y] += ease * np.linspace(1.5, 1.5 - drift, snapshots)[:, None]
    return logits, y


def softmax(logits):
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def table_of(z, y, **more):
    p = softmax(z)
    labels = p.argmax(axis=2)
    kappa = np.take_along_axis(p, labels[-1][None, :, None], axis=2)[:, :, 0]
    entropy = 1 + (p * np.log(p)).sum(axis=2) / np.log(CLASSES)
    return ScoreTable({"softmax": kappa, "entropy": np.clip(entropy, 0, 1)}, labels, y, **more)


def run_of(seed=0, **options):
    logits, y = simulated(seed, **options)
    table = table_of(logits, y, logits=logits[-1])
    mean = softmax(logits).mean(axis=0)
    return Run(
        table,
        others={"mean": (mean.max(axis=1), mean.argmax(axis=1)), "coin": (y % 2) / 2},
        passes={"mean": 8},
        kept={"mean": 8},
        snapshot_bytes=1000,
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

    def everything(learn, rest):
        both = np.vstack([table.kappa("entropy")[[0, 2, 3, 5, 7]], kappa[[0, 2, 3, 5, 7]]])
        model = LES(10).fit(ScoreTable.from_kappa(both[:, learn], errors[learn]))
        return model.confidence(ScoreTable.from_kappa(both[:, rest])), errors[rest]

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
        score, y_hat = run.others["mean"]
        return score[rest], (y_hat != run.y)[rest]

    def gen(learn, rest):
        p = softmax(table.logits[rest])
        return -((p * (1 - p)) ** 0.1).sum(axis=1), errors[rest]

    expected = {
        "softmax": lambda learn, rest: (kappa[-1, rest], errors[rest]),
        "AES of softmax": fitted(AES),
        "PES of softmax": fitted(PES),
        "PES to the letter of softmax": fitted(lambda: PES(assign="paper")),
        "best snapshot of softmax": snapshot,
        "LES of softmax": fitted(lambda: LES(8)),
        **{f"LES in {n} passes of softmax": fitted(partial(LES, passes=n)) for n in (4, 3, 2)},
        "LES of all κ": everything,
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
    assert {row.method for row in board.rows} == {
        *expected,
        "entropy",
        "AES of entropy",
        "PES of entropy",
        "LES of entropy",
        "coin",
    }


def test_gen_is_not_a_rival_of_itself():
    run = run_of(3)
    own = Run(run.table, others={"gen": run.table.kappa("softmax")[-1]})
    board = compare(own).boards["data"]
    assert [row.method for row in board.rows].count("gen") == 1
    assert board["gen"].eaurc == board["softmax"].eaurc


def test_with_few_errors_the_error_predictor_ranks_as_the_softmax_does():
    run = run_of(4)
    few = np.concatenate((np.flatnonzero(~run.table.errors), np.flatnonzero(run.table.errors)[:40]))
    board = compare(run.rows(np.sort(few))).boards["data"]  # halves have some 20
    assert board["error predictor"].eaurc == pytest.approx(board["softmax"].eaurc, rel=1e-12)


def test_probabilities_are_platts_of_the_other_half(run, board):
    kappa, errors = run.table.kappa("softmax")[-1], run.table.errors
    values = [
        nll(Platt().fit(kappa[learn], errors[learn]).predict_proba(kappa[rest]), errors[rest])
        for learn, rest in halves_of(errors.size)
    ]
    assert board["softmax"].nll == pytest.approx(np.mean(values))


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
    rows = compare(one, methods=["final", "rival"], resamples=1000).boards["data"].rows
    assert {row.method: row.eaurc for row in rows} == {
        name: board[name].eaurc
        for name in (
            "softmax",
            "temperature by NLL",
            "temperature by AURC",
            "MaxLogit-pNorm",
            "error predictor",
            "gen",
            "SPTD",
        )
    }


def test_one_sure_mistake_leaves_numbers():
    logits, y = simulated()
    logits[:, 0, :] = 0
    logits[:, 0, (y[0] + 1) % CLASSES] = 500
    content = json.dumps(compare(table_of(logits, y, logits=logits[-1])).as_dict())
    assert "Infinity" not in content
    assert "NaN" not in content


def test_a_row_of_a_frame_has_an_interval_as_three_columns(board):
    row, flat = board["AES of softmax"], board["AES of softmax"].flat()
    for name in ("difference", "gain", "behind"):
        assert (flat[name], flat[f"{name}_low"], flat[f"{name}_high"]) == tuple(getattr(row, name))
    assert flat["method"] == "AES of softmax"
    assert "gains" not in flat


def test_the_price(board):
    def price(name):
        row = board[name]
        return row.passes, row.snapshots, row.bytes

    assert price("softmax") == price("temperature by NLL") == (1, 1, 1000)
    assert price("AES of softmax") == (6, 6, 6000)  # of epochs 3 … 8
    assert price("LES of softmax") == price("SPTD") == price("mean") == (8, 8, 8000)
    assert price("LES of all κ") == (5, 5, 5000)
    assert price("coin") == (1, 1, 1000)  # of which nothing was said
    assert price("best snapshot of softmax")[0] <= 2  # the chosen one, and the one that predicts
    assert board["mean"].error != board["softmax"].error


def test_dropout_costs_its_passes():
    logits, y = simulated()
    table = table_of(logits, y)
    kappas = {name: table.kappa("softmax") for name in ("mc_dropout", "mc_dropout_variance")}
    dropped = ScoreTable(kappas, table.labels, y)
    board = compare(dropped).boards["data"]
    assert board["mc_dropout"].passes == board["mc_dropout_variance"].passes == 100
    assert board["AES of mc_dropout"].passes == 600
    assert board["LES of all κ"].passes == 5 * (99 + 99 + 1)  # both share one of each
    board = compare(Run(dropped, passes={"mc_dropout": 5})).boards["data"]
    assert board["mc_dropout"].passes == 5


def test_rows_come_in_order_and_say_what_they_are(board):
    assert [row.eaurc for row in board.rows] == sorted(row.eaurc for row in board.rows)
    best, reference = board.rows[0], board["softmax"]
    assert best.behind == (0, 0, 0)
    assert best.verdict.endswith("; the best here")
    assert reference.gain == (0, 0, 0)
    assert reference.verdict.startswith("the reference")
    assert board["coin"].verdict.startswith("worse than softmax by ")
    assert board["coin"].gain.high < 0
    for row in board.rows:
        assert row.gain.low <= row.gain.estimate <= row.gain.high
        assert row.gain.estimate == pytest.approx(100 * (1 - row.eaurc / reference.eaurc))
        assert row.behind.estimate == pytest.approx(100 * (row.eaurc / best.eaurc - 1))


@pytest.mark.slow
def test_a_spoilt_end_is_found():
    """Snapshots whose signal fades: averaging must help, and the verdict says so."""
    board = compare([run_of(seed, drift=1.2, n=1500) for seed in range(3)]).boards["data"]
    row = board["AES of softmax"]
    assert row.gain.low > 0
    assert row.p_holm < 0.05
    assert row.verdict.startswith("better than softmax by ")


def test_holm_by_hand():
    p = np.array([0.01, 0.5, 0.04, 0.03])  # the second is the reference
    assert _holm(p, 1).tolist() == pytest.approx([0.03, 1.0, 0.06, 0.06])
    assert _holm(np.array([1.0, 0.9, 0.8]), 0).tolist() == [1.0, 1.0, 1.0]


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
        found += compare(table, resamples=200).boards["data"]["b"].p < 0.05
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
        found += compare(tables, resamples=200).boards["data"]["b"].p < 0.05
    assert found <= 12  # 5 are expected; more than 12 come once in 700 times


@pytest.mark.slow
def test_data_sets_have_luck_of_their_own():
    runs = [run_of(0), run_of(1)]
    judged = [contest(runs, RANKED, Halves(), 100, 0, index, "eaurc") for index in (0, 1)]
    assert np.array_equal(judged[0].drawn, judged[1].drawn)
    assert not np.array_equal(judged[0].luck, judged[1].luck)
    assert judged[0].luck.std() > 0


def test_too_few_errors_to_learn_from_fall_back_to_the_first_kappa():
    rng = np.random.default_rng(0)
    y = np.zeros(400, dtype=int)
    labels = np.zeros((6, 400), dtype=int)
    labels[:, :20] = 1
    good = np.where(labels == 1, 0.2, 0.8) + rng.uniform(-0.1, 0.1, labels.shape)
    table = ScoreTable({"softmax": good, "noise": rng.random(labels.shape)}, labels, y)
    board = compare(table).boards["data"]
    assert board["LES of all κ"].eaurc == board["LES of softmax"].eaurc == 0
    assert board["LES of noise"].eaurc > 0


def test_another_classifier_is_told(board):
    assert board["mean"].verdict.endswith(
        f"; of a classifier that is wrong in {board['mean'].error:.1%}"
    )
    assert "classifier" not in board["coin"].verdict


@pytest.mark.slow
def test_the_same_run_again_changes_nothing_but_that_seeds_do():
    run = run_of()
    once, thrice = compare(run).boards["data"], compare([run] * 3).boards["data"]
    for row in once.rows:
        assert thrice[row.method].gain == pytest.approx(row.gain)
    assert (once.runs, thrice.runs) == (1, 3)

    better, worse = (run_of(1, n=2000, drift=drift) for drift in (1.3, -1.5))
    apart = [compare(one).boards["data"]["AES of softmax"].gain for one in (better, worse)]
    together = compare([better, worse]).boards["data"]["AES of softmax"].gain
    width = together.high - together.low
    assert width > max(gain.high - gain.low for gain in apart)


@pytest.mark.slow
def test_several_data_sets_count_the_same():
    sets = {"small": run_of(0, n=300), "large": [run_of(s, n=900, y_of=5) for s in (1, 2)]}
    comparison = compare(sets)
    pooled = comparison.pooled
    assert list(comparison.boards) == ["small", "large"]
    assert (pooled.runs, pooled.points) == (3, 1200)
    for row in pooled.rows:
        parts = [board[row.method] for board in comparison.boards.values()]
        ratios = [1 - part.gain.estimate / 100 for part in parts]
        assert row.gain.estimate == pytest.approx(100 * (1 - np.sqrt(np.prod(ratios))))
        assert row.eaurc == pytest.approx(np.mean([part.eaurc for part in parts]))
    assert compare(sets["small"]).pooled is None


def test_what_one_data_set_lacks_is_not_pooled():
    logits, y = simulated()
    comparison = compare({"with": run_of(), "without": table_of(logits, y)})
    names = {row.method for row in comparison.pooled.rows}
    assert "temperature by NLL" not in names
    assert "temperature by NLL" in {row.method for row in comparison.boards["with"].rows}
    assert {"softmax", "SPTD", "LES of all κ"} <= names


def test_packed_tables_without_labels_have_no_sptd():
    logits, y = simulated()
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
    assert board["reference"] == "softmax"
    assert set(board["rows"][0]["gain"]) == {"estimate", "low", "high"}


def test_perfect_rankings_are_numbers_too():
    """One that is perfect, and then nothing but such."""
    logits, y = simulated()
    table = table_of(logits, y)
    perfect = 1.0 - table.errors
    board = compare(Run(table, others={"oracle": perfect})).boards["data"]
    assert board.rows[0].method == "oracle"
    assert board["oracle"].gain.estimate == pytest.approx(100, abs=0.2)
    alone = ScoreTable({"oracle": perfect[None], "twin": perfect[None]}, table.labels[-1:], y)
    twin = compare(alone).boards["data"]["twin"]
    assert twin.gain == twin.behind == (0, 0, 0)
    assert twin.verdict.startswith("no significant difference from oracle")


def test_another_reference(run):
    board = compare(run, reference="entropy").boards["data"]
    assert board["entropy"].verdict.startswith("the reference")


def sentence(function, *args, **kwargs):
    with pytest.raises(InvalidInput) as caught:
        function(*args, **kwargs)
    return str(caught.value)


def test_refusals(run):
    logits, y = simulated()
    table = table_of(logits, y)
    assert sentence(compare, run, reference="luck").startswith(
        "`reference` must be a method of every data set, got 'luck': choose one of softmax, "
    )
    assert sentence(compare, run, resamples=100) == (
        "`resamples` must be at least 880 to tell 22 methods apart, got 100: a p-value is never "
        "below 2 / (resamples + 1)"
    )
    assert sentence(compare, {"mine": []}) == (
        "`runs['mine']` must hold at least one run, got none: pass a table"
    )
    assert sentence(compare, [run_of(0), run_of(0, y_of=1)]) == (
        "`runs['data']` must be of the same points, got other labels in run 1 than in run 0: pass "
        "other data under another name"
    )
    right = ScoreTable({"softmax": table.kappa("softmax")}, table.labels, table.y_hat)
    assert sentence(compare, right) == (
        "`runs['data']` must have at least 4 wrong and 4 right points to compare methods, got 0 "
        "wrong of 600 in run 0: score more"
    )
    assert sentence(table.with_logits, logits[-1][:-1]) == (
        "`logits` must be (600, classes), as the table has 600 points, got shape (599, 4): pass "
        "the final snapshot's, of the same points"
    )
    assert sentence(table.with_logits, -logits[-1]) == (
        "`logits` must be those that the table's y_hat comes from, got others in more than 1 % of "
        "the rows: pass the final snapshot's, of the same points"
    )
    assert sentence(Run, table, others={"softmax": y / 4}) == (
        "`others` must have names that the table has not, got 'softmax': name it otherwise"
    )
    assert sentence(compare, {}) == (
        "`runs` must hold at least one data set, got none: pass a table"
    )
    assert sentence(compare, "scores") == (
        "`runs` must be score tables or runs, got str: open a folder by ScoreTable.open"
    )
    assert sentence(compare, run, seed=-1).startswith("`seed` must be")
    assert sentence(Run, table, others={"a": y / 4}, passes={"b": 2}) == (
        "`passes` must name scores of this run, got 'b': name some of softmax, entropy, a"
    )
    assert sentence(Run, table, kept={"b": 2}) == (
        "`kept` must name scores of this run, got 'b': name some of none"
    )
    assert sentence(Run, table, others={"a": y[:-1] / 4}) == (
        "`table` must have one value per point of `others['a']`, got 600 for 599: pass both from "
        "the same rows"
    )


@pytest.mark.parametrize("wrong", [4, 596])
def test_four_points_of_a_kind_are_enough(wrong):
    kappa = np.random.default_rng(0).random((2, 600))
    table = ScoreTable.from_kappa(kappa, np.arange(600) % 150 == 0)
    if wrong > 300:
        table = ScoreTable.from_kappa(kappa, ~table.errors)
    assert compare(table, methods=["final", "AES k=30"], resamples=80).resamples == 80
    fewer = ScoreTable.from_kappa(kappa[:, 1:], table.errors[1:])
    told = f"got {wrong - (wrong < 300)} wrong of 599 in run 0: score more"
    assert sentence(compare, fewer).endswith(told)


def test_resamples_that_can_just_tell_methods_apart(run):
    compare(run, methods=["final"], resamples=80)  # 2 κ: 2 · 2 / 0.05
    assert sentence(compare, run, methods=["final"], resamples=79).startswith(
        "`resamples` must be at least 80 to tell 2 methods apart, got 79"
    )


def test_boards_are_of_the_metric_asked_for(run):
    """To the last: order, gains, differences and p-values are AURC's where AURC is asked for."""
    board = compare(run, metric="aurc", resamples=1000).boards["data"]
    areas = [row.aurc for row in board.rows]
    assert (areas, board.measure) == (sorted(areas), "AURC")
    base = board["softmax"].aurc
    for row in board.rows:
        assert row.gain.estimate == pytest.approx(100 * (1 - row.aurc / base))
        assert row.difference.estimate == pytest.approx(row.aurc - base)
        assert row.difference.low <= row.difference.estimate <= row.difference.high
    same = compare(run, resamples=1000).boards["data"]
    assert [row.method for row in board.rows] != [row.method for row in same.rows]
    assert {row.method: row.eaurc for row in board.rows} == {
        row.method: row.eaurc for row in same.rows
    }
    assert sentence(compare, run, metric="accuracy") == (
        "`metric` must be one of eaurc, aurc, augrc, got 'accuracy': choose one"
    )


def test_what_it_takes_to_train_is_shown(tmp_path):
    logits, y = simulated()
    table = table_of(logits, y, logits=logits[-1])
    other = Run(table, others={"twin": (y % 3) / 3}, trainings={"twin": 2})
    assert other.rows(np.arange(400)).trainings == {"twin": 2}
    save({"a": [other]}, {}, tmp_path)
    (again,) = open_contest(tmp_path)["a"]
    assert again.trainings == {"twin": 2}
    board = compare(again, resamples=1000).boards["data"]
    assert (board["twin"].trainings, board["softmax"].trainings) == (2, 1)
    assert sentence(Run, table, trainings={"softmax": 2}) == (
        "`trainings` must name scores of this run, got 'softmax': name some of none"
    )


class Trap:
    """Leaves a file where it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def test_a_contest_is_opened_without_running_what_is_in_it(tmp_path, run):
    save({"a": [run]}, {}, tmp_path)
    path, mark = place(tmp_path, "a", 0), tmp_path / "has-run"
    with np.load(path) as file:
        arrays = {**file, "other.mean": np.array([Trap(mark)], dtype=object)}
    np.savez(path, **arrays)
    with pytest.raises(CorruptFile, match="must hold a whole contest, got one that cannot be read"):
        open_contest(tmp_path)
    assert not mark.exists()


def test_the_number_of_cores_changes_no_board(monkeypatch):
    runs = [run_of(0), run_of(1), run_of(2)]
    monkeypatch.setattr("snapsure.evaluation._contest.LONG", 1)  # or one thread takes all of them
    monkeypatch.setattr("snapsure.metrics._parallel._cores", lambda: 1)
    alone = compare(runs)
    monkeypatch.setattr("snapsure.metrics._parallel._cores", lambda: 8)
    assert compare(runs).as_dict() == alone.as_dict()
