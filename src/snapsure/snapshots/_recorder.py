"""Record snapshots with one line in the training loop."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from snapsure._types import Precision
from snapsure.errors import InvalidInput
from snapsure.snapshots._schedule import EveryEpoch, Schedule
from snapsure.snapshots._store import SnapshotStore, check_precision, is_writer


class Recorder:
    """Takes snapshots by a schedule.

    The folder is checked at once: one that cannot be written to, or that holds checkpoints of
    another tool, is refused before training starts.

    Parameters
    ----------
    store : SnapshotStore, str or Path
        Where they go.
    schedule : Schedule
        `EveryEpoch()`, `Evenly(total)` or `Budget(keep)`.
    dtype : "bfloat16", "float16" or "float32", optional
        As for `SnapshotStore.save`.
    trainable_only : bool, optional
        Record what is trained, without frozen weights, as `SnapshotStore.save` does by default for
        a network with adapters of `peft`.

    Examples
    --------
    >>> import tempfile
    >>> recorder = Recorder(SnapshotStore(tempfile.mkdtemp()), EveryEpoch())
    >>> model = nn.Linear(3, 2)
    >>> for epoch in range(1, 4):  # after each epoch of training:
    ...     taken = recorder.record(model, epoch)
    >>> recorder.store.epochs
    [1, 2, 3]
    """

    def __init__(
        self,
        store: SnapshotStore | str | Path,
        schedule: Schedule | None = None,
        *,
        dtype: Precision | None = None,
        trainable_only: bool | None = None,
    ) -> None:
        if isinstance(store, str | Path):
            store = SnapshotStore(store)
        if not isinstance(store, SnapshotStore):
            raise InvalidInput(
                f"`store` must be a SnapshotStore or a folder, got {type(store).__name__}. "
                "Snapshots of other tools are read-only; record into a new folder."
            )
        check_precision(dtype)
        store.check_writable()
        self.store = store
        self.schedule = EveryEpoch() if schedule is None else schedule
        self._options: dict[str, Any] = {"dtype": dtype, "trainable_only": trainable_only}

    def record(self, model: nn.Module | Mapping[str, Tensor], epoch: int) -> bool:
        """Take a snapshot if the schedule wants this epoch; return whether it was taken.

        Raises
        ------
        InvalidInput
            If the store has later epochs, which belong to another run.
        """
        if not self.schedule.wants(epoch) or not is_writer():
            return False
        held = self.store.epochs
        if held and held[-1] > epoch:
            raise InvalidInput(
                f"`epoch` must come after those in {self.store.path} (latest {held[-1]}), got "
                f"{epoch}. Record into a new folder; or, where training resumes after epoch "
                f"{epoch - 1}, first remove the later ones by "
                f"snapsure.SnapshotStore({str(self.store.path)!r}).rewind({epoch - 1})."
            )
        surplus = self.schedule.surplus(held, epoch)
        self.store.save(model, epoch, instead_of=surplus, **self._options)
        return True
