"""Wrong labels in training: which are wrong, and the study made small."""

import json
from dataclasses import replace

import pytest
import torch
import wordfreq
from torch import nn

from experiments.contest import labels as study
from experiments.contest import trainings as contest
from experiments.contest.runs import MEAN, WEIGHTS
from snapsure import compare
from snapsure.evaluation._archive import open_contest
from tests.support.problem import CLASSES
from tests.support.tasks import make_small_task

pytestmark = pytest.mark.slow


def test_a_fifth_has_another_class_and_the_same_every_time():
    labels = torch.arange(1000) % 10
    changed = study.mislabel(labels, 10)
    wrong = changed != labels
    assert int(wrong.sum()) == 200
    assert changed.min() >= 0
    assert changed.max() <= 9
    moved = ((changed - labels) % 10)[wrong]
    assert {*moved.tolist()} == {*range(1, 10)}
    assert torch.equal(changed, study.mislabel(labels, 10))


def network():
    layers = [nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(16, CLASSES))


LISTS = {
    "one": {"alpha": 0.5, "beta": 0.3, "gamma": 0.2, "is": 0.9, "delta": 0.1},
    "two": {"alpha": 0.004, "beta": 0.003, "epsilon": 0.4, "gamma": 0.25},
    "three": {"gamma": 0.01, "beta": 0.002},
}


@pytest.fixture
def languages(monkeypatch):
    monkeypatch.setattr(contest, "LANGUAGES", tuple(LISTS))
    monkeypatch.setattr(wordfreq, "get_frequency_dict", LISTS.__getitem__)


def test_ambiguous_is_a_word_with_a_hundredth_of_its_frequency_elsewhere(languages):
    known = contest.read_frequencies()
    assert "is" not in known  # too short
    assert known["gamma"] == [(0.25, 1), (0.2, 0), (0.01, 2)]
    found = {word for word, some in known.items() if contest.is_ambiguous(some)}
    assert found == {"beta", "gamma"}  # alpha: 0.004 of 0.5


@pytest.mark.parametrize(("train", "moved"), [(5, [(0, 1), (1, 0)]), (0, [])])
def test_words_are_wrong_in_training_alone(languages, monkeypatch, train, moved):
    """All five in training: beta is taken for the second language, gamma for the first."""
    monkeypatch.setattr(contest, "TRAIN", train)
    monkeypatch.setattr(contest, "TEST", 5 - train)
    right, wrong = contest.words(), contest.words(second=True)
    assert (right.name, wrong.name) == ("words", "words-second")
    assert torch.equal(right.train[0], wrong.train[0])
    assert torch.equal(right.test[1], wrong.test[1])
    assert len(right.test[1]) == 5 - train
    pairs = zip(right.train[1].tolist(), wrong.train[1].tolist(), strict=True)
    assert sorted(pair for pair in pairs if pair[0] != pair[1]) == moved


def test_trained_kept_packed_and_compared(tmp_path, monkeypatch):
    dropping = replace(make_small_task(), network=network)
    monkeypatch.setattr(study, "make_task", lambda name, packages: dropping)
    monkeypatch.setattr(study, "EXAMPLES", 150)
    out, packed = tmp_path / "runs", tmp_path / "packed"
    study.main(out, ["words-second"])
    files = sorted(out.rglob("training.json"))
    assert len(files) == 2
    before = [path.stat().st_mtime_ns for path in files]
    study.main(out, ["words-second"])
    assert [path.stat().st_mtime_ns for path in files] == before
    study.main(out, ["words-second"], packed=packed)
    about = json.loads((packed / "contest.json").read_text())
    assert about["runs"] == {"words-second": 2}
    assert [one["training_accuracy"] for one in about["trainings"]["words-second"]] == [
        json.loads(path.read_text())["training_accuracy"] for path in files
    ]
    runs = open_contest(packed)
    assert runs["words-second"][0].table.labels.shape == (5, 150)
    wanted = {"gen", "doctor", "nn_distance", MEAN, WEIGHTS, "AES", "LES"}
    assert wanted < {row.method for row in compare(runs).boards["words-second"].rows}
