"""The contest's own trainings, made small; its archive; and the study that is committed."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments import learning_curve
from experiments.contest import trainings as contest
from experiments.contest.runs import (
    EMBEDDED,
    MEAN,
    WEIGHTS,
    embedded,
    from_embedding,
    make_run,
    without_logits,
)
from snapsure import AES, Predictor, ScoreTable, compare, eaurc
from snapsure.cli import fit as commands
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.estimators._logits import top_log_odds
from snapsure.evaluation._archive import finish, open_contest, pack, place, save
from snapsure.evaluation._error_predictor import ErrorPredictor
from snapsure.evaluation._methods import OF_LOGITS
from snapsure.evaluation._protocol import Halves
from snapsure.evaluation._run import Run
from snapsure.paper.tables import published
from tests.evaluation.test_compare import run_of
from tools import choice_tables, choices, contest_tables

OF_LOGITS_NAMES = [method.name for method in OF_LOGITS]


@pytest.fixture
def package(tmp_path):
    """The npm package's layout, with random pixels and one of its empty rows."""
    folder = tmp_path / "package" / "src" / "clothes"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for label in range(10):
        rows = rng.integers(0, 255, (30, 784))
        rows[:, label * 70 : label * 70 + 70] = 255
        (folder / f"{label}.json").write_text(json.dumps({"data": [*rows.tolist(), []]}))
    return tmp_path / "package"


def small(monkeypatch):
    for name, value in {"TRAIN": 200, "TEST": 80, "EPOCHS": 4, "SEEDS": range(1)}.items():
        monkeypatch.setattr(contest, name, value)


def test_clothes_are_read_and_divided_the_same_every_time(package, monkeypatch):
    small(monkeypatch)
    one, two = contest.clothes(package), contest.clothes(package)
    assert one.train[0].shape == (200, 1, 28, 28)
    assert one.test[0].shape == (80, 1, 28, 28)
    assert torch.equal(one.train[0], two.train[0])
    assert one.train[0].max() == 1
    rows = {row.numpy().tobytes() for row in (*one.train[0], *one.test[0])}
    assert len(rows) == 280  # no point is in both parts


def test_augmentation_keeps_shape_and_letters(monkeypatch):
    torch.manual_seed(0)
    images = torch.rand(10, 1, 28, 28)
    assert contest._moved(images).shape == images.shape
    letters = torch.randint(1, 30, (200, contest.LETTERS))
    hidden = contest._hidden(letters)
    assert 0.05 < (hidden == 0).float().mean() < 0.15
    assert torch.equal(hidden[hidden > 0], letters[hidden > 0])
    assert contest.words_network(31)(letters).shape == (200, len(contest.LANGUAGES))


@pytest.mark.slow
def test_trained_scored_packed_and_compared(package, monkeypatch, tmp_path):
    small(monkeypatch)
    task = contest.clothes(package)
    (training,) = contest.trainings(task, contest.VARIANTS[1], tmp_path / "runs")
    told = json.loads((training.folder / "training.json").read_text())
    assert told["recipe"] == {"name": "strong", "augmented": True, "weight_decay": 5e-4}
    before = (training.folder / "training.json").stat().st_mtime_ns
    contest.trainings(task, contest.VARIANTS[1], tmp_path / "runs")
    assert (training.folder / "training.json").stat().st_mtime_ns == before  # it is kept

    run = make_run(training, every=2, points=60)
    assert run.table.epochs.tolist() == [2, 4]
    assert run.table.labels.shape == (2, 60)
    dropped = ["mc_dropout", "mc_dropout_variance"]
    assert list(run.others) == ["deep_knn", "nn_distance", *dropped, MEAN, WEIGHTS]
    assert run.passes[MEAN] == run.kept[MEAN] == 2
    final = torch.from_numpy(run.table.logits).softmax(dim=1).amax(dim=1).numpy()
    assert np.allclose(run.table.kappa("softmax")[-1], final, rtol=0, atol=1e-6)


