"""The folder of scores: taken with the first score, and overwritten only where that is ours."""

import errno
import json
import os
from threading import Thread

import numpy as np
import pytest
import torch
from filelock import FileLock, Timeout
from torch import nn

from snapsure import (
    AES,
    NNDistance,
    Predictor,
    ScoreTable,
    SnapshotStore,
    SoftmaxResponse,
    _json,
    score,
)
from snapsure.errors import CorruptFile, InvalidInput, StorageError
from snapsure.scoring import LocalExecutor, _plan, _score
from snapsure.scoring._executor import Worker
from tests.support.folders import read_files
from tests.support.problem import refusal
from tests.support.processes import until

X, Y = torch.rand(700, 4, generator=torch.Generator().manual_seed(1)), torch.arange(700) % 3


@pytest.fixture
def store(tmp_path):
    torch.manual_seed(3)
    store = SnapshotStore(tmp_path / "run")
    for epoch in (1, 2, 3):
        store.save(nn.Linear(4, 3), epoch)
    return store


def scored(store, out, data=(X, Y), kappas=None, model=None, **more):
    model = nn.Linear(4, 3) if model is None else model
    return score(model, store, data, kappas, out=out, progress=False, **more)


def labels_out_of_range():
    y = Y.clone()
    y[612] = 7
    return y


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize(
    "wrong",
    [
        {"data": (X[:, :2], Y)},
        {"data": (X.double(), Y)},
        {"data": (torch.full_like(X, torch.nan), Y)},
        {"data": (X, labels_out_of_range())},
        {"model": nn.Linear(4, 5)},
        {"model": "abc"},
        {"kappas": NNDistance((X[:, :2], Y), k=3)},
    ],
)
def test_a_run_that_fails_leaves_the_folder_to_others(store, tmp_path, wrong, exists):
    out = tmp_path / "out"
    if exists:
        out.mkdir()
    with pytest.raises((InvalidInput, RuntimeError)):
        scored(store, out, **wrong)
    assert out.exists() == exists
    assert not exists or list(out.iterdir()) == []
    scored(store, out)


def test_labels_out_of_range_are_told_by_their_row(store, tmp_path, monkeypatch):
    monkeypatch.setattr(_plan, "_SHARD", 256)
    assert refusal(lambda: scored(store, tmp_path / "out", (X, labels_out_of_range()))).startswith(
        "labels of `data` must lie in 0…2, or be −1 for examples of none of the classes, got 7 at "
        "row 612"
    )


def test_what_is_no_network_is_refused_before_the_folder_is_touched(store, tmp_path):
    out = tmp_path / "file" / "out"  # which could not be made
    (tmp_path / "file").touch()
    for model, got in (("abc", "got 'abc'"), (nn.Linear, "got the class Linear")):
        said = refusal(lambda model=model: scored(store, out, model=model))
        assert said.startswith(f"`model` must be a torch.nn.Module, {got}")
    assert f"{out} (Not a directory)" in refusal(lambda: scored(store, out), StorageError)


