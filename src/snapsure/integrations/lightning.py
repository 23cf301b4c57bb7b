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
    store, schedule, dtype
        As for `Recorder`. A new training needs a new or empty folder.
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
    ) -> None:
        super().__init__(store, schedule, dtype=dtype)
        self._network = network
        self._validation = None if validation is None else _Validation(validation)

    def table(self) -> ScoreTable:
        """Compute the softmax response on the validation set, for every epoch with validation."""
        if self._validation is None:
            raise InvalidInput(
                "`validation` must name a folder for logits, got None. Pass it to SnapshotCallback."
            )
        return score_recorded(self._validation.logits)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check that this training and the store belong together."""
        if _is_trial(trainer):
            return
        if isinstance(trainer.strategy, DeepSpeedStrategy | FSDPStrategy | ModelParallelStrategy):
            raise InvalidInput(
                "The strategy must keep all weights in one process, got "
                f"{type(trainer.strategy).__name__}. Let Lightning save checkpoints, and read them "
                "by SnapshotStore.adopt."
            )
        _network(pl_module, self._network)
        self._begin(trainer.current_epoch, new=trainer.global_step == 0)
        if self._validation is not None:
            self._validation.begin(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the snapshot."""
        if _is_trial(trainer):
            return
        epoch = trainer.current_epoch + 1
        self._record(_network(pl_module, self._network), epoch)
        if self._validation is not None:
            self._validation.write(epoch, trainer.global_step)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Hook the network."""
        if self._validation is not None and _within_training(trainer):
            self._validation.hook(_network(pl_module, self._network))

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
        if self._validation is not None and _within_training(trainer):
            self._validation.add(batch, dataloader_idx)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the logits of all processes in order."""
        if self._validation is not None and _within_training(trainer):
            self._validation.gather(trainer, pl_module)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Remove the hook."""
        if self._validation is not None:
            self._validation.unhook()


class _Validation:
    """The logits of each validation, recorded by a hook on the network."""

    def __init__(self, folder: str | Path) -> None:
        self.logits = RecordedLogits(folder)
        self._handle: RemovableHandle | None = None
        self._outputs: list[Tensor] = []  # of the current batch
        self._batches: list[tuple[Tensor, Tensor]] = []
        self._last: tuple[NDArray[np.float32], Ints] | None = None
        self._step = 0  # of the last validation

    def begin(self, trainer: Trainer) -> None:
        sampler = _sampler(trainer)
        is_shared = isinstance(sampler, DistributedSampler) and not sampler.shuffle
        if not (sampler is None or is_shared or isinstance(sampler, SequentialSampler)):
            raise InvalidInput(
                "The validation loader must keep its order, got one that shuffles or has a sampler "
                "of its own. Make it with shuffle=False and no sampler."
            )
        if not is_writer():
            return
        if trainer.global_step == 0 and self.logits.epochs:
            raise InvalidInput(
                f"`validation` must be an empty folder when a training begins, got logits of "
                f"{len(self.logits.epochs)} epochs in {self.logits.folder}. Choose another."
            )
        self.logits.rewind(trainer.current_epoch)

    def hook(self, network: nn.Module) -> None:
        self.unhook()
        self._outputs, self._batches = [], []
        self._handle = network.register_forward_hook(self._append)

    def unhook(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _append(self, module: nn.Module, args: Any, output: Any) -> None:
        logits = output.get("logits") if isinstance(output, Mapping) else output
        known = logits if isinstance(logits, Tensor) else torch.empty(0)
        self._outputs.append(known.detach().float().cpu())

    def add(self, batch: Any, loader: int) -> None:
        outputs, self._outputs = self._outputs, []
        if loader:
            return
        _, labels = split(batch, "validation data")
        if labels is None and isinstance(batch, Mapping):
            raise InvalidInput(
                f"A validation batch must hold its classes under {', '.join(LABELS[:-1])} or "
                f"{LABELS[-1]}, got a dict with {', '.join(map(str, batch))}. Rename them."
            )
        shapes = [tuple(logits.shape) for logits in outputs]
        if labels is None or len(shapes) != 1 or len(shapes[0]) != 2 or shapes[0][0] != len(labels):
            raise InvalidInput(
                "Validation must call the network once per batch, for logits of each labelled "
                f"example, got {shapes} for {0 if labels is None else len(labels)} labels. Name "
                "the network, SnapshotCallback(network=...), or leave out validation=."
            )
        refuse_probabilities(outputs[0])
        self._batches.append((outputs[0], torch.from_numpy(labels)))

    def gather(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.unhook()
        self._step = trainer.global_step
        if not self._batches:
            return
        logits, labels = (torch.cat(column) for column in zip(*self._batches, strict=True))
        sampler = _sampler(trainer)
        if isinstance(sampler, DistributedSampler):
            # Process r has examples r, r + world, …; the first ones fill up the last batch.
            everyone: list[Any] = [pl_module.all_gather(part) for part in (logits, labels)]
            logits, labels = (part.transpose(0, 1).flatten(0, 1).cpu() for part in everyone)
            n = len(sampler.dataset)  # type: ignore[arg-type]
            logits, labels = logits[:n], labels[:n]
        self._last = logits.numpy(), labels.numpy()

    def write(self, epoch: int, step: int) -> None:
        """Write the last validation's logits, unless training has continued since."""
        if self._last is not None and self._step == step and is_writer():
            self.logits.write(epoch, *self._last)
        self._last = None


def _network(module: LightningModule, name: str | None) -> nn.Module:
    children = {own: child for own, child in module.named_children() if [*child.parameters()]}
    if name is None:
        only = next(iter(children.values())) if len(children) == 1 else None
        itself = [*module.parameters(recurse=False)] or isinstance(
            only, nn.ModuleList | nn.ModuleDict
        )
        return module if only is None or itself else only
    if name not in children:
        raise InvalidInput(
            f"`network` must name a child of {type(module).__name__} with parameters, got "
            f"{name!r}. It has {', '.join(children)}."
        )
    return children[name]


def _sampler(trainer: Trainer) -> Any:
    """Find the sampler of the first validation loader; None if its order is fixed anyway."""
    loaders = trainer.val_dataloaders
    first = loaders[0] if isinstance(loaders, list | tuple) else loaders
    if not isinstance(first, DataLoader) or isinstance(first.dataset, IterableDataset):
        return None
    batches: Any = first.batch_sampler
    return batches.sampler if type(batches) is BatchSampler else batches or first.sampler


def _within_training(trainer: Trainer) -> bool:
    """Say whether this validation belongs to an epoch, not to a check or a separate call."""
    other = trainer.sanity_checking or _is_trial(trainer)
    return trainer.state.fn == TrainerFn.FITTING and not other


def _is_trial(trainer: Trainer) -> bool:
    """Say whether this is a trial of a few batches, which leaves nothing."""
    return bool(getattr(trainer, "fast_dev_run", False))
