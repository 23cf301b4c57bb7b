"""A student's targets, its training, killed and resumed, and what it answers."""

import math
import random
import signal
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from snapsure import LES, Ensemble, Predictor, SnapshotStore, Student, score
from snapsure.errors import CorruptFile, InvalidInput, NotFitted, WrongArchitecture
from snapsure.networks._data import Rows, concatenate
from snapsure.training import _targets
from snapsure.training._epochs import read_history, seed_all
from snapsure.training._student import mix_labels
from snapsure.training._targets import Targets
from tests.support import processes
from tests.support.problem import network, points, trained
from tests.support.refusals import refuses


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("run") / "snapshots")


@pytest.fixture(scope="module")
def taught(store, tmp_path_factory):
    """A finished student."""
    folder = tmp_path_factory.mktemp("taught") / "student"
    student = quiet(store, points(), folder, epochs=40).fit()
    return SimpleNamespace(student=student, store=store, folder=folder)


def quiet(store, data, folder, model=network, **options):
    """A student that by default learns from the snapshots alone, for two epochs."""
    usual = {"labels": 0, "epochs": 2, "batch_size": 50, "progress": False}
    return Student(model, store, data, folder, **usual | options)


def softmax(model, x):
    with torch.no_grad():
        return model.eval()(x).double().softmax(dim=1).numpy()


def load(store, epoch):
    model = network()
    store.load_into(model, epoch)
    return model


def believed(stores, epochs, x):
    """Mean class probabilities, snapshot by snapshot."""
    each = [softmax(load(store, epoch), x) for store in stores for epoch in epochs]
    return np.mean(each, axis=0)


def targets_of(folder, store, x, memory=1 << 30, epochs=(4, 7, 10), model=network):
    targets = Targets(folder, Rows.of((x, None), "data"))
    done = []
    targets.compute(model(), store, epochs, memory, done.append)
    return targets, sum(done)


def test_each_epoch_is_a_line_unless_it_is_to_be_quiet(store, tmp_path, capsys):
    folder = tmp_path / "told"
    quiet(store, points(), folder, progress=True).fit()
    told = capsys.readouterr().err
    assert f"{7 * 300}/{7 * 300}" in told  # targets, by snapshot and example
    lines = [line for line in told.splitlines() if line.startswith("epoch")]
    history = read_history(folder)
    assert len(lines) == len(history) == 2
    for line, entry in zip(lines, history, strict=True):
        assert f"{entry['loss']:.3f}" in line
        assert f"{100 * entry['agreement']:.1f}%" in line
    quiet(store, points(), tmp_path / "quiet").fit().difference(points(50))
    assert capsys.readouterr().err == ""


def test_targets_are_the_mean_of_what_snapshots_believe(store, tmp_path, monkeypatch):
    x, _ = points(700)
    monkeypatch.setattr(_targets, "_PART", 512)  # two parts, the first of two batches
    targets, done = targets_of(tmp_path, store, x)
    assert done == 3 * 700
    index = np.random.default_rng(0).permutation(700)[:50]
    found = targets.open().take(index)
    wanted = believed([store], (4, 7, 10), x[index])
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-3)
    np.testing.assert_allclose(found.sum(dim=1).numpy(), 1, atol=1e-6)
    parts = [np.load(path) for path in sorted(tmp_path.glob("part-*"))]
    assert len(parts) == 2
    np.testing.assert_allclose(np.concatenate(parts)[index], wanted, atol=1e-3)


def test_processes_share_the_parts_and_none_is_used_without_the_others(
    store, tmp_path, monkeypatch
):
    x, _ = points(700)
    monkeypatch.setattr(_targets, "_PART", 256)
    both = Ensemble([store, trained(tmp_path / "other", epochs=10, seed=5)])
    whole, _ = targets_of(tmp_path / "whole", both, x)
    done = []
    for rank in (0, 1):
        shared = Targets(tmp_path / "shared", Rows.of((x, None), "data"))
        shared.compute(network(), both, (4, 7, 10), 1 << 30, done.append, rank, 2)
        if rank == 0:
            with refuses(CorruptFile, shared.folder, "of 700 rows, got 444"):
                shared.open()
    assert sum(done) == 2 * 2 * 3 * 700  # each counts what it leaves to the other too
    index = np.arange(700)
    assert torch.equal(shared.open().take(index), whole.open().take(index))


