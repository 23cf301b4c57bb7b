"""Files are written whole or not at all, and only what is ours is removed."""

import errno
import hashlib
import os
import re
import resource
import stat
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from snapsure import ScoreTable, _arrays, _files
from snapsure.errors import SnapsureError, StorageError, UnsafeFile
from tests.support import processes
from tests.support.refusals import refuses


@pytest.fixture
def no_room():
    """No file may grow beyond a page: the system itself refuses, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("n", [500, 5000, 500_000])
def test_an_array_that_does_not_fit_is_told_of(tmp_path, no_room, n):
    # 500 values: all but the last 32 bytes fit, and it is the last flush that fails.
    path = tmp_path / "values.npy"
    with pytest.raises(StorageError) as caught:
        _arrays.write(path, np.arange(float(n)))
    assert caught.value.errno == errno.EFBIG
    assert f"values.npy in {tmp_path} (File too large)" in caught.value.strerror
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_does_not_fit_is_told_of(tmp_path, no_room):
    table = ScoreTable({"softmax": np.zeros((1, 500))}, np.zeros((1, 500), int))
    with pytest.raises(StorageError):
        table.save(tmp_path)
    assert not (tmp_path / "table.json").exists()


@pytest.mark.parametrize(
    "values",
    [
        np.arange(7),
        np.zeros((3, 4), np.float32),
        np.zeros((4, 3), order="F"),
        np.arange(20)[::3],
        np.zeros(0),
        np.array([True, False]),
    ],
)
def test_the_bytes_are_those_of_numpy(tmp_path, values):
    sha256 = _arrays.write(tmp_path / "ours.npy", values)
    np.save(tmp_path / "theirs.npy", np.ascontiguousarray(values))
    ours, theirs = ((tmp_path / f"{name}.npy").read_bytes() for name in ("ours", "theirs"))
    assert ours == theirs
    assert sha256 == hashlib.sha256(theirs).hexdigest()
    for mode in (None, "r") if values.size else (None,):
        found = np.load(tmp_path / "ours.npy", mmap_mode=mode)
        assert found.dtype == values.dtype
        assert np.array_equal(found, values)


def test_only_our_own_temporaries_are_removed(tmp_path):
    names = re.compile(r"epoch-\d{6}\.npy")
    ours = tmp_path / ".partial-0123456789ab-epoch-000001.npy"
    others = [
        tmp_path / name
        for name in (
            ".partial-download",
            ".partial-0123456789ab-thesis.tex",
            ".partial-0123456789ab-epoch-000001.npy.bak",
            ".partial-0123456789-epoch-000001.npy",
            ".partial-0123456789AB-epoch-000001.npy",
            "epoch-000001.npy",
            "below/.partial-0123456789ab-epoch-000001.npy",
        )
    ]
    (tmp_path / "below").mkdir()
    (tmp_path / ".partial-0123456789ab-epoch-000002.npy").mkdir()
    for path in (ours, *others):
        path.write_text("mine")
    _files.remove_partial(tmp_path, names)
    assert not ours.exists()
    assert all(path.read_text() == "mine" for path in others)
    assert (tmp_path / ".partial-0123456789ab-epoch-000002.npy").is_dir()


WRITES = """
    import sys, time
    from pathlib import Path
    from snapsure import _files

    with _files.replacing(Path(sys.argv[1])) as file:
        file.write(b"new")
        file.flush()
        Path(sys.argv[2]).touch()
        while not Path(sys.argv[3]).exists():
            time.sleep(0.005)
