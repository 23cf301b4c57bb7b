"""Make the contest's runs from trainings: every rival's scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from snapsure._logistic import logit, sigmoid
from snapsure._validate import NO_CLASS
from snapsure.estimators import AES, registry
from snapsure.estimators._error_predictor import (
    fit_error_weights,
    make_features,
    predict_right,
)
from snapsure.estimators.registry import AVERAGED
from snapsure.evaluation import Rival, Run
from snapsure.evaluation._archive import KNOWN
from snapsure.evaluation._engine import judge, list_candidates
from snapsure.evaluation._protocol import Halves
from snapsure.kappas import (
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
from snapsure.kappas._base import Kappa, softmax_of
from snapsure.scoring import average_weights, score
from snapsure.scoring._recorded import RecordedLogits, average_probabilities, score_recorded
from snapsure.snapshots import Snapshots, SnapshotStore
from snapsure.table import ScoreTable

MEAN, WEIGHTS = "mean probabilities", AVERAGED
HEAD = "mc_dropout of the head"
LEARNT = ("logits", "labels")  # needs of methods that learn from logits
EMBEDDED = "error predictor with embedding"


@dataclass(frozen=True)
class Training:
    """A finished training, and what it takes to score it."""

    folder: Path  # with `snapshots/` and `validation/`
    network: nn.Module
    train: tuple[Tensor, Tensor]
    test: Tensor


def make_run(training: Training, *, every: int, points: int) -> Run:
    """Score all rivals with every so many snapshots, on the first so many test examples."""
    store = SnapshotStore(training.folder / "snapshots")
    some = store.select(store.epochs[::-1][::every])
    recording = RecordedLogits(training.folder / "validation").select(some.epochs)
    kappas = [SoftmaxResponse(), Entropy(), Margin(), Energy(), MaxLogit(), Doctor()]
    table = score_recorded(recording, kappas=kappas)
    averaged = average_weights(training.network, some, training.train)
    near = [DeepKNN(training.train), NNDistance(training.train)]
    dropped = [MCDropout(), MCDropout(statistic="variance")]
    others: dict[str, Any] = _score_final(training, some, [*near, *dropped])
    kept = len(AES().snapshots(table.epochs))
    others[MEAN] = Rival(*average_probabilities(recording), passes=kept, kept=kept)
    others[WEIGHTS] = _softmax(averaged, training.test)
    run = Run(
        table.with_logits(recording.read(some.epochs[-1]).numpy()),
        others=others,
        snapshot_bytes=next(store.path.glob("*.safetensors")).stat().st_size,
    )
    return run.rows(np.arange(points))


def make_lean_run(
    training: Training, *, points: int | None = None, keep_logits: bool = True
) -> Run:
    """Score all rivals; AES, PES and LES of softmax alone, because other κ fill a file.

    A transformer has dropout in every layer, and a hundred passes through all of them take too
    long: only the head's is sampled, for which the body runs once.
    """
    store = SnapshotStore(training.folder / "snapshots")
    recording = RecordedLogits(training.folder / "validation")
    table = score_recorded(recording)
    last = store.epochs[-1]
    of_logits = [Entropy(), Margin(), Energy(), MaxLogit(), Doctor(), GEN()]
    final = score_recorded(recording.select([last]), kappas=of_logits)
    others: dict[str, Any] = {name: final.kappa(name)[-1] for name in final.names}
    fewest = int(training.train[1].bincount().min())  # a neighbour further off is of another class
    near = [DeepKNN(training.train, k=min(50, fewest)), NNDistance(training.train)]
    others |= _score_final(training, store, [*near, MCDropout(layers="last")])
    others[HEAD] = Rival(others.pop("mc_dropout"), table.y_hat)
    kept = len(AES().snapshots(table.epochs))
    others[MEAN] = Rival(*average_probabilities(recording), passes=kept, kept=kept)
    averaged = average_weights(training.network, store, training.train)
    others[WEIGHTS] = _softmax(averaged, training.test)
    run = Run(
        table.with_logits(recording.read(last).numpy()),
        others=others,
        snapshot_bytes=next(store.path.glob("*.safetensors")).stat().st_size,
    ).rows(np.arange(points or table.y_hat.size))
    store.load_into(training.network, last)
    embedding = embed(training.network, training.test[: run.y.size])
    if not keep_logits:
        return drop_logits(run, embedding)
    answers = {EMBEDDED: predict_from_embedding(run.table, embedding)}
    return run.replace(run.table, {**run.others, **answers})


def drop_logits(run: Run, embedding: NDArray[np.float64]) -> Run:
    """Replace logits and embedding by the answers of the methods that learn from them.

    Each learns on one of the halves that `compare` makes, and answers for the other. Of 100
    classes, logits are more than half of a file. Where some examples are of no class, the board
    without them has other answers, which were learnt without them.
    """
    answers = _answer_by_halves(run, embedding)
    inside = np.flatnonzero(run.y != NO_CLASS)
    if inside.size < run.y.size:
        known = _answer_by_halves(run.rows(inside), embedding[inside])
        for name, p in known.items():
            answers[name + KNOWN] = np.full(run.y.size, 0.5)
            answers[name + KNOWN][inside] = p
    table = run.table
    kappas = {name: table.kappa(name) for name in table.names}
    bare = ScoreTable(kappas, table.labels, table.y, y_hat=table.y_hat, epochs=table.epochs)
    return run.replace(bare, {**run.others, **answers})


def _answer_by_halves(run: Run, embedding: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    halves = Halves().parts(run.y.size)
    answers = {}
    methods = [method for method in map(registry.get, registry.names()) if method.needs == LEARNT]
    for candidate in list_candidates(run, methods, []):
        scores = np.empty(run.y.size)
        for learn, rest in halves:
            scores[rest] = _spread(judge(candidate, run.rows(learn), run.rows(rest)).score)
        answers[candidate.method] = scores
    return {**answers, EMBEDDED: predict_from_embedding(run.table, embedding)}


def _spread(score: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the same order with an even spread of log-odds; packing merges crowded values."""
    x = logit(score / (1 + score) if score.max() > 1 else score)
    return sigmoid(3 * (x - x.mean()) / max(x.std(), 1e-300))


