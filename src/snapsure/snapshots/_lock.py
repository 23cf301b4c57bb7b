"""One writer at a time, of processes and of threads.

The lock between processes is one that the system itself releases when its process dies.
"""

import os
import threading
from pathlib import Path
from weakref import WeakValueDictionary

from snapsure.errors import StoreLocked

try:
    import fcntl
except ImportError:  # Windows: no such lock; two writers are then not told of each other
    fcntl = None  # type: ignore[assignment]


class WriterLock:
    """Held while any store of this process that has written there lives.

    Its threads take turns: `with lock.turn`, from reading the manifest to replacing it.
    """

    def __init__(self, folder: Path) -> None:
        self.turn = threading.RLock()
        self._owner = os.getpid()
        self._handle = -1
        self._handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        if fcntl is None:
            return
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.read(self._handle, 32).decode() or "unknown"
            raise StoreLocked(
                f"{folder} must have one writer, got a second: process {other} is writing "
                "snapshots there: record into another folder, or end that process"
            ) from None
        except OSError:  # a file system without locks: nobody can be told there
            return
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, str(self._owner).encode(), 0)

    def __del__(self) -> None:
        """Let go; a forked child's copy counts as closed with the child."""
        if self._handle >= 0:
            os.close(self._handle)

    @property
    def ours(self) -> bool:
        """Whether this process took the lock, and is no fork of the one that did."""
        return self._owner == os.getpid()


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
