"""The engine on a really trained network, against direct, slow, plain references."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from snapsure import (
    AES,
    Ensemble,
    MCDropout,
    NNDistance,
    ScoreTable,
    SnapshotStore,
    SoftmaxResponse,
    aurc,
    score,
)
from snapsure._logit_scores import LogitScores
from snapsure.errors import CorruptFile, InvalidInput, WrongArchitecture
from snapsure.kappas import Entropy, Margin
from snapsure.scoring import LocalExecutor, _executor, _plan
from tests.support import processes
from tests.support.folders import read_files


def logits_of(digits, epoch, images, store=None):
    model = digits.model()
    (store or digits.store).load_into(model, epoch)
    with torch.no_grad():
        model.eval()
        return torch.cat([model(part) for part in images.split(256)]).double()  # as scoring does


@pytest.fixture(scope="module")
def table(digits):
    kappas = [SoftmaxResponse(), NNDistance(digits.train, k=40), MCDropout(passes=10)]
    return score(digits.model(), digits.store, digits.test, kappas, progress=False)


def test_the_network_has_learnt(table):
    most = np.bincount(table.y).max() / table.y.size  # right by always giving the same answer
    assert table.errors.mean() < 1 - most
    assert aurc(table.kappa("softmax")[-1], table.errors) < table.errors.mean()  # a random order's


def test_labels_and_answers(digits, table):
    images, y = digits.test
    assert table.epochs.tolist() == digits.store.epochs
    for t, epoch in enumerate(digits.store.epochs):
        assert (table.labels[t] == logits_of(digits, epoch, images).argmax(dim=1).numpy()).all()
    assert (table.y_hat == table.labels[-1]).all()
    assert (table.y == y.numpy()).all()
    assert (table.errors == (table.y_hat != y.numpy())).all()
    assert table.provenance["classes"] == 10


def test_softmax_is_of_the_final_answer_at_every_snapshot(digits, table):
    images, _ = digits.test
    for t, epoch in enumerate(digits.store.epochs):
        probability = logits_of(digits, epoch, images).softmax(dim=1).numpy()
        expected = probability[np.arange(len(images)), table.y_hat]
        np.testing.assert_allclose(table.kappa("softmax")[t], expected, rtol=1e-4, atol=1e-7)


def test_the_final_numbers_are_those_of_the_final_logits(digits, other_digits, table):
    images, _ = digits.test
    last = digits.store.epochs[-1]
    ours = logits_of(digits, last, images).numpy()
    assert (table.final == table.with_logits(ours).final).all()

    ensemble = Ensemble([digits.store, other_digits.store])
    both = score(digits.model(), ensemble, digits.test, progress=False)
    theirs = logits_of(digits, last, images, other_digits.store).numpy()
    each = [LogitScores(one, both.y_hat).margin() for one in (ours, theirs)]
    np.testing.assert_allclose(both.final[:, 1], np.mean(each, axis=0), rtol=1e-12)


def test_nn_distance_by_the_definition(digits, table):
    (train, train_y), (images, _) = digits.train, digits.test
    for t, epoch in ((0, 1), (5, 6)):
        model = digits.model()
        digits.store.load_into(model, epoch)
        with torch.no_grad():
            trunk = model.eval()[:8]
            points, queries = trunk(train).double().numpy(), trunk(images).double().numpy()
        for i in range(0, len(images), 50):
            distance = np.sqrt(((points - queries[i]) ** 2).sum(axis=1))
            near = np.argsort(distance)[:40]
            weight = np.exp(-distance[near])
            expected = weight[train_y[near].numpy() == table.y_hat[i]].sum() / weight.sum()
            assert table.kappa("nn_distance")[t, i] == pytest.approx(expected, abs=1e-4)


def test_mc_dropout_by_the_definition(digits, table):
    images, _ = digits.test
    model = digits.model()
    digits.store.load_into(model, 6)
    model.eval()[7].train()
    for i in range(0, len(images), 100):
        torch.manual_seed(0)
        with torch.no_grad():
            runs = [
                float(model(images[i : i + 1]).double().softmax(dim=1)[0, table.y_hat[i]])
                for _ in range(10)
            ]
        assert table.kappa("mc_dropout")[-1, i] == pytest.approx(np.mean(runs), abs=1e-6)


def test_the_ensemble_is_the_classifier(digits, other_digits):
    stores = [digits.store, other_digits.store.path]
    images, y = digits.test
    table = score(digits.model(), Ensemble(stores), digits.test, progress=False)
    assert table.names == ["softmax"]
    members = [digits.store, other_digits.store]
    mean = [
        np.mean([logits_of(digits, e, images, s).softmax(dim=1).numpy() for s in members], axis=0)
        for e in digits.store.epochs
    ]
    answer = mean[-1].argmax(axis=1)
    assert (table.y_hat == answer).all()
    assert (table.errors == (answer != y.numpy())).all()
    for t, probability in enumerate(mean):
        assert (table.labels[t] == probability.argmax(axis=1)).all()
        np.testing.assert_allclose(
            table.kappa("softmax")[t],
            probability[np.arange(len(images)), answer],
            rtol=1e-4,
            atol=1e-7,
        )


def test_an_ensemble_of_another_kappa(digits, other_digits):
    """Several κ of one ensemble in one call: each is the mean of its members'."""
    ensemble = Ensemble([digits.store, other_digits.store])
    kappas = [SoftmaxResponse(), MCDropout(passes=3)]
    points = (digits.test[0][:50], None)
    table = score(digits.model(), ensemble, points, kappas, progress=False)
    assert table.names == ["softmax", "mc_dropout"]
    assert table.y is None
    alone = score(digits.model(), ensemble, points, progress=False)
    assert (alone.kappa("softmax") == table.kappa("softmax")).all()


