"""The contest's own trainings, made small; its archive; and the study that is committed."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments import les_features
from experiments.contest import ensembles
from experiments.contest import trainings as contest
from experiments.contest.runs import (
    EMBEDDED,
    MEAN,
    WEIGHTS,
    drop_logits,
    embed,
    make_run,
    predict_from_embedding,
)
from snapsure import LES, ScoreTable, compare, eaurc
from snapsure.estimators._error_predictor import ErrorPredictor
from snapsure.estimators._logits import top_log_odds
from snapsure.evaluation._archive import locate_run, open_contest, pack, write_manifest
from snapsure.evaluation._protocol import Halves
from snapsure.evaluation._run import Run
from tests.support.runs import run_of, save_runs

pytestmark = pytest.mark.slow

OF_LOGITS_NAMES = [
    "temperature by NLL",
    "temperature by AURC",
    "MaxLogit-pNorm",
    "error predictor",
]


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
    assert contest._move(images).shape == images.shape
    letters = torch.randint(1, 30, (200, contest.LETTERS))
    hidden = contest._hide(letters)
    assert 0.05 < (hidden == 0).float().mean() < 0.15
    assert torch.equal(hidden[hidden > 0], letters[hidden > 0])
    assert contest.make_words_network(31)(letters).shape == (200, len(contest.LANGUAGES))


def test_trained_scored_packed_and_compared(package, monkeypatch, tmp_path):
    small(monkeypatch)
    task = contest.clothes(package)
    (training,) = contest.train_all(task, contest.VARIANTS[1], tmp_path / "runs")
    found = json.loads((training.folder / "training.json").read_text())
    assert found["recipe"] == {"name": "strong", "augmented": True, "weight_decay": 5e-4}
    before = (training.folder / "training.json").stat().st_mtime_ns
    contest.train_all(task, contest.VARIANTS[1], tmp_path / "runs")
    assert (training.folder / "training.json").stat().st_mtime_ns == before  # it is kept

    run = make_run(training, every=2, points=60)
    assert run.table.epochs.tolist() == [2, 4]
    assert run.table.labels.shape == (2, 60)
    dropped = ["mc_dropout", "mc_dropout_variance"]
    assert list(run.others) == ["deep_knn", "nn_distance", *dropped, MEAN, WEIGHTS]
    assert run.others[MEAN].passes == run.others[MEAN].kept == 2
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
    p = predict_from_embedding(table, embedding)
    learn, rest = Halves().parts(p.size)[0]
    known = ErrorPredictor().fit(table.rows(learn)).confidence(table.rows(rest))
    assert eaurc(p[rest], table.errors[rest]) < 0.02 < eaurc(known, table.errors[rest]) / 2


def test_no_point_is_judged_by_its_own_label():
    table, embedding = doubted()
    before = predict_from_embedding(table, embedding)
    _, half = Halves().parts(before.size)[0]
    table.y[half] = np.roll(table.y_hat[half], 1)
    after = predict_from_embedding(table, embedding)
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
    pack(drop_logits(run, embedding), locate_run(tmp_path, "all", 0))
    write_manifest({"inside": 1, "all": 1}, {"known": {"inside": "all"}}, tmp_path)
    found = open_contest(tmp_path)
    for (one,), whole, seen in (
        (found["all"], run, embedding),
        (found["inside"], inside, embedding[table.y != -1]),
    ):
        assert one.table.logits is None
        assert {*one.others} == {*OF_LOGITS_NAMES, EMBEDDED}
        assert np.allclose(
            one.others[EMBEDDED][0], predict_from_embedding(whole.table, seen), atol=2e-3
        )
        ours, theirs = (
            compare(each, methods=("final", *OF_LOGITS_NAMES), resamples=400)
            for each in (one, whole)
        )
        for name in OF_LOGITS_NAMES:
            rows = [each[name] for each in (ours, theirs)]
            assert rows[0].eaurc == pytest.approx(rows[1].eaurc, rel=5e-3)
            assert (rows[0].passes, rows[0].snapshots) == (rows[1].passes, rows[1].snapshots)


def test_an_embedding_is_what_the_last_linear_layer_sees():
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        *(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(4, 3))
    )
    x = torch.rand(700, 5)
    found = embed(network, x)
    assert np.allclose(found, network[:2](x).detach().numpy(), atol=1e-6)
    assert not network[-1]._forward_pre_hooks


def test_an_archive_gives_the_same_boards(tmp_path):
    runs = {"a": [run_of(0), run_of(1)], "b": [run_of(2, y_of=3)]}
    save_runs(runs, {"note": 1}, tmp_path)
    again = open_contest(tmp_path)
    assert {name: len(some) for name, some in again.items()} == {"a": 2, "b": 1}
    ours, theirs = compare(runs), compare(again)
    assert {row.method for row in ours.pooled.rows} == {row.method for row in theirs.pooled.rows}
    for row in ours.pooled.rows:
        if row.method.startswith(("PES", "best snapshot", "LES (")):
            continue  # of snapshots that are nearly as good, rounding may choose another
        other = theirs.pooled[row.method, row.kappa]
        assert other.eaurc == pytest.approx(row.eaurc, rel=5e-3)
        assert (other.passes, other.snapshots, other.bytes) == (
            row.passes,
            row.snapshots,
            row.bytes,
        )


def test_points_of_none_of_the_classes_are_archived(tmp_path):
    run = run_of(0)
    run.table.y[::5] = -1
    save_runs({"a": [run]}, {}, tmp_path)
    (again,) = open_contest(tmp_path)["a"]
    assert (again.y == run.y).all()


def test_a_board_may_be_another_without_the_points_of_no_class(tmp_path):
    run = run_of(0)
    run.table.y[::5] = -1
    pack(run, locate_run(tmp_path, "all", 0))
    write_manifest({"inside": 1, "all": 1}, {"known": {"inside": "all"}}, tmp_path)
    found = open_contest(tmp_path)
    assert list(found) == ["inside", "all"]
    (inside,), (everything,) = found.values()
    known = everything.y != -1
    assert 0 < known.sum() < known.size
    assert (inside.y == everything.y[known]).all()
    assert (inside.table.kappa("softmax") == everything.table.kappa("softmax")[:, known]).all()


def test_scores_are_called_as_the_archive_says(tmp_path):
    run = run_of(0)
    save_runs({"a": [run]}, {"renamed": {"mean": "mixture", "softmax": "response"}}, tmp_path)
    (again,) = open_contest(tmp_path)["a"]
    assert again.table.names == ["response", *run.table.names[1:]]
    assert list(again.others) == ["mixture", "coin"]
    mixture = again.others["mixture"]
    assert (mixture.passes, mixture.kept) == (8, 8)
    assert np.allclose(mixture.kappa, run.others["mean"].kappa, rtol=1e-2)


def test_a_curve_learns_from_so_many_errors_and_at_most_half_of_the_examples():
    run = run_of(0, n=1200)
    rows = les_features.measure_curve(run)
    most = int(run.table.errors.sum())
    assert {row["errors"] for row in rows} <= {
        count for count in les_features.ERRORS if count < most
    }
    assert {(row["name"], row["errors"]) for row in rows} >= {
        (name, 30) for name in les_features.METHODS
    }
    summary = les_features.summarize([row for row in rows if row["name"] == "LES"])
    gains = [row["gain"] for row in rows if row["name"] == "LES"]
    assert summary["draws"] == len(gains)
    assert summary["worst"] == pytest.approx(min(gains), abs=0.01)


def test_the_study_fits_what_the_package_does():
    run = run_of(1, n=1200)
    order = np.random.default_rng(0).permutation(1200)
    learn, rest = np.sort(order[:600]), np.sort(order[600:])
    table = run.table
    for passes in (20, 2):
        variant = replace(les_features.CHOSEN, passes=passes)
        odds = les_features.fit_and_score(run, learn, rest, variant)
        confidence = LES(passes=passes).fit(table.rows(learn)).confidence(table.rows(rest))
        assert eaurc(odds, table.errors[rest]) == pytest.approx(
            eaurc(confidence, table.errors[rest]), rel=0.02
        )


def test_an_ensemble_answers_by_the_mean_of_all_softmaxes(tmp_path):
    runs = [run_of(seed) for seed in range(ensembles.MEMBERS)]
    save_runs({"a": runs}, {}, tmp_path)
    runs = open_contest(tmp_path)["a"]
    ensembles.main(tmp_path)

    powers = np.exp([run.table.logits for run in runs])
    mean = (powers / powers.sum(axis=2, keepdims=True)).mean(axis=0)
    for made in open_contest(tmp_path)["a"]:
        kappa, y_hat, *cost = made.others[ensembles.FIVE]
        assert (y_hat == mean.argmax(axis=1)).all()
        assert np.allclose(kappa, mean.max(axis=1), rtol=2e-3)
        assert cost == [5, 5, 5]
        assert made.others["mean"].passes == 8
