"""What losses keep of each training point: buffers, so that they are saved with the training."""

import torch
from torch import Tensor, nn

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
