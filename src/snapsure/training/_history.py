"""What losses keep of each training point: buffers, so that they are saved with the training."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from snapsure import _validate
from snapsure.errors import InvalidInput


class PointLoss(nn.Module):
    """A loss that remembers every training point: it is told which points a batch holds.

    What it remembers are buffers. As a part of what is saved (`loss.state_dict()`, or an attribute
    of a LightningModule) it resumes with the training. In training on several devices every process
    remembers what itself has seen.
    """

    def __init__(self, points: int) -> None:
        super().__init__()
        self.points = _validate.count(points, "points")

    def _refuse(self, logits: Tensor, labels: Tensor, index: Tensor) -> None:
        """Refuse what is not one row, one label and one number for each point of a batch."""
        rows = len(logits)
        for name, given in (("labels", labels), ("index", index)):
            if given.shape != (rows,) or given.is_floating_point():
                raise InvalidInput(
                    f"`{name}` must be one whole number for each of {rows} rows, got shape "
                    f"{tuple(given.shape)} of {given.dtype}: pass a row's class, and its number in "
                    "the training set"
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
        return (*row, number)
