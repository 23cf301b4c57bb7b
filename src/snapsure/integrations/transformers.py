"""Snapshots from a training by Hugging Face's Trainer.

Its models are scored as they are: batches are dicts, logits are taken from the output object, and
`trainer.get_eval_dataloader()` is data that `score` takes.
"""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from snapsure import _validate
from snapsure._types import Precision
from snapsure.integrations._recording import Recording
from snapsure.snapshots import SnapshotStore
from snapsure.snapshots._schedule import Schedule

__all__ = ["SnapshotCallback"]


class SnapshotCallback(TrainerCallback):
    """Takes a snapshot after each epoch that the schedule wants, or every so many steps.

    Epochs count from 1. Under DDP one process writes. A training that Trainer resumes
    (`resume_from_checkpoint=`) continues in the same store.

    Parameters
    ----------
    store : SnapshotStore, str or Path
        Where snapshots go: an empty or new folder for a new training.
    schedule : Schedule, optional
        `EveryEpoch()` by default.
    steps : int, optional
        Count optimizer steps instead of epochs, and ask the schedule at every multiple of this and
        at the last. For a given number in all: `SnapshotCallback(store, Evenly(total=max_steps),
        steps=1)`.
    dtype : "bfloat16", "float16" or "float32", optional
        As for `SnapshotStore.save`.
    """

    def __init__(
        self,
        store: SnapshotStore | str | Path,
        schedule: Schedule | None = None,
        *,
        steps: int | None = None,
        dtype: Precision | None = None,
    ) -> None:
        self._recording = Recording(store, schedule, dtype)
        self._steps = None if steps is None else _validate.count(steps, "steps")
        self._done = 0

    @property
    def store(self) -> SnapshotStore:
        """Where snapshots go."""
        return self._recording.store

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Check that this training and the store belong together."""
        self._done = int(state.epoch or 0)
        done = self._done if self._steps is None else state.global_step
        self._recording.begin(done, new=state.global_step == 0)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take the snapshot of an epoch."""
        self._done += 1  # counted: `state.epoch` of an epoch that max_steps cuts short is no end
        if self._steps is None:
            self._recording.take(kwargs["model"], self._done)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take the snapshot of a step."""
        if self._steps is None:
            return
        if state.global_step % self._steps == 0 or state.global_step == state.max_steps:
            self._recording.take(kwargs["model"], state.global_step)