def doubted(n=800):
    """Logits that say nothing of the errors, and an embedding whose second number does."""
    rng = np.random.default_rng(0)
    logits, embedding = rng.normal(size=(n, 3)), rng.normal(size=(n, 4))
    y_hat = logits.argmax(axis=1)
    y = np.where(embedding[:, 1] > 0.5, (y_hat + 1) % 3, y_hat)
    return ScoreTable({"softmax": rng.random((2, n))}, [y_hat] * 2, y, logits=logits), embedding


def test_an_embedding_tells_where_logits_do_not():
    table, embedding = doubted()
    p = from_embedding(table, embedding)
    learn, rest = Halves().parts(p.size)[0]
    known = ErrorPredictor().fit(table.rows(learn)).confidence(table.rows(rest))
    assert eaurc(p[rest], table.errors[rest]) < 0.02 < eaurc(known, table.errors[rest]) / 2


def test_no_point_is_judged_by_its_own_label():
    table, embedding = doubted()
    before = from_embedding(table, embedding)
    _, half = Halves().parts(before.size)[0]
    table.y[half] = np.roll(table.y_hat[half], 1)
    after = from_embedding(table, embedding)
    assert np.array_equal(after[half], before[half])
    rest = np.setdiff1d(np.arange(before.size), half)
    assert not np.array_equal(after[rest], before[rest])


def test_answers_stand_in_for_logits(tmp_path):
    """By the same halves, so that boards are the same; those without −1 have learnt without it."""
    table, embedding = doubted()
    unsure = top_log_odds(table.logits) < 0
    table.y[unsure] = (table.y_hat[unsure] + 1) % 3
    table.y[::7] = -1
    run = Run(table)
    inside = run.rows(np.flatnonzero(table.y != -1))
    pack(without_logits(run, embedding), place(tmp_path, "all", 0))
    finish({"inside": 1, "all": 1}, {"known": {"inside": "all"}}, tmp_path)
    found = open_contest(tmp_path)
    for (one,), whole, seen in (
        (found["all"], run, embedding),
        (found["inside"], inside, embedding[table.y != -1]),
    ):
        assert one.table.logits is None
        assert {*one.others} == {*OF_LOGITS_NAMES, EMBEDDED}
        assert np.allclose(one.others[EMBEDDED][0], from_embedding(whole.table, seen), atol=2e-3)
        ours, theirs = (
            compare(each, methods=("final", "rival"), resamples=400) for each in (one, whole)
        )
        for name in OF_LOGITS_NAMES:
            rows = [each.boards["data"][name] for each in (ours, theirs)]
            assert rows[0].eaurc == pytest.approx(rows[1].eaurc, rel=5e-3)
            assert (rows[0].passes, rows[0].snapshots) == (rows[1].passes, rows[1].snapshots)


def test_an_embedding_is_what_the_last_linear_layer_sees():
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        *(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(4, 3))
    )
    x = torch.rand(700, 5)
    found = embedded(network, x)
    assert np.allclose(found, network[:2](x).detach().numpy(), atol=1e-6)
    assert not network[-1]._forward_pre_hooks


@pytest.mark.slow
def test_an_archive_gives_the_same_boards(tmp_path):
    runs = {"a": [run_of(0), run_of(1)], "b": [run_of(2, y_of=3)]}
    save(runs, {"note": 1}, tmp_path)
    again = open_contest(tmp_path)
    assert {name: len(some) for name, some in again.items()} == {"a": 2, "b": 1}
    ours, theirs = compare(runs), compare(again)
    assert {row.method for row in ours.pooled.rows} == {row.method for row in theirs.pooled.rows}
    for row in ours.pooled.rows:
        if row.method.startswith(("PES", "best snapshot", "LES in")):
            continue  # of snapshots that are nearly as good, rounding may choose another
        other = theirs.pooled[row.method]
        assert other.eaurc == pytest.approx(row.eaurc, rel=5e-3)
        assert (other.passes, other.snapshots, other.bytes) == (
            row.passes,
            row.snapshots,
            row.bytes,
        )


