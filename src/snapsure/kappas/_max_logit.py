"""Max-logit: the answer's own logit, before softmax compares it with the others."""

from typing import Any

from snapsure._types import Floats, Ints
from snapsure.kappas._base import Kappa
from snapsure.kappas._squash import squash
from snapsure.networks._forward import Forward


class MaxLogit(Kappa):
    """κ = squash(z[y_hat]), z the logits.

    Hendrycks et al. 2022 (Scaling Out-of-Distribution Detection for Real-World Settings). Of the
    final snapshot it is the largest logit; of an earlier one, its logit of the same class. A
    constant added to all logits of a row raises it. `squash` (`kappas/_squash.py`) maps it to
    [0, 1] without changing an order.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from snapsure.kappas._logits import Logits
    >>> logits = torch.tensor([[3.0, 1.0], [-1.0, 0.0]])
    >>> MaxLogit().score(Logits(logits), np.array([0, 0]), None).tolist()
    [0.875, 0.25]
    """

    @property
    def name(self) -> str:
        """`max_logit`."""
        return "max_logit"

    @property
    def settings(self) -> dict[str, Any]:
        """It has no settings."""
        return {}

    def score(self, forward: Forward, y_hat: Ints, prepared: Any) -> Floats:
        """The chosen class's logit, mapped to [0, 1]."""
        z = forward.logits.cpu().double()
        values: Floats = squash(z.gather(1, z.new_tensor(y_hat).long()[:, None])[:, 0]).numpy()
        return values
