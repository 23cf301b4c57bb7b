"""Train a network on Lightning Fabric: any device, precision and number of processes.

An interrupted training resumes after its last complete epoch, as `training/_epochs.py` says.

A training's folder: `snapshots/` (a store, every epoch), `validation/` (logits of the test set,
from the pass that measures the test error), `history.json` (an entry per epoch), `training.json`
(recipe and seed), and `state-….pt` (what is needed to resume).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from snapsure import _files, _json
from snapsure._types import Bools
from snapsure.errors import InvalidInput
from snapsure.paper.data import DataSet, Images
from snapsure.paper.networks import Whitening
from snapsure.paper.recipes import Recipe
from snapsure.scoring._recorded import RecordedLogits
from snapsure.snapshots import EveryEpoch, Recorder, SnapshotStore
from snapsure.training._epochs import (
    History,
    describe_time_left,
    load_state,
    mix_seeds,
    read_ahead,
    read_history,
    refuse_another,
    save_state,
)

Show = Callable[[str], None]  # prints a line

_BATCH = 256  # images per pass without gradients, as in scoring, so that numbers are the same
_STATISTICS = 10_000  # images that give mean and deviation of the pixels
_PATCHES = 2_000  # images that give the directions of small patches
_ACCURACY = 50_000  # images, at most, that give the accuracy in training
_ABOUT = "training.json"


@dataclass(frozen=True)
class Parts:
    """What a training sees, and what it is judged by."""

    data: DataSet
    train: Images
    test: Images


def train(
    recipe: Recipe, parts: Parts, folder: Path, seed: int, fabric: Fabric, show: Show
) -> SnapshotStore:
    """Train one network and record every epoch, or resume the training in `folder`."""
    torch.manual_seed(seed)
    network = build(recipe, parts)
    optimizer = torch.optim.SGD(
        [weights for weights in network.parameters() if weights.requires_grad],
        lr=recipe.learning_rate,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        weight_decay=recipe.weight_decay,
    )
    model, optimizer = fabric.setup(network, optimizer)
    training = _Training(recipe, parts, folder, seed, fabric, network, model, optimizer)
    done = training.resume()
    for epoch in range(done + 1, recipe.epochs + 1):
        begin = time.monotonic()
        entry = training.run_epoch(epoch)
        if fabric.global_rank == 0:
            entry |= training.validate(epoch)
            training.save({"epoch": epoch, **entry, "seconds": time.monotonic() - begin})
            show(
                f"epoch {epoch} of {recipe.epochs}: loss {entry['loss']:.3f}, right in training "
                f"{entry['running_accuracy']:.1%}, test error {entry['test_error']:.1%}, "
                f"{describe_time_left(training.history, recipe.epochs)}"
            )
        fabric.barrier()
    return SnapshotStore(folder / "snapshots")


def check_folder(
    recipe: Recipe, parts: Parts, folder: Path, seed: int, fabric: Fabric
) -> dict[str, Any]:
    """Describe what a training depends on, and refuse a folder with another training."""
    sets = [[len(part), int(part.labels.sum())] for part in (parts.train, parts.test)]
    about = {
        "seed": seed,
        "data": [parts.data.name, *sets],
        "devices": fabric.world_size,
        "precision": str(fabric.strategy.precision.precision),
        **asdict(recipe),
    }
    refuse_another(folder / _ABOUT, about, "recipe, seed, data, devices and precision")
    return about


def is_finished(recipe: Recipe, folder: Path) -> bool:
    """Return whether a training has reached its last epoch."""
    history = read_history(folder)
    return bool(history) and history[-1]["epoch"] == recipe.epochs


def build(recipe: Recipe, parts: Parts) -> nn.Sequential:
    """Build the recipe's network, with statistics of its training set's pixels."""
    sample = parts.train.pixels[:: -(-len(parts.train) // _STATISTICS)]
    total, squares = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for chunk in torch.split(sample, _BATCH):  # ImageNet's would not fit into memory at once
        pixels = chunk.double()
        total += pixels.sum(dim=(0, 1, 2))
        squares += pixels.square().sum(dim=(0, 1, 2))
    count = sample[..., 0].numel()
    mean = total / count
    std = (squares / count - mean.square()).sqrt()
    network = recipe.build(parts.data, mean.tolist(), std.tolist())
    for layer in network.modules():
        if isinstance(layer, Whitening):
            layer.fit(network[0](sample[:: -(-len(sample) // _PATCHES)]))
    return network


def open_logits(folder: Path) -> RecordedLogits:
    """Return the test set's logits that a training recorded."""
    return RecordedLogits(folder / "validation")


