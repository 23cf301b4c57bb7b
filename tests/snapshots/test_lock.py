"""One writer: where locks work, where they do not, and whoever holds them."""

import errno
import gc
import os
import platform
import re
import signal
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from snapsure import SnapshotStore
from snapsure.errors import StorageError, StoreLocked
from snapsure.snapshots import _lock
from tests.support import processes
from tests.support.refusals import refuses

LOADED = ("torch", "snapsure.snapshots")

# Saves until it is refused, and says what was saved. Both are ready before either begins.
WRITER = """
    import errno, fcntl, sys, time, torch
    from pathlib import Path
    from snapsure import SnapshotStore
    from snapsure.errors import StoreLocked

    folder, number = Path(sys.argv[1]), int(sys.argv[2])

    def flock(handle, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    fcntl.flock = flock
    (folder.parent / f"ready-{number}").touch()
    while len(list(folder.parent.glob("ready-*"))) < 2:
        time.sleep(0.001)
    store = SnapshotStore(folder)
    for i in range(int(sys.argv[3])):
        epoch = 10 * i + number
        try:
            store.save({"w": torch.full((50_000,), 100.0 * epoch + number)}, epoch)
        except StoreLocked as error:
            print(error, flush=True)
            break
        print("saved", epoch, flush=True)
"""


def weights(value=1.0):
    return {"w": torch.full((2,), value)}


def two_writers(folder, saves):
    """What each has saved, and what those that were refused said."""
    with (
        processes.forked(WRITER, folder, 1, saves, loaded=LOADED) as first,
        processes.forked(WRITER, folder, 2, saves, loaded=LOADED) as second,
    ):
        for writer in (first, second):
            assert writer.wait() == 0, writer.stderr
        lines = [writer.stdout.splitlines() for writer in (first, second)]
    saved = [[int(line.split()[1]) for line in own if line.startswith("saved")] for own in lines]
    return saved, [line for own in lines for line in own if not line.startswith("saved")]


@pytest.mark.slow
@pytest.mark.parametrize("run", range(3))
def test_two_writers_where_locks_do_not_work_lose_nothing(tmp_path, run):
    folder = tmp_path / "run"
    saved, ends = two_writers(folder, saves=30)
    store = SnapshotStore(folder)
    store.verify()
    assert store.epochs == sorted(saved[0] + saved[1])
    for number, own in enumerate(saved, 1):
        for epoch in own:
            assert float(store.load(epoch)["w"][0]) == 100.0 * epoch + number
    # The second is refused, unless the first has ended before the second began.
    assert max(map(len, saved)) == 30
    if ends:
        assert len(ends) == 1
        assert re.match(rf"{folder} must have one writer, .*process.* writes there", ends[0])
    else:
        assert [*map(len, saved)] == [30, 30]


def test_where_locks_only_seem_to_work_the_manifest_tells(tmp_path, monkeypatch):
    """Two machines whose locks are their own: to each it seems to be alone."""
    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    here, there = SnapshotStore(tmp_path), SnapshotStore(tmp_path)
    here.save(weights(1.0), 1)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(_lock, "_locks", {})
        elsewhere.setattr(platform, "node", lambda: "node7")
        there.save(weights(2.0), 2)
        there_lock = there._lock
    del there
    for call, *arguments in ((here.save, weights(), 3), (here.remove, 1), (here.rewind, 0)):
        for _ in range(2):  # it stays so
            with refuses(StoreLocked, tmp_path, f"process {os.getpid()} on node7", "End one"):
                call(*arguments)
    assert here.epochs == [1, 2]
    here.verify()
    assert [float(here.load(epoch)["w"][0]) for epoch in (1, 2)] == [1.0, 2.0]
    del here, there_lock, call, arguments
    gc.collect()  # what was refused kept its frames
    SnapshotStore(tmp_path).save(weights(), 3)  # who comes after both is alone


@pytest.mark.parametrize("moment", ["snapshot", "manifest"])
def test_a_manifest_that_changes_while_a_snapshot_is_written(tmp_path, monkeypatch, moment):
    """The other's snapshot of the same epoch is neither replaced nor forgotten."""
    store = SnapshotStore(tmp_path / "run")
    store.save(weights(1.0), 1)
    other = SnapshotStore(tmp_path / "other")
    for epoch in (1, 2):
        other.save(weights(float(epoch)), epoch)
    replace, renamed = os.fsync, []

    def fsync(handle):
        """The other process is done in the moment in which this one waits for the disk."""
        replace(handle)
        renamed.append(handle)
        if len(renamed) == {"snapshot": 1, "manifest": 3}[moment]:
            for name in ("epoch-000002.safetensors", "manifest.json"):
                (store.path / name).write_bytes((other.path / name).read_bytes())

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        with pytest.raises(StoreLocked):
            store.save(weights(3.0), 2)
    assert not list(store.path.glob(".partial-*"))
    store.verify()
    assert float(store.load(2)["w"][0]) == 2.0


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL])
def test_a_file_system_without_locks(tmp_path, monkeypatch, number):
    def none(*_):
        raise OSError(number, "No locks available")

    gc.collect()  # stores of earlier tests release their locks while there are some
    monkeypatch.setattr("fcntl.flock", none)
    SnapshotStore(tmp_path).save(weights(), 1)
    other = tmp_path / ".partial-0123456789ab-epoch-000009.safetensors"
    other.write_bytes(b"half")  # a second writer may be at it
    SnapshotStore(tmp_path).save(weights(), 2)
    assert SnapshotStore(tmp_path).epochs == [1, 2]
    gc.collect()
    assert not (tmp_path / ".lock.soft").exists()
    assert other.exists()


@pytest.mark.slow
def test_a_writer_that_died_where_there_are_no_locks(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", none)
    mark = tmp_path / ".lock.soft"
    mark.write_text("4711\nanother-machine\n")  # of a machine whose processes nobody here can see
    store = SnapshotStore(tmp_path)
    with refuses(StoreLocked, tmp_path, "got a second", f"delete {mark}"):
        store.save(weights(), 1)
    mark.unlink()  # as it says
    store.save(weights(), 1)
    assert store.epochs == [1]


def test_links_are_not_followed(tmp_path):
    precious = tmp_path / "precious.txt"
    for name in (".lock", ".lock.pid"):
        folder = tmp_path / f"run{name}"
        folder.mkdir()
        precious.write_text("precious")
        (folder / name).symlink_to(precious)
        store = SnapshotStore(folder)
        if name == ".lock":
            with refuses(StorageError, folder / name, "got a link"):
                store.save(weights(), 1)
            (folder / name).unlink()  # as it says
        store.save(weights(), 1)
        assert precious.read_text() == "precious"
        assert store.epochs == [1]


FORKING = """
    import os, sys, time
    import torch
    from snapsure import SnapshotStore
    store = SnapshotStore(sys.argv[1])
    store.save({"w": torch.ones(2)}, 1)
    child = os.fork()
    if child:
        print(child, flush=True)
    time.sleep(600)
"""


def test_a_child_of_a_writer_that_died_does_not_hold_the_lock(tmp_path):
    with processes.forked(FORKING, tmp_path, loaded=LOADED) as writer:
        processes.until(lambda: "\n" in writer.stdout, writer)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        os.kill(int(writer.stdout), 0)  # it lives
        SnapshotStore(tmp_path).save(weights(), 2)
        os.kill(int(writer.stdout), signal.SIGKILL)
    assert SnapshotStore(tmp_path).epochs == [1, 2]


@pytest.mark.parametrize(
    ("note", "who"),
    [
        ("{pid} {here}", "process {pid}"),
        ("{pid} node7", "process {pid} on node7"),
        ("", "another process"),
        ("\0\0", "another process"),
    ],
)
def test_who_holds_the_lock(tmp_path, note, who):
    names = {"pid": os.getppid(), "here": platform.node()}
    code = """
        import fcntl, os, sys, time
        handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
        fcntl.flock(handle, fcntl.LOCK_EX)
        print("held", flush=True)
        time.sleep(600)
    """
    with processes.forked(code, tmp_path / ".lock") as holder:
        processes.until(lambda: "held" in holder.stdout, holder)
        (tmp_path / ".lock.pid").write_text(note.format(**names))
        with refuses(StoreLocked, tmp_path, f"got a second: {who.format(**names)} writes there"):
            SnapshotStore(tmp_path).save(weights(), 1)


def no_locks(*_):
    raise OSError(errno.ENOLCK, "No locks available")


@pytest.mark.parametrize("works", [True, False])
def test_any_thread_may_drop_a_lock_which_is_free_when_it_is_forgotten(
    tmp_path, monkeypatch, works
):
    """Another thread may ask for it at that moment."""
    if not works:
        gc.collect()  # stores of earlier tests release their locks while there are some
        monkeypatch.setattr("fcntl.flock", no_locks)
    locks, again = [], []

    def take(into):
        into.append(_lock.take_lock(tmp_path, tmp_path / "manifest.json"))

    with ThreadPoolExecutor(1) as pool:  # whose thread stays
        pool.submit(take, locks).result()
        watch = weakref.ref(locks[0], lambda _: take(again))
        locks.clear()
        assert watch() is None
        assert len(again) == 1