"""


@pytest.mark.parametrize("killed", [False, True])
def test_what_another_process_is_writing_stays(tmp_path, killed):
    path, begun, go = (tmp_path / "files" / "a.npy", tmp_path / "begun", tmp_path / "go")
    path.parent.mkdir()
    with processes.forked(WRITES, path, begun, go, loaded=("snapsure._files",)) as process:
        processes.until(begun.exists, process)
        _files.remove_partial(path.parent, re.compile(r"a\.npy"))
        assert len(list(path.parent.iterdir())) == 1
        if killed:
            process.kill()
            _files.remove_partial(path.parent, re.compile(r"a\.npy"))
            assert list(path.parent.iterdir()) == []
        else:
            go.touch()
            assert process.wait() == 0, process.stderr
            assert path.read_bytes() == b"new"


def test_what_is_written_stays_until_it_has_its_name(tmp_path):
    def remove_partial():
        _files.remove_partial(tmp_path, re.compile("file"))

    _files.write_bytes(tmp_path / "file", b"new", remove_partial)
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_file_that_is_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    """Another process found it without a lock, and takes it for one that a crash left."""
    lock, others = _files._lock, []

    def remove(path, file):
        time.sleep(0.05)
        path.unlink()
        file.close()

    def lock_later(file, *, blocking):
        if not others:
            other = Path(file.name).open("r+b")  # noqa: SIM115 - the thread closes it
            assert lock(other, blocking=False)
            others.append(threading.Thread(target=remove, args=(Path(file.name), other)))
            others[0].start()
        return lock(file, blocking=blocking)

    monkeypatch.setattr(_files, "_lock", lock_later)
    with _files.replacing(tmp_path / "file") as file:
        others[0].join()
        file.write(b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_one_at_a_time_locks_a_folder(tmp_path):
    entered = []

    def enter():
        with _files.locking(tmp_path):
            entered.append(True)

    thread = threading.Thread(target=enter)
    with _files.locking(tmp_path):
        thread.start()
        time.sleep(0.05)
        assert entered == []
    thread.join()
    assert entered == [True]


def test_what_the_system_refuses_is_an_error_of_ours(tmp_path):
    with refuses(StorageError, tmp_path, "Is a directory"), _files.writing(f"to {tmp_path}"):
        tmp_path.unlink()


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """What is done to a file and its folder, in order, with what is on the disk at that moment."""
    done = []
    fsync, replace, path = os.fsync, Path.replace, tmp_path / "file"

    def told_fsync(handle):
        about = os.fstat(handle)
        kind = "folder" if stat.S_ISDIR(about.st_mode) else about.st_size
        done.append(("flush", kind, path.exists()))
        fsync(handle)

    def told_replace(self, target):
        done.append(("rename", self.stat().st_size, path.exists()))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", told_fsync)
    monkeypatch.setattr(Path, "replace", told_replace)
    return done


@pytest.mark.parametrize("size", [3, 100_000])
def test_all_bytes_are_on_the_disk_before_the_name_and_the_name_before_the_end(
    tmp_path, steps, size
):
    """A power cut loses what is not flushed; a rename may be on the disk before the bytes are."""
    _files.write_bytes(tmp_path / "file", b"x" * size)
    assert steps == [("flush", size, False), ("rename", size, False), ("flush", "folder", True)]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), KeyboardInterrupt(), ValueError()])
def test_what_fails_leaves_no_temporary_and_the_old_file(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")

    def fail():
        with _files.replacing(path) as file:
            file.write(b"new")
            raise error

    with pytest.raises((SnapsureError, type(error))):
        fail()
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_is_told_as_that(tmp_path, monkeypatch, number):
    """A full disk, and a user's own share of it."""

    def full(handle):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError) as caught:
        _files.write_bytes(tmp_path / "file", b"new")
    assert caught.value.errno == number
    assert f"file in {tmp_path}" in str(caught.value)


def folders_answer(monkeypatch, number):
    """Let the system refuse to flush folders."""
    fsync = os.fsync

    def answer(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", answer)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_a_system_that_cannot_flush_folders(tmp_path, monkeypatch, number):
    folders_answer(monkeypatch, number)
    _files.write_bytes(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_folder_that_should_be_flushed_and_is_not(tmp_path, monkeypatch):
    folders_answer(monkeypatch, errno.EIO)
    with pytest.raises(StorageError) as caught:
        _files.write_bytes(tmp_path / "file", b"new")
    assert caught.value.errno == errno.EIO


def test_a_folder_that_was_flushed_is_closed(tmp_path, monkeypatch):
    handles = []
    monkeypatch.setattr(os, "fsync", handles.append)
    _files.flush_folder(tmp_path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(*handles)


def test_a_temporary_is_never_written_through_a_link(tmp_path, monkeypatch):
    class Known:
        hex = "0123456789abcdef"

    monkeypatch.setattr(_files, "uuid4", Known)
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / ".partial-0123456789ab-file").symlink_to(precious)
    with pytest.raises(StorageError):
        _files.write_bytes(tmp_path / "file", b"new")
    assert precious.read_text() == "precious"


def test_what_cannot_be_removed_is_told(tmp_path):
    path = tmp_path / "folder"
    (path / "below").mkdir(parents=True)
    with refuses(StorageError, path):
        _files.remove(path)


@pytest.mark.parametrize(("size", "most"), [(1, 1 << 28), (10 << 20, 1000 << 20)])
def test_how_far_a_file_may_unpack(tmp_path, size, most):
    """To 256 MiB, or to a hundred times its size."""
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, size)
    _files.refuse_bomb(path, most, "copy it again")
    with refuses(UnsafeFile, path, f"got {most + 1:,} bytes from {size:,}", "Copy it again."):
        _files.refuse_bomb(path, most + 1, "copy it again")