def _predict(network: nn.Module, images: Images) -> tuple[NDArray[np.float32], Bools]:
    """Return the logits (n, classes), and which answers are right (n,)."""
    network.eval()
    device = next(network.parameters()).device
    with torch.inference_mode():
        parts = [
            network(pixels.to(device)).float().cpu()
            for pixels in torch.split(images.pixels, _BATCH)
        ]
    logits: NDArray[np.float32] = torch.cat(parts).numpy()
    return logits, logits.argmax(axis=1) == images.labels.numpy()


@dataclass
class _Training:
    """The state of one training, in one of its processes."""

    recipe: Recipe
    parts: Parts
    folder: Path
    seed: int
    fabric: Fabric
    network: nn.Module  # the bare one …
    model: Any  # … and as Fabric runs it
    optimizer: Any

    def __post_init__(self) -> None:
        _files.make_folder(self.folder)
        self.history: History = []
        self.recorder = Recorder(self.folder / "snapshots", EveryEpoch())
        images = self.parts.train.first(self.recipe.images)
        self.pixels, self.labels = images.pixels, images.labels
        self.saved = {
            "network": self.network,
            "optimizer": self.optimizer,
            "precision": self.fabric.strategy.precision,  # its scale of gradients
        }

    def resume(self) -> int:
        """Resume from what is in the folder; return the last epoch done."""
        about = check_folder(self.recipe, self.parts, self.folder, self.seed, self.fabric)
        self.history = load_state(self.folder, self.saved)
        done = int(self.history[-1]["epoch"]) if self.history else 0
        if self.fabric.global_rank == 0:
            _files.write_bytes(self.folder / _ABOUT, _json.text(about))
            self.recorder.store.rewind(done)
        self.fabric.barrier()
        return done

    def run_epoch(self, epoch: int) -> dict[str, float]:
        """Train on all images once, or on the part of them that is an epoch."""
        own = torch.Generator().manual_seed(mix_seeds(self.seed, epoch, self.fabric.global_rank))
        torch.manual_seed(mix_seeds(self.seed, epoch, self.fabric.global_rank, 1))  # dropout's
        batches = self.draw_batches(epoch)
        self.model.train()
        loss, right, seen = 0.0, 0, 0
        read = read_ahead(lambda rows: (self.pixels[rows], self.labels[rows]), batches)
        for i, (pixels, labels) in enumerate(read):
            rate = self.recipe.rate(epoch - 1 + i / len(batches))
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            images = self.recipe.augmentation(self.fabric.to_device(pixels), own)
            labels = self.fabric.to_device(labels)
            logits = self.model(images)
            cost = functional.cross_entropy(logits, labels)
            self.optimizer.zero_grad()
            self.fabric.backward(cost)
            self.optimizer.step()
            loss += float(cost.detach()) * len(labels)
            right += int((logits.argmax(dim=1) == labels).sum())
            seen += len(labels)
        return {"learning_rate": rate, "loss": loss / seen, "running_accuracy": right / seen}

    def draw_batches(self, epoch: int) -> Sequence[Tensor]:
        """Return the images of this process's batches; the first epoch of a pass shuffles it."""
        rank, world, parts = self.fabric.global_rank, self.fabric.world_size, self.recipe.parts
        part = (epoch - 1) % parts
        shared = torch.Generator().manual_seed(mix_seeds(self.seed, epoch - part))
        order = torch.randperm(len(self.labels), generator=shared)[rank::world]
        size = max(1, min(self.recipe.batch, len(self.labels)) // world)
        batches = torch.split(order[: len(self.labels) // world // size * size], size)
        if len(batches) < parts:
            raise InvalidInput(
                f"the training set must fill {parts} batches of {size} images, got "
                f"{len(self.labels)} images. Take a larger set, or another scale."
            )
        first, end = (len(batches) * i // parts for i in (part, part + 1))
        return batches[first:end]

    def validate(self, epoch: int) -> dict[str, float]:
        """Write the test set's logits, which give κ once y_hat is known; return the error."""
        # In full precision, as scoring is.
        logits, right = _predict(self.network, self.parts.test)
        open_logits(self.folder).write(epoch, logits, self.parts.test.labels.numpy())
        return {"test_error": float((~right).mean())}

    def save(self, entry: dict[str, float]) -> None:
        """Record the epoch: the snapshot first, and last what says that it is done."""
        if entry["epoch"] == self.recipe.epochs:
            images = Images(self.pixels[:_ACCURACY], self.labels[:_ACCURACY])
            entry["training_accuracy"] = float(_predict(self.network, images)[1].mean())
        self.history.append(entry)
        self.recorder.record(self.network, int(entry["epoch"]))
        save_state(self.folder, self.saved, self.history)