def test_targets_where_snapshots_take_turns_are_the_same_bytes(store, tmp_path, monkeypatch):
    x, _ = points(700)
    monkeypatch.setattr(_targets, "_PART", 256)
    monkeypatch.setattr(_targets, "_LONG_PART", 256)
    whole, _ = targets_of(tmp_path / "whole", store, x)
    turns, done = targets_of(tmp_path / "turns", store, x, memory=1)
    assert done == 3 * 700
    names = sorted(path.name for path in whole.folder.iterdir())
    assert len(names) == 3 + 1  # and their manifest
    for name in names:
        assert (whole.folder / name).read_bytes() == (turns.folder / name).read_bytes()


def test_targets_that_are_there_are_kept(store, tmp_path, monkeypatch):
    x, _ = points(700)
    monkeypatch.setattr(_targets, "_PART", 256)
    targets_of(tmp_path, store, x)
    first, second, _ = sorted(tmp_path.glob("part-*"))
    before = first.stat().st_mtime_ns
    content = second.read_bytes()
    second.unlink()
    _, done = targets_of(tmp_path, store, x)
    assert done == 3 * 700
    assert (first.stat().st_mtime_ns, second.read_bytes()) == (before, content)


def test_the_student_learns_what_the_snapshots_believe(taught):
    x, _ = points(500, seed=1)
    wanted = believed([taught.store], range(4, 11), x)  # from ⌊0.4 · 10⌋ on
    p = softmax(taught.student.network, x)
    assert (p.argmax(axis=1) == wanted.argmax(axis=1)).mean() > 0.9
    assert np.abs(p - wanted).mean() < 0.05
    history = read_history(taught.folder)
    assert len(history) == 40
    assert history[-1]["loss"] < history[0]["loss"]
    assert history[-1]["agreement"] > history[0]["agreement"]
    assert taught.student.teachers == len(range(4, 11))
    assert f"{taught.folder}: 40 of 40 epochs" in repr(taught.student)
    cosine = [0.05 * (1 + math.cos(math.pi * epoch / 40)) / 2 for epoch in range(40)]
    assert [entry["learning_rate"] for entry in history] == pytest.approx(cosine)


def test_the_history_has_means_of_the_examples_and_seconds(store, tmp_path):
    """A network without opinions, which never learns: its cross-entropy is that of chance."""

    def indifferent():
        model = network()
        for tensor in model[-1].parameters():
            nn.init.zeros_(tensor)
        return model

    begin, never = time.monotonic(), partial(torch.optim.SGD, lr=0.0)
    quiet(store, points(), tmp_path, model=indifferent, optimizer=never).fit()
    history = read_history(tmp_path)
    first = believed([store], range(4, 11), points()[0]).argmax(axis=1) == 0
    for entry in history:
        assert entry["loss"] == pytest.approx(np.log(3))
        assert entry["agreement"] == pytest.approx(first.mean(), abs=0.02)  # targets are rounded
    assert 0 < sum(entry["seconds"] for entry in history) < time.monotonic() - begin


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.75])
def test_the_loss_is_the_weighted_mean_of_two_cross_entropies(weight):
    """Example by example; a label of −1 is none, and leaves the targets alone."""
    torch.manual_seed(0)
    targets, logits = torch.rand(6, 4).softmax(dim=1), torch.randn(6, 4)
    labels = np.array([0, 3, -1, 2, 2, 1])
    each = []
    for target, row, label in zip(targets, logits.log_softmax(dim=1), labels, strict=True):
        soft = -sum(float(p * log_p) for p, log_p in zip(target, row, strict=True))
        hard = -float(row[label])
        each.append(soft if label == -1 else (1 - weight) * soft + weight * hard)
    before = targets.clone()
    mixed = mix_labels(targets, labels, weight)
    loss = nn.functional.cross_entropy(logits, mixed)
    assert float(loss) == pytest.approx(np.mean(each), rel=1e-6)
    assert torch.equal(targets, before)
    assert mix_labels(targets, None, weight) is targets


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_labels_are_learned_by_their_weight(store, tmp_path, weight):
    """A student whose inputs are all labelled 0 answers 0 if labels weigh, and not otherwise."""
    x, _ = points()
    zeros = torch.zeros(300, dtype=torch.long)
    student = quiet(store, (x, zeros), tmp_path / "s", labels=weight, epochs=15).fit()
    answers = softmax(student.network, x).argmax(axis=1)
    assert ((answers == 0).mean() > 0.9) == (weight == 0.5)
    # Inputs without labels teach by the snapshots alone, whatever the weight.
    alone, soft = (
        quiet(store, x, tmp_path / f"alone-{labels}", labels=labels).fit().network.state_dict()
        for labels in (weight, 0)
    )
    assert all(torch.equal(alone[name], soft[name]) for name in soft)


