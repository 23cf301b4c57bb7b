"""The whole way on real images, in a minute or two: train, record, score, estimate, decide.

The images are scikit-learn's digits, 8 × 8 pixels: 400 to train on, the other 1,397 to judge by.
Nothing is tuned: seeds are 0, 1, 2, and what comes out is reported.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from snapsure import _files
from snapsure.scores import MCDropout, NNDistance, SoftmaxResponse
from snapsure.scoring import score
from snapsure.snapshots import Ensemble, EveryEpoch, Recorder, SnapshotStore
from snapsure.table import ScoreTable

SEEDS = (0, 1, 2)
EPOCHS = 60
TRAIN = 400
BATCH = 32
LEARNING_RATE = 0.05
_MARK = ".snapsure-demo"


@dataclass(frozen=True)
class Digits:
    """Images and labels, cut once for all seeds."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def load_digits() -> Digits:
    """Read the images that come with scikit-learn."""
    from sklearn import datasets  # type: ignore[import-untyped]

    digits = datasets.load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.images / 16, dtype=torch.float32)[order, None]
    labels = torch.tensor(digits.target)[order]
    return Digits((images[:TRAIN], labels[:TRAIN]), (images[TRAIN:], labels[TRAIN:]))


def network() -> nn.Module:
    """Two convolutions, a hidden layer, dropout before the last: 24 thousand weights."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
    )


def train(digits: Digits, seed: int, recorder: Recorder, tell: Callable[[int], None]) -> nn.Module:
    """Train one network, recording every epoch."""
    torch.manual_seed(seed)
    model = network()
    images, labels = digits.train
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.5)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for rows in torch.split(torch.randperm(len(images)), BATCH):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(_shifted(images[rows])), labels[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        schedule.step()
        recorder.record(model, epoch)
        tell(epoch)
    return model


def run(folder: Path, tell: Callable[[str], None]) -> tuple[list[ScoreTable], ScoreTable]:
    """Train, record and score all seeds; give a table per seed, and the ensemble's."""
    _files.claim(folder, _MARK, "--out", "an earlier demo")
    (folder / _MARK).touch()
    digits = load_digits()
    stores = []
    for seed in SEEDS:
        store = SnapshotStore(folder / "snapshots" / f"seed-{seed}")

        def say(epoch: int, seed: int = seed) -> None:
            if epoch % 20 == 0:
                tell(f"seed {seed}: epoch {epoch} of {EPOCHS}")

        if store.epochs == list(range(1, EPOCHS + 1)):
            tell(f"seed {seed}: trained already")
        else:
            store.rewind(0)
            train(digits, seed, Recorder(store, EveryEpoch()), say)
        stores.append(store)
    kappas = [SoftmaxResponse(), NNDistance(digits.train, k=50), MCDropout()]
    tables = []
    for seed, store in zip(SEEDS, stores, strict=True):
        tell(f"seed {seed}: scoring {EPOCHS} snapshots by softmax, NN-distance and MC-dropout")
        out = _emptied(folder / f"scores-{seed}")
        tables.append(score(network(), store, digits.test, kappas, out=out, progress=False))
    tell(f"scoring the ensemble of {len(SEEDS)}")
    out = _emptied(folder / "scores-ensemble")
    ensemble = score(network(), Ensemble(stores), digits.test, out=out, progress=False)
    return tables, ensemble


def _emptied(folder: Path) -> Path:
    """A place for scores, without those of an earlier demo."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def _shifted(images: Tensor) -> Tensor:
    """Move the whole batch by up to one pixel each way."""
    right, down = torch.randint(-1, 2, (2,)).tolist()
    return torch.roll(images, (down, right), dims=(2, 3))