def test_a_folder_without_permission(store, tmp_path, monkeypatch):
    def denied(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", denied)
    out = tmp_path / "out"
    assert f"{out} (Permission denied)" in refusal(lambda: scored(store, out), StorageError)
    assert not out.exists()


def test_overwritten_it_is_as_if_new(store, tmp_path):
    """Other data, fewer snapshots, another κ; and files that scoring did not write stay."""
    for name, more in (
        ("data", {"data": (X + 1, Y)}),
        ("kappas", {"kappas": NNDistance((X, Y), k=3)}),
    ):
        out, new = tmp_path / name, tmp_path / f"{name}-new"
        scored(store, out)
        mine = {"notes.txt": b"mine", "softmax/notes.txt": b"mine", "softmax/all.npy": b"mine"}
        for path, content in mine.items():
            (out / path).write_bytes(content)
        assert f"with other {name}." in refusal(lambda out=out, m=more: scored(store, out, **m))
        scored(store, out, overwrite=True, **more)
        scored(store, new, **more)
        assert read_files(out) == read_files(new) | mine
    scored(store.select([3]), out, overwrite=True)
    assert ScoreTable.open(out).epochs.tolist() == [3]
    assert read_files(out).items() >= mine.items()


@pytest.mark.parametrize("is_finished", [True, False])
def test_other_data_in_the_middle_is_overwritten(store, tmp_path, monkeypatch, is_finished):
    """Which the sample of batches that a folder is recognised by does not show."""
    n = 30 * 256
    x = torch.rand(n, 4)
    other = x.clone()
    other[5 * 256 : 6 * 256] += 1
    monkeypatch.setattr(_plan, "_SHARD", 512)
    out, changed = tmp_path / "out", (other, torch.arange(n) % 3)
    scored(store, tmp_path / "new", changed)
    scored(store, out, (x, torch.arange(n) % 3), average=True)
    assert "with other data in rows 1024…1535" in refusal(lambda: scored(store, out, changed))
    if not is_finished:
        (out / "softmax" / "epoch-000002.00002.npy").unlink()
    scored(store, out, changed, overwrite=True)
    ours, new = (read_files(folder) for folder in (out, tmp_path / "new"))
    manifests = [json.loads(files.pop("table.json")) for files in (ours, new)]
    assert ours == new
    for key in ("hashes", "has_averaged"):
        assert manifests[0][key] == manifests[1][key]
    assert "average" not in manifests[0]["provenance"]


def test_the_same_is_resumed_and_not_overwritten(store, tmp_path):
    out = tmp_path / "out"
    scored(store, out)
    (out / "softmax" / "epoch-000002.00000.npy").unlink()
    before = {path: path.stat().st_mtime_ns for path in out.glob("softmax/*.npy")}
    scored(store, out, overwrite=True)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert (out / "softmax" / "epoch-000002.00000.npy").exists()


def test_a_run_that_fails_overwrites_nothing(store, tmp_path):
    out = tmp_path / "out"
    scored(store, out)
    before = read_files(out)
    with pytest.raises(InvalidInput):
        scored(store, out, (X[:, :2], Y), overwrite=True)
    assert read_files(out) == before


def test_a_saved_table_is_overwritten_and_a_folder_of_others_is_not(store, tmp_path):
    out = tmp_path / "saved"
    table = scored(store, tmp_path / "first")
    table.save(out)
    table.save(out)  # its pieces lie beside, now
    scored(store, out, overwrite=True)
    assert read_files(out) == read_files(tmp_path / "first")
    other = tmp_path / "thesis"
    (other / "prepared").mkdir(parents=True)
    (other / "prepared" / "chapter.tex").write_text("dear")
    message = refusal(lambda: scored(store, other, overwrite=True))
    assert message.startswith("`out` must be a new folder")
    assert f"got {other}" in message
    assert (other / "prepared" / "chapter.tex").read_text() == "dear"


class Locked(torch.utils.data.TensorDataset):
    """Notes at every row whether another process could score into the folder."""

    def __init__(self, folder):
        super().__init__(X, Y)
        self.folder, self.found = folder, set()

    def __getitem__(self, i):
        try:
            with FileLock(self.folder / _plan.LOCK, timeout=0):
                self.found.add("free")
        except Timeout:
            self.found.add("taken")
        return super().__getitem__(i)


def test_a_folder_is_locked_while_it_is_scored_into(store, tmp_path):
    data = Locked(tmp_path / "out")
    scored(store, tmp_path / "out", data)
    assert data.found == {"taken"}
    assert not (tmp_path / "out" / _plan.LOCK).exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_a_file_system_without_locks_is_used_and_one_that_fails_is_not(
    store, tmp_path, monkeypatch, number
):
    def fail(*given, **options):
        raise OSError(number, "no lock")

    monkeypatch.setattr(FileLock, "acquire", fail)
    if number == errno.ENOLCK:
        assert scored(store, tmp_path / "out").kappa("softmax").shape == (3, 700)
    else:
        assert "no lock" in refusal(lambda: scored(store, tmp_path / "out"), StorageError)


class Sworn(SoftmaxResponse):
    """Looks at other data, and keeps nothing of it in files."""

    prepares, name = True, "sworn"

    def prepare(self, snapshots, folders):
        self.seen = [snapshot.run(X[:5]).logits.shape for snapshot in snapshots]


def test_a_kappa_need_not_write_what_it_prepares(store):
    kappa = Sworn()
    table = scored(store, None, kappas=[SoftmaxResponse(), kappa])
    assert kappa.seen == [(5, 3)] * 3
    assert (table.kappa("sworn") == table.kappa("softmax")).all()


class Watching(torch.utils.data.Dataset):
    """Notes at every row which snapshots are prepared at that moment."""

    def __init__(self, folder):
        self.folder, self.seen = folder, set()

    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        self.seen.add(tuple(sorted(path.name for path in paths)))
        return X[i], int(Y[i])


def test_preparations_go_when_their_snapshot_is_scored(store, tmp_path, monkeypatch):
    """They can be as large as the training set: one group's at a time, not every snapshot's."""
    monkeypatch.setattr(_plan, "_SHARD", 256)
    data = Watching(tmp_path / "out" / "prepared")
    kappas = NNDistance((X, Y), k=3)
    scored(store, tmp_path / "out", data, kappas, executor=LocalExecutor(group=1))
    assert data.seen == {(), ("3",), ("2",), ("1",)}


def test_what_was_prepared_of_other_training_examples_is_not_used(store, tmp_path, monkeypatch):
    """An interrupted scoring, overwritten by one with another reference."""
    do = Worker.do

    def prepare_only(self, piece, *rest):
        if piece.shard is not None:
            raise KeyboardInterrupt
        return do(self, piece, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Worker, "do", prepare_only)
        with pytest.raises(KeyboardInterrupt):
            scored(store, tmp_path / "out", kappas=NNDistance((X, Y), k=3))
    for name in ("out", "new"):
        kappa = NNDistance((2 * X + 1, Y.flip(0)), k=3)
        scored(store, tmp_path / name, kappas=kappa, overwrite=True)
    assert read_files(tmp_path / "out") == read_files(tmp_path / "new")


def test_the_batch_size_is_told(store, tmp_path):
    out = tmp_path / "out"
    table = scored(store, out, batch_size=100)
    assert table.provenance["data"]["batch_size"] == 100
    assert refusal(lambda: scored(store, out)).startswith(
        f"`out` must hold scores of the same inputs, got {out} with other batches (of 100 rows, "
        "not 256)"
    )
    np.testing.assert_allclose(scored(store, None).kappa("softmax"), table.kappa("softmax"))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=64)
    assert refusal(lambda: scored(store, None, loader, batch_size=100)).startswith(
        "`batch_size` must be left out where `data` has one, got 100 and a DataLoader"
    )
    assert refusal(lambda: scored(store, None, batch_size=0)).startswith(
        "`batch_size` must be a whole number ≥ 1, got 0"
    )


