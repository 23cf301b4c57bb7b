"""`Student`: one network that has learnt what all snapshots together believe."""

import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler

from snapsure import _files, _json, _validate
from snapsure._types import Ints
from snapsure.errors import InvalidInput, NotFitted
from snapsure.estimators import AES, Final
from snapsure.networks._data import Digest, Rows, concatenate
from snapsure.networks._factory import make_network
from snapsure.networks._network import call
from snapsure.predictor import Predictor
from snapsure.scoring import score
from snapsure.scoring._score import bar
from snapsure.snapshots import SnapshotStore
from snapsure.snapshots._base import Snapshots
from snapsure.snapshots._store import open_snapshots
from snapsure.table import ScoreTable
from snapsure.training._epochs import (
    FILES,
    History,
    describe_time_left,
    launch_fabric,
    load_state,
    mix_seeds,
    read_ahead,
    read_history,
    refuse_another,
    save_state,
    seed_all,
    separate_randomness,
)
from snapsure.training._targets import Targets, epochs_from

if TYPE_CHECKING:
    from lightning.fabric import Fabric

Answers = Literal["itself", "final"]
MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]
MakeSchedule = Callable[[Optimizer], LRScheduler]

_ABOUT = "student.json"
_SAME = "snapshots, data, labels, start, epochs, batch size, seed, optimizer, devices and precision"
_WRITTEN = re.compile(rf"student\.json|{FILES.pattern}")
_STUDENT, _FINAL = 1, 2  # epochs of the pair that answers as the old network did
_MEMORY = 4 << 30


class _Examples:
    """Labelled and unlabelled inputs, numbered together, with what the student learns of each."""

    def __init__(
        self, rows: Sequence[Rows], targets: Sequence[Targets], weights: Sequence[float]
    ) -> None:
        self._sets = list(zip(rows, targets, weights, strict=True))
        self._ends = np.cumsum([part.n for part in rows])
        self.n = int(self._ends[-1])

    def take(self, index: Tensor) -> tuple[Any, Tensor]:
        """Return inputs and targets of some rows, those of one set before those of the next."""
        numbers: Ints = index.numpy()
        found = []
        for end, (rows, targets, weight) in zip(self._ends, self._sets, strict=True):
            begin = end - rows.n
            own = numbers[(numbers >= begin) & (numbers < end)] - begin
            if own.size:
                inputs, labels = rows.take(own)
                found.append((inputs, mix_labels(targets.take(own), labels, weight)))
        if len(found) == 1:
            return found[0]
        return concatenate([part[0] for part in found]), torch.cat([part[1] for part in found])


def mix_labels(targets: Tensor, labels: Ints | None, weight: float) -> Tensor:
    """Return (1 − weight) · targets + weight · one-hot labels; targets where there is no label.

    Cross-entropy is linear in its target, so that of the mixture is the weighted mean of both.
    """
    if labels is None or not weight:
        return targets
    classes = targets.shape[1]
    outside = (labels < _validate.NO_CLASS) | (labels >= classes)
    if outside.any():
        raise InvalidInput(
            f"labels of `data` must lie in 0…{classes - 1}, or be −1 where there is none, got "
            f"{labels[outside][0]}. Number the classes as the network does."
        )
    known = np.flatnonzero(labels != _validate.NO_CLASS)
    mixed = targets.clone()
    mixed[known] *= 1 - weight
    mixed[known, labels[known]] += weight
    return mixed


def _hash_rows(rows: Rows, *, with_labels: bool) -> list[Any]:
    """Return what tells rows from all others, by their inputs and the labels that are used."""
    digest = Digest()
    for inputs, labels in rows.batches():
        digest.add(inputs, labels if with_labels else None)
    return [rows.n, digest.hex()]


@dataclass(frozen=True)
class Difference:
    """How the answers of a student differ from those of the network that it learned from.

    Attributes
    ----------
    points : int
        Number of examples compared.
    error_before, error : float
        Error rates of the network and of the student.
    agreement : float
        Share of the examples with the same answer.
    lost, won : int
        Answers that were right and are wrong now, and the reverse.

    Examples
    --------
    >>> before = ScoreTable.from_kappa([[0.9, 0.8, 0.7]], errors=[False, True, False])
    >>> now = ScoreTable.from_kappa([[0.9, 0.8, 0.7]], errors=[False, False, False])
    >>> difference = Difference.between(before, now)
    >>> difference.won, difference.lost
    (1, 0)
    """

    points: int
    error_before: float
    error: float
    agreement: float
    lost: int
    won: int

    def __str__(self) -> str:
        """Describe it in a sentence."""
        return (
            f"on {self.points:,} examples the error is {self.error:.1%}, before "
            f"{self.error_before:.1%}; {self.agreement:.1%} of the answers are the same, "
            f"{self.lost:,} that were right are wrong now, {self.won:,} that were wrong are right"
        )

    @classmethod
    def between(cls, before: ScoreTable, now: ScoreTable) -> "Difference":
        """Compare the final answers of two tables of the same labelled examples."""
        return cls(
            points=now.y_hat.size,
            error_before=float(before.errors.mean()),
            error=float(now.errors.mean()),
            agreement=float((before.y_hat == now.y_hat).mean()),
            lost=int((now.errors & ~before.errors).sum()),
            won=int((before.errors & ~now.errors).sum()),
        )


