"""The contest's runs, made of trainings: every rival's scores."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from snapsure.estimators import AES
from snapsure.evaluation import Run
from snapsure.networks._recorded import RecordedLogits
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
from snapsure.scoring import average_weights, score
from snapsure.scoring._recorded import averaged_probabilities, recorded
from snapsure.snapshots import Snapshots, SnapshotStore

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
    store = SnapshotStore(training.folder / "snapshots")
    some = store.select(store.epochs[::-1][::every])
    recording = RecordedLogits(training.folder / "validation").select(some.epochs)
    kappas = [SoftmaxResponse(), Entropy(), Margin(), Energy(), MaxLogit(), Doctor()]
    table = recorded(recording, kappas=kappas)
    averaged = average_weights(training.network, some, training.train)
    others: dict[str, Any] = _final_scores(training, some)
    others[MEAN] = averaged_probabilities(recording)
    others[WEIGHTS] = _softmax(averaged, training.test)
    kept = len(AES().snapshots(table.epochs))
    run = Run(
        table.with_logits(recording.read(some.epochs[-1]).numpy()),
        others=others,
        passes={MEAN: kept},
        kept={MEAN: kept},
        snapshot_bytes=next(store.path.glob("*.safetensors")).stat().st_size,
    )
    return run.rows(np.arange(points))


def _final_scores(training: Training, some: Snapshots) -> dict[str, NDArray[np.float64]]:
    """κ that need more than logits, of the final snapshot alone."""
    near = [DeepKNN(training.train), NNDistance(training.train)]
    kappas = [*near, MCDropout(), MCDropout(statistic="variance")]
    last = some.select(some.epochs[-1:])
    table = score(training.network, last, training.test, kappas, progress=False)
    return {name: table.kappa(name)[-1] for name in table.names}


def predict(network: nn.Module, x: Tensor) -> Tensor:
    """Logits, (n, classes)."""
    network.eval()
    with torch.inference_mode():
        return torch.cat([network(part) for part in torch.split(x, 500)])


def _softmax(network: nn.Module, x: Tensor) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """κ and prediction of a network."""
    logits = predict(network, x)
    y_hat = logits.argmax(dim=1).numpy()
    return softmax_of(logits, y_hat), y_hat
