"""Snapshots and κ functions against what they replace."""

import copy
import itertools
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.harness import Case, peak_megabytes
from snapsure import MCDropout, Recorder, SnapshotStore, SoftmaxResponse, score
from snapsure.networks._network import Network, copy_network

BATCH = 256


def convolutions(width: int = 32, dropout: float = 0.5, everywhere: float = 0.0) -> nn.Sequential:
    """A VGG of seven layers for 32 × 32 images, with dropout before its last, or before all."""
    layers: list[nn.Module] = []
    before = 3
    for out in (width, width, 2 * width, 2 * width, 4 * width, 4 * width):
        layers += [nn.Conv2d(before, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        if out != before and before != 3:
            layers.append(nn.MaxPool2d(2))
        if everywhere:
            layers.append(nn.Dropout(everywhere))
        before = out
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(before, 100)]
    return nn.Sequential(*layers, *head)


def cases() -> Iterator[Case]:
    """Every row of the table."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        yield _scoring(Path(folder) / "score")
        yield _recording(Path(folder))
        yield _dropout("dropout in the head", "all")
        yield _dropout("dropout everywhere, the last on", "last", everywhere=0.3)


def memory() -> dict[str, float]:
    """Peak megabytes of NumPy's memory while scoring few and many snapshots."""
    peaks = {}
    images = torch.randn(BATCH, 3, 32, 32)
    with tempfile.TemporaryDirectory() as folder:
        for snapshots in (3, 30):
            model = convolutions(8)
            store = SnapshotStore(Path(folder) / str(snapshots))
            for epoch in range(1, snapshots + 1):
                store.save(model, epoch)
            run = partial(score, model, store, images, SoftmaxResponse(), progress=False)
            run()
            peaks[f"score, {snapshots} snapshots"] = peak_megabytes(run)
    return peaks


def _scoring(folder: Path) -> Case:
    model, images = convolutions(), torch.randn(4 * BATCH, 3, 32, 32)
    labels = torch.zeros(len(images), dtype=torch.long)
    store, epochs = SnapshotStore(folder), (1, 2, 3)
    for epoch in epochs:
        store.save(model, epoch)
    bare = copy.deepcopy(model).eval()

    def passes() -> None:
        with torch.inference_mode():
            for _ in epochs:
                for batch in torch.split(images, BATCH):
                    bare(batch)

    return Case(
        "score, 3 snapshots × 1,024 images",
        "3 bare passes over the same batches",
        partial(score, model, store, (images, labels), SoftmaxResponse(), progress=False),
        passes,
        at_most=1.1,
        rounds=11,
    )


def _dropout(where: str, layers: str, *, everywhere: float = 0.0) -> Case:
    model, images = convolutions(everywhere=everywhere), torch.randn(BATCH // 4, 3, 32, 32)
    y_hat = np.zeros(len(images), dtype=np.int64)
    kappa = MCDropout(passes=100, layers=layers)
    network = Network(copy_network(model), [kappa])
    network.probe(images[:2])
    loop = copy.deepcopy(model).eval()
    list(loop)[-2].train()

    def ours() -> Any:
        with torch.inference_mode():
            return kappa.score(network.run(images), y_hat, None)

    def naive() -> Any:
        with torch.inference_mode():
            runs = [loop(images).double().softmax(dim=1)[:, 0] for _ in range(100)]
            return torch.stack(runs).mean(dim=0)

    name = f"MCDropout, 100 passes, {len(images)} images, {where}"
    return Case(name, "100 full passes", ours, naive, at_least=60, rounds=3)


def _recording(folder: Path) -> Case:
    model = nn.Sequential(*(nn.Conv2d(512, 512, 3) for _ in range(6)))  # 57 MB
    state = model.state_dict()
    recorder, epochs = Recorder(folder / "recorded"), itertools.count(1)
    files = itertools.count(1)

    def ours() -> None:
        recorder.record(state, next(epochs))

    def theirs() -> None:
        torch.save(state, folder / f"saved-{next(files)}.pt")

    return Case(
        "Recorder.record, 57 MB",
        "torch.save of the same state dict",
        ours,
        theirs,
        at_most=1.3,
        rounds=15,
    )
