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
from snapsure.networks._data import Rows
from snapsure.networks._network import Network, call, copy_network
from snapsure.paper.networks import resnet18

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
        images = torch.randn(8 * BATCH, 3, 32, 32)
        start = partial(_scoring, Path(folder))
        yield start("images", convolutions(), images[: 4 * BATCH], 0.7)
        yield start("images, long", convolutions(), images, 0.55, snapshots=12, rounds=3)
        large = torch.randn(BATCH, 3, 224, 224)
        yield start("images by ResNet-18", resnet18(100), large, 1.05, batch=32, rounds=3)
        tokens = torch.randint(100, 30_000, (8 * BATCH, 32))
        words = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        yield start("texts by MiniLM", minilm(), words, 1.05, batch=64, rounds=3)
        layers = nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()
        perceptron = nn.Sequential(*layers, nn.Linear(1024, 10))
        yield start("rows by an MLP", perceptron, torch.randn(64 * BATCH, 784), 1.05)
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


def _scoring(
    folder: Path,
    name: str,
    model: nn.Module,
    inputs: Any,
    at_most: float,
    *,
    snapshots: int = 3,
    batch: int = BATCH,
    rounds: int = 11,
) -> Case:
    """`score` against the bare eager passes that it is made of, over the same batches."""
    store = SnapshotStore(folder / name)
    for epoch in range(1, snapshots + 1):
        store.save(model, epoch)
    bare, rows = copy.deepcopy(model).eval(), Rows.of((inputs, None), "inputs", batch)

    def passes() -> None:
        with torch.inference_mode():
            for _ in range(snapshots):
                for part, _ in rows.batches():
                    call(bare, part)

    return Case(
        f"score, {snapshots} snapshots × {rows.n:,} {name}",
        f"{snapshots} bare passes over the same batches",
        partial(score, model, store, (inputs, None), batch_size=batch, progress=False),
        passes,
        at_most=at_most,
        rounds=rounds,
    )


def minilm() -> nn.Module:
    """A classifier of the size of MiniLM: six layers of 384."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        hidden_size=384, num_hidden_layers=6, intermediate_size=1536, num_attention_heads=12
    )
    return BertForSequenceClassification(config)  # type: ignore[no-untyped-call]


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
