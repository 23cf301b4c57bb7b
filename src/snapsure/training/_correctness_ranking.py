"""The correctness ranking loss: a point often wrong in training may not be surer than one right."""

import torch
from torch import Tensor
from torch.nn import functional

from snapsure import _validate
from snapsure.training._history import PointLoss


class CorrectnessRanking(PointLoss):
    """Cross-entropy, and a price for pairs whose confidences are in the wrong order.

    Moon, Kim, Shin & Hwang 2020 (Confidence-Aware Learning for Deep Neural Networks). A point's
    history c is the share of its visits at which the network was right. Each point of a batch is
    compared with the next one: where c differs, the surer history must be the more confident by as
    much, or it costs max(0, |c₁ − c₂| − sign(c₁ − c₂) · (κ₁ − κ₂)), κ being the largest softmax.

    Parameters
    ----------
    points : int
        Size of the training set.
    weight : float
        What the price counts beside cross-entropy; the authors take 1.

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
            known = (visits > 0) & (visits.roll(-1) > 0)  # of a new point nothing is known
            apart = torch.where(known, history - history.roll(-1), 0)
            self.visits[index] += 1
            self.right[index] += (logits.argmax(dim=1) == labels).int()
        ahead = apart.sign() * (kappa - kappa.roll(-1))
        price = torch.where(apart == 0, 0, (apart.abs() - ahead).clamp(min=0)).mean()
        return functional.cross_entropy(logits, labels) + self.weight * price