def test_answering_itself(taught):
    x, _ = points(100, seed=2)
    predictor = taught.student.predictor()
    answer = predictor(x)
    assert predictor.passes == 1
    p = softmax(taught.student.network, x)
    assert (answer.label == p.argmax(axis=1)).all()
    np.testing.assert_allclose(answer.confidence, p.max(axis=1), rtol=1e-6)


def test_saying_how_sure_the_old_answers_are(taught, tmp_path):
    x, y = points(600, seed=2)
    predictor = taught.student.predictor("final")
    answer = predictor(x)
    assert predictor.passes == 2
    before, p = softmax(load(taught.store, 10), x), softmax(taught.student.network, x)
    labels = before.argmax(axis=1)
    assert (answer.label == labels).all()
    at = np.arange(600), labels
    np.testing.assert_allclose(answer.confidence, (p[at] + before[at]) / 2, rtol=1e-6)
    predictor.save(tmp_path / "predictor")
    again = Predictor.load(tmp_path / "predictor", network())(x)
    assert (again.confidence == answer.confidence).all()
    # In its table both speak of the old answers, and what learns may weigh them.
    table = score(network(), taught.student.snapshots("final"), (x, y), progress=False)
    assert (table.y_hat == labels).all()
    weighed = Predictor(network(), taught.student.snapshots("final"), LES(passes=2).fit(table))
    assert weighed.passes <= 2
    assert (weighed(x).label == labels).all()


def test_the_difference_is_counted(taught):
    x, y = points(400, seed=3)
    found = taught.student.difference((x, y))
    before, now = (
        softmax(model, x).argmax(axis=1)
        for model in (load(taught.store, 10), taught.student.network)
    )
    right = y.numpy()
    assert found.points == 400
    assert found.error_before == (before != right).mean()
    assert found.error == (now != right).mean()
    assert found.agreement == (before == now).mean()
    assert found.lost == ((before == right) & (now != right)).sum()
    assert found.won == ((before != right) & (now == right)).sum()
    assert found.lost + found.won > 0
    assert str(found).startswith("on 400 examples the error is ")


