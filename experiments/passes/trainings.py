"""The study's trainings: the same examples, network and recipe, trained in every way.

A training's folder has `logits.npy` (of the test examples, by its final weights) and
`training.json` (its cost, accuracy and error), written last: a training without it is repeated. The
plain one also has `snapshots/` and `validation/` (logits of the test examples) of every second
epoch.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, update_bn

from experiments.contest.packing import make_recorder, write_training
from experiments.contest.runs import predict
from experiments.passes.tasks import Task
from snapsure import _files
from snapsure.snapshots import SnapshotStore
from snapsure.training import CorrectnessRanking, SelfAdaptive, Student

BATCH = 100
LEARNING_RATE = 0.05
EVERY = 2  # epochs per snapshot

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # logits, labels, numbers of the examples


@dataclass(frozen=True)
class Way:
    """A way to train with labels."""

    name: str
    loss: Callable[[Task], Loss]
    offset: int = 0  # of the seed: two of the same recipe must begin apart
    sharp: bool = True  # or else steps that look for flat places, and averaged weights

    @property
    def cost(self) -> int:
        """Passes forth and back per step."""
        return 1 if self.sharp else 2


def _cross_entropy(task: Task, smoothing: float = 0.0) -> Loss:
    return lambda logits, y, _: functional.cross_entropy(logits, y, label_smoothing=smoothing)


PLAIN = Way("plain", _cross_entropy)
SECOND = Way("second network", _cross_entropy, offset=100)
SMOOTH = Way("label smoothing", partial(_cross_entropy, smoothing=0.1))
SAT = Way(
    "SAT",
    lambda task: SelfAdaptive(len(task.train[1]), task.classes, start=int(0.3 * task.epochs)),
)
CRL = Way("CRL", lambda task: CorrectnessRanking(len(task.train[1])))
FMFP = Way("FMFP", _cross_entropy, sharp=False)
WAYS = (PLAIN, SECOND, SMOOTH, SAT, CRL, FMFP)


def train(task: Task, way: Way, seed: int, folder: Path) -> None:
    """Train one network, and write its record when it is finished."""
    begin = time.process_time()
    torch.manual_seed(seed + way.offset)
    network, loss = prepare_network(task.network()), way.loss(task)
    optimizer = make_optimizer(network.parameters(), task)
    rate = make_schedule(optimizer, task)
    record = make_recorder(folder, task.test) if way is PLAIN else None
    averaged = None if way.sharp else AveragedModel(network)
    for epoch in range(1, task.epochs + 1):
        network.train()
        for x, y, index in make_batches(task):

            def cost(x: Tensor = x, y: Tensor = y, index: Tensor = index) -> Tensor:
                return loss(network(x), y, index)

            if averaged is None:
                optimizer.zero_grad()
                cost().backward()  # type: ignore[no-untyped-call]
            else:
                set_flat_gradients(network, cost)
            optimizer.step()
        rate.step()
        if record is not None and epoch % EVERY == 0:
            record(network, epoch)
        if averaged is not None and epoch > 0.6 * task.epochs:
            averaged.update_parameters(network)
    if averaged is not None:
        update_bn((x for x, _, _ in make_batches(task)), averaged)
        network = averaged
    finish_training(
        task, network, folder, {"cost": way.cost, "seconds": time.process_time() - begin}
    )


@dataclass(frozen=True)
class Taught:
    """A way to train on what snapshots of the plain network say."""

    name: str
    start: float = 0.4  # the fraction of its training that they begin at
    alone: bool = False  # or its final snapshot
    labels: float = 0.0  # weight of the labels in the loss


STUDENTS = (
    Taught("student"),
    Taught("student of the final", alone=True),
    Taught("student of all epochs", start=0.0),
)


def teach(task: Task, way: Taught, seed: int, plain: Path, folder: Path) -> None:
    """One student of the plain network of the same seed."""
    begin = time.process_time()
    store = SnapshotStore(plain / "snapshots")
    student = Student(
        lambda: prepare_network(task.network()),
        store.select(store.epochs[-1:]) if way.alone else store,
        task.train,
        folder / "student",
        labels=way.labels,
        start=way.start,
        epochs=task.epochs,
        batch_size=BATCH,
        optimizer=lambda weights: make_optimizer(weights, task),
        schedule=lambda optimizer: make_schedule(optimizer, task),
        augment=task.augment,
        seed=seed + 1000,
        progress=False,
    ).fit()
    # Targets take a pass forth per snapshot; an epoch of training one forth, and twice that back.
    targets = student.teachers / (3 * task.epochs)
    about = {"cost": round(1 + targets, 2), "seconds": time.process_time() - begin}
    finish_training(task, student.network, folder, about)


def locate_training(folder: Path, name: str) -> Path:
    """Return the folder of a training of one seed."""
    return folder / name.replace(" ", "-")


def prepare_network(network: nn.Module) -> nn.Module:
    """Lay the weights out as channels_last, which is fast on images."""
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def make_optimizer(weights: Iterable[nn.Parameter], task: Task) -> torch.optim.Optimizer:
    """Return the recipe's optimizer."""
    return torch.optim.SGD(weights, LEARNING_RATE, momentum=0.9, weight_decay=task.weight_decay)


def make_schedule(
    optimizer: torch.optim.Optimizer, task: Task
) -> torch.optim.lr_scheduler.LRScheduler:
    """Return the recipe's schedule, a step per epoch."""
    return torch.optim.lr_scheduler.StepLR(optimizer, task.drop_every, 0.5)


def finish_training(task: Task, network: nn.Module, folder: Path, about: dict[str, float]) -> None:
    """Write the final logits, then the training's record."""
    logits = predict(network, task.test[0]).numpy()
    fitted = predict(network, task.train[0]).argmax(dim=1) == task.train[1]
    about = {
        **about,
        "training_accuracy": float(fitted.numpy().mean()),
        "test_error": float((logits.argmax(axis=1) != task.test[1].numpy()).mean()),
    }
    folder.mkdir(parents=True, exist_ok=True)
    with _files.replacing(folder / "logits.npy") as file:
        np.save(file, logits.astype(np.float32))
    write_training(folder, about)


def make_batches(task: Task) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield inputs, labels and numbers of the training examples, in batches of random order."""
    x, y = task.train
    for rows in torch.split(torch.randperm(len(y)), BATCH):
        yield (x[rows] if task.augment is None else task.augment(x[rows])), y[rows], rows


def set_flat_gradients(
    network: nn.Module, cost: Callable[[], Tensor], radius: float = 0.05
) -> None:
    """Gradients at the worst place nearby (Foret et al. 2021); the weights stay where they are.

    With averaged weights it is FMFP (Zhu, Cheng, Zhang & Liu 2022), but that they hold the rate
    while they average, and here it falls as in every other way.
    """
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    steps = torch.autograd.grad(cost(), weights)
    length = torch.stack([step.norm() for step in steps]).norm() + 1e-12
    with torch.no_grad():
        for weight, step in zip(weights, steps, strict=True):
            weight.add_(step, alpha=float(radius / length))
    gradients = torch.autograd.grad(cost(), weights)
    with torch.no_grad():
        for weight, step, gradient in zip(weights, steps, gradients, strict=True):
            weight.sub_(step, alpha=float(radius / length))
            weight.grad = gradient
