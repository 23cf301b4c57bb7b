"""Snapshots from a training by Hugging Face's Trainer, and losses that remember every example.

`score` takes its models as they are: batches are dicts, logits come from the output object, and
`trainer.get_eval_dataloader()` is valid data.
"""

from pathlib import Path
from typing import Any, TypedDict

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from snapsure import _files, _json, _validate
from snapsure._types import Precision
from snapsure.errors import InvalidInput
from snapsure.integrations._recording import Recording
from snapsure.snapshots import Schedule, SnapshotStore
from snapsure.training._losses import PointLoss

__all__ = ["PointLossTrainer", "SnapshotCallback"]

_LOSS, _MANIFEST, _KIND = "point_loss.pt", "point_loss.json", "point loss"


class _Manifest(TypedDict):
    """What `point_loss.json` holds."""

    files: dict[str, str]


class SnapshotCallback(Recording, TrainerCallback):
    """Takes a snapshot after each epoch that the schedule wants, or every so many steps.

    Epochs count from 1. Under DDP one process writes. A resumed training
    (`resume_from_checkpoint=`) continues in the same store.

    Parameters
    ----------
    store, schedule, dtype, trainable_only
        As for `Recorder`: of a model with adapters of `peft`, what is trained. A new training needs
        a new or empty folder.
    steps : int, optional
        Count optimizer steps instead of epochs, and ask the schedule at every multiple of this and
        at the last. For a fixed number of snapshots: `SnapshotCallback(store,
        Evenly(total=max_steps), steps=1)`.
    """

    def __init__(
        self,
        store: SnapshotStore | str | Path,
        schedule: Schedule | None = None,
        *,
        steps: int | None = None,
        dtype: Precision | None = None,
        trainable_only: bool | None = None,
    ) -> None:
        super().__init__(store, schedule, dtype=dtype, trainable_only=trainable_only)
        self._steps = None if steps is None else _validate.count(steps, "steps")
        self._done = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Check that this training and the store belong together."""
        self._done = int(state.epoch or 0)
        done = self._done if self._steps is None else state.global_step
        self._begin(done, new=state.global_step == 0)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take the snapshot of an epoch."""
        self._done += 1  # counted: `state.epoch` of an epoch that max_steps cuts short is no end
        if self._steps is None:
            self._recorder.record(kwargs["model"], self._done)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take the snapshot of a step."""
        if self._steps is None:
            return
        if state.global_step % self._steps == 0 or state.global_step == state.max_steps:
            self._recorder.record(kwargs["model"], state.global_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Print the size of the store."""
        self._end()


class PointLossTrainer(Trainer):
    """A Trainer whose loss remembers every training example: `SelfAdaptive`, `CorrectnessRanking`.

    Each example must have its number as `index` (`Numbered(dataset)`), which the Trainer must not
    remove (`TrainingArguments(remove_unused_columns=False)`). Checkpoints hold the loss's memory,
    and a resumed training continues with it.

    Parameters
    ----------
    point_loss : SelfAdaptive or CorrectnessRanking
        The loss in training; in evaluation it is the model's own.
    args, options
        As for `Trainer`.
    """

    def __init__(self, *args: Any, point_loss: PointLoss, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.args.remove_unused_columns:
            raise InvalidInput(
                "`args` must keep each example's `index`, got remove_unused_columns=True. Make "
                "TrainingArguments with remove_unused_columns=False."
            )
        # Else gradients of accumulated steps would be added up, not averaged.
        self.model_accepts_loss_kwargs = False
        self.point_loss = point_loss.to(self.args.device)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Compute the loss of a batch."""
        index = inputs.pop("index", None)
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs)
        if index is None:
            raise InvalidInput(
                "`train_dataset` must give each example's number as `index`, got none. Wrap it in "
                "snapsure.training.Numbered."
            )
        outputs = model(**{name: value for name, value in inputs.items() if name != "labels"})
        loss = self.point_loss(outputs["logits"], inputs["labels"], index)
        return (loss, outputs) if return_outputs else loss

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}")
        with _files.replacing(folder / _LOSS) as file:
            torch.save(self.point_loss.state_dict(), file)
        _json.write(folder / _MANIFEST, _KIND, {"files": {_LOSS: _files.sha256(folder / _LOSS)}})

    def _load_from_checkpoint(self, resume_from_checkpoint: Any, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        folder = Path(resume_from_checkpoint)
        path = folder / _LOSS
        if not path.exists():
            raise InvalidInput(
                f"A checkpoint must hold the loss's memory ({_LOSS}), got none in {folder}. Resume "
                "from one that this trainer wrote."
            )
        files = _json.read(folder / _MANIFEST, _KIND, _Manifest)["files"]
        _files.check_sha256(path, files.get(_LOSS), "resume from another checkpoint")
        self.point_loss.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
