"""The contest's runs, made of trainings: every rival's scores."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from snapsure.contest import Run
from snapsure.estimators import AES
from snapsure.scores import (
    DeepKNN,
    Doctor,
    Energy,
    Entropy,
    Margin,
    MaxLogit,
    MCDropout,
    NNDistance,
    SoftmaxResponse,
)
from snapsure.scores._base import softmax_of
from snapsure.scores._recorded import RecordedLogits, averaged_probabilities, recorded
from snapsure.scoring import average_weights, score
from snapsure.snapshots import SnapshotStore

MEAN, WEIGHTS = "mean probabilities", "mean weights"


@dataclass(frozen=True)
class Training:
    """A finished training, and what it takes to score it."""

    folder: Path  # with `snapshots/` and `validation/`
    network: nn.Module
    train: tuple[Tensor, Tensor]
    test: Tensor


def make_run(training: Training, *, every: int, points: int) -> Run:
    """All rivals' scores from every so many snapshots, on the first so many test points."""
    with tempfile.TemporaryDirectory() as name:
        thin = _thinned(training.folder, Path(name), every)
        recording = RecordedLogits(thin / "validation")
        store = SnapshotStore(thin / "snapshots")
        kappas = [SoftmaxResponse(), Entropy(), Margin(), Energy(), MaxLogit(), Doctor()]
        table = recorded(recording, kappas=kappas)
        averaged = average_weights(training.network, store, training.train)
        others: dict[str, Any] = _final_scores(training, store)
        others[MEAN] = averaged_probabilities(recording)
        others[WEIGHTS] = _softmax(averaged, training.test)
        kept = len(AES().snapshots(table.epochs))
        run = Run(
            table,
            logits=recording.read(int(table.epochs[-1])).numpy(),
            others=others,
            passes={MEAN: kept},
            kept={MEAN: kept},
            snapshot_bytes=next(store.path.glob("*.safetensors")).stat().st_size,
        )
    return run.rows(np.arange(points))


def _thinned(folder: Path, copy: Path, every: int) -> Path:
    """A copy of a training with every so many of its epochs, the final one among them."""
    store, thin = SnapshotStore(folder / "snapshots"), SnapshotStore(copy / "snapshots")
    (copy / "validation").mkdir()
    for epoch in store.epochs[::-1][::every][::-1]:
        thin.save(store.load(epoch), epoch)
        shutil.copy(folder / "validation" / f"epoch-{epoch:06d}.npy", copy / "validation")
    shutil.copy(folder / "validation" / "labels.npy", copy / "validation")
    return copy


def _final_scores(training: Training, store: SnapshotStore) -> dict[str, NDArray[np.float64]]:
    """κ that need more than logits, of the final snapshot alone."""
    last = store.epochs[-1]
    with tempfile.TemporaryDirectory() as folder:
        alone = SnapshotStore(folder)
        alone.save(store.load(last), last)
        near = [DeepKNN(training.train), NNDistance(training.train)]
        kappas = [*near, MCDropout(), MCDropout(statistic="variance")]
        table = score(training.network, alone, training.test, kappas, progress=False)
    return {name: table.kappa(name)[-1] for name in table.names}


def _softmax(network: nn.Module, x: Tensor) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """κ and prediction of a network."""
    with torch.inference_mode():
        logits = torch.cat([network(part) for part in torch.split(x, 500)])
    y_hat = logits.argmax(dim=1).numpy()
    return softmax_of(logits, y_hat).numpy(), y_hat