def test_any_form_of_data_gives_the_same_student(taught, store, tmp_path):
    """Arrays, a data set, dicts; with `labels=0`, labels are not used.

    So does a network that is made in evaluation mode.
    """
    x, y = points()

    class Named(Dataset):
        def __len__(self):
            return len(x)

        def __getitem__(self, i):
            return {"x": x[i], "labels": y[i]}

    class ByName(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = network()

        def forward(self, x):
            return {"logits": self.body(x)}

    one = quiet(store, (x, y), tmp_path / "pair").fit().network.state_dict()
    for name, data in (("alone", x.numpy()), ("set", TensorDataset(x, y))):
        other = quiet(store, data, tmp_path / name).fit().network.state_dict()
        assert all(torch.equal(one[key], other[key]) for key in one)
    student = quiet(store, x, tmp_path / "made", lambda: network().eval()).fit()
    other = student.network.state_dict()
    assert all(torch.equal(one[key], other[key]) for key in one)
    named = SnapshotStore(tmp_path / "named")
    for epoch in store.epochs:
        model = ByName()
        store.load_into(model.body, epoch)
        named.save(model, epoch)
    student = quiet(named, Named(), tmp_path / "dict", ByName).fit()
    assert student.difference(Named()).points == 300
    other = student.network.body.state_dict()
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_more_inputs_without_labels(store, tmp_path):
    more, _ = points(200, seed=9)
    seen = []

    def noted(x):
        seen.append(x)
        return x

    options = {"unlabelled": more, "augment": noted, "epochs": 1, "batch_size": 100}
    student = quiet(store, points(), tmp_path, **options).fit()
    rows = torch.cat(seen)
    assert rows.shape == (500, 4)
    assert len(torch.unique(torch.cat([rows, points()[0], more]), dim=0)) == 500
    assert student.finished


def test_the_student_of_an_ensemble(store, tmp_path):
    other = trained(tmp_path / "other", seed=5)
    x, _ = points(200, seed=4)
    both = Ensemble([store, other])
    student = quiet(both, points(), tmp_path / "s", epochs=30, batch_size=128).fit()
    assert student.teachers == 2 * len(range(4, 11))
    wanted = believed([store, other], range(4, 11), x)
    p = softmax(student.network, x)
    assert (p.argmax(axis=1) == wanted.argmax(axis=1)).mean() > 0.9
    assert student.difference(points(100, seed=6)).points == 100
    with pytest.raises(InvalidInput, match="must be 'itself' for the student of an ensemble"):
        student.predictor("final")


def test_another_training_in_the_same_folder_is_refused(taught, store, tmp_path):
    """Inputs that differ in few rows, another optimizer, and a student nobody fitted."""
    x, _ = points()
    changed = x.clone()
    changed[150:160] += 1
    for options in (
        {"data": changed},
        {"optimizer": lambda weights: torch.optim.SGD(weights, 0.5)},
        {"optimizer": torch.optim.AdamW},
        {"seed": 3},
        {"labels": 0.5},
        {"epochs": 41},
    ):
        other = quiet(store, **{"data": x, "folder": taught.folder, "epochs": 40} | options)
        with refuses(InvalidInput, taught.folder, "training of the same snapshots"):
            other.fit()
    with refuses(InvalidInput, taught.folder, "training of the same snapshots"):
        quiet(store, changed, taught.folder, epochs=40).predictor()
    relabelled = quiet(store, (x, torch.zeros(300)), taught.folder, epochs=40)
    assert relabelled.fit().finished  # labels are not used
    documented = partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    assert quiet(store, x, taught.folder, epochs=40, optimizer=documented).fit().finished


def test_a_student_that_diverges_is_told(store, tmp_path):
    optimizer = partial(torch.optim.SGD, lr=1e20)
    wild = quiet(store, points(), tmp_path, labels=0.75, optimizer=optimizer, batch_size=128)
    with refuses(InvalidInput, "loss must stay finite, got nan in epoch 1", "Lower"):
        wild.fit()
    assert not wild.finished


def test_interrupted_and_resumed_it_is_the_same_student(store, tmp_path):
    """It follows from its seed, whatever the caller has drawn before."""
    calls, stop = 0, -1

    def shaken(x):
        nonlocal calls
        calls += 1
        if calls == stop:
            raise KeyboardInterrupt
        moved = random.random() + np.random.rand()  # noqa: NPY002
        return x + 0.1 * torch.randn_like(x) + moved

    def student(name, seed=0):
        return quiet(store, points(), tmp_path / name, augment=shaken, epochs=3, seed=seed)

    def same(one, other):
        one, other = (each.network.state_dict() for each in (one, other))
        return all(torch.equal(one[name], other[name]) for name in one)

    seed_all(1)
    wanted = torch.rand(3)
    seed_all(1)
    whole = student("whole").fit()
    assert torch.equal(torch.rand(3), wanted)  # the caller's
    calls, stop = 0, 2 * 6 + 3  # in the third epoch, of six batches each
    with pytest.raises(KeyboardInterrupt):
        student("broken").fit()
    assert len(read_history(tmp_path / "broken")) == 2
    assert same(student("broken").fit(), whole)
    assert not same(student("other", seed=1).fit(), whole)


def test_texts_from_two_sets_are_concatenate():
    parts = [{"text": ["a", "b"], "x": torch.ones(2, 1)}, {"text": ["c"], "x": torch.zeros(1, 1)}]
    found = concatenate(parts)
    assert found["text"] == ["a", "b", "c"]
    assert found["x"].tolist() == [[1], [1], [0]]


TWO = """
    import sys, warnings
    warnings.simplefilter("ignore")
    import torch
    torch.set_num_threads(1)
    from snapsure import Student
    from snapsure.training import _targets
    from snapsure.training._epochs import launch_fabric
    from tests.support.problem import network, points

    if __name__ == "__main__":
        def halves(x):
            assert len(x) <= 50 // 2
            return x

        _targets._PART = 256
        fabric = launch_fabric("cpu", 2, "32-true")
        out, snapshots = sys.argv[1:]
        Student(
            network, snapshots, points(301), out, labels=0, epochs=30, batch_size=50,
            augment=halves, fabric=fabric, progress=False,
        ).fit()
"""


@pytest.mark.slow
def test_two_processes_train_one_student(store, tmp_path):
    """DDP: each computes targets, takes half of each batch, and one writes.

    Of an odd number of examples, both take equally many.
    """
    processes.run_script(tmp_path / "two.py", TWO, tmp_path / "s", store.path)
    x, _ = points(500, seed=1)
    p = softmax(load(SnapshotStore(tmp_path / "s" / "itself"), 30), x)
    wanted = believed([store], range(4, 11), x)
    assert (p.argmax(axis=1) == wanted.argmax(axis=1)).mean() > 0.9
    assert len([*(tmp_path / "s" / "targets-0").glob("part-*")]) == 2


CODE = """
    import os, signal, sys, warnings
    warnings.simplefilter("ignore")
    from pathlib import Path
    import torch
    torch.set_num_threads(1)
    from snapsure import Student
    from tests.support.problem import network, points

    out, snapshots, kind, calls = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    if calls:
        owner = {"step": torch.optim.SGD, "replace": Path}[kind]
        method = getattr(owner, kind)

        def counted(*args, **options):
            global calls
            calls -= 1
            return method(*args, **options) if calls else os.kill(os.getpid(), signal.SIGKILL)

        setattr(owner, kind, counted)
    Student(
        network, snapshots, points(), out, epochs=6, batch_size=50, progress=False,
        augment=lambda x: x + 0.1 * torch.randn_like(x),
    ).fit()
"""


@pytest.mark.slow
def test_killed_and_resumed_it_equals_an_uninterrupted_one_bit_for_bit(store, tmp_path):
    """Killed amid targets, amid epochs, while files are replaced, and at the very end."""
    loaded = ("snapsure.training", "tests.support.problem", "torch._dynamo")

    def alone(out, kind="step", calls=0):
        return processes.run(CODE, out, store.path, kind, calls, loaded=loaded)

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    ended = alone(whole)
    assert ended.returncode == 0, ended.stderr
    kills = [("replace", 1), ("replace", 2), ("step", 8), ("replace", 5), ("step", 14)]
    for kill in kills:
        ended = alone(broken, *kill)
        assert ended.returncode == -signal.SIGKILL, (kill, ended.stderr)
    assert 0 < len(read_history(broken)) < 6
    for calls in (9, 2, 3, 4, 5):  # to the end of the training, and amid what follows it
        ended = alone(broken, "replace", calls)
        assert ended.returncode == -signal.SIGKILL, (calls, ended.stderr)
    assert len(read_history(broken)) == 6
    ended = alone(broken)
    assert ended.returncode == 0, ended.stderr
    assert not [*broken.rglob(".partial*")]
    for name in ("itself", "final"):
        stores = [SnapshotStore(folder / name) for folder in (whole, broken)]
        assert stores[0].epochs == stores[1].epochs
        for epoch in stores[0].epochs:
            assert stores[0].sha256(epoch) == stores[1].sha256(epoch)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(points()[0])


SAME = network()


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"model": SAME}, ["`model`", "function that makes a new network"]),
        ({"model": lambda: SAME}, ["must make a new network at every call"]),
        ({"model": lambda: 5}, ["`model` must be, or make, a torch.nn.Module, got int"]),
        ({"start": 1}, ["`start` must lie in [0, 1)"]),
        ({"labels": 1}, ["`labels` must lie in [0, 1)"]),
        (
            {"data": (points()[0], points()[1] + 1), "labels": 0.75},
            ["labels of `data` must lie in 0…2", "got 3", "Number"],
        ),
        ({"unlabelled": torch.rand(300, 5)}, ["`unlabelled` must be what the network takes"]),
    ],
)
def test_what_cannot_teach(store, tmp_path, change, facts):
    with refuses(InvalidInput, *facts):
        quiet(store, **{"data": points()[0], "folder": tmp_path / "new"} | change).fit()


def test_bad_input(store, taught, tmp_path):
    x, _ = points()
    with refuses(InvalidInput, "must hold at least one snapshot, got none"):
        quiet(SnapshotStore(tmp_path / "empty"), x, tmp_path / "s")
    with refuses(InvalidInput, "`data` must give any of its rows when asked"):
        quiet(store, Stream(), tmp_path / "stream")
    with refuses(NotFitted, "Call .fit()"):
        quiet(store, x, tmp_path / "new").predictor()
    with refuses(InvalidInput, '`answers` must be "itself" or "final", got'):
        taught.student.predictor("both")
    with pytest.raises(WrongArchitecture):
        quiet(store, x, tmp_path / "other", lambda: nn.Linear(4, 3)).fit()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    with refuses(InvalidInput, "`out` must be a new folder or one of this student"):
        quiet(store, x, tmp_path / "full").fit()
    targets, _ = targets_of(tmp_path / "short", store, x)
    (tmp_path / "short" / "hashes-000.json").unlink()
    with refuses(CorruptFile, "must hold targets of 300 rows, got 0"):
        targets.open()