def test_some_of_the_snapshots_are_enough(digits, tmp_path):
    """Nobody pays for snapshots that no estimator asks for."""
    epochs = AES(k=2).snapshots(digits.store.epochs)
    some = score(digits.model(), digits.store.select(epochs), digits.test, progress=False)
    every = score(digits.model(), digits.store, digits.test, progress=False)
    assert some.epochs.tolist() == epochs == [2, 6]
    assert (some.kappa("softmax") == every.select(epochs).kappa("softmax")).all()
    assert (AES(k=2).confidence(some) == AES(k=2).confidence(every)).all()


def test_an_ensemble_of_some_of_the_snapshots(digits, other_digits):
    ensemble = Ensemble([digits.store, other_digits.store])
    some = score(digits.model(), ensemble.select([3, 6]), digits.test, progress=False)
    every = score(digits.model(), ensemble, digits.test, progress=False)
    assert (some.kappa("softmax") == every.select([3, 6]).kappa("softmax")).all()


class Pairs(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], int(self.labels[i])


class Stream(IterableDataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __iter__(self):
        return iter(zip(self.images, self.labels, strict=True))


class Dicts(Pairs):
    def __getitem__(self, i):
        return {"input": self.images[i], "labels": self.labels[i]}


FORMS = {
    "tensors": lambda x, y: (x, y),
    "arrays": lambda x, y: (x.numpy(), y.numpy()),
    "a data set": Pairs,
    "TensorDataset": TensorDataset,
    "a loader": lambda x, y: DataLoader(Pairs(x, y), batch_size=256),
    "a stream": lambda x, y: Stream(x, y),
    "a loader of a stream": lambda x, y: DataLoader(Stream(x, y), batch_size=256),
}


@pytest.mark.parametrize("form", FORMS)
def test_data_in_every_form(digits, table, form):
    data = FORMS[form](*digits.test)
    got = score(digits.model(), digits.store, data, [SoftmaxResponse()], progress=False)
    np.testing.assert_array_equal(got.kappa("softmax"), table.kappa("softmax"))
    np.testing.assert_array_equal(got.y, table.y)


def test_a_loader_may_use_the_memory_of_its_batches_again(digits, table):
    x, y = digits.test
    images, labels = torch.empty(8, *x.shape[1:]), torch.empty(8, dtype=y.dtype)

    def fill(pairs):
        for i, (image, label) in enumerate(pairs):
            images[i], labels[i] = image, label
        return images[: len(pairs)], labels[: len(pairs)]

    data = DataLoader(Pairs(x, y), batch_size=8, collate_fn=fill)
    got = score(digits.model(), digits.store, data, [SoftmaxResponse()], progress=False)
    np.testing.assert_allclose(got.kappa("softmax"), table.kappa("softmax"), atol=2e-5)
    np.testing.assert_array_equal(got.y, table.y)


@pytest.mark.slow
def test_workers_of_a_loader_do_not_use_up_the_files_that_may_be_open(digits, tmp_path):
    """Each tensor from another process holds a file open for as long as it is kept."""
    code = """
        import resource, sys, torch
        from torch.utils.data import DataLoader, TensorDataset
        from snapsure import score
        from tests.support.network import digits_network
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
        x, y = torch.load(sys.argv[2])
        data = DataLoader(TensorDataset(x, y), batch_size=2, num_workers=1)
        print(score(digits_network(), sys.argv[1], data, progress=False).y.size)
    """
    torch.save(digits.test, tmp_path / "data.pt")
    run = processes.run(code, digits.store.path, tmp_path / "data.pt", loaded=("snapsure.scoring",))
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) == len(digits.test[1])


