"""What the callbacks of all frameworks share: a recorder that knows where training begins."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from snapsure._types import Precision
from snapsure.errors import InvalidInput
from snapsure.snapshots import Recorder, SnapshotStore
from snapsure.snapshots._schedule import Schedule
from snapsure.snapshots._store import is_writer


class Recording:
    """Snapshots of a training that a framework runs, and may resume."""

    def __init__(
        self,
        store: SnapshotStore | str | Path,
        schedule: Schedule | None,
        dtype: Precision | None,
    ) -> None:
        self._recorder = Recorder(store, schedule, dtype=dtype)

    @property
    def store(self) -> SnapshotStore:
        """Where the snapshots go."""
        return self._recorder.store

    def begin(self, done: int, *, new: bool) -> None:
        """Training starts after `done` epochs: those that an abandoned run took later go.

        A new training is refused a store that holds another: at its start, not after an epoch.
        """
        if not is_writer():
            return
        if new and len(self.store):
            raise InvalidInput(
                f"`store` must be empty when a training begins, got {len(self.store)} snapshots in "
                f"{self.store.path}: choose another folder, or resume from a checkpoint of that "
                "training"
            )
        self.store.rewind(done)

    def take(self, model: nn.Module | Mapping[str, Tensor], epoch: int) -> None:
        """A snapshot, if the schedule wants this epoch."""
        self._recorder.record(model, epoch)