def test_a_manifest_of_names_that_leave_the_folder_is_refused(store, tmp_path):
    out = tmp_path / "out"
    scored(store, out)
    content = json.loads((out / "table.json").read_text())
    content.pop("sha256")
    for change in ({"names": ["../up"]}, {"shards": [-5]}, {"inputs": {"x": "0"}}):
        (out / "table.json").write_bytes(_json.text(content | change))
        assert "table.json must be the manifest" in refusal(lambda: scored(store, out), CorruptFile)
    (out / "table.json").write_bytes(_json.text(content | {"shards": [5]}))
    assert "with other shards" in refusal(lambda: scored(store, out))


def test_the_device_is_chosen_or_refused(store, tmp_path):
    on_cpu = scored(store, None, executor=LocalExecutor(device="cpu"))
    assert np.array_equal(on_cpu.kappa("softmax"), scored(store, None).kappa("softmax"))
    said = refusal(lambda: LocalExecutor(device="abacus"))
    assert said.startswith("`device` must be one that PyTorch has here, got 'abacus'")
    assert "Choose cpu" in said
    assert "(" not in said  # PyTorch's own list of devices says nothing more


class OneLogit(nn.Linear):
    def __init__(self, flat):
        super().__init__(4, 1)
        self.flat = flat

    def forward(self, x):
        z = super().forward(x)
        return z[:, 0] if self.flat else z


