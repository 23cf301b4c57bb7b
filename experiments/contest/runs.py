"""The contest's runs, made of trainings: every rival's scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from snapsure.estimators import AES
from snapsure.evaluation import Run
from snapsure.evaluation._error_predictor import answered, features_of, learnt
from snapsure.evaluation._protocol import Halves
from snapsure.networks._recorded import RecordedLogits
from snapsure.scores import (
    GEN,
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
from snapsure.scores._base import Kappa, softmax_of
from snapsure.scoring import average_weights, score
from snapsure.scoring._recorded import averaged_probabilities, recorded
from snapsure.snapshots import Snapshots, SnapshotStore
from snapsure.table import ScoreTable

MEAN, WEIGHTS = "mean probabilities", "mean weights"
HEAD = "mc_dropout of the head"
EMBEDDED = "error predictor with embedding"


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
    near = [DeepKNN(training.train), NNDistance(training.train)]
    dropped = [MCDropout(), MCDropout(statistic="variance")]
    others: dict[str, Any] = _final_scores(training, some, [*near, *dropped])
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


def make_lean_run(training: Training, *, points: int | None = None) -> Run:
    """All rivals' scores, but AES, PES and LES of softmax alone: of many classes they fill a file.

    A transformer has dropout in every layer, a hundred passes of which are too dear: only the
    head's is sampled, for which the body is run once.
    """
    store = SnapshotStore(training.folder / "snapshots")
    recording = RecordedLogits(training.folder / "validation")
    table = recorded(recording)
    last = store.epochs[-1]
    of_logits = [Entropy(), Margin(), Energy(), MaxLogit(), Doctor(), GEN()]
    final = recorded(recording.select([last]), kappas=of_logits)
    others: dict[str, Any] = {name: final.kappa(name)[-1] for name in final.names}
    near = [DeepKNN(training.train), NNDistance(training.train)]
    others |= _final_scores(training, store, [*near, MCDropout(layers="last")])
    others[HEAD] = others.pop("mc_dropout")
    others[MEAN] = averaged_probabilities(recording)
    averaged = average_weights(training.network, store, training.train)
    others[WEIGHTS] = _softmax(averaged, training.test)
    kept = len(AES().snapshots(table.epochs))
    run = Run(
        table.with_logits(recording.read(last).numpy()),
        others=others,
        passes={MEAN: kept, HEAD: 1},
        kept={MEAN: kept},
        snapshot_bytes=next(store.path.glob("*.safetensors")).stat().st_size,
    ).rows(np.arange(points or table.y_hat.size))
    store.load_into(training.network, last)
    embedding = embedded(training.network, training.test[: run.y.size])
    return Run(
        run.table,
        others={**run.others, EMBEDDED: from_embedding(run.table, embedding)},
        passes=run.passes,
        kept=run.kept,
        snapshot_bytes=run.snapshot_bytes,
    )


def from_embedding(table: ScoreTable, embedding: NDArray[np.float64]) -> NDArray[np.float64]:
    """How likely each point is right, by a logistic regression on logits and embedding (n, d).

    As `ErrorPredictor`, which knows the logits alone. It learns on one of the halves that `compare`
    makes, and answers for the other: an archive has no room for embeddings, but for the answers.
    """
    features = np.vstack((embedding.T, features_of(table)))
    p = np.empty(table.y_hat.size)
    for learn, rest in Halves().parts(p.size):
        p[rest] = answered(features[:, rest], learnt(features[:, learn], table.errors[learn]))
    return p


def embedded(network: nn.Module, x: Tensor) -> NDArray[np.float64]:
    """Inputs of the last linear layer, (n, features)."""
    last = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
    seen: list[Tensor] = []
    hook = last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        predict(network, x)
    finally:
        hook.remove()
    found: NDArray[np.float64] = torch.cat(seen).double().numpy()
    return found


def _final_scores(
    training: Training, some: Snapshots, kappas: Sequence[Kappa]
) -> dict[str, NDArray[np.float64]]:
    """κ that need more than logits, of the final snapshot alone."""
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