def test_points_of_none_of_the_classes_are_archived(tmp_path):
    run = run_of(0)
    run.table.y[::5] = -1
    save({"a": [run]}, {}, tmp_path)
    (again,) = open_contest(tmp_path)["a"]
    assert (again.y == run.y).all()


def test_a_board_may_be_another_without_the_points_of_no_class(tmp_path):
    run = run_of(0)
    run.table.y[::5] = -1
    pack(run, place(tmp_path, "all", 0))
    finish({"inside": 1, "all": 1}, {"known": {"inside": "all"}}, tmp_path)
    found = open_contest(tmp_path)
    assert list(found) == ["inside", "all"]
    (inside,), (everything,) = found.values()
    known = everything.y != -1
    assert 0 < known.sum() < known.size
    assert (inside.y == everything.y[known]).all()
    assert (inside.table.kappa("softmax") == everything.table.kappa("softmax")[:, known]).all()


def test_scores_are_called_as_the_archive_says(tmp_path):
    run = run_of(0)
    save({"a": [run]}, {"renamed": {"mean": "mixture", "softmax": "response"}}, tmp_path)
    (again,) = open_contest(tmp_path)["a"]
    assert again.table.names == ["response", *run.table.names[1:]]
    assert list(again.others) == ["mixture", "coin"]
    assert (again.passes["mixture"], again.kept["mixture"]) == (8, 8)
    assert np.allclose(again.others["mixture"][0], run.others["mean"][0], rtol=1e-2)


def test_what_is_no_archive_is_told(tmp_path):
    with pytest.raises(InvalidInput) as caught:
        open_contest(tmp_path)
    assert str(caught.value) == (
        f"--from must be a folder with contest.json, got none in {tmp_path}: check the path"
    )
    save({"a": [run_of(0)]}, {}, tmp_path)
    (tmp_path / "a" / "seed-0.npz").unlink()
    with pytest.raises(CorruptFile, match=r"seed-0\.npz must be as it was written, got one that"):
        open_contest(tmp_path)


ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def study():
    return compare(open_contest(ROOT / "results" / "contest"))


@pytest.mark.slow
def test_the_page_says_what_the_study_found(study):
    """Every number of the page's table, which are bold, and what is said of the whole boards."""
    text, boards = contest_tables.PAGE.read_text(), study.every
    assert contest_tables.replaced(text, contest_tables.table(study)) == text

    order = [row.method for row in study.pooled.rows]
    assert (len(order), study.pooled.runs, study.resamples) == (41, 25, 2000)
    few = [f"LES in {passes} passes of softmax" for passes in (4, 3, 2)]
    ahead = order[: order.index("AES of softmax")]
    assert order[:3] == ["LES of softmax", *few[:2]]
    others = {"LES of margin", "LES of doctor", "LES of all κ"}
    assert {*ahead} == {"LES of softmax", *few, *others}
    free = [row for row in study.pooled.rows if row.passes == 1 and row.method != "softmax"]
    learning = ("MaxLogit-pNorm", "error predictor", "temperature by AURC", "temperature by NLL")
    for row in free:
        told = [board[row.method] for board in boards if board[row.method].p_holm < 0.05]
        assert row.method in learning or all(one.gain.estimate < 0 for one in told)
    for board in study.boards.values():
        assert board.rows[0].method == "LES of softmax"
        assert board["AES of softmax"].gain.estimate > 0
        assert board["mean weights"].p_holm >= 0.05
        if board.name != "cifar100":
            assert min(board[f"{kind} of softmax"].p_holm for kind in ("AES", "LES")) >= 0.05
    predicted = {board.name: board["error predictor"] for board in study.boards.values()}
    assert {name for name, row in predicted.items() if row.p_holm < 0.05} == {"cifar100"}
    assert predicted["cifar100"].gain.low > 0
    for method in ("max_logit", "energy", "gen", "deep_knn"):
        assert study.pooled[method].p_holm < 0.05
        assert study.pooled[method].gain.high < 0
    errors = [f"{study.pooled[name].error:.1%}" for name in ("mean weights", "softmax")]
    assert errors == ["26.5%", "27.0%"]
    assert study.pooled["mean weights"].aurc < study.pooled["softmax"].aurc
    logs = {board.name: -np.log1p(-board.rows[0].gain.estimate / 100) for board in boards[1:]}
    assert logs["cifar100"] / sum(logs.values()) == pytest.approx(0.5, abs=0.05)