def test_dict_batches_and_logits_in_an_output(digits, table, tmp_path):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = digits.model()

        def forward(self, input):
            return {"logits": self.net(input)}

    with_prefix = {f"net.{name}": tensor for name, tensor in digits.store.load(6).items()}
    store = SnapshotStore(tmp_path)
    store.save(with_prefix, 6)
    got = score(Wrapped(), store, Dicts(*digits.test), [SoftmaxResponse()], progress=False)
    np.testing.assert_array_equal(got.kappa("softmax")[0], table.kappa("softmax")[-1])


@pytest.mark.parametrize("labels", ["labels", "label", "y", "targets", "target"])
def test_inputs_and_classes_by_name(digits, table, labels):
    """One input needs no name that the network knows; of several, each does."""
    x, y = digits.test
    rows = [{"image": image, labels: label} for image, label in zip(x, y, strict=True)]
    whole = {"image": x, labels: y}
    both = {**whole, "labels": y, "label": y}  # as data sets of Hugging Face's may have
    each = (DataLoader(rows, batch_size=256), both if labels == "label" else whole)
    for data in each:
        got = score(digits.model(), digits.store, data, [SoftmaxResponse()], progress=False)
        np.testing.assert_array_equal(got.kappa("softmax"), table.kappa("softmax"))
        np.testing.assert_array_equal(got.y, table.y)
    unlabelled = score(digits.model(), digits.store, {"image": x}, progress=False)
    assert unlabelled.y is None


def test_the_batch_size_changes_nothing_that_matters(digits, table):
    loader = DataLoader(Pairs(*digits.test), batch_size=33)
    kappas = [SoftmaxResponse(), NNDistance(digits.train, k=40), MCDropout(passes=10)]
    got = score(digits.model(), digits.store, loader, kappas, progress=False)
    for name in table.names:
        np.testing.assert_allclose(got.kappa(name), table.kappa(name), atol=2e-5)


def test_batches_that_are_scored_together_have_the_scores_of_each(
    digits, other_digits, tmp_path, monkeypatch
):
    ensemble, trees = Ensemble([digits.store, other_digits.store]), []
    for most in (1, 2_000, 1 << 30):
        monkeypatch.setattr(_executor, "_LOGITS", most)
        score(
            digits.model(),
            ensemble,
            digits.test,
            [SoftmaxResponse(), Entropy(), Margin()],
            out=tmp_path / str(most),
            batch_size=50,
            executor=LocalExecutor(group=4),
            progress=False,
        )
        trees.append(read_files(tmp_path / str(most)))
    assert trees[0] == trees[1] == trees[2]


