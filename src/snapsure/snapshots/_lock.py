"""One writer at a time, of processes and of threads.

The lock between processes is one that the system itself releases when its process dies.
"""

import errno
import os
import threading
from pathlib import Path
from weakref import WeakValueDictionary

from filelock import FileLock, Timeout

from snapsure.errors import StoreLocked

# What file systems without locks answer: nobody can be told of a second writer there.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)


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

    def __init__(self, folder: Path) -> None:
        self.turn = threading.RLock()
        # Whichever thread drops the last store releases it, so the lock is no thread's own.
        self._lock = _OwnLock(folder / ".lock", thread_local=False)
        self._lock.owner = os.getpid()
        # Beside it: Windows lets nobody read a locked file, and filelock may empty it.
        writer = folder / ".lock.pid"
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise StoreLocked(
                f"{folder} must have one writer, got a second: process {_read(writer)} is writing "
                "snapshots there: record into another folder, or end that process"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            return
        writer.write_text(str(self._lock.owner))

    def __del__(self) -> None:
        """Release it before another thread of this process can miss it and try to take it."""
        self._lock.release()

    @property
    def ours(self) -> bool:
        """Whether this process took the lock, and is no fork of the one that did."""
        return self._lock.owner == os.getpid()


_held: "WeakValueDictionary[str, WriterLock]" = WeakValueDictionary()
# By process: a fork may come while another thread of its parent has the guard, for ever then.
_guards: dict[int, threading.Lock] = {}


def lock(folder: Path) -> WriterLock:
    """Take the lock of a folder, or share the one that this process has."""
    key = str(folder.resolve())
    with _guards.setdefault(os.getpid(), threading.Lock()):
        held = _held.get(key)
        if held is None or not held.ours:
            held = WriterLock(folder)
            _held[key] = held
        return held


def _read(writer: Path) -> str:
    """The number of the process that has the lock, unless it is just about to write it."""
    try:
        return writer.read_text() or "unknown"
    except OSError:
        return "unknown"