@pytest.mark.parametrize("flat", [False, True])
def test_one_logit_is_told_how_to_become_two(tmp_path, flat):
    model, store = OneLogit(flat), SnapshotStore(tmp_path / "run")
    store.save(model, 1)
    data, shape = (X, Y % 2), "(rows,)" if flat else "(rows, 1)"
    predictor = Predictor(model, store, AES())
    for call in (lambda: score(model, store, data, progress=False), *[lambda: predictor(X)] * 2):
        said = refusal(call)
        assert f"one logit per class, got one per example, {shape}" in said
        assert "torch.nn.functional.pad(z.reshape(-1, 1), (1, 0))" in said
    model.register_forward_hook(
        lambda module, args, z: torch.nn.functional.pad(z.reshape(-1, 1), (1, 0))
    )
    table = score(model, store, data, [SoftmaxResponse()], progress=False)
    p = torch.sigmoid(nn.functional.linear(X, model.weight, model.bias)[:, 0].double())
    assert np.array_equal(table.y_hat, (p > 0.5).long().numpy())
    expected = torch.maximum(p, 1 - p).detach().numpy()
    np.testing.assert_allclose(table.kappa("softmax")[0], expected, atol=1e-6)


def test_ids_that_are_no_whole_numbers(tmp_path):
    model, store = nn.EmbeddingBag(10, 3), SnapshotStore(tmp_path / "run")
    store.save(model, 1)
    said = refusal(lambda: score(model, store, torch.rand(20, 4), progress=False))
    assert said.startswith(
        "`data` must be what the network takes, got torch.float32 of shape (20, 4)"
    )
    assert said.endswith("x.long().")


def test_names_of_classes_are_told_how_to_become_numbers(store):
    names = np.array(["cat", "dog"] * 350)
    for labels in (names, names.tolist(), names.astype(object)):
        assert refusal(lambda labels=labels: scored(store, None, (X, labels))).startswith(
            "`labels` of `data` must hold class numbers (0, 1, …), got names such as 'cat'"
        )


@pytest.mark.parametrize("name", ["softmax", "y_hat", "prepared"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_nothing_is_written_or_removed_through_a_link(store, tmp_path, name, overwrite):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    scored(store, out)
    if (out / name).exists():
        (out / name).rename(elsewhere)
    else:
        elsewhere.mkdir()
    for of_the_same_name in ("epoch-000001.00000.npy", "all.00000.npy"):
        (elsewhere / of_the_same_name).write_bytes(b"precious")
    before = read_files(elsewhere)
    (out / name).symlink_to(elsewhere)
    more = {"data": (X + 1, Y), "overwrite": True} if overwrite else {}
    message = refusal(lambda: scored(store, out, **more), StorageError)
    assert message.startswith(f"{out / name} must be a folder of its own, got a link")
    assert read_files(elsewhere) == before
    (out / name).unlink()
    os.mkfifo(out / name)
    message = refusal(lambda: scored(store, out, **more), StorageError)
    assert message.startswith(f"{out / name} must be a folder of its own, got a pipe")


@pytest.mark.parametrize("shows", [True, False])
def test_who_waits_for_another_process_says_so_unless_it_is_to_be_quiet(tmp_path, capsys, shows):
    said = []

    def enter():
        with _score._lock(tmp_path, shows=shows):
            said.append("entered")

    with FileLock(tmp_path / _plan.LOCK):
        waiting = Thread(target=enter)
        waiting.start()
        if shows:
            until(lambda: said.append(capsys.readouterr().err) or f"into {tmp_path}" in said[-1])
        assert "entered" not in said
    waiting.join()
    assert said[-1] == "entered"
    assert capsys.readouterr().err == ""