class Reusing(nn.Module):
    """Returns every batch's logits in the same memory."""

    def __init__(self, network):
        super().__init__()
        self.network, self.memory = network, torch.empty(50, 10)

    def forward(self, x):
        return self.memory[: len(x)].copy_(self.network(x))

    def load_state_dict(self, state, **options):
        return self.network.load_state_dict(state, **options)

    def state_dict(self, **options):
        return self.network.state_dict(**options)


def test_logits_are_read_before_the_next_pass_overwrites_them(digits):
    scored = [
        score(model, digits.store, digits.test, batch_size=50, progress=False)
        for model in (digits.model(), Reusing(digits.model()))
    ]
    for column in ("labels", "final"):
        assert (getattr(scored[0], column) == getattr(scored[1], column)).all()
    assert (scored[0].kappa("softmax") == scored[1].kappa("softmax")).all()


def test_without_a_folder_nothing_waits_for_the_disk(digits, tmp_path, monkeypatch):
    flushed, flush = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (flushed.append(handle), flush(handle)))
    without = score(digits.model(), digits.store, digits.test, progress=False)
    assert not flushed
    within = score(digits.model(), digits.store, digits.test, out=tmp_path, progress=False)
    assert flushed
    for column in ("labels", "y_hat", "y", "final"):
        assert (getattr(without, column) == getattr(within, column)).all()
    assert (without.kappa("softmax") == within.kappa("softmax")).all()


