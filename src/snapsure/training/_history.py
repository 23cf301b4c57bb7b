"""What losses keep of each training point: buffers, so that they are saved with the training."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.utils.data import Dataset

from snapsure import _validate
from snapsure.errors import InvalidInput


class PointLoss(nn.Module):
    """A loss that remembers every training point: it is told which points a batch holds.

    What it remembers are buffers. As a part of what is saved (`loss.state_dict()`, or an attribute
    of a LightningModule) it resumes with the training. In evaluation mode it is cross-entropy, and
    remembers nothing. It knows one process: of several, each would see a part of the points.
    """

    def __init__(self, points: int) -> None:
        super().__init__()
        self.points = _validate.count(points, "points")

    def forward(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        """The loss of a batch: logits (n, classes), labels (n,), numbers of the points (n,)."""
        if not self.training:
            return functional.cross_entropy(logits, labels)
        self._refuse(logits, labels, index)
        return self._loss(logits.float(), labels.long(), index.long())

    def _loss(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        raise NotImplementedError

    def _refuse(self, logits: Tensor, labels: Tensor, index: Tensor) -> None:
        """Refuse what is not one row, one label and one number for each point of a batch."""
        if distributed.is_available() and distributed.is_initialized():
            processes = distributed.get_world_size()
            if processes > 1:
                raise InvalidInput(
                    f"{type(self).__name__} must train in one process, got {processes}: train on "
                    "one device, or take a loss that remembers nothing"
                )
        if logits.ndim != 2 or not logits.numel():
            raise InvalidInput(
                f"`logits` must be (rows, classes), got shape {tuple(logits.shape)}: pass those of "
                "a batch"
            )
        rows, classes = logits.shape
        for name, given in (("labels", labels), ("index", index)):
            if given.shape != (rows,) or given.is_floating_point():
                raise InvalidInput(
                    f"`{name}` must be one whole number for each of {rows} rows, got shape "
                    f"{tuple(given.shape)} of {given.dtype}: pass a row's class, and its number in "
                    "the training set"
                )
        if bool(((labels < 0) | (labels >= classes)).any()):
            raise InvalidInput(
                f"`labels` must be in 0 … {classes - 1}, got "
                f"{int(labels[(labels < 0) | (labels >= classes)][0])}: number the classes from 0"
            )
        low, high = (int(end) for end in torch.aminmax(index))
        if low < 0 or high >= self.points:
            raise InvalidInput(
                f"`index` must be in 0 … {self.points - 1}, got {low if low < 0 else high}: pass "
                "each row's number in the training set, and all of that set's size as `points`"
            )


class Numbered(Dataset[Any]):
    """A data set whose rows say their number, for losses that remember every training point.

    Behind a tuple's other items, or as `index` of a dict.

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
        """As many as there were."""
        return len(self.dataset)

    def __getitem__(self, number: int) -> Any:
        """A row and its number."""
        row = self.dataset[number]
        if isinstance(row, Mapping):
            return {**row, "index": number}
        return (*row, number) if isinstance(row, tuple | list) else (row, number)
