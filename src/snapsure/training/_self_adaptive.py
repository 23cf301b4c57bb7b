"""Self-adaptive training: targets that follow what the network has come to believe."""

import torch
from torch import Tensor
from torch.nn import functional

from snapsure import _validate
from snapsure.errors import InvalidInput
from snapsure.training._history import PointLoss


class SelfAdaptive(PointLoss):
    """Cross-entropy to targets that are moving averages of the network's own predictions.

    Huang, Zhang & Zhang 2020 (Self-Adaptive Training: beyond Empirical Risk Minimization). A
    point's target is its label for the first `start` visits. From then on each visit moves it:
    t ← momentum · t + (1 − momentum) · p, and the point counts as much as its target is sure,
    max t. So a network need not be driven to certainty about labels that it does not believe.

    Parameters
    ----------
    points, classes : int
        Size of the training set, and how many classes there are: it keeps a number for each pair,
        float32.
    start : int
        Epochs with labels alone; the authors take 60 of 200.
    momentum : float
        How slowly targets move; theirs is 0.9.

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
                f"{logits.shape[1]}: pass the network's `classes`"
            )
        targets = self._moved(logits.detach(), labels, index)
        weights = targets.amax(dim=1)
        each = -(targets * functional.log_softmax(logits, dim=1)).sum(dim=1)
        return (weights * each).sum() / weights.sum()

    @torch.no_grad()
    def _moved(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        """Count a visit, and give each point's target after it."""
        visits = self.visits[index]
        self.visits[index] = visits + 1
        given = functional.one_hot(labels, self.classes).float()
        before = torch.where((visits == 0)[:, None], given, self.targets[index].float())
        after = before.lerp(logits.softmax(dim=1), 1 - self.momentum)
        targets = torch.where((visits < self.start)[:, None], before, after)
        self.targets[index] = targets.to(self.targets.dtype)
        return targets