def test_one_pass_serves_all_kappas(digits):
    class Counted(nn.Sequential):
        calls = 0

        def forward(self, x):
            Counted.calls += 1
            return super().forward(x)

    def calls(kappas):
        Counted.calls = 0
        score(Counted(*digits.model()), digits.store, digits.test, kappas, progress=False)
        return Counted.calls

    batches, snapshots = -(-len(digits.test[0]) // 256), len(digits.store)
    probes = snapshots + 1  # each in a copy of its own, and one that counts operations
    measured = 3  # that so little work need not be faster
    assert calls([SoftmaxResponse()]) == snapshots * batches + probes + measured
    # Samples of dropout enter the model again, with its first part answering from memory.
    reference = -(-len(digits.train[0]) // 256)
    assert calls([SoftmaxResponse(), NNDistance(digits.train)]) == (
        snapshots * (batches + reference) + probes
    )


def test_the_model_comes_back_as_it_was(digits):
    model = digits.model().train()
    model[0].eval()
    seen = []
    model[0].register_forward_hook(lambda *_: seen.append(1))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    modes = [m.training for m in model.modules()]
    score(model, digits.store, digits.test, [SoftmaxResponse(), MCDropout(3)], progress=False)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert hooks == [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    assert modes == [m.training for m in model.modules()]
    assert all("forward" not in vars(m) for m in model.modules())


def test_the_same_input_gives_the_same_bytes_and_is_not_scored_twice(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(_plan, "_SHARD", 300)  # several shards
    kappas = [SoftmaxResponse(), MCDropout(3)]
    for name in ("a", "b"):
        score(
            digits.model(), digits.store, digits.test, kappas, out=tmp_path / name, progress=False
        )
    assert len(list((tmp_path / "a" / "softmax").iterdir())) == 4 * len(digits.store)
    assert read_files(tmp_path / "a") == read_files(tmp_path / "b")
    written = {p: p.stat().st_mtime_ns for p in (tmp_path / "a").rglob("*.npy")}
    again = score(
        digits.model(), digits.store, digits.test, kappas, out=tmp_path / "a", progress=False
    )
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "a").rglob("*.npy")} == written
    assert (again.kappa("softmax") == ScoreTable.open(tmp_path / "b").kappa("softmax")).all()


def test_interrupted_it_goes_on_where_it_stopped(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(_plan, "_SHARD", 300)
    arguments = (digits.model(), digits.store, digits.test, SoftmaxResponse())
    options = {"executor": LocalExecutor(group=2), "progress": False}
    whole, part = tmp_path / "whole", tmp_path / "part"
    score(*arguments, out=whole, **options)

    from snapsure.scoring._executor import Worker

    do, done = Worker.do, []

    def tiring(self, piece, advance):
        if len(done) == 7:
            raise KeyboardInterrupt
        done.append(piece)
        return do(self, piece, advance)

    with monkeypatch.context() as patched:
        patched.setattr(Worker, "do", tiring)
        with pytest.raises(KeyboardInterrupt):
            score(*arguments, out=part, **options)
    with pytest.raises(InvalidInput, match="must hold a finished score table"):
        ScoreTable.open(part)
    (part / "softmax" / "epoch-000006.00001.npy").write_bytes(b"")
    (part / "softmax" / ".partial-0123456789ab-epoch-000001.00000.npy").write_bytes(b"half")
    done.clear()
    monkeypatch.setattr(Worker, "do", lambda *a: (done.append(a[1]), do(*a))[1])
    score(*arguments, out=part, **options)
    assert done[0] == _plan.Piece((6,), 1)
    assert len(done) == 4 * len(digits.store) / 2 - 7 + 1
    assert read_files(whole) == read_files(part)


@pytest.mark.slow
def test_killed_it_goes_on_where_it_stopped(digits, tmp_path):
    """Killed by its own data, as soon as something is scored."""
    code = """
        import os, signal, sys, torch
        from pathlib import Path
        from torch.utils.data import TensorDataset
        from snapsure import MCDropout, SoftmaxResponse, score
        from snapsure.scoring import _plan
        from tests.support.network import digits_network
        _plan._SHARD = 300
        store, data, out, *deadly = sys.argv[1:]
        class Data(TensorDataset):
            def __getitem__(self, i):
                if deadly and i % 64 == 10 and list(Path(out).glob("labels/*.npy")):
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().__getitem__(i)
        score(digits_network(), store, Data(*torch.load(data)),
              [SoftmaxResponse(), MCDropout(5)], out=out)
    """
    torch.save(digits.test, tmp_path / "data.pt")
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    loaded = ("snapsure.scoring", "tests.support.network", "torch._dynamo")
    for out, deadly, ended in ((killed, ["yes"], -signal.SIGKILL), (killed, [], 0), (whole, [], 0)):
        arguments = (digits.store.path, tmp_path / "data.pt", out, *deadly)
        run = processes.run(code, *arguments, loaded=loaded)
        assert run.returncode == ended, run.stderr
        assert json.loads((out / "table.json").read_text())["finished"] == (ended == 0)
    assert read_files(killed) == read_files(whole)


@pytest.mark.slow
def test_memory_is_bounded_by_the_group(tmp_path):
    # A network of 20 MB in a process of its own: were snapshots kept, 16 more would add 320 MB.
    code = """
        import resource, sys
        import torch
        from torch import nn
        from snapsure import SnapshotStore, SoftmaxResponse, score
        model = nn.Sequential(nn.Linear(64, 2200), nn.Linear(2200, 2200), nn.Linear(2200, 10))
        data = (torch.randn(600, 64), torch.zeros(600))
        store = SnapshotStore(sys.argv[1])
        for epoch in range(24):
            store.save(model, epoch)
            if epoch + 1 in (8, 24):
                score(model, store, data, SoftmaxResponse(), progress=False)
                print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    eight, more = map(float, run.stdout.split())
    assert more - eight < 200  # forms of a group take less than 100


def test_without_labels(digits):
    table = score(digits.model(), digits.store, digits.test[0], SoftmaxResponse(), progress=False)
    assert table.y is None
    assert table.kappa("softmax").shape == (len(digits.store), len(digits.test[0]))


@pytest.mark.parametrize("members", [1, 2])
def test_progress_says_how_far_it_is(digits, other_digits, capsys, members):
    snapshots = digits.store if members == 1 else Ensemble([digits.store, other_digits.store])
    score(digits.model(), snapshots, digits.test, SoftmaxResponse())
    rows = members * len(digits.store) * len(digits.test[0])
    captured = capsys.readouterr()
    assert f"{rows}/{rows} ·" in captured.err
    assert captured.out == ""


@pytest.mark.skipif(find_spec("ipywidgets") is not None, reason="ipywidgets shows the bar")
def test_a_notebook_without_widgets_gets_a_line_and_no_warning(digits, capsys, monkeypatch):
    shell = type("ZMQInteractiveShell", (), {})  # by which Rich recognises a notebook
    monkeypatch.setattr("builtins.get_ipython", shell, raising=False)
    score(digits.model(), digits.store.select([1]), digits.test)  # a warning would be an error
    assert "797/797" in capsys.readouterr().err


class Noisy(Pairs):
    def __getitem__(self, i):
        return self.images[i] + torch.rand(()), int(self.labels[i])


class ShrinkingStream(Stream):
    passes = 0

    def __iter__(self):
        self.passes += 1
        rows = zip(self.images, self.labels, strict=True)
        return iter(list(rows)[: len(self.images) - (self.passes > 2)])


def refusal(digits, kind=InvalidInput, model=None, store=None, data=None, kappas=None, out=None):
    with pytest.raises(kind) as caught:
        score(
            model or digits.model(),
            store or digits.store,
            digits.test if data is None else data,
            kappas,
            out=out,
            progress=False,
        )
    return str(caught.value)


def test_data_whose_rows_do_not_line_up(digits):
    pairs = Pairs(*digits.test)
    assert refusal(digits, data=DataLoader(pairs, shuffle=True)).startswith(
        "`data` must give its examples in a fixed order, got a DataLoader with RandomSampler"
    )
    assert refusal(digits, data=DataLoader(pairs, batch_size=None)).startswith(
        "`data` must be cut into batches by its DataLoader, got one with batch_size=None"
    )
    assert refusal(digits, data=DataLoader(pairs, batch_size=64, drop_last=True)).startswith(
        "`data` must keep every example, got a DataLoader with drop_last=True"
    )
    assert refusal(digits, data=Noisy(*digits.test)).startswith(
        "`data` must give the same rows at every pass, got other values at the second reading"
    )
    n = len(digits.test[0])
    assert refusal(digits, data=ShrinkingStream(*digits.test)).startswith(
        f"`data` must keep its length, got {n - 1} rows where there were {n}"
    )


def test_every_answer_to_a_point_of_none_of_the_classes_is_wrong(digits, table):
    images, labels = digits.test
    strange = torch.arange(len(labels)) % 3 == 0
    data = images, torch.where(strange, -1, labels)
    told = score(digits.model(), digits.store, data, SoftmaxResponse(), progress=False)
    assert (told.y == data[1].numpy()).all()
    assert told.errors[strange.numpy()].all()
    assert (told.kappa("softmax") == table.kappa("softmax")).all()


def test_data_that_is_none(digits):
    images, labels = digits.test
    assert refusal(digits, data=(images[:0], labels[:0])).startswith(
        "`data` must hold at least one example, got none"
    )
    assert refusal(digits, data=(images, labels[:5])).startswith(
        f"`data` must give one label per example, got 5 labels for {len(images)} examples"
    )
    assert refusal(digits, data=(images, labels + 7)).startswith(
        "labels of `data` must lie in 0…9, or be −1 for examples of none of the classes, got "
        f"{int((labels + 7)[(labels + 7) > 9][0])} at row "
        f"{int(np.flatnonzero((labels + 7).numpy() > 9)[0])}"
    )
    assert refusal(digits, data=TensorDataset(images, labels, labels)).startswith(
        "`data` must give batches of inputs, (inputs, labels) or a dict with 'labels' or 'y', got "
        "list"
    )


def test_snapshots_that_are_none(digits, tmp_path):
    assert refusal(digits, store=tmp_path / "nothing").startswith(
        f"`snapshots` must hold at least one snapshot, got none in {tmp_path / 'nothing'}"
    )
    message = refusal(
        digits, WrongArchitecture, model=nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    )
    assert message.startswith(f"Snapshot of epoch 6 in {digits.store.path} must have the architect")


def test_a_damaged_snapshot_is_named(digits, tmp_path):
    store = SnapshotStore(tmp_path)
    for epoch in (1, 2):
        store.save(digits.store.load(epoch), epoch)
    path = tmp_path / "epoch-000001.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    assert f"Snapshot of epoch 1 ({path}) must be as it was saved" in refusal(
        digits, CorruptFile, store=store
    )


def test_a_snapshot_that_diverged(digits, tmp_path):
    state = digits.store.load(6)
    state["8.bias"][3] = torch.nan
    store = SnapshotStore(tmp_path)
    store.save(state, 1)
    assert "`model` must return finite logits, got NaN" in refusal(digits, store=store)


def altered(digits, change):
    """The digits' network, its output changed."""

    class Altered(nn.Sequential):
        def forward(self, x):
            return change(super().forward(x))

    return Altered(*digits.model())


def test_models_that_give_no_logits(digits):
    assert refusal(digits, model=altered(digits, lambda z: (z, z))).startswith(
        "`model` must map a batch to logits (rows, classes), got tuple"
    )
    assert refusal(digits, model=altered(digits, lambda z: z[:, None])).startswith(
        "`model` must map a batch to logits (rows, classes), got shape (2, 1, 10)"
    )
    assert refusal(digits, model=altered(digits, lambda z: torch.cat([z, z]))).startswith(
        "`model` must return one row of logits per example, got 4 for 2"
    )


def test_the_order_of_the_kappas_changes_nothing(digits, table):
    kappas = [MCDropout(passes=10), SoftmaxResponse(), NNDistance(digits.train, k=40)]
    got = score(digits.model(), digits.store, digits.test, kappas, progress=False)
    for name in table.names:
        np.testing.assert_array_equal(got.kappa(name), table.kappa(name))


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.slow
def test_a_compiled_model_is_scored_as_itself(digits, table):
    model = torch.compile(digits.model())
    got = score(model, digits.store, digits.test, SoftmaxResponse(), progress=False)
    np.testing.assert_array_equal(got.kappa("softmax"), table.kappa("softmax"))


def test_several_inputs(digits, tmp_path):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(64, 10)

        def forward(self, a, b):
            return self.fc(a.flatten(1) + b.flatten(1))

    class Triples(Pairs):
        def __getitem__(self, i):
            return (self.images[i], self.images[i] * 2), int(self.labels[i])

    model, store = Two(), SnapshotStore(tmp_path)
    store.save(model, 1)
    images, labels = digits.test
    with torch.no_grad():
        expected = model(images, images * 2).softmax(dim=1).max(dim=1).values
    for data in (Triples(images, labels), ((images, images * 2), labels)):
        got = score(model, store, data, SoftmaxResponse(), progress=False)
        np.testing.assert_allclose(got.kappa("softmax")[0], expected, rtol=1e-5)


def test_numpys_float64_is_read_as_float32(digits, table):
    images = digits.test[0].numpy().astype(np.float64)
    images.flags.writeable = False
    data = (images, digits.test[1])
    got = score(digits.model(), digits.store, data, SoftmaxResponse(), progress=False)
    np.testing.assert_array_equal(got.kappa("softmax"), table.kappa("softmax"))


def test_the_reference_is_embedded_once_per_snapshot(digits, other_digits, monkeypatch):
    monkeypatch.setattr(_plan, "_SHARD", 300)
    prepared = []
    prepare = NNDistance.prepare
    monkeypatch.setattr(
        NNDistance, "prepare", lambda self, s, f: (prepared.extend(f), prepare(self, s, f))[1]
    )
    ensemble = Ensemble([digits.store, other_digits.store])
    kappa = NNDistance(digits.train, k=5)
    score(digits.model(), ensemble, digits.test, kappa, progress=False)
    assert len(prepared) == len({*prepared}) == 2 * len(digits.store)


def test_kappas_that_do_not_go_together(digits, other_digits):
    assert refusal(digits, kappas=[SoftmaxResponse(), SoftmaxResponse()]).startswith(
        "`kappas` must have different names, got ['softmax', 'softmax']"
    )
    assert refusal(digits, kappas=["softmax"]).startswith(
        "`kappas` must be κ functions, got 'softmax'"
    )
    assert refusal(digits, kappas=[]).startswith("`kappas` must be κ functions, got none")
    for one in ("entropy", digits.test[1]):  # not letter by letter, and not every label
        assert re.search("got .{,60} Pass .*\\(inputs, labels\\)", refusal(digits, kappas=one))
    with pytest.raises(InvalidInput, match="`stores` must name at least 2 members, got 1"):
        Ensemble(str(digits.store.path))


def test_members_with_other_epochs(digits, tmp_path):
    store = SnapshotStore(tmp_path)
    store.save(digits.store.load(6), 6)
    message = refusal(digits, store=Ensemble([digits.store, store]))
    assert message.startswith("`stores` must have snapshots of the same epochs, got 1 in ")
    assert f"the 6 in {digits.store.path}" in message


def test_changed_rows_in_the_middle_are_noticed(digits, tmp_path):
    images, labels = digits.test
    changed = images.clone()
    changed[300:500] = 0
    for first, second in (
        ((images, labels), (changed, labels)),
        (Pairs(images, labels), Pairs(changed, labels)),
        (Stream(images, labels), Stream(changed, labels)),
    ):
        out = tmp_path / type(first).__name__
        score(digits.model(), digits.store, first, SoftmaxResponse(), out=out, progress=False)
        assert refusal(digits, out=out, data=second).startswith(
            f"`out` must hold scores of the same inputs, got {out} with other data"
        )


def test_damaged_or_missing_labels_are_scored_again(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(_plan, "_SHARD", 300)
    arguments = (digits.model(), digits.store, digits.test, SoftmaxResponse())
    whole = score(*arguments, out=tmp_path, progress=False)
    for damage in (lambda p: p.unlink(), lambda p: p.write_bytes(b"")):
        damage(tmp_path / "y" / "all.00000.npy")
        assert (score(*arguments, out=tmp_path, progress=False).y == whole.y).all()


def test_a_folder_with_other_things_in_it(digits, tmp_path):
    (tmp_path / "thesis.tex").write_text("dear")
    message = refusal(digits, out=tmp_path)
    assert message.startswith("`out` must be a new folder")
    assert f"got {tmp_path}" in message
    out = tmp_path / "scores"
    score(digits.model(), digits.store, digits.test, SoftmaxResponse(), out=out, progress=False)
    assert refusal(digits, out=out, kappas=[MCDropout(3)], data=digits.train).startswith(
        f"`out` must hold scores of the same inputs, got {out} with other data and kappas"
    )


def test_inputs_that_the_network_does_not_take_are_told(tmp_path):
    """One sentence with what came, and which row is no number."""
    store = SnapshotStore(tmp_path / "run")
    store.save(nn.Linear(3, 2), 1)

    def told(x):
        with pytest.raises(InvalidInput) as caught:
            score(nn.Linear(3, 2), store, x, progress=False)
        return str(caught.value)

    said = told(torch.rand(10, 4))
    assert said.startswith(
        "`data` must be what the network takes, got torch.float32 of shape (10, 4)"
    )
    assert said.endswith("Pass inputs as in training, with the examples on the first axis.")
    for dtype in (torch.int64, torch.float64, torch.float16):
        said = told(torch.zeros(10, 3, dtype=dtype))
        assert said.startswith(
            f"`data` must be what the network takes, got {dtype} of shape (10, 3)"
        )
        assert "x.to(torch.float32)" in said
    x = torch.rand(700, 3)
    x[612, 1] = float("nan")
    assert told(x).startswith("`data` must be finite, got NaN or infinity in row 612")
    x[1, 0] = float("inf")
    assert "in row 1." in told(x)