class Student:
    """A network of the same architecture, trained on labels and the snapshots' mean probabilities.

    It takes one more training, and gives back what averaging costs: an answer takes one pass (the
    student answers itself, and errs otherwise than the old network), or two (the old network
    answers, and the mean of both says how sure that is). Stopped, the same call resumes: on a CPU,
    to the same weights.

    Parameters
    ----------
    model : callable or "package.module:factory"
        Makes a new network of the snapshots' architecture.
    snapshots : Snapshots or path
        A training's snapshots, or an `Ensemble`.
    data : Dataset, (inputs, labels) or inputs
        What the network was trained on, without augmentation. A label of −1 is none.
    out : path
        A folder for all that comes out.
    labels : float
        Weight of the labels in the loss, in [0, 1). The loss of an example is (1 − labels) times
        the cross-entropy to the snapshots' mean probabilities, plus labels times the cross-entropy
        to its label. An example without a label has the first cross-entropy alone.
    start : float
        Targets are the mean over the snapshots from this fraction of the training on.
    unlabelled : Dataset or inputs, optional
        More inputs, of the same form, to learn from.
    epochs, batch_size : int
        Of the training.
    optimizer : callable, optional
        From weights to an optimizer; SGD with rate 0.05, Nesterov momentum 0.9 and decay 5e-4.
    schedule : callable, optional
        From an optimizer to a schedule, which makes a step per epoch; a cosine to 0.
    augment : callable, optional
        From a batch of inputs to one that is varied at random, as in the network's own training; it
        draws from PyTorch, NumPy's old `np.random`, or `random`.
    seed : int
        Of the first weights, the order of the points, and what augmentation and dropout draw.
    memory : int
        Bytes that weights of snapshots may take (4 GiB) while targets are computed.
    fabric : lightning.fabric.Fabric, optional
        Launched: device, precision, number of processes.
    progress : bool
        Tell of every epoch, with the time left.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> store = SnapshotStore(folder / "snapshots")
    >>> for epoch in range(1, 11):
    ...     store.save(nn.Linear(3, 2), epoch)
    >>> student = Student(
    ...     lambda: nn.Linear(3, 2), store, torch.rand(64, 3), folder / "student", epochs=2,
    ...     progress=False,
    ... ).fit()
    >>> student.predictor("itself").passes, student.predictor("final").passes
    (1, 2)
    """

    def __init__(
        self,
        model: Callable[[], nn.Module] | str,
        snapshots: Snapshots | str | Path,
        data: Any,
        out: str | Path,
        *,
        labels: float = 0.5,
        start: float = 0.4,
        unlabelled: Any = None,
        epochs: int = 30,
        batch_size: int = 128,
        optimizer: MakeOptimizer | None = None,
        schedule: MakeSchedule | None = None,
        augment: Callable[[Any], Any] | None = None,
        seed: int = 0,
        memory: int = _MEMORY,
        fabric: "Fabric | None" = None,
        progress: bool = True,
    ) -> None:
        if isinstance(model, nn.Module) or not (callable(model) or isinstance(model, str)):
            raise InvalidInput(
                f"`model` must be a function that makes a new network, or package.module:factory, "
                f"got {type(model).__name__}: pass the class or function, not what it gives"
            )
        self.model, self.folder = model, Path(out)
        self._snapshots = open_snapshots(snapshots)
        self._taught = epochs_from(self._snapshots, _validate.share(start, "start"))
        self.labels = _validate.share(labels, "labels")
        parts = [("data", data), ("unlabelled", unlabelled)]
        self._rows = [Rows.of(given, name) for name, given in parts if given is not None]
        self._label_weights = [self.labels, 0.0][: len(self._rows)]
        for rows in self._rows:
            rows.take(np.zeros(1, np.int64))  # refuses what can only be read in order
        self.epochs = _validate.count(epochs, "epochs")
        self.batch_size = _validate.count(batch_size, "batch_size")
        self._optimizer = optimizer or _sgd
        self._schedule = schedule or (lambda made: CosineAnnealingLR(made, self.epochs))
        self._augment, self.seed = augment, _validate.count(seed, "seed", least=0)
        self._memory, self._progress = _validate.count(memory, "memory"), progress
        self._fabric = fabric

    def __repr__(self) -> str:
        """Where it is, and how far."""
        done = len(read_history(self.folder))
        return f"<Student in {self.folder}: {done} of {self.epochs} epochs>"

    @property
    def teachers(self) -> int:
        """How many networks the targets are the mean of."""
        return len(self._taught) * len(self._snapshots.members)

    @property
    def finished(self) -> bool:
        """Whether it has learnt all epochs."""
        place = self.folder / "itself"
        return place.exists() and self.epochs in SnapshotStore(place)

    def fit(self) -> "Student":
        """Compute the targets, and train; or what is left of it."""
        with separate_randomness():
            self._refuse_one_network()
            fabric = self._fabric or launch_fabric()
            self._claim(fabric)
            if not self.finished:
                network = self._trained(fabric, self._targets(fabric))
                if fabric.is_global_zero:
                    self._write(network)
            fabric.barrier()
        return self

    @property
    def network(self) -> nn.Module:
        """The student, in evaluation mode."""
        module = self._made()
        self.snapshots("itself").load_into(module, self.epochs)
        return module.eval()

    def snapshots(self, answers: Answers = "itself") -> Snapshots:
        """What `score` and `Predictor` take.

        The student alone ("itself"), or student and old network as a training of two epochs, whose
        final one is the old network ("final"): both speak of its answers, and what learns on such a
        table may weigh them.
        """
        if answers not in ("itself", "final"):
            raise InvalidInput(
                f"`answers` must be 'itself' or 'final', got {answers!r}: choose who answers"
            )
        if not self.finished:
            raise NotFitted("a student must be fitted before it is used: call .fit()")
        refuse_another(self.folder / _ABOUT, self._about, _SAME)
        if answers == "final" and len(self._snapshots.members) > 1:
            raise InvalidInput(
                "`answers` must be 'itself' for the student of an ensemble, got 'final': the old "
                "answers take all members"
            )
        return SnapshotStore(self.folder / answers)

    def predictor(self, answers: Answers = "itself", **options: Any) -> Predictor:
        """What to deploy: one pass per answer, or two that leave the old answers as they are.

        Parameters
        ----------
        answers : "itself" or "final"
            Who answers.
        options
            As for `Predictor`: `threshold`, `calibration`, `classes`, ...
        """
        store = self.snapshots(answers)
        model = self.model if isinstance(self.model, str) else self._made()
        estimator = Final() if answers == "itself" else AES(k=2, start=0)
        return Predictor(model, store, estimator, **options)

    def difference(self, data: Any) -> Difference:
        """How its answers differ from the old network's, on labelled points."""
        stores = (self._snapshots.select(self._snapshots.epochs[-1:]), self.snapshots("itself"))
        before, now = (score(self._made(), each, data, progress=False) for each in stores)
        return Difference.between(before, now)

    def _made(self) -> nn.Module:
        if isinstance(self.model, str):
            return make_network(self.model)
        model = self.model()
        if not isinstance(model, nn.Module):
            raise InvalidInput(
                f"`model` must make a network, got {type(model).__name__}: return a torch.nn.Module"
            )
        return model

    def _refuse_one_network(self) -> None:
        if self._made() is self._made():
            raise InvalidInput(
                "`model` must make a new network at every call, got the same one twice: write a "
                "function that builds it"
            )

    @cached_property
    def _about(self) -> dict[str, Any]:
        """What the student is of."""
        return {
            "snapshots": [
                member.sha256(epoch) for epoch in self._taught for member in self._snapshots.members
            ],
            "data": [
                _hash_rows(rows, with_labels=weight > 0)
                for rows, weight in zip(self._rows, self._label_weights, strict=True)
            ],
            "labels": self.labels,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "seed": self.seed,
        }

    def _training(self, fabric: "Fabric") -> dict[str, Any]:
        """How it is trained."""
        optimizer = self._optimizer(self._made().parameters())
        schedule = self._schedule(optimizer)
        return {
            "optimizer": [type(optimizer).__name__, repr(optimizer.defaults)],
            "schedule": type(schedule).__name__,
            "devices": fabric.world_size,
            "precision": str(fabric.strategy.precision.precision),
        }

    def _claim(self, fabric: "Fabric") -> None:
        """Take the folder; what one process refuses, all do."""
        refusal = None
        if fabric.is_global_zero:
            try:
                self._claim_alone({**self._about, **self._training(fabric)})
            except InvalidInput as error:
                refusal = str(error)
        refusal = fabric.broadcast(refusal)
        if refusal is not None:
            raise InvalidInput(refusal)

    def _claim_alone(self, about: dict[str, Any]) -> None:
        path = self.folder / _ABOUT
        _files.remove_partial(self.folder, _WRITTEN)
        if _files.claim(self.folder, _ABOUT, "`out`", "this student"):
            refuse_another(path, about, _SAME)
        else:
            _files.write_bytes(path, _json.text(about))

    def _targets(self, fabric: "Fabric") -> list[Targets]:
        found = []
        for i, rows in enumerate(self._rows):
            targets = Targets(self.folder / f"targets-{i}", rows)
            rank, world = fabric.global_rank, fabric.world_size
            total = rows.n * self.teachers
            with bar("targets", total, 0, progress=self._progress and not rank) as advance:
                targets.compute(
                    self._made(),
                    self._snapshots,
                    self._taught,
                    self._memory,
                    advance,
                    rank,
                    world,
                )
            found.append(targets)
            fabric.barrier()
        return found

    def _trained(self, fabric: "Fabric", targets: Sequence[Targets]) -> nn.Module:
        seed_all(mix_seeds(self.seed))
        network = self._made()
        points = _Examples(self._rows, [each.open() for each in targets], self._label_weights)
        optimizer = self._optimizer(network.parameters())
        schedule = self._schedule(optimizer)
        model, running = fabric.setup(network, optimizer)
        saved = {
            "network": network,
            "optimizer": running,
            "schedule": schedule,
            "precision": fabric.strategy.precision,
        }
        history = load_state(self.folder, saved)
        for epoch in range(len(history) + 1, self.epochs + 1):
            begin = time.monotonic()
            entry = self._epoch(epoch, fabric, model, running, points)
            if not math.isfinite(entry["loss"]):
                raise InvalidInput(
                    f"the student's loss must stay finite, got {entry['loss']} in epoch {epoch}: "
                    "lower the learning rate, in another folder"
                )
            schedule.step()
            history.append({"epoch": epoch, **entry, "seconds": time.monotonic() - begin})
            if fabric.is_global_zero:
                save_state(self.folder, saved, history)
                self._tell(history)
            fabric.barrier()
        return network

    def _epoch(
        self, epoch: int, fabric: "Fabric", model: Any, optimizer: Any, points: _Examples
    ) -> dict[str, float]:
        rank, world = fabric.global_rank, fabric.world_size
        shared = torch.Generator().manual_seed(mix_seeds(self.seed, epoch))
        seed_all(mix_seeds(self.seed, epoch, rank, 1))  # what dropout and `augment` draw from
        order = torch.randperm(points.n, generator=shared)[rank::world][: points.n // world]
        size = max(1, self.batch_size // world)
        batches = torch.tensor_split(order, -(-len(order) // size))
        model.train()
        loss, same, seen = 0.0, 0, 0
        for inputs, wanted in read_ahead(points.take, batches):
            inputs, wanted = fabric.to_device((inputs, wanted))
            inputs = inputs if self._augment is None else self._augment(inputs)
            logits = call(model, inputs, len(wanted))
            cost = functional.cross_entropy(logits, wanted)
            optimizer.zero_grad()
            fabric.backward(cost)
            optimizer.step()
            loss += float(cost.detach()) * len(wanted)
            same += int((logits.argmax(dim=1) == wanted.argmax(dim=1)).sum())
            seen += len(wanted)
        rate = optimizer.param_groups[0]["lr"]
        return {"learning_rate": float(rate), "loss": loss / seen, "agreement": same / seen}

    def _tell(self, history: History) -> None:
        if self._progress:
            entry, left = history[-1], describe_time_left(history, self.epochs)
            self._console.print(
                f"epoch {entry['epoch']} of {self.epochs}: loss {entry['loss']:.3f}, agrees with "
                f"{entry['agreement']:.1%} of the targets, {left}",
                highlight=False,
                soft_wrap=True,
            )

    @cached_property
    def _console(self) -> Console:
        return Console(stderr=True)

    def _write(self, network: nn.Module) -> None:
        """Leave the student, with the old network and last by itself: then all is there."""
        if len(self._snapshots.members) == 1:
            pair, old = SnapshotStore(self.folder / "final"), self._made()
            self._snapshots.load_into(old, self._snapshots.epochs[-1])
            pair.rewind(0)
            pair.save(network, _STUDENT)
            pair.save(old, _FINAL)
        SnapshotStore(self.folder / "itself").save(network, self.epochs)


def _sgd(weights: Iterable[nn.Parameter]) -> Optimizer:
    return SGD(weights, 0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