def predict_from_embedding(
    table: ScoreTable, embedding: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how likely each answer is right: a logistic regression on logits and embedding.

    As `ErrorPredictor`, which uses the logits alone; learnt and judged by halves.
    """
    features = np.vstack((embedding.T, make_features(table)))
    p = np.empty(table.y_hat.size)
    for learn, rest in Halves().parts(p.size):
        p[rest] = predict_right(
            features[:, rest], fit_error_weights(features[:, learn], table.errors[learn])
        )
    return p


def embed(network: nn.Module, x: Tensor) -> NDArray[np.float64]:
    """Return the inputs of the last linear layer, (n, features)."""
    last = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
    seen: list[Tensor] = []
    hook = last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        predict(network, x)
    finally:
        hook.remove()
    found: NDArray[np.float64] = torch.cat(seen).double().numpy()
    return found


def _score_final(
    training: Training, some: Snapshots, kappas: Sequence[Kappa]
) -> dict[str, NDArray[np.float64]]:
    """Return κ that need more than logits, of the final snapshot alone."""
    last = some.select(some.epochs[-1:])
    table = score(training.network, last, training.test, kappas, progress=False)
    return {name: table.kappa(name)[-1] for name in table.names}


def predict(network: nn.Module, x: Tensor) -> Tensor:
    """Return logits, (n, classes)."""
    network.eval()
    with torch.inference_mode():
        return torch.cat([network(part) for part in torch.split(x, 500)])


def _softmax(network: nn.Module, x: Tensor) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return κ and prediction of a network."""
    logits = predict(network, x)
    y_hat = logits.argmax(dim=1).numpy()
    return softmax_of(logits, y_hat), y_hat
