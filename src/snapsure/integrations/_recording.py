"""What the callbacks of all frameworks share."""

import sys
from pathlib import Path

from snapsure._types import Precision
from snapsure.errors import InvalidInput
from snapsure.snapshots import Recorder, Schedule, SnapshotStore
from snapsure.snapshots._store import is_writer


class Recording:
    """The part of a callback that takes snapshots of a training, which may be resumed."""

    def __init__(
        self,
        store: SnapshotStore | str | Path,
        schedule: Schedule | None = None,
        *,
        dtype: Precision | None = None,
        trainable_only: bool | None = None,
    ) -> None:
        super().__init__()
        self._recorder = Recorder(store, schedule, dtype=dtype, trainable_only=trainable_only)

    @property
    def store(self) -> SnapshotStore:
        """Where snapshots go."""
        return self._recorder.store

    def _begin(self, done: int, *, new: bool) -> None:
        """Start after `done` epochs, and remove later snapshots of an abandoned run.

        A new training refuses a store that is not empty at once, not after an epoch.
        """
        if not is_writer():
            return
        if new and len(self.store):
            raise InvalidInput(
                f"`store` must be empty when a training begins, got {len(self.store)} snapshots in "
                f"{self.store.path}. Choose another folder, or resume from a checkpoint of that "
                "training."
            )
        self.store.rewind(done)

    def _end(self) -> None:
        """Print how large the store is now."""
        if is_writer():
            size = f"{len(self.store)} snapshots, {self.store.nbytes / 1e6:.1f} MB"
            sys.stderr.write(f"{self.store.path}: {size}\n")
