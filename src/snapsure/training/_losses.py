"""Losses that remember every training example, in buffers that are saved with the training."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.utils.data import Dataset

from snapsure import _validate
from snapsure.errors import InvalidInput


class PointLoss(nn.Module, ABC):
    """A loss that remembers every training example, and needs their numbers with each batch.

    It remembers them in buffers, so that it resumes with the training if it is saved with it
    (`loss.state_dict()`, or an attribute of a LightningModule). In evaluation mode it is
    cross-entropy, and remembers nothing. Train in one process: of several, each would see only a
    part of the examples.

    Examples
    --------
    >>> loss = CorrectnessRanking(points=2)
    >>> isinstance(loss, PointLoss)
    True
    >>> cost = loss(torch.zeros(2, 3), torch.tensor([0, 1]), index=torch.tensor([0, 1]))
    >>> round(float(cost), 3)  # the logarithm of 3 classes
    1.099
    """

    def __init__(self, points: int) -> None:
        super().__init__()
        self.points = _validate.count(points, "points")

    def forward(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        """Return the loss of a batch: logits (n, classes), labels (n,), example numbers (n,)."""
        if not self.training:
            return functional.cross_entropy(logits, labels)
        self._refuse(logits, labels, index)
        return self._loss(logits.float(), labels.long(), index.long())

    @abstractmethod
    def _loss(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        """Return the loss of a batch that is checked, and remember it."""

    def _refuse(self, logits: Tensor, labels: Tensor, index: Tensor) -> None:
        """Refuse what is not one row, one label and one number for each example of a batch."""
        if distributed.is_available() and distributed.is_initialized():
            processes = distributed.get_world_size()
            if processes > 1:
                raise InvalidInput(
                    f"{type(self).__name__} must train in one process, got {processes}. Train on "
                    "one device, or use a loss that remembers nothing."
                )
        if logits.ndim != 2 or not logits.numel():
            raise InvalidInput(
                f"`logits` must be (rows, classes), got shape {tuple(logits.shape)}. Pass those of "
                "a batch."
            )
        rows, classes = logits.shape
        for name, given in (("labels", labels), ("index", index)):
            if given.shape != (rows,) or given.is_floating_point():
                raise InvalidInput(
                    f"`{name}` must be one whole number for each of {rows} rows, got shape "
                    f"{tuple(given.shape)} of {given.dtype}. Pass a row's class, and its number in "
                    "the training set."
                )
        if bool(((labels < 0) | (labels >= classes)).any()):
            raise InvalidInput(
                f"`labels` must be in 0 … {classes - 1}, got "
                f"{int(labels[(labels < 0) | (labels >= classes)][0])}. Number the classes from 0."
            )
        low, high = (int(end) for end in torch.aminmax(index))
        if low < 0 or high >= self.points:
            raise InvalidInput(
                f"`index` must be in 0 … {self.points - 1}, got {low if low < 0 else high}. Pass "
                "each row's number in the training set, and the size of that set as `points`."
            )


class CorrectnessRanking(PointLoss):
    """Cross-entropy, and a penalty for pairs whose confidences are in the wrong order.

    Moon, Kim, Shin & Hwang 2020 (Confidence-Aware Learning for Deep Neural Networks). The history
    c of an example is the share of its visits at which the network was right. Each example of a
    batch is compared with the next one: where c differs, the example with the higher c must be more
    confident by as much, or it costs max(0, |c₁ − c₂| − sign(c₁ − c₂) · (κ₁ − κ₂)), where κ is the
    largest softmax.

    Parameters
    ----------
    points : int
        Size of the training set.
    weight : float
        Weight of the penalty beside cross-entropy; the authors use 1.

    Examples
    --------
    >>> loss = CorrectnessRanking(points=2)
    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0]])
    >>> labels, index = torch.tensor([0, 1]), torch.tensor([0, 1])
    >>> plain = functional.cross_entropy(logits, labels)
    >>> bool(loss(logits, labels, index) == plain)  # no history yet
    True
    >>> float(loss(logits, labels, index) - plain)  # one was right, one wrong, both as confident
    1.0
    """

    right: Tensor
    visits: Tensor

    def __init__(self, points: int, *, weight: float = 1.0) -> None:
        super().__init__(points)
        self.weight = _validate.at_least(weight, 0, "weight")
        self.register_buffer("right", torch.zeros(self.points, dtype=torch.int32))
        self.register_buffer("visits", torch.zeros(self.points, dtype=torch.int32))

    def _loss(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        kappa = logits.softmax(dim=1).amax(dim=1)
        with torch.no_grad():
            visits = self.visits[index]
            history = self.right[index] / visits.clamp(min=1)
            known = (visits > 0) & (visits.roll(-1) > 0)  # a new example has no history
            apart = torch.where(known, history - history.roll(-1), 0)
            self.visits[index] += 1
            self.right[index] += (logits.argmax(dim=1) == labels).int()
        ahead = apart.sign() * (kappa - kappa.roll(-1))
        penalty = torch.where(apart == 0, 0, (apart.abs() - ahead).clamp(min=0)).mean()
        return functional.cross_entropy(logits, labels) + self.weight * penalty


class SelfAdaptive(PointLoss):
    """Cross-entropy to targets that are moving averages of the network's own predictions.

    Huang, Zhang & Zhang 2020 (Self-Adaptive Training: beyond Empirical Risk Minimization). The
    target of an example is its label for the first `start` visits. From then on each visit moves
    it: t ← momentum · t + (1 − momentum) · p, and the weight of the example is max t. So the
    network is not driven to certainty about labels that it does not believe.

    Parameters
    ----------
    points, classes : int
        Size of the training set, and number of classes: it stores a float32 for each pair.
    start : int
        Epochs with labels alone; the authors use 60 of 200.
    momentum : float
        How slowly targets move; the authors use 0.9.

    Examples
    --------
    >>> loss = SelfAdaptive(points=2, classes=2, start=1)
    >>> logits, labels, index = torch.zeros(2, 2), torch.tensor([0, 1]), torch.tensor([0, 1])
    >>> round(float(loss(logits, labels, index)), 4)  # the first visit: plain cross-entropy
    0.6931
    >>> _ = loss(logits, labels, index)
    >>> [round(share, 2) for share in loss.targets[0].tolist()]
    [0.95, 0.05]
    """

    targets: Tensor
    visits: Tensor

    def __init__(self, points: int, classes: int, *, start: int, momentum: float = 0.9) -> None:
        super().__init__(points)
        self.classes = _validate.count(classes, "classes", least=2)
        self.start = _validate.count(start, "start", least=0)
        self.momentum = _validate.share(momentum, "momentum")
        self.register_buffer("targets", torch.zeros(self.points, self.classes))
        self.register_buffer("visits", torch.zeros(self.points, dtype=torch.int32))

    def _loss(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        if logits.shape[1] != self.classes:
            raise InvalidInput(
                f"`logits` must have {self.classes} columns, one per class, got "
                f"{logits.shape[1]}. Pass the network's `classes`."
            )
        with torch.no_grad():
            visits = self.visits[index]
            self.visits[index] = visits + 1
            given = functional.one_hot(labels, self.classes).float()
            before = torch.where((visits == 0)[:, None], given, self.targets[index].float())
            after = before.lerp(logits.softmax(dim=1), 1 - self.momentum)
            targets = torch.where((visits < self.start)[:, None], before, after)
            self.targets[index] = targets.to(self.targets.dtype)
        weights = targets.amax(dim=1)
        each = -(targets * functional.log_softmax(logits, dim=1)).sum(dim=1)
        return (weights * each).sum() / weights.sum()


class Numbered(Dataset[Any]):
    """A data set whose rows have their number, for losses that remember every training example.

    The number is the last item of a tuple, or `index` of a dict.

    Examples
    --------
    >>> Numbered([("a", 0), ("b", 1)])[1]
    ('b', 1, 1)
    >>> Numbered([{"x": 5, "labels": 0}])[0]
    {'x': 5, 'labels': 0, 'index': 0}
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.dataset)

    def __getitem__(self, number: int) -> Any:
        """Return a row with its number."""
        row = self.dataset[number]
        if isinstance(row, Mapping):
            return {**row, "index": number}
        return (*row, number) if isinstance(row, tuple | list) else (row, number)
