"""One writer at a time, of processes and of threads.

The system releases the lock when its process ends. A file system without locks gets a marker file
instead. Locks of two machines that share a folder may not see each other, so each writer also
checks that the manifest is still the one that it has read or written last: the first to find
another is refused, and no snapshot is lost.
"""

import errno
import os
import platform
import threading
from pathlib import Path
from weakref import WeakValueDictionary

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from snapsure import _files
from snapsure.errors import StorageError, StoreLocked

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)  # file systems' answers
WRITER = ".lock.pid"  # beside the lock: Windows does not let others read a locked file


class WriterLock:
    """The lock of a folder, held while any store of this process that has written there exists.

    Threads take turns: `with lock.turn`, from reading the manifest to replacing it.
    """

    _lock: BaseFileLock | None = None

    def __init__(self, folder: Path, manifest: Path) -> None:
        self.turn = threading.RLock()
        self._pid = os.getpid()
        self._folder, self._path = folder, manifest
        self._manifest: bytes | None = None  # as this process knows it
        self._lock = _acquire(folder)
        _files.write_bytes(folder / WRITER, f"{self._pid} {platform.node()}".encode())

    def __del__(self) -> None:
        """Release the lock before `take_lock` stops finding it."""
        if self._lock is not None:
            self._lock.release()

    @property
    def is_ours(self) -> bool:
        """Whether this process took the lock, and is not a fork of the one that did."""
        return self._pid == os.getpid()

    def begin(self, *, rebuild: bool = False) -> None:
        """Begin a turn: the manifest must be the one that this process knows, or be missing."""
        content = _files.content_of(self._path)
        if not rebuild and content is not None and self._manifest is not None:
            self.check()
        self._manifest = content

    def replace(self, content: bytes) -> None:
        """Replace the manifest."""
        _files.write_bytes(self._path, content, self.check)
        self._manifest = content

    def check(self) -> None:
        """Refuse to write where another process has changed the manifest."""
        if _files.content_of(self._path) != self._manifest:
            raise StoreLocked(
                f"{self._folder} must have one writer, got a second: "
                f"{_name_writer(self._folder)} has changed the manifest, so locks do not work "
                "there. End one of the two processes, and start the other again."
            )


_locks: "WeakValueDictionary[str, WriterLock]" = WeakValueDictionary()
# By process: a fork may happen while another thread of its parent holds the guard.
_guards: dict[int, threading.Lock] = {}


def take_lock(folder: Path, manifest: Path) -> WriterLock:
    """Take the lock of a folder and its manifest, or share the one that this process has."""
    key = str(folder.resolve())
    with _guards.setdefault(os.getpid(), threading.Lock()):
        lock = _locks.get(key)
        if lock is None or not lock.is_ours:
            lock = _locks[key] = WriterLock(folder, manifest)
        return lock


def _acquire(folder: Path) -> BaseFileLock:
    # Any thread may drop the last store, so the lock belongs to no thread.
    lock: BaseFileLock = FileLock(folder / ".lock", thread_local=False, fallback_to_soft=False)
    try:
        try:
            lock.acquire(timeout=0)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            error.__traceback__ = None  # its frames refer to it, and would keep the store alive
            lock = SoftFileLock(folder / ".lock.soft", thread_local=False)
            lock.acquire(timeout=1)  # a marker whose process is gone is removed first
    except Timeout:
        stale = f" If no process writes there, delete {lock.lock_file}."
        raise StoreLocked(
            f"{folder} must have one writer, got a second: {_name_writer(folder)} writes there. "
            "Record into another folder, or end that process."
            + (stale if isinstance(lock, SoftFileLock) else "")
        ) from None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise StorageError(
            error.errno,
            f"{lock.lock_file} must be a file of the store's own, got a link. Delete it.",
        ) from None
    return lock


def _name_writer(folder: Path) -> str:
    """Say which process has the lock, as far as it is known."""
    note = (_files.content_of(folder / WRITER) or b"").decode(errors="replace")
    pid, _, machine = note.partition(" ")
    if not pid.isdecimal() or (pid, machine) == (str(os.getpid()), platform.node()):
        return "another process"
    return f"process {pid}" if machine == platform.node() else f"process {pid} on {machine}"
