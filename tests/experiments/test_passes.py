"""The study of few passes: its trainings, made small, and what is committed of it."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch import nn

from experiments import cifar10
from experiments.passes import __main__ as study
from experiments.passes import labels as study_of_labels
from experiments.passes import rivals as study_of_rivals
from experiments.passes import tasks, trainings
from experiments.passes.tasks import image_network
from experiments.passes.trainings import locate_training
from snapsure import compare
from snapsure.evaluation._archive import open_contest
from snapsure.paper import data
from snapsure.scoring._recorded import RecordedLogits
from tests.support.problem import CLASSES, points
from tests.support.tasks import make_small_task

pytestmark = pytest.mark.slow


def test_trained_kept_packed_and_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "make_task", make_small_task)
    out, packed = tmp_path / "runs", tmp_path / "packed"
    study.main(out, ["words"], seed=[0])
    files = sorted(out.rglob("training.json"))
    assert len(files) == 9
    before = [path.stat().st_mtime_ns for path in files]
    study.main(out, ["words"], seed=[0])
    assert [path.stat().st_mtime_ns for path in files] == before
    study.main(out, ["words"], packed=packed)  # of seed 1 nothing is trained: it is left out
    (run,) = open_contest(packed)["words"]
    about = json.loads((packed / "contest.json").read_text())
    assert [one["seed"] for one in about["trainings"]["words"]] == [0]
    study.main(tmp_path / "another machine", ["words"], seed=[1])
    study.main(tmp_path / "another machine", ["words"], packed=packed)  # adds what is new
    again, added = open_contest(packed)["words"]
    assert (again.table.y_hat == run.table.y_hat).all()
    assert (added.table.kappa("softmax") != run.table.kappa("softmax")).any()
    about = json.loads((packed / "contest.json").read_text())
    assert [one["seed"] for one in about["trainings"]["words"]] == [0, 1]
    assert run.table.epochs.tolist() == [2, 4, 6, 8, 10]
    old = "student, of the old answers"
    both, student = run.others[old], run.others["student"]
    assert (both.y_hat == run.table.y_hat).all()
    assert (both.passes, student.passes) == (2, 1)
    assert both.trainings == student.trainings == pytest.approx(2 + 4 / 30, abs=0.01)
    assert run.others["second network"].trainings == 1
    logits = np.load(out / "words" / "seed-0" / "student" / "logits.npy")
    assert (student.y_hat == logits.argmax(axis=1)).all()
    board = compare(run, metric="aurc").boards["data"]
    assert {"SAT", "CRL", "FMFP", "label smoothing", "second network"} <= {
        row.method for row in board.rows
    }


def test_the_study_of_labels_writes_what_is_finished(tmp_path, monkeypatch):
    monkeypatch.setattr(study_of_labels, "make_task", make_small_task)
    out, results = tmp_path / "runs", tmp_path / "results.json"
    study_of_labels.main(out, ["words"], seed=[0])
    study_of_labels.main(out, ["words"], results=results)  # of seeds 1 and 2 nothing is trained
    tasks = json.loads(results.read_text())["tasks"]
    assert [*tasks["words"]] == ["0"]
    found, y = tasks["words"]["0"], make_small_task().test[1].numpy()
    assert len(found) == 7
    for name in ("second network", "student 0.25"):
        old, p = (
            torch.from_numpy(np.load(locate_training(out / "words" / "seed-0", one) / "logits.npy"))
            .double()
            .softmax(dim=1)
            .numpy()
            for one in ("plain", name)
        )
        final, rows = old.argmax(axis=1), np.arange(len(y))
        assert found[name]["error"] == (p.argmax(axis=1) != y).mean()
        for kind, kappa, wrong in (
            ("aurc", p.max(axis=1), p.argmax(axis=1) != y),
            ("aurc_of_final", p[rows, final], final != y),
            ("aurc_beside_final", (p + old)[rows, final], final != y),
        ):
            order = np.argsort(-kappa)
            risks = np.cumsum(wrong[order]) / np.arange(1, len(y) + 1)
            assert found[name][kind] == pytest.approx(risks.mean())


def test_flat_gradients_are_those_at_the_worst_place_nearby():
    torch.manual_seed(0)
    model, (x, y) = nn.Linear(4, CLASSES), points(50)

    def cost():
        return nn.functional.cross_entropy(model(x), y)

    before = [weight.detach().clone() for weight in model.parameters()]
    first = torch.autograd.grad(cost(), [*model.parameters()])
    length = torch.cat([step.flatten() for step in first]).norm()
    moved = nn.Linear(4, CLASSES)
    for weight, start, step in zip(moved.parameters(), before, first, strict=True):
        weight.data = start + 0.05 * step / length
    wanted = torch.autograd.grad(nn.functional.cross_entropy(moved(x), y), [*moved.parameters()])
    trainings.set_flat_gradients(model, cost)
    for weight, start, gradient in zip(model.parameters(), before, wanted, strict=True):
        assert torch.allclose(weight.grad, gradient, atol=1e-6)
        assert torch.allclose(weight, start, atol=1e-6)
    assert not torch.allclose(model.weight.grad, first[0], atol=1e-4)


def test_parquet_of_the_packages_sprites_is_what_train_reads(tmp_path, monkeypatch):
    """Every pixel and label, in order, through the files that `snapsure train` takes."""
    from PIL import Image

    monkeypatch.setenv("SNAPSURE_CACHE", str(tmp_path / "cache"))
    pixels = np.random.default_rng(1).integers(0, 256, (12, 1024, 3)).astype(np.uint8)
    for i in range(cifar10.BATCHES):
        Image.fromarray(pixels[2 * i : 2 * i + 2]).save(tmp_path / f"data_batch_{i + 1}.png")
    Image.fromarray(pixels[10:]).save(tmp_path / "test_batch.png")
    (tmp_path / "train_lables.json").write_text(json.dumps([*range(10)]))
    (tmp_path / "test_lables.json").write_text(json.dumps([7, 3]))
    cifar10.main(tmp_path, tmp_path / "parquet")
    train, test = (data.load("cifar10", part, tmp_path / "parquet") for part in ("train", "test"))
    assert np.array_equal(train.pixels.numpy(), pixels[:10].reshape(10, 32, 32, 3))
    assert np.array_equal(test.pixels.numpy(), pixels[10:].reshape(2, 32, 32, 3))
    assert (train.labels.tolist(), test.labels.tolist()) == ([*range(10)], [7, 3])


def test_images_of_the_packages_sprites(tmp_path):
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (6, 1024, 3)).astype(np.uint8)
    for name, labels, rows in (
        ("data_batch_1.png", "train_lables.json", pixels),
        ("test_batch.png", "test_lables.json", pixels[:3]),
    ):
        Image.fromarray(rows).save(tmp_path / name)
        (tmp_path / labels).write_text(json.dumps([3, 1, 4, 1, 5, 9, 2, 6]))
    task = tasks.cifar10(tmp_path)
    assert task.train[0].shape == (6, 3, 32, 32)
    assert task.train[1].tolist() == [3, 1, 4, 1, 5, 9]
    assert task.test[1].tolist() == [3, 1, 4]
    shown = (task.train[0][2, :, 5, 7] + 1) * 128
    assert shown.tolist() == pixels[2, 5 * 32 + 7].tolist()
    assert image_network(10)(task.test[0]).shape == (3, 10)
    assert {*tasks._mirror(task.train[0]).flatten().tolist()} == {*task.train[0].flatten().tolist()}


def test_the_study_of_rivals_writes_what_is_finished(tmp_path, monkeypatch):
    monkeypatch.setattr(study_of_rivals, "make_task", make_small_task)
    out, results = tmp_path / "runs", tmp_path / "results.json"
    study_of_rivals.main(out, ["words"], seed=[0])
    study_of_rivals.main(out, ["words"], results=results)  # of seeds 1 and 2 nothing is trained
    tasks = json.loads(results.read_text())["tasks"]
    assert [*tasks["words"]] == ["0"]
    found, y = tasks["words"]["0"], make_small_task().test[1].numpy()
    assert [*found] == ["plain", "SAM", "EMA", "SWA", "FMFP", "RegMixup"]
    for way in ("SAM", "SWA"):
        folder = locate_training(out / "words" / "seed-0", f"rival {way}")
        p = torch.from_numpy(np.load(folder / "logits.npy")).double().softmax(dim=1).numpy()
        wrong = p.argmax(axis=1) != y
        risks = np.cumsum(wrong[np.argsort(-p.max(axis=1))]) / np.arange(1, len(y) + 1)
        assert found[way]["error"] == wrong.mean()
        assert found[way]["aurc"] == pytest.approx(risks.mean(), rel=1e-4)
        last = RecordedLogits(folder / "validation").epochs[-1]
        assert last == (11 if way == "SWA" else 10)  # the averaged network comes after the last


@pytest.mark.parametrize(
    ("epoch", "share"),
    [(1, 1), (51, 0.5), (101, 0), (121, (1 + np.cos(1.2 * np.pi)) / 2), (131, 0.5), (200, 0.5)],
)
def test_averaged_weights_are_trained_by_the_schedule_of_fmfps_authors(epoch, share):
    task = dataclasses.replace(make_small_task(), epochs=200)
    optimizer = trainings.make_optimizer([nn.Parameter(torch.zeros(1))], task)
    study_of_rivals.set_rate(optimizer, task, study_of_rivals.Rival("SWA", average="late"), epoch)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05 * share, abs=1e-12)
