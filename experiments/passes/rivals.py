"""Do snapshots still help networks that were trained for a good confidence?

    python -m experiments.passes.rivals runs words clothes cifar10 --packages node_modules
    python -m experiments.passes.rivals runs words clothes cifar10 --results results/rivals.json

Protocol, written before the first training:

- Tasks, in this order: words, clothes, cifar10; their networks, examples, batches, epochs and decay
  are those of `experiments.passes`. Seeds 0, 1, 2 of each.
- Six ways to train: *plain*, the study's recipe. *SAM* (Foret et al. 2021): the same with steps of
  radius 0.05 that look for flat places. *EMA*: the same, answering by the moving average of the
  weights with a decay of 0.999 per step. *SWA* (Izmailov et al. 2018) and *FMFP* (Zhu et al. 2022),
  by the schedule of FMFP's authors: the rate falls along a cosine that reaches 0 at half of the
  training, until 0.6 of it; then it goes to half of its first value within 0.05 of the training and
  stays there, and the weights after each of these epochs are averaged. FMFP also takes SAM's steps.
  *RegMixup* (Pinto et al. 2022): the plain recipe, with the loss of a mixed batch beside it,
  λ ~ Beta(10, 10). Letters cannot be mixed, so words have no RegMixup.
- Averaged networks estimate their batch-norm statistics again. A network's snapshots are those of
  every second epoch; where weights are averaged, the averaged network is the final snapshot.
- Judged on 10,000 test examples that nothing learned from, for each way: error and AURC of the
  final softmax; AURC of AES, LES and LES (3 passes) of its snapshots, LES learning from one half
  and judged on the other, both ways round; error and AURC of the averaged weights of its snapshots
  from 40 % of the training on (not counting its own averaged network).
- Questions: how much lower is the AURC of each way than plain's? And how much lower still with LES
  and with averaged weights, in percent of that way's own final softmax? Every seed is reported.

Finished trainings are kept, and the same command resumes. `--results` adds what is finished to a
file and keeps what is there already. On one core about 10 minutes per seed of words, 15 of clothes
and 40 of cifar10.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

from experiments.contest.packing import DONE, Packages, Seeds, Threads, make_recorder, train_once
from experiments.contest.runs import predict
from experiments.passes.__main__ import make_task
from experiments.passes.tasks import Task
from experiments.passes.trainings import (
    EVERY,
    LEARNING_RATE,
    PLAIN,
    finish_training,
    locate_training,
    make_batches,
    make_optimizer,
    prepare_network,
    set_flat_gradients,
    train,
)
from snapsure import _files
from snapsure.estimators import AES, LES, Estimator
from snapsure.evaluation._protocol import Halves
from snapsure.kappas._base import softmax_of
from snapsure.metrics import aurc
from snapsure.scoring import average_weights
from snapsure.scoring._recorded import RecordedLogits, score_recorded
from snapsure.snapshots import SnapshotStore
from snapsure.table import ScoreTable

NAMES = ("words", "clothes", "cifar10")
SEEDS = range(3)
DECAY = 0.999
MIXED = 10.0  # both parameters of the Beta distribution


@dataclass(frozen=True)
class Rival:
    """A way to train."""

    name: str
    flat: bool = False  # steps that look for flat places
    average: str | None = None  # "late": the weights of late epochs, or "ema"
    mixed: bool = False


RIVALS = (
    Rival("SAM", flat=True),
    Rival("EMA", average="ema"),
    Rival("SWA", average="late"),
    Rival("FMFP", flat=True, average="late"),
    Rival("RegMixup", mixed=True),
)


def main(
    out: Annotated[Path, typer.Argument(help="Folder for trainings.")],
    names: Annotated[list[str], typer.Argument(help=f"Some of {', '.join(NAMES)}.")],
    packages: Packages = Path("node_modules"),
    seed: Seeds = None,
    results: Annotated[Path | None, typer.Option(help="Add what is finished to this file.")] = None,
    threads: Threads = 1,
) -> None:
    """Train what is not trained, task by task and seed by seed."""
    torch.set_num_threads(threads)
    finished: dict[str, dict[str, Any]] = {}
    if results is not None and results.exists():
        finished = json.loads(results.read_text())["tasks"]
    for name in names:
        task = make_task(name, packages, None)
        rivals = [way for way in RIVALS if task.train[0].is_floating_point() or not way.mixed]
        ways = [PLAIN.name, *(f"rival {way.name}" for way in rivals)]
        for one in seed or SEEDS:
            folders = {way: locate_training(out / name / f"seed-{one}", way) for way in ways}
            if results is None:
                plain = folders[PLAIN.name]
                train_once(plain, partial(train, task, PLAIN, one, plain))
                for way in rivals:
                    folder = folders[f"rival {way.name}"]
                    train_once(folder, partial(train_rival, task, way, one, folder))
            elif all((folder / DONE).exists() for folder in folders.values()):
                found = {way.removeprefix("rival "): judge(task, at) for way, at in folders.items()}
                finished.setdefault(name, {})[str(one)] = found
    if results is not None:
        tasks = {name: dict(sorted(finished[name].items())) for name in NAMES if name in finished}
        text = json.dumps({"test_examples": 10_000, "tasks": tasks}, indent=1)
        _files.write_bytes(results, text.encode() + b"\n")


def train_rival(task: Task, way: Rival, seed: int, folder: Path) -> None:
    """Train one network and its average, recording every second epoch and what answers."""
    begin = time.process_time()
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    network = prepare_network(task.network())
    optimizer = make_optimizer(network.parameters(), task)
    record = make_recorder(folder, task.test)
    mean = get_ema_multi_avg_fn(DECAY) if way.average == "ema" else None  # type: ignore[no-untyped-call]
    averaged = AveragedModel(network, multi_avg_fn=mean) if way.average else None
    for epoch in range(1, task.epochs + 1):
        set_rate(optimizer, task, way, epoch)
        network.train()
        for x, y, _ in make_batches(task):
            loss = make_loss(network, x, y, rng if way.mixed else None)
            if way.flat:
                set_flat_gradients(network, loss)
            else:
                optimizer.zero_grad()
                loss().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if averaged is not None and way.average == "ema":
                averaged.update_parameters(network)
        if averaged is not None and way.average == "late" and epoch > 0.6 * task.epochs:
            averaged.update_parameters(network)
        if epoch % EVERY == 0:
            record(network, epoch)
    answering: nn.Module = network
    if averaged is not None:
        update_bn((x for x, _, _ in make_batches(task)), averaged)
        answering = averaged.module
        record(answering, task.epochs + 1)
    cost = 2 if way.flat or way.mixed else 1
    about = {"cost": cost, "seconds": time.process_time() - begin}
    finish_training(task, answering, folder, about)


def set_rate(optimizer: torch.optim.Optimizer, task: Task, way: Rival, epoch: int) -> None:
    """Set the rate of an epoch, counted from 1: halved in steps, or by FMFP's schedule."""
    done = (epoch - 1) / task.epochs
    share = 0.5 ** ((epoch - 1) // task.drop_every)
    if way.average == "late":
        share = (1 + math.cos(2 * math.pi * min(done, 0.6))) / 2
        share += (0.5 - share) * min(1.0, max(0.0, done - 0.6) / 0.05)
    for group in optimizer.param_groups:
        group["lr"] = LEARNING_RATE * share


def make_loss(
    network: nn.Module, x: Tensor, y: Tensor, rng: np.random.Generator | None
) -> Callable[[], Tensor]:
    """Return the loss of a batch, and with `rng` that of its mixture with itself beside it."""
    if rng is None:
        return lambda: functional.cross_entropy(network(x), y)
    share, order = float(rng.beta(MIXED, MIXED)), torch.randperm(len(y))
    both = torch.cat((x, share * x + (1 - share) * x[order]))

    def loss() -> Tensor:
        alone, mixed = network(both).chunk(2)
        parts = ((share, y), (1 - share, y[order]))
        mixture = sum(part * functional.cross_entropy(mixed, of) for part, of in parts)
        return functional.cross_entropy(alone, y) + mixture

    return loss


def judge(task: Task, folder: Path) -> dict[str, float]:
    """Return error and AURC of a training's final softmax, of its snapshots and of their mean."""
    table = score_recorded(RecordedLogits(folder / "validation"))
    store = SnapshotStore(folder / "snapshots")
    raw = store.select([epoch for epoch in store.epochs if epoch <= task.epochs])
    logits = predict(average_weights(task.network(), raw, task.train), task.test[0])
    y_hat = logits.argmax(dim=1).numpy()
    wrong = y_hat != table.y
    learnt = {"LES": LES(), "LES (3 passes)": LES(passes=3)}
    return {
        "error": float(table.errors.mean()),
        "aurc": float(aurc(table.kappa("softmax")[-1], table.errors)),
        "AES": float(aurc(AES().confidence(table), table.errors)),
        **{name: judge_by_halves(table, method) for name, method in learnt.items()},
        "averaged error": float(wrong.mean()),
        "averaged aurc": float(aurc(softmax_of(logits, y_hat), wrong)),
    }


def judge_by_halves(table: ScoreTable, method: Estimator) -> float:
    """Return AURC of a method that learns on one half and is judged on the other.

    It is the final softmax's AURC of all examples, times the mean over halves of what the method
    makes of that of the half.
    """
    ratio = []
    for learn, rest in Halves().parts(table.y_hat.size):
        part = table.rows(rest)
        score = method.fit(table.rows(learn)).confidence(part)
        ratio.append(aurc(score, part.errors) / aurc(part.kappa("softmax")[-1], part.errors))
    return float(np.mean(ratio) * aurc(table.kappa("softmax")[-1], table.errors))


if __name__ == "__main__":
    typer.run(main)
