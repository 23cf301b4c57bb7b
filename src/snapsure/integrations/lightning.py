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
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler
from torch.utils.hooks import RemovableHandle

from snapsure.errors import InvalidInput
from snapsure.integrations._recording import Recording
from snapsure.scores._data import split
from snapsure.scores._recorded import RecordedLogits, recorded
from snapsure.snapshots import SnapshotStore
from snapsure.snapshots._schedule import Schedule
from snapsure.snapshots._store import writes_here
from snapsure.table import ScoreTable

__all__ = ["SnapshotCallback"]


class SnapshotCallback(Callback):
    """Takes a snapshot after each epoch that the schedule wants.

    Epochs count from 1: the snapshot of epoch 1 is taken after the first pass over the data. Under
    DDP one process writes. A training that Lightning resumes (`ckpt_path=`) goes on in the same
    store.

    Parameters
    ----------
    store : SnapshotStore, str or Path
        Where snapshots go: an empty or new folder for a new training.
    schedule : Schedule, optional
        `EveryEpoch()` by default.
    network : str, optional
        The attribute of the LightningModule that is the network, whose weights are saved under its
        own names. If not given: its only child with parameters, or itself if it has several.
    validation : str or Path, optional
        A folder for the network's logits on the first validation loader, which Lightning computes
        anyway; `table()` makes scores of them. The loader must keep its order.
    dtype : str, optional
        As for `SnapshotStore.save`.
    """

    def __init__(
        self,
        store: SnapshotStore | str | Path,
        schedule: Schedule | None = None,
        *,
        network: str | None = None,
        validation: str | Path | None = None,
        dtype: str | None = None,
    ) -> None:
        self._recording = Recording(store, schedule, dtype)
        self._network = network
        self._validation = None if validation is None else _Validation(validation)

    @property
    def store(self) -> SnapshotStore:
        """Where snapshots go."""
        return self._recording.store

    def table(self) -> ScoreTable:
        """Softmax response on the validation set, of every epoch with validation so far."""
        if self._validation is None:
            raise InvalidInput(
                "`validation` must name a folder for logits, got None: pass it to SnapshotCallback"
            )
        return recorded(self._validation.logits)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check that this training and the store belong together."""
        if isinstance(trainer.strategy, DeepSpeedStrategy | FSDPStrategy | ModelParallelStrategy):
            raise InvalidInput(
                "the strategy must keep all weights in one process, got "
                f"{type(trainer.strategy).__name__}: let Lightning save checkpoints, and read them "
                "by SnapshotStore.adopt"
            )
        _network(pl_module, self._network)
        self._recording.begin(trainer.current_epoch)
        if self._validation is not None:
            self._validation.begin(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the snapshot."""
        epoch = trainer.current_epoch + 1
        self._recording.take(_network(pl_module, self._network), epoch)
        if self._validation is not None:
            self._validation.keep(epoch)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Listen to the network."""
        if self._validation is not None and _within_training(trainer):
            self._validation.listen(_network(pl_module, self._network))

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Match what the network said with the batch's labels."""
        if self._validation is not None and _within_training(trainer):
            self._validation.hear(batch, dataloader_idx)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the logits of all processes in order."""
        if self._validation is not None and _within_training(trainer):
            self._validation.gather(trainer, pl_module)


class _Validation:
    """The logits of one validation after the other, by a hook on the network."""

    def __init__(self, folder: str | Path) -> None:
        self.logits = RecordedLogits(folder)
        self._handle: RemovableHandle | None = None
        self._heard: list[Tensor] = []
        self._parts: list[tuple[Tensor, Tensor]] = []
        self._whole: tuple[NDArray[np.float32], NDArray[np.int64]] | None = None

    def begin(self, trainer: Trainer) -> None:
        if isinstance(_sampler(trainer), RandomSampler):
            raise InvalidInput(
                "the validation loader must keep its order, got one that shuffles: make it with "
                "shuffle=False"
            )
        if writes_here():
            self.logits.rewind(trainer.current_epoch)

    def listen(self, network: nn.Module) -> None:
        self._heard, self._parts = [], []
        self._handle = network.register_forward_hook(self._hook)

    def _hook(self, module: nn.Module, args: Any, output: Any) -> None:
        logits = output["logits"] if isinstance(output, Mapping) else output
        self._heard.append(logits.detach().float().cpu())

    def hear(self, batch: Any, loader: int) -> None:
        heard, self._heard = self._heard, []
        if loader:
            return
        _, labels = split(batch, "validation data")
        shapes = [tuple(logits.shape) for logits in heard]
        if labels is None or len(shapes) != 1 or len(shapes[0]) != 2 or shapes[0][0] != len(labels):
            raise InvalidInput(
                "validation must call the network once per batch, for logits of each labelled "
                f"point, got {shapes} for {0 if labels is None else len(labels)} labels: name the "
                "network, SnapshotCallback(network=...), or leave out validation="
            )
        self._parts.append((heard[0], torch.from_numpy(labels)))

    def gather(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self._handle is not None
        self._handle.remove()
        logits, labels = (torch.cat(column) for column in zip(*self._parts, strict=True))
        sampler = _sampler(trainer)
        if isinstance(sampler, DistributedSampler):
            # Process r has rows r, r + world, …; the last ones are filled up with the first.
            everyone: list[Any] = [pl_module.all_gather(part) for part in (logits, labels)]
            logits, labels = (part.transpose(0, 1).flatten(0, 1).cpu() for part in everyone)
            n = len(sampler.dataset)  # type: ignore[arg-type]
            logits, labels = logits[:n], labels[:n]
        self._whole = logits.numpy(), labels.numpy()

    def keep(self, epoch: int) -> None:
        """Write the last validation's logits, if there was one in this epoch."""
        if self._whole is not None and writes_here():
            self.logits.write(epoch, *self._whole)
        self._whole = None


def _network(module: LightningModule, name: str | None) -> nn.Module:
    children = {own: child for own, child in module.named_children() if [*child.parameters()]}
    if name is None:
        return next(iter(children.values())) if len(children) == 1 else module
    if name not in children:
        raise InvalidInput(
            f"`network` must name a child of {type(module).__name__} with parameters, got "
            f"{name!r}: it has {', '.join(children)}"
        )
    return children[name]


def _sampler(trainer: Trainer) -> Any:
    """The sampler of the first validation loader."""
    loaders = trainer.val_dataloaders
    first = loaders[0] if isinstance(loaders, list | tuple) else loaders
    return first.sampler if isinstance(first, DataLoader) else None


def _within_training(trainer: Trainer) -> bool:
    """Whether this validation is an epoch's, and no check before training or call on its own."""
    return trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking
