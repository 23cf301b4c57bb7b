"""A store touches its own files alone, and finds back what lost its manifest."""

import json
import shutil
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from snapsure import Recorder, SnapshotStore, _files
from snapsure.errors import CorruptFile, InvalidInput, StorageError
from snapsure.snapshots import _manifest
from snapsure.snapshots._lock import WriterLock
from tests.support.refusals import refuses


def weights(value):
    return {"w": torch.full((100,), float(value))}


def content(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.startswith(".lock")}


@pytest.fixture
def store(tmp_path):
    """Three snapshots, and no process that holds them."""
    store = SnapshotStore(tmp_path / "run")
    for epoch in (1, 2, 3):
        store.save(weights(epoch), epoch)
    return SnapshotStore(store.path)


def test_files_of_others_are_refused_and_kept(tmp_path):
    for epoch in range(1, 6):
        save_file(weights(epoch), tmp_path / f"epoch-{epoch}.safetensors")
    before = content(tmp_path)
    with refuses(
        InvalidInput, tmp_path, "epoch-1.safetensors and 4 more", "snapsure rebuild", "adopt"
    ):
        Recorder(tmp_path)
    assert content(tmp_path) == before
    assert not (tmp_path / ".lock").exists()
    assert SnapshotStore.adopt(tmp_path).epochs == [1, 2, 3, 4, 5]
    SnapshotStore(tmp_path).rebuild()
    assert Recorder(tmp_path).record(weights(6), 6)
    store = SnapshotStore(tmp_path)
    store.verify()
    assert [float(store.load(epoch)["w"][0]) for epoch in store.epochs] == [1, 2, 3, 4, 5, 6]


def test_checkpoints_that_are_no_snapshots_are_refused_and_kept(tmp_path):
    torch.save(weights(1), tmp_path / "best.pt")
    with refuses(InvalidInput, tmp_path, "got best.pt", "adopt"):
        SnapshotStore(tmp_path).save(weights(1), 1)
    with refuses(InvalidInput, "`folder`", f"got best.pt in {tmp_path}"):
        SnapshotStore(tmp_path).rebuild()
    assert [path.name for path in tmp_path.iterdir()] == ["best.pt"]


@pytest.mark.parametrize("damage", [None, "{", "{}"])
@pytest.mark.parametrize("writing", [True, False])
def test_a_lost_or_damaged_manifest_is_rebuilt(store, damage, writing):
    if writing:  # it holds the lock already
        store.save(weights(3), 3)
    manifest = store.path / "manifest.json"
    held = json.loads(manifest.read_bytes())["snapshots"]
    if damage is None:
        manifest.unlink()
    else:
        manifest.write_text(damage)
    before = content(store.path)
    with pytest.raises((InvalidInput, CorruptFile)) as caught:
        store.save(weights(4), 4)
    assert f"`snapsure rebuild {store.path}`" in str(caught.value)
    assert content(store.path) == before
    store.rebuild()
    assert json.loads(manifest.read_bytes())["snapshots"] == held
    store.verify()
    store.save(weights(4), 4)
    assert store.epochs == [1, 2, 3, 4]


def test_what_cannot_be_rebuilt(store, tmp_path):
    with refuses(InvalidInput, store.path, "got a whole one with 3 snapshots", ".verify()"):
        store.rebuild()
    (store.path / "manifest.json").unlink()
    again = store.path / "epoch-000002-again.safetensors"
    again.write_bytes((store.path / "epoch-000002.safetensors").read_bytes())
    with refuses(
        InvalidInput,
        "`folder`",
        f"got epoch-000002-again.safetensors and epoch-000002.safetensors in {store.path}",
    ):
        store.rebuild()
    again.unlink()
    cut = store.path / "epoch-000002.safetensors"
    cut.write_bytes(cut.read_bytes()[:-1])
    with refuses(CorruptFile, cut, "ends early"):
        store.rebuild()
    save_file({}, cut)
    with refuses(InvalidInput, cut, "got none"):
        store.rebuild()
    assert not (store.path / "manifest.json").exists()
    for folder in (tmp_path, tmp_path / "none"):
        with refuses(InvalidInput, "`folder`", f"got none in {folder}"):
            SnapshotStore(folder).rebuild()
    assert not (tmp_path / "none").exists()


def test_what_is_not_the_stores_stays(store):
    others = [
        store.path / name
        for name in (
            "notes.txt",
            "epoch-000009.safetensors",  # a crash may have left it, or a user
            "epoch-best.safetensors",
            "epoch-7.safetensors",
            ".partial-download",
            ".partial-0123456789ab-thesis.tex",
            "below/.partial-0123456789ab-epoch-000001.safetensors",
        )
    ]
    (store.path / "below").mkdir()
    for path in others:
        path.write_text("mine")
    ours = [
        store.path / f".partial-0123456789ab-{name}"
        for name in (
            "manifest.json",
            "epoch-000001.safetensors",
            "epoch-000001-again.safetensors",
            "epoch-1234567.safetensors",
        )
    ]
    for path in ours:
        path.write_bytes(b"half")
    store.save(weights(4), 4)
    assert [path.read_text() for path in others] == ["mine"] * len(others)
    assert not any(path.exists() for path in ours)


def killed_at(monkeypatch, module, name, call):
    """Do `call`, and stop for good where `module.name` would be called."""

    def kill(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, name, kill)
        with pytest.raises(KeyboardInterrupt):
            call()


