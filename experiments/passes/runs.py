"""The study's runs, made of trainings: a plain network's table, and every other way beside it."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.contest.packing import read_training
from experiments.contest.runs import MEAN, WEIGHTS, predict
from experiments.passes.tasks import Task
from experiments.passes.trainings import (
    CRL,
    FMFP,
    PLAIN,
    SAT,
    SECOND,
    SMOOTH,
    STUDENTS,
    locate_training,
)
from snapsure.estimators import AES
from snapsure.evaluation import Rival, Run
from snapsure.kappas._base import softmax_of
from snapsure.scoring import average_weights
from snapsure.scoring._recorded import RecordedLogits, average_probabilities, score_recorded
from snapsure.snapshots import SnapshotStore

Scored = tuple[NDArray[np.float64], NDArray[np.int64]]


def make_run(task: Task, folder: Path) -> Run:
    """One seed: what answers itself, and what gives κ of the plain network's answers."""
    plain = locate_training(folder, PLAIN.name)
    recording = RecordedLogits(plain / "validation")
    table = score_recorded(recording)
    final = recording.read(int(table.epochs[-1]))
    kept = len(AES().snapshots(table.epochs))
    others = {MEAN: Rival(*average_probabilities(recording), passes=kept, kept=kept)}
    store = SnapshotStore(plain / "snapshots")
    averaged = average_weights(task.network(), store, task.train)
    others[WEIGHTS] = Rival(*_itself(predict(averaged, task.test[0])))
    for way in (SMOOTH, SAT, CRL, FMFP):
        others[way.name] = Rival(*_itself(_logits(folder, way.name)), trainings=way.cost)
    for name in (SECOND.name, *(student.name for student in STUDENTS)):
        logits = _logits(folder, name)
        alone = softmax_of(logits, table.y_hat)
        price = read_training(locate_training(folder, name))["cost"]
        # A second network by itself is one training; a student needs the first one's.
        cost = price if name == SECOND.name else 1 + price
        others[name] = Rival(*_itself(logits), trainings=cost)
        for both, kappa in {
            f"{name}, of the old answers": alone,
            f"{name} and the old, of the old answers": (alone + table.kappa("softmax")[-1]) / 2,
        }.items():
            others[both] = Rival(kappa, table.y_hat, passes=2, kept=2, trainings=1 + price)
    second = _together(final, _logits(folder, SECOND.name))
    others["both networks, answering together"] = Rival(*second, passes=2, kept=2, trainings=2)
    return Run(
        table.with_logits(final.numpy()),
        others=others,
        snapshot_bytes=next(store.path.glob("*.safetensors")).stat().st_size,
    )


def _logits(folder: Path, name: str) -> torch.Tensor:
    return torch.from_numpy(np.load(locate_training(folder, name) / "logits.npy"))


def _itself(logits: torch.Tensor) -> Scored:
    """κ and prediction of a network."""
    y_hat: NDArray[np.int64] = logits.argmax(dim=1).numpy()
    return softmax_of(logits, y_hat), y_hat


def _together(*logits: torch.Tensor) -> Scored:
    """κ and prediction of networks by their mean probability."""
    mean = torch.stack([each.double().softmax(dim=1) for each in logits]).mean(dim=0)
    y_hat: NDArray[np.int64] = mean.argmax(dim=1).numpy()
    return np.mean([softmax_of(each, y_hat) for each in logits], axis=0), y_hat
