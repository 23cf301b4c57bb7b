"""Margin: how far the answer's probability is ahead of the next one."""

from typing import Any

from snapsure._types import Floats, Ints
from snapsure.kappas._base import Kappa
from snapsure.kappas._logits import gaps
from snapsure.networks._forward import Forward


class Margin(Kappa):
    """κ = (1 + m) / 2, m the softmax of y_hat minus the largest softmax of another class.

    Scheffer, Decomain & Wrobel 2001 (Active Hidden Markov Models), who ask for the label of what
    has a small m. Below 1/2 where an earlier snapshot would have answered otherwise.

    With p of y_hat, o of the best other and r of all the rest, κ = p + r/2 and 1 − κ = o + r/2:
    sums without a difference, so κ is exact near 0, and near 1 as far as float64 reaches.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from snapsure.kappas._logits import Logits
    >>> logits = torch.tensor([[0.5, 0.3, 0.2], [0.3, 0.5, 0.2]]).log()
    >>> Margin().score(Logits(logits), np.array([0, 0]), None).round(3).tolist()
    [0.6, 0.4]
    """

    @property
    def name(self) -> str:
        """`margin`."""
        return "margin"

    @property
    def settings(self) -> dict[str, Any]:
        """It has no settings."""
        return {}

    def score(self, forward: Forward, y_hat: Ints, prepared: Any) -> Floats:
        """Half of one plus the lead of the chosen class."""
        weight = gaps(forward.logits).exp()
        chosen = weight.new_tensor(y_hat).long()[:, None]
        beside = weight.scatter(1, chosen, 0)
        best = beside.argmax(dim=1, keepdim=True)
        rest = beside.scatter(1, best, 0).sum(dim=1)
        answer, rival = weight.gather(1, chosen)[:, 0], beside.gather(1, best)[:, 0]
        total = answer + rival + rest
        low, high = (answer + rest / 2) / total, 1 - (rival + rest / 2) / total
        values: Floats = low.where(low < 0.5, high).numpy()
        return values
