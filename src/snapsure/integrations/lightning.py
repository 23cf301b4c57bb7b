"""Snapshots from a Lightning training, and κ of its validation set for no extra pass."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy
from lightning.pytorch.trainer.states import TrainerFn
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    SequentialSampler,
)
from torch.utils.hooks import RemovableHandle

from snapsure._types import Ints, Precision
from snapsure.errors import InvalidInput
from snapsure.integrations._recording import Recording
from snapsure.networks._data import LABELS, split
from snapsure.networks._network import refuse_probabilities
from snapsure.scoring._recorded import RecordedLogits, score_recorded
from snapsure.snapshots import Schedule, SnapshotStore
from snapsure.snapshots._store import is_writer
from snapsure.table import ScoreTable

__all__ = ["SnapshotCallback"]


class SnapshotCallback(Recording, Callback):
    """Takes a snapshot after each epoch that the schedule wants.

    Epochs count from 1: the snapshot of epoch 1 is taken after the first pass over the data. Under
    DDP one process writes. A resumed training (`ckpt_path=`) continues in the same store.

    Parameters
    ----------
    store, schedule, dtype, trainable_only
        As for `Recorder`: of a model with adapters of `peft`, what is trained. A new training needs
        a new or empty folder.
    network : str, optional
        The attribute of the LightningModule that is the network; its weights are saved under their
        own names. By default the only child with parameters, or the module itself if it has other
        parameters too or that child is a list.
    validation : str or Path, optional
        A folder for the network's logits on the first validation loader, which Lightning computes
        anyway; `table()` turns them into scores. The loader must keep its order. Epochs that do not
        end with validation are left out.
    """

    def __init__(
        self,
        store: SnapshotStore | str | Path,
        schedule: Schedule | None = None,
        *,
        network: str | None = None,
        validation: str | Path | None = None,
        dtype: Precision | None = None,
        trainable_only: bool | None = None,
    ) -> None:
        super().__init__(store, schedule, dtype=dtype, trainable_only=trainable_only)
        self._network = network
        self._logits = None if validation is None else RecordedLogits(validation)
        self._handle: RemovableHandle | None = None  # of the hook on the network
        self._outputs: list[Tensor] = []  # of the current batch
        self._batches: list[tuple[Tensor, Tensor]] = []  # logits and labels
        # The step, the logits and the labels of the last validation.
        self._last: tuple[int, NDArray[np.float32], Ints] | None = None

    def table(self) -> ScoreTable:
        """Compute the softmax response on the validation set, for every epoch with validation."""
        if self._logits is None:
            raise InvalidInput(
                "`validation` must name a folder for logits, got None. Pass it to SnapshotCallback."
            )
        return score_recorded(self._logits)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check that this training and its folders belong together."""
        if _is_trial(trainer):
            return
        if isinstance(trainer.strategy, DeepSpeedStrategy | FSDPStrategy | ModelParallelStrategy):
            raise InvalidInput(
                "The strategy must keep all weights in one process, got "
                f"{type(trainer.strategy).__name__}. Let Lightning save checkpoints, and read them "
                "by SnapshotStore.adopt."
            )
        self._find_network(pl_module)
        self._begin(trainer.current_epoch, new=trainer.global_step == 0)
        if self._logits is None:
            return

        sampler = _find_sampler(trainer)
        is_shared = isinstance(sampler, DistributedSampler) and not sampler.shuffle
        if not (sampler is None or is_shared or isinstance(sampler, SequentialSampler)):
            raise InvalidInput(
                "The validation loader must keep its order, got one that shuffles or has a sampler "
                "of its own. Make it with shuffle=False and no sampler."
            )
        if not is_writer():
            return
        if trainer.global_step == 0 and self._logits.epochs:
            raise InvalidInput(
                f"`validation` must be an empty folder when a training begins, got logits of "
                f"{len(self._logits.epochs)} epochs in {self._logits.folder}. Choose another."
            )
        self._logits.rewind(trainer.current_epoch)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the snapshot, and write the logits unless training has continued since."""
        if _is_trial(trainer):
            return
        epoch = trainer.current_epoch + 1
        self._recorder.record(self._find_network(pl_module), epoch)
        last, self._last = self._last, None
        if self._logits is None or last is None or not is_writer():
            return
        step, logits, labels = last
        if step == trainer.global_step:
            self._logits.write(epoch, logits, labels)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Hook the network."""
        if self._is_recorded(trainer):
            self._unhook()
            self._outputs, self._batches = [], []
            self._handle = self._find_network(pl_module).register_forward_hook(self._append)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Match the network's logits with the batch's labels."""
        logits, self._outputs = self._outputs, []
        if dataloader_idx or not self._is_recorded(trainer):
            return
        _, labels = split(batch, "validation data")
        if labels is None and isinstance(batch, Mapping):
            raise InvalidInput(
                f"A validation batch must hold its classes under {', '.join(LABELS[:-1])} or "
                f"{LABELS[-1]}, got a dict with {', '.join(map(str, batch))}. Rename them."
            )
        shapes = [tuple(each.shape) for each in logits]
        if labels is None or len(shapes) != 1 or len(shapes[0]) != 2 or shapes[0][0] != len(labels):
            raise InvalidInput(
                "Validation must call the network once per batch, for logits of each labelled "
                f"example, got {shapes} for {0 if labels is None else len(labels)} labels. Name "
                "the network, SnapshotCallback(network=...), or leave out validation=."
            )
        refuse_probabilities(logits[0])
        self._batches.append((logits[0], torch.from_numpy(labels)))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the logits of all processes in order."""
        if not self._is_recorded(trainer):
            return
        self._unhook()
        if not self._batches:
            return
        logits, labels = (torch.cat(column) for column in zip(*self._batches, strict=True))
        sampler = _find_sampler(trainer)
        if isinstance(sampler, DistributedSampler):
            # Process r has examples r, r + world, …; the first ones fill up the last batch.
            everyone: list[Any] = [pl_module.all_gather(part) for part in (logits, labels)]
            n = len(sampler.dataset)  # type: ignore[arg-type]
            logits, labels = (part.transpose(0, 1).flatten(0, 1).cpu()[:n] for part in everyone)
        self._last = trainer.global_step, logits.numpy(), labels.numpy()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the size of the store."""
        if not _is_trial(trainer):
            self._end()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Remove the hook."""
        self._unhook()

    def _append(self, module: nn.Module, args: Any, output: Any) -> None:
        logits = output.get("logits") if isinstance(output, Mapping) else output
        known = logits if isinstance(logits, Tensor) else torch.empty(0)
        self._outputs.append(known.detach().float().cpu())

    def _unhook(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _is_recorded(self, trainer: Trainer) -> bool:
        """Say whether this validation belongs to an epoch, not to a check or a separate call."""
        other = trainer.sanity_checking or _is_trial(trainer)
        return self._logits is not None and trainer.state.fn == TrainerFn.FITTING and not other

    def _find_network(self, module: LightningModule) -> nn.Module:
        name = self._network
        children = {own: child for own, child in module.named_children() if [*child.parameters()]}
        if name is None:
            only = next(iter(children.values())) if len(children) == 1 else None
            is_list = isinstance(only, nn.ModuleList | nn.ModuleDict)
            has_more = is_list or [*module.parameters(recurse=False)]
            return module if only is None or has_more else only
        if name not in children:
            raise InvalidInput(
                f"`network` must name a child of {type(module).__name__} with parameters, got "
                f"{name!r}. It has {', '.join(children)}."
            )
        return children[name]


def _find_sampler(trainer: Trainer) -> Any:
    """Find the sampler of the first validation loader; None if its order is fixed anyway."""
    loaders = trainer.val_dataloaders
    first = loaders[0] if isinstance(loaders, list | tuple) else loaders
    if not isinstance(first, DataLoader) or isinstance(first.dataset, IterableDataset):
        return None
    batches: Any = first.batch_sampler
    return batches.sampler if type(batches) is BatchSampler else batches or first.sampler


def _is_trial(trainer: Trainer) -> bool:
    """Say whether this is a trial of a few batches, which leaves nothing."""
    return bool(getattr(trainer, "fast_dev_run", False))
