"""`Student`: one network that learns from labels and from what all snapshots believe."""

import math
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler

from snapsure import _files, _json, _validate
from snapsure._spacing import choose
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
from snapsure.snapshots._store import open_snapshots, refuse_empty
from snapsure.table import ScoreTable
from snapsure.training import _epochs
from snapsure.training._targets import Targets

if TYPE_CHECKING:
    from lightning.fabric import Fabric

Answers = Literal["itself", "final"]
MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]
MakeSchedule = Callable[[Optimizer], LRScheduler]

_ABOUT = "student.json"
_SAME = "snapshots, data, labels, start, epochs, batch size, seed, optimizer, devices and precision"
_WRITTEN = re.compile(rf"student\.json|{_epochs.FILES.pattern}")
_STUDENT, _FINAL = 1, 2  # epochs of the pair that answers as the old network did
_MEMORY = 4 << 30


@dataclass(frozen=True)
class Difference:
    """How the answers of a student differ from those of the network that it learned from.

    Examples
    --------
    >>> before = ScoreTable.from_kappa([[0.9, 0.8, 0.7]], errors=[False, True, False])
    >>> now = ScoreTable.from_kappa([[0.9, 0.8, 0.7]], errors=[False, False, False])
    >>> difference = Difference.between(before, now)
    >>> difference.won, difference.lost
    (1, 0)
    """

    points: int  # examples compared
    error_before: float  # error rate of the network
    error: float  # error rate of the student
    agreement: float  # share of the examples with the same answer
    lost: int  # answers that were right and are wrong now
    won: int  # answers that were wrong and are right now

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
    """Train a network on labels and on the snapshots' mean class probabilities.

    It has the snapshots' architecture, and takes one more training. Then an answer takes one pass
    (the student answers itself, with errors of its own), or two (the old network answers, and the
    mean of both κ is its confidence). After an interruption, the same call resumes: on a CPU, to
    the same weights.

    Parameters
    ----------
    model : callable or "package.module:factory"
        Makes a new network of the snapshots' architecture.
    snapshots : Snapshots or path
        A training's snapshots, or an `Ensemble`.
    data : Dataset, (inputs, labels) or inputs
        What the network was trained on, without augmentation. A label of −1 is none.
    out : path
        A folder for the targets, the training and the student.
    labels : float
        Weight of the labels in the loss, in [0, 1). The loss of an example is (1 − labels) times
        the cross-entropy to the snapshots' mean probabilities, plus labels times the cross-entropy
        to its label. An example without a label has the first cross-entropy alone.
    start : float
        Targets are the mean over the snapshots from this fraction of the training on.
    unlabelled : Dataset or inputs, optional
        More inputs, of the same form, to learn from. Labels among them are not used.
    epochs, batch_size : int
        Epochs to train, and examples per step.
    optimizer : callable, optional
        From weights to an optimizer. By default SGD with learning rate 0.05, Nesterov momentum 0.9
        and weight decay 5e-4.
    schedule : callable, optional
        From an optimizer to a schedule that makes a step per epoch. By default a cosine to 0.
    augment : callable, optional
        From a batch of inputs to one that is varied at random, as in the network's own training. It
        draws from PyTorch, NumPy's old `np.random`, or `random`.
    seed : int
        Fixes the first weights, the order of the examples, and what augmentation and dropout draw.
    memory : int
        Bytes that weights of snapshots may take (4 GiB) while targets are computed.
    fabric : lightning.fabric.Fabric, optional
        A launched one, for the device, the precision and the number of processes.
    progress : bool
        Show a line per epoch, with the time left.

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
        labels: float = 0.75,
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
                f"got {type(model).__name__}. Pass the class or function, not what it returns."
            )
        self.model, self.folder = model, Path(out)
        self._snapshots = open_snapshots(snapshots, self._make_network)
        every = np.array(self._snapshots.epochs)
        refuse_empty(self._snapshots)
        chosen = choose(every, every.size, _validate.share(start, "start"))
        self._teachers: list[int] = every[chosen].tolist()

        self.labels = _validate.share(labels, "labels")
        self._sets = [_Set(Rows.of(data, "data"), self.labels)]
        if unlabelled is not None:
            self._sets.append(_Set(Rows.of(unlabelled, "unlabelled"), 0.0))
        for part in self._sets:
            part.rows.take(np.zeros(1, np.int64))  # refuses what can only be read in order

        self.epochs = _validate.count(epochs, "epochs")
        self.batch_size = _validate.count(batch_size, "batch_size")
        sgd = partial(SGD, lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
        self._optimizer: MakeOptimizer = optimizer or sgd
        self._schedule = schedule or (lambda made: CosineAnnealingLR(made, self.epochs))
        self._augment, self.seed = augment, _validate.count(seed, "seed", least=0)
        self._memory, self._progress = _validate.count(memory, "memory"), progress
        self._fabric = fabric

    def __repr__(self) -> str:
        """Show the folder and how many epochs are done."""
        done = len(_epochs.read_history(self.folder))
        return f"<Student in {self.folder}: {done} of {self.epochs} epochs>"

    @property
    def teachers(self) -> int:
        """How many networks the targets are the mean of."""
        return len(self._teachers) * len(self._snapshots.members)

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        place = self.folder / "itself"
        return place.exists() and self.epochs in SnapshotStore(place)

    def fit(self) -> "Student":
        """Compute the targets and train, or finish what is left of that."""
        with _epochs.separate_randomness():
            if self._make_network() is self._make_network():
                raise InvalidInput(
                    "`model` must make a new network at every call, got the same one twice. Write "
                    "a function that builds it."
                )
            fabric = self._fabric or _epochs.launch_fabric()
            self._claim(fabric)
            if not self.finished:
                self._compute_targets(fabric)
                network = self._train(fabric)
                if fabric.is_global_zero:
                    self._write(network)
            fabric.barrier()
        return self

    @property
    def network(self) -> nn.Module:
        """The student, in evaluation mode."""
        module = self._make_network()
        self.snapshots("itself").load_into(module, self.epochs)
        return module.eval()

    def snapshots(self, answers: Answers = "itself") -> Snapshots:
        """Return what `score` and `Predictor` take.

        The student alone ("itself"), or the student and the old network as a training of two epochs
        that ends with the old network ("final"). Then κ of both is about the old network's answers,
        and an estimator fitted on such a table weighs them.
        """
        _validate.choice(answers, get_args(Answers), "answers")
        if not self.finished:
            raise NotFitted("A student must be fitted before it is used. Call .fit().")
        _epochs.refuse_another(self.folder / _ABOUT, self._about, _SAME)
        if answers == "final" and len(self._snapshots.members) > 1:
            raise InvalidInput(
                "`answers` must be 'itself' for the student of an ensemble, got 'final'. The old "
                "answers need all members."
            )
        return SnapshotStore(self.folder / answers)

    def predictor(self, answers: Answers = "itself", **options: Any) -> Predictor:
        """Return what to deploy: one pass per answer, or two with the old network's answers.

        Parameters
        ----------
        answers : "itself" or "final"
            Who answers.
        options
            As for `Predictor`: `threshold`, `calibration`, `classes`, ...
        """
        store = self.snapshots(answers)
        model = self.model if isinstance(self.model, str) else self._make_network()
        estimator = Final() if answers == "itself" else AES(k=2, start=0)
        return Predictor(model, store, estimator, **options)

    def difference(self, data: Any) -> Difference:
        """Compare its answers with the old network's, on labelled examples."""
        stores = (self._snapshots.select(self._snapshots.epochs[-1:]), self.snapshots("itself"))
        before, now = (score(self._make_network(), one, data, progress=False) for one in stores)
        return Difference.between(before, now)

    def _make_network(self) -> nn.Module:
        return make_network(self.model if isinstance(self.model, str) else self.model())

    @cached_property
    def _about(self) -> dict[str, Any]:
        """What the student learns, and for how long."""
        members = self._snapshots.members
        return {
            "snapshots": [one.sha256(epoch) for epoch in self._teachers for one in members],
            "data": [part.identity() for part in self._sets],
            "labels": self.labels,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "seed": self.seed,
        }

    def _claim(self, fabric: "Fabric") -> None:
        """Take the folder; what one process refuses, all do."""
        refusal = None
        if fabric.is_global_zero:
            optimizer = self._optimizer(self._make_network().parameters())
            about = self._about | {
                "optimizer": [type(optimizer).__name__, repr(optimizer.defaults)],
                "schedule": type(self._schedule(optimizer)).__name__,
                "devices": fabric.world_size,
                "precision": str(fabric.strategy.precision.precision),
            }
            try:
                _files.remove_partial(self.folder, _WRITTEN)
                if _files.claim(self.folder, _ABOUT, "`out`", "this student"):
                    _epochs.refuse_another(self.folder / _ABOUT, about, _SAME)
                else:
                    _files.write_bytes(self.folder / _ABOUT, _json.text(about))
            except InvalidInput as error:
                refusal = str(error)
        if (refusal := fabric.broadcast(refusal)) is not None:
            raise InvalidInput(refusal)

    def _compute_targets(self, fabric: "Fabric") -> None:
        rank, world = fabric.global_rank, fabric.world_size
        for i, part in enumerate(self._sets):
            part.targets = Targets(self.folder / f"targets-{i}", part.rows)
            total, model = part.rows.n * self.teachers, self._make_network()
            with bar("targets", total, 0, progress=self._progress and not rank) as advance:
                part.targets.compute(
                    model, self._snapshots, self._teachers, self._memory, advance, rank, world
                )
            fabric.barrier()
            part.targets.open()

    def _train(self, fabric: "Fabric") -> nn.Module:
        _epochs.seed_all(_epochs.mix_seeds(self.seed))
        network = self._make_network()
        optimizer = self._optimizer(network.parameters())
        schedule = self._schedule(optimizer)
        model, running = fabric.setup(network, optimizer)
        saved = {
            "network": network,
            "optimizer": running,
            "schedule": schedule,
            "precision": fabric.strategy.precision,
        }
        history = _epochs.load_state(self.folder, saved)
        for epoch in range(len(history) + 1, self.epochs + 1):
            begin = time.monotonic()
            entry = self._train_epoch(epoch, fabric, model, running)
            if not math.isfinite(entry["loss"]):
                raise InvalidInput(
                    f"The student's loss must stay finite, got {entry['loss']} in epoch {epoch}. "
                    "Lower the learning rate, in another folder."
                )
            schedule.step()
            history.append({"epoch": epoch, **entry, "seconds": time.monotonic() - begin})
            if fabric.is_global_zero:
                _epochs.save_state(self.folder, saved, history)
                if self._progress:
                    sys.stderr.write(
                        f"epoch {epoch} of {self.epochs}: loss {entry['loss']:.3f}, agrees with "
                        f"{entry['agreement']:.1%} of the targets, "
                        f"{_epochs.describe_time_left(history, self.epochs)}\n"
                    )
            fabric.barrier()
        return network

    def _train_epoch(
        self, epoch: int, fabric: "Fabric", model: Any, optimizer: Any
    ) -> dict[str, float]:
        rank, world = fabric.global_rank, fabric.world_size
        n = sum(part.rows.n for part in self._sets)
        shared = torch.Generator().manual_seed(_epochs.mix_seeds(self.seed, epoch))
        # What dropout and `augment` draw from.
        _epochs.seed_all(_epochs.mix_seeds(self.seed, epoch, rank, 1))
        order = torch.randperm(n, generator=shared)[rank::world][: n // world]
        size = max(1, self.batch_size // world)
        batches = torch.tensor_split(order, -(-len(order) // size))

        model.train()
        loss, same, seen = 0.0, 0, 0
        for inputs, wanted in _epochs.read_ahead(self._take, batches):
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

    def _take(self, index: Tensor) -> tuple[Any, Tensor]:
        """Return inputs and targets of some examples, those of one set before those of the next."""
        left: Ints = index.numpy()
        found = []
        for part in self._sets:
            own, left = left[left < part.rows.n], left[left >= part.rows.n] - part.rows.n
            if own.size:
                found.append(part.take(own))
        inputs, targets = zip(*found, strict=True)
        return inputs[0] if len(found) == 1 else concatenate(inputs), torch.cat(targets)

    def _write(self, network: nn.Module) -> None:
        """Write the student beside the old network, then alone: that completes the folder."""
        if len(self._snapshots.members) == 1:
            pair, old = SnapshotStore(self.folder / "final"), self._make_network()
            self._snapshots.load_into(old, self._snapshots.epochs[-1])
            pair.save(network, _STUDENT)
            pair.save(old, _FINAL)
        SnapshotStore(self.folder / "itself").save(network, self.epochs)


@dataclass
class _Set:
    """Examples, the weight of their labels, and the snapshots' mean probabilities of each."""

    rows: Rows
    weight: float
    targets: Targets = field(init=False)

    def identity(self) -> list[Any]:
        """Return what tells these inputs, and the labels that count, from all others."""
        digest = Digest()
        for inputs, labels in self.rows.batches():
            digest.add(inputs, labels if self.weight else None)
        return [self.rows.n, digest.hex()]

    def take(self, index: Ints) -> tuple[Any, Tensor]:
        """Return inputs and targets of some examples."""
        inputs, labels = self.rows.take(index)
        return inputs, mix_labels(self.targets.take(index), labels, self.weight)


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