def test_a_snapshot_left_before_it_was_named_is_replaced(store, monkeypatch):
    killed_at(monkeypatch, WriterLock, "replace", lambda: store.save(weights(7), 4))
    left = store.path / "epoch-000004.safetensors"
    assert left.exists()
    again = SnapshotStore(store.path)
    assert again.epochs == [1, 2, 3]
    again.save(weights(5), 5)
    assert left.exists()
    again.save(weights(4), 4)
    again.verify()
    assert float(again.load(4)["w"][0]) == 4


def test_a_file_of_others_is_not_replaced(store):
    other = store.path / "epoch-000004.safetensors"
    header = b'{"__metadata__": []}'
    no_names = len(header).to_bytes(8, "little") + header
    for content in (b"mine", b"", (2**62).to_bytes(8, "little"), no_names):
        other.write_bytes(content)
        with refuses(InvalidInput, "`epoch`", f"got {other}"):
            store.save(weights(4), 4)
        assert other.read_bytes() == content
    save_file(weights(1), other)
    with pytest.raises(InvalidInput):
        store.save(weights(4), 4)
    assert store.epochs == [1, 2, 3]


@pytest.mark.parametrize("change", ["replace", "budget", "remove", "rewind"])
def test_files_that_were_leaving_when_a_crash_came_are_removed(store, monkeypatch, change):
    calls = {
        "replace": lambda: store.save(weights(9), 1),
        "budget": lambda: store.save(weights(4), 4, instead_of=[1]),
        "remove": lambda: store.remove(1),
        "rewind": lambda: store.rewind(0),
    }
    old = store.path / "epoch-000001.safetensors"
    killed_at(monkeypatch, type(old), "unlink", calls[change])
    assert old.exists()
    held = store.epochs
    again = SnapshotStore(store.path)
    again.save(weights(6), 6)
    assert not old.exists()
    assert again.epochs == [*held, 6]
    again.verify()


@pytest.mark.parametrize("change", ["replace", "budget", "remove", "rewind"])
def test_a_file_leaves_when_the_manifest_on_disk_no_longer_holds_it(store, monkeypatch, change):
    calls = {
        "replace": lambda: store.save(weights(9), 1),
        "budget": lambda: store.save(weights(4), 4, instead_of=[1]),
        "remove": lambda: store.remove(1),
        "rewind": lambda: store.rewind(0),
    }
    unlink, left = Path.unlink, []

    def watched(path, missing_ok=False):
        if path.name.startswith("epoch-"):
            told = json.loads((store.path / "manifest.json").read_bytes())
            assert path.name not in [entry["file"] for entry in told["snapshots"].values()]
            assert path.name in [entry["file"] for entry in told["leaving"]]
            left.append(path.name)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", watched)
    calls[change]()
    assert "epoch-000001.safetensors" in left


def test_a_file_that_came_under_the_name_of_one_that_left_stays(store):
    store.remove(1)
    other = store.path / "epoch-000001.safetensors"
    other.write_text("mine")
    SnapshotStore(store.path).save(weights(4), 4)
    assert other.read_text() == "mine"


def test_the_first_snapshot_may_be_interrupted_too(tmp_path, monkeypatch):
    store, write = SnapshotStore(tmp_path), _files.write_bytes
    store.save(weights(1), 1)
    whole = content(tmp_path)
    for path in tmp_path.iterdir():
        path.unlink()
    store, written = SnapshotStore(tmp_path), []

    def killed(path, content, *before):
        if len(written) == 2:  # who writes, and the empty manifest, but not what names the snapshot
            raise KeyboardInterrupt
        written.append(path)
        write(path, content, *before)

    with monkeypatch.context() as patched:
        patched.setattr(_files, "write_bytes", killed)
        with pytest.raises(KeyboardInterrupt):
            store.save(weights(1), 1)
    del store
    SnapshotStore(tmp_path).save(weights(1), 1)
    assert content(tmp_path) == whole


def test_a_folder_that_is_deleted_while_a_store_writes_there_is_not_begun_anew(store):
    store.save(weights(4), 4)
    shutil.rmtree(store.path)
    with refuses(StorageError, store.path, "No such file"):
        store.save(weights(5), 5)
    assert not store.path.exists()


def test_another_writer_may_begin_while_the_first_snapshot_is_prepared(tmp_path, monkeypatch):
    find = _manifest.list_checkpoint_files

    def find_after_another(folder):
        monkeypatch.undo()
        SnapshotStore(folder).save(weights(1), 1)
        return find(folder)

    monkeypatch.setattr(_manifest, "list_checkpoint_files", find_after_another)
    SnapshotStore(tmp_path).save(weights(2), 2)
    assert SnapshotStore(tmp_path).epochs == [1, 2]


@pytest.mark.parametrize("objects", [1, 4])
def test_threads_take_turns(tmp_path, objects):
    stores = [SnapshotStore(tmp_path / "run") for _ in range(objects)]
    problems = []

    def work(thread):
        try:
            for i in range(25):
                stores[thread % objects].save(weights(100 * thread + i), 100 * thread + i)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert stores[0].epochs == [100 * thread + i for thread in range(4) for i in range(25)]
    for epoch in stores[0].epochs:
        assert float(stores[0].load(epoch)["w"][0]) == epoch


def test_threads_that_replace_and_remove_take_turns(store):
    start = threading.Barrier(4)

    def work(thread):
        start.wait()
        own = SnapshotStore(store.path)
        for i in range(10):
            own.save(weights(i), 1)
            own.save(weights(i), 100 + thread, instead_of=[100 + thread])
            own.remove(100 + thread)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.epochs == [1, 2, 3]
    store.verify()
    assert len(list(store.path.glob("*.safetensors"))) == 3