@pytest.mark.slow
def test_the_page_says_what_became_of_pes(study):
    pes, letter, plain = (
        [board[f"{name} of softmax"] for board in (study.pooled, *study.boards.values())]
        for name in ("PES", "PES to the letter", "best snapshot")
    )
    assert [row.gain.estimate > 0 for row in letter[1:]] == [False] * 4 + [True]
    for one, other in zip(pes, letter, strict=True):
        assert one.eaurc < other.eaurc
        assert min(one.p_holm, other.p_holm) >= 0.05
    assert plain[0].gain.estimate > pes[0].gain.estimate
    assert sum(a.eaurc < b.eaurc for a, b in zip(plain[1:], pes[1:], strict=True)) == 3


def test_the_study_is_small_and_whole():
    files = list((ROOT / "results" / "contest").rglob("*.*"))
    assert sum(path.stat().st_size for path in files) < 15e6
    about = json.loads((ROOT / "results" / "contest" / "contest.json").read_text())
    assert about["runs"] == dict.fromkeys(
        ["words-weak", "words-strong", "clothes-weak", "clothes-strong", "cifar100"], 5
    )
    for name, some in about["trainings"].items():
        assert [one["seed"] for one in some] == list(range(5)), name


@pytest.fixture(scope="module")
def found():
    return choices.tasks()


@pytest.mark.slow
def test_tables_over_every_study_say_what_is_committed(found):
    """All of them: `python -m tools.choice_tables` writes them anew."""
    text = contest_tables.PAGE.read_text()
    assert choice_tables.page(text, found) == text


@pytest.mark.slow
def test_odds_of_aes_are_said_wherever_it_is_called_a_bet(found):
    said = f"better than the final snapshot in {choice_tables.odds(found, choices.AES)} trainings"
    for told in (Predictor.fit.__doc__, commands.fit.__doc__):
        assert said in " ".join(told.split())
    odds = choice_tables.odds(found, choices.AES)
    assert f"better than the final κ in {odds} trainings" in " ".join(AES.__doc__.split())
    assert f"better in {odds} trainings" in (ROOT / "README.md").read_text()
    page = " ".join(contest_tables.PAGE.read_text().split())
    assert f"better than the final softmax in {odds} trainings" in page
    right = np.concatenate([task.right for task in found])
    better = np.concatenate([task.gains(choices.AES) for task in found]) > 0
    few, many = better[right < 0.925], better[right >= 0.925]
    assert f"Of the {len(few)} trainings that are less than 92.5 %" in page
    assert f"better in {sum(few)}; of the {len(many)} others in {sum(many)}" in page
    lost = [task.name for task in found for gain in task.gains(choices.AES) if gain < 0]
    assert sum("clothes" in name for name in lost) == 6  # "six of the others are of clothes …
    assert [name for name in lost if "clothes" not in name] == ["intents/intents"]  # … one is"


@pytest.mark.slow
def test_the_page_says_what_ensembles_and_gen_came_to(found):
    five = [task for task in found if choices.FIVE in task.ways]
    assert [task.name for task in five] == [task.name for task in found if len(task.right) == 5]
    assert all(min(task.gains(choices.FIVE)) > 0 for task in five)
    both = [task for task in five if choice_tables.BOTH in task.ways]
    assert len(both) == 2
    assert all(task.gain(choice_tables.BOTH) > task.gain(choices.FIVE) / 2 for task in both)
    for task in five:
        ways = {*choice_tables.COLUMNS.values()} & {*task.ways}
        assert max(ways, key=task.gain) == choices.FIVE
    assert all(task.gain("gen") < 0 for task in found)


