"""Entropy: how far the class probabilities are from certainty, whichever class they favour."""

import math
from typing import Any

from snapsure._types import Floats, Ints
from snapsure.kappas._base import Kappa
from snapsure.kappas._logits import gaps, others
from snapsure.networks._forward import Forward


class Entropy(Kappa):
    """κ = 1 − H(p) / ln C, H(p) = −Σ p ln p the entropy of the softmax over C classes.

    1 where one class has it all, 0 where all have the same. It does not speak of y_hat: a snapshot
    that is certain of another class has a κ of 1 too. A network of one class has a κ of 1.

    H is taken as ln(1 + s) + Σ (z_max − z) e^{z − z_max} / (1 + s), s the sum of e^{z − z_max} over
    the other classes. No term is negative, so nearly certain rows stay apart.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from snapsure.kappas._logits import Logits
    >>> logits = torch.tensor([[0.0, 0.0], [3.0, 0.0], [30.0, 0.0]])
    >>> Entropy().score(Logits(logits), np.array([0, 0, 0]), None).round(3).tolist()
    [0.0, 0.725, 1.0]
    """

    @property
    def name(self) -> str:
        """`entropy`."""
        return "entropy"

    @property
    def settings(self) -> dict[str, Any]:
        """It has no settings."""
        return {}

    def score(self, forward: Forward, y_hat: Ints, prepared: Any) -> Floats:
        """Certainty of the softmax."""
        gap = gaps(forward.logits)
        weight = others(gap)
        missing = weight.sum(dim=1)
        entropy = missing.log1p() - (weight * gap).sum(dim=1) / (1 + missing)
        most = math.log(gap.shape[1]) or 1.0
        values: Floats = (1 - entropy / most).clamp(0, 1).numpy()
        return values
