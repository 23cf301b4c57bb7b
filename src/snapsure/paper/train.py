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
    optimizer: Any = torch.optim.SGD(
        [weights for weights in network.parameters() if weights.requires_grad],
        lr=recipe.learning_rate,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        weight_decay=recipe.weight_decay,
    )
    model, optimizer = fabric.setup(network, optimizer)
    precision = fabric.strategy.precision  # its scale of gradients
    saved = {"network": network, "optimizer": optimizer, "precision": precision}

    about = check_folder(recipe, parts, folder, seed, fabric)
    _files.make_folder(folder)
    history = load_state(folder, saved)
    done = int(history[-1]["epoch"]) if history else 0
    recorder = Recorder(folder / "snapshots", EveryEpoch())
    if fabric.global_rank == 0:
        _files.write_bytes(folder / _ABOUT, _json.text(about))
        recorder.store.rewind(done)
    fabric.barrier()

    images = parts.train.first(recipe.images)
    for epoch in range(done + 1, recipe.epochs + 1):
        begin = time.monotonic()
        entry: dict[str, float] = {"epoch": epoch}
        entry |= _train_epoch(recipe, images, seed, epoch, fabric, model, optimizer)
        if fabric.global_rank == 0:
            # In full precision, as scoring is. The logits give κ once y_hat is known.
            logits, right = _predict(network, parts.test)
            open_logits(folder).write(epoch, logits, parts.test.labels.numpy())
            entry |= {"test_error": float((~right).mean()), "seconds": time.monotonic() - begin}
            if epoch == recipe.epochs:
                right = _predict(network, images.first(_ACCURACY))[1]
                entry["training_accuracy"] = float(right.mean())
            history.append(entry)
            recorder.record(network, epoch)  # before what says that the epoch is done
            save_state(folder, saved, history)
            show(
                f"epoch {epoch} of {recipe.epochs}: loss {entry['loss']:.3f}, right in training "
                f"{entry['running_accuracy']:.1%}, test error {entry['test_error']:.1%}, "
                f"{describe_time_left(history, recipe.epochs)}"
            )
        fabric.barrier()
    return recorder.store


def _train_epoch(
    recipe: Recipe,
    images: Images,
    seed: int,
    epoch: int,
    fabric: Fabric,
    model: Any,
    optimizer: Any,
) -> dict[str, float]:
    """Train on all images once, or on the part of them that is an epoch."""
    rank = fabric.global_rank
    own = torch.Generator().manual_seed(mix_seeds(seed, epoch, rank))
    torch.manual_seed(mix_seeds(seed, epoch, rank, 1))  # dropout's
    batches = draw_batches(recipe, len(images), seed, epoch, rank, fabric.world_size)
    model.train()
    loss, right, seen = 0.0, 0, 0
    read = read_ahead(lambda rows: (images.pixels[rows], images.labels[rows]), batches)
    for i, (pixels, labels) in enumerate(read):
        rate = recipe.rate(epoch - 1 + i / len(batches))
        for group in optimizer.param_groups:
            group["lr"] = rate
        moved = recipe.augmentation(fabric.to_device(pixels), own)
        labels = fabric.to_device(labels)
        logits = model(moved)
        cost = functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        fabric.backward(cost)
        optimizer.step()
        loss += float(cost.detach()) * len(labels)
        right += int((logits.argmax(dim=1) == labels).sum())
        seen += len(labels)
    return {"learning_rate": rate, "loss": loss / seen, "running_accuracy": right / seen}


def draw_batches(
    recipe: Recipe, n: int, seed: int, epoch: int, rank: int = 0, world: int = 1
) -> Sequence[Tensor]:
    """Return the images of a process's batches; the first epoch of a pass shuffles it."""
    part = (epoch - 1) % recipe.parts
    shared = torch.Generator().manual_seed(mix_seeds(seed, epoch - part))
    order = torch.randperm(n, generator=shared)[rank::world]
    size = max(1, min(recipe.batch, n) // world)
    batches = torch.split(order[: n // world // size * size], size)
    if len(batches) < recipe.parts:
        raise InvalidInput(
            f"the training set must fill {recipe.parts} batches of {size} images, got {n} images. "
            "Take a larger set, or another scale."
        )
    first, end = (len(batches) * i // recipe.parts for i in (part, part + 1))
    return batches[first:end]


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