@pytest.mark.slow
def test_the_page_says_where_les_lost_most(found):
    page = " ".join(contest_tables.PAGE.read_text().split())
    worst = min(found, key=lambda task: min(task.gains(choices.LES)))
    lost = -min(worst.gains(choices.LES))
    assert sum(gain < 0 for gain in worst.gains(choices.LES)) == 1
    assert f"LES lost {lost:.0f} % on one of three networks of {worst.name}" in page


@pytest.mark.slow
def test_the_page_says_what_error_predictors_came_to(found):
    page = " ".join(contest_tables.PAGE.read_text().split())
    odds = choice_tables.odds(found, "error predictor")
    assert f"It is better in {odds} trainings" in page
    tried = [task for task in found if choices.EMBEDDED in task.ways]
    gains = np.concatenate([task.gains(choices.EMBEDDED) for task in tried])
    assert gains.max() < 0
    assert f"worse than the softmax in each of {gains.size} trainings" in page


@pytest.mark.slow
def test_the_page_says_what_ties_do_to_sptd(found):
    middle = f"SPTD, k = {choices.POWERS[1]}"
    page = contest_tables.PAGE.read_text()
    behind, tuned = [], []
    for task in found:
        ratio = task.mean(choices.UNTIED, "eaurc") / task.mean(choices.FINAL, "eaurc")
        lost = 100 * (task.accuracy(choices.FINAL) - task.accuracy(middle))
        behind.append(lost[1:].max())
        if task.name.startswith("intents/"):
            tuned.append(f"{100 * (ratio - 1):.0f}")
        elif task.name in ("contest/cifar100", "labels/cifar10-wrong"):
            assert ratio < 1
        else:
            assert 1.025 < ratio < 1.235  # "3 to 23 % above"
        if task.name == "labels/cifar10-wrong":
            tied = task.mean(middle, "eaurc") / task.mean(choices.FINAL, "eaurc")
            assert 0.795 < tied < 0.805  # "20 % below, with its ties"
        if "words" in task.name or "clothes" in task.name:
            assert np.mean(task.undoubted) > 0.48  # "about half of the points or more"
            assert 1.5 < lost[0] < 4  # "2 to 4 points behind"
    assert f"at most {max(behind):.1f} points behind the softmax" in page
    assert f"on the transformers {' and '.join(tuned)} %" in page


def test_an_ensemble_answers_by_the_mean_of_all_softmaxes():
    runs = [run_of(seed) for seed in range(choices.MEMBERS)]
    beside = choices.beside_ensemble(runs)
    powers = np.exp([run.table.logits for run in runs])
    mean = (powers / powers.sum(axis=2, keepdims=True)).mean(axis=0)
    for run, made in zip(runs, beside, strict=True):
        kappa, y_hat = made.others[choices.FIVE]
        assert (y_hat == mean.argmax(axis=1)).all()
        assert np.allclose(kappa, mean.max(axis=1), rtol=1e-12)
        prices = (made.passes, made.kept, made.trainings)
        assert [price[choices.FIVE] for price in prices] == [5, 5, 5]
        assert made.table is run.table
        assert made.passes["mean"] == 8
    assert choices.FIVE not in choices.task("few", [1.0] * 2, runs[:2]).ways


@pytest.mark.slow
def test_gains_are_the_comparisons(found, study):
    """Without resamples, the same numbers as `compare` has."""
    for task in found:
        where, name = task.name.split("/")
        if where == "contest":
            for way in (choices.LES, "error predictor", "mean weights"):
                assert task.mean(way, "eaurc") == pytest.approx(study.boards[name][way].eaurc)


