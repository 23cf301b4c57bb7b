"""One writer at a time, of processes and of threads.

The lock between processes is one that the system itself releases when its process dies. On some
network file systems locks do not work, or not between machines. So whoever writes also looks
whether the manifest is still the one that it has read or written last: the first to find another
there is refused, and nothing that was saved is lost.
"""

import errno
import os
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakValueDictionary

from filelock import FileLock, SoftFileLock, Timeout

from snapsure import _files
from snapsure.errors import StorageError, StoreLocked

# What file systems without locks answer.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)
_PATIENCE = 30  # seconds; a turn takes some milliseconds
WRITER = ".lock.pid"  # beside the lock: Windows lets nobody read a locked file


class _OwnLock(FileLock):
    """A lock whose copy in a forked child releases nothing: it would release the parent's."""

    owner = -1

    def release(self, force: bool = False) -> None:
        """Release it in the process that took it."""
        if self.owner == os.getpid():
            super().release(force)


class WriterLock:
    """Held while any store of this process that has written there lives.

    Its threads take turns: `with lock.turn`, from reading the manifest to replacing it.
    """

    def __init__(self, folder: Path, manifest: Path) -> None:
        self.turn = threading.RLock()
        self._folder, self._path = folder, manifest
        self._seen: bytes | None = None  # the manifest, as this process knows it
        self._mark: SoftFileLock | None = None  # where locks do not work
        # Whichever thread drops the last store releases it, so the lock is no thread's own.
        self._lock = _OwnLock(folder / ".lock", thread_local=False, fallback_to_soft=False)
        self._lock.owner = os.getpid()
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise StoreLocked(
                f"{folder} must have one writer, got a second: {_holder(folder)} is writing "
                "snapshots there: record into another folder, or end that process"
            ) from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise StorageError(
                    error.errno,
                    f"{self._lock.lock_file} must be a file of the store's own, got a link to "
                    "elsewhere: delete it",
                ) from None
            if error.errno not in _NO_LOCKS:
                raise
            self._mark = SoftFileLock(folder / ".lock.turn", _PATIENCE, thread_local=False)
        _files.write_bytes(folder / WRITER, f"{self._lock.owner} {platform.node()}".encode())

    def __del__(self) -> None:
        """Release it before another thread of this process can miss it and try to take it."""
        self._lock.release()

    @property
    def ours(self) -> bool:
        """Whether this process took the lock, and is no fork of the one that did."""
        return self._lock.owner == os.getpid()

    @property
    def works(self) -> bool:
        """Whether it keeps other processes out, as far as the system says."""
        return self._mark is None

    def begin(self, *, anew: bool = False) -> None:
        """Begin a turn, to be followed by reading the manifest.

        It must be the one that this process knows, unless there is none, or it is written `anew`.
        """
        found = _files.content_of(self._path)
        if not anew and None not in (found, self._seen):
            self._refuse_other(found)
        self._seen = found

    def replace(self, content: bytes) -> None:
        """Replace the manifest."""
        with self.alone():
            _files.write_bytes(self._path, content, self._check)
        self._seen = content

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let nobody write meanwhile; the manifest must still be the one the turn began with."""
        if self._mark is not None:
            self._acquire(self._mark)
        try:
            self._check()
            yield
        finally:
            if self._mark is not None:
                self._mark.release()

    def _acquire(self, mark: SoftFileLock) -> None:
        try:
            mark.acquire()
        except Timeout:
            raise StoreLocked(
                f"{self._folder} must have one writer, got a second, or one that died there: if no "
                f"process is writing snapshots there, delete {mark.lock_file}"
            ) from None

    def _check(self) -> None:
        self._refuse_other(_files.content_of(self._path))

    def _refuse_other(self, manifest: bytes | None) -> None:
        if manifest != self._seen:
            raise StoreLocked(
                f"{self._folder} must have one writer, got a second: {_holder(self._folder)} has "
                "changed the manifest since this process saw it, so locks do not work there: end "
                "one of the two, and start the other again"
            )


_held: "WeakValueDictionary[str, WriterLock]" = WeakValueDictionary()
# By process: a fork may come while another thread of its parent has the guard, for ever then.
_guards: dict[int, threading.Lock] = {}


def lock(folder: Path, manifest: Path) -> WriterLock:
    """Take the lock of a folder and its manifest, or share the one that this process has."""
    key = str(folder.resolve())
    with _guards.setdefault(os.getpid(), threading.Lock()):
        held = _held.get(key)
        if held is None or not held.ours:
            held = WriterLock(folder, manifest)
            _held[key] = held
        return held


def _holder(folder: Path) -> str:
    """Who has the lock, as far as it is known."""
    told = (_files.content_of(folder / WRITER) or b"").decode(errors="replace")
    pid, _, machine = told.partition(" ")
    if not pid.isdecimal() or (pid, machine) == (str(os.getpid()), platform.node()):
        return "another process"
    if machine not in ("", platform.node()):
        return f"process {pid} on {machine}"
    return f"process {pid}" if _runs(int(pid)) else f"one that process {pid} started before it died"


def _runs(pid: int) -> bool:
    """Whether there is a process, as far as that can be asked."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno != errno.ESRCH
    return True