def test_the_learning_curve_is_told_as_it_came_out():
    told = json.loads(choice_tables.CURVE.read_text())["tasks"]
    page = " ".join(contest_tables.PAGE.read_text().split())

    def worse(task, rule, labels):
        rows = [row for row in told[task] if (row["rule"], row["labels"]) == (rule, labels)]
        return max(row["worse"] / row["draws"] for row in rows)

    def both(method, what, *labels):
        """How often now, and before."""
        return tuple(
            sum(
                row[what]
                for rows in told.values()
                for row in rows
                if (row["method"], row["rule"]) == (method, rule) and row["labels"] in labels
            )
            for rule in ("now", "before")
        )

    few, many, short = (100,), (300, 1000, 3000), "LES in 3 passes"
    assert len(told) == 9
    assert (
        "Over all nine tasks, with 300 labels or more: LES is significantly worse than the final "
        "softmax in {} of {:,} draws, {} before, and significantly better in {:,}, {:,} before; in "
        "three passes worse in {}, {} before, and better in {:,}, {:,} before. With 100 labels: "
        "worse in {} of {}, {} before; in three passes in {}, {} before."
    ).format(
        both("LES", "worse", *many)[0],
        both("LES", "draws", *many)[0],
        both("LES", "worse", *many)[1],
        *both("LES", "better", *many),
        *both(short, "worse", *many),
        *both(short, "better", *many),
        both("LES", "worse", *few)[0],
        both("LES", "draws", *few)[0],
        both("LES", "worse", *few)[1],
        *both(short, "worse", *few),
    ) in page
    clothes, words = "passes/clothes", "passes/words"
    for labels in (300, 1000):
        assert worse(clothes, "before", labels) == pytest.approx(0.2, abs=0.02)  # "a fifth"
        assert worse(clothes, "now", labels) <= 0.05
    assert "now in at most 5 of 100" in page
    assert worse(clothes, "now", 3000) == 0
    for row in told[words]:
        if row["method"] == "LES" and row["labels"] >= 300:
            assert row["better"] == row["draws"]


def test_a_curve_has_a_row_for_every_draw_method_and_rule():
    rows = learning_curve.curve(run_of(0, n=1200), range(2))
    asked = {(row["labels"], row["draw"], row["method"], row["rule"]) for row in rows}
    assert len(asked) == len(rows) == 2 * len(learning_curve.METHODS) * len(learning_curve.RULES)
    assert {row["labels"] for row in rows} == {100}  # of more, too few would be left to judge
    for row in learning_curve._together([rows, rows]):
        some = [one for one in rows if (one["method"], one["rule"]) == (row["method"], row["rule"])]
        assert row["draws"] == 2 * len(some)
        assert row["worst"] == pytest.approx(min(one["gain"] for one in some), abs=0.01)
        assert row["worse"] == 2 * sum(one["high"] < 0 for one in some)


def test_the_published_numbers_are_the_papers():
    page, paper = contest_tables.PAGE.read_text(), published()
    for name, title in (("cifar100", "CIFAR-100"), ("cifar10", "CIFAR-10")):
        theirs = paper["table1_aes"][name]["softmax"]
        others = paper["table1_independent"][name]["softmax"]
        for row, k in ((theirs, "k30"), (others, "k10")):
            less = f"{100 * (1 - row[k] / row['baseline']):.1f} %".replace("-", "−")
            cells = f"| {row['baseline']:.2f} | {row[k]:.2f} | {less} |"
            assert any(title + " |" in line and cells in line for line in page.splitlines())
    for folder in ("cifar100-cpu", "cifar100-cpu-full", "cifar10-cpu-full"):
        first, third = (
            json.loads((ROOT / "results" / folder / f"table{i}.json").read_text()) for i in (1, 3)
        )
        final, aes = (1e3 * first["softmax"][kind]["eaurc"] for kind in ("final", "k30"))
        cells = f"| {final:.2f} | {aes:.2f} | {100 * (1 - aes / final):.1f} % |"
        assert f"{cells} LES {third['les']['gain']:+.1f} %" in page
