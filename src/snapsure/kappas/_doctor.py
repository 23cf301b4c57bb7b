"""DOCTOR: the chance that two draws from the class probabilities agree."""

from typing import Any

from snapsure._types import Floats, Ints
from snapsure.kappas._base import Kappa
from snapsure.kappas._logits import gaps, others
from snapsure.networks._forward import Forward


class Doctor(Kappa):
    """κ = Σ p², the softmax's own estimate of being right: ĝ in the paper.

    Granese, Romanelli, Gorla, Palamidessi & Piantanida 2021 (DOCTOR). Their D_α is (1 − ĝ) / ĝ, and
    they reject where it is large; κ = 1 / (1 + D_α) ranks as it does. Their D_β is
    (1 − max p) / max p, which ranks as the softmax response does: it has no κ of its own. Their
    temperature and input perturbation are left out. It does not speak of y_hat.

    1 − κ is taken from the other classes alone, s and q the sums of e^{z − z_max} and of its square
    over them: (2s + s² − q) / (1 + s)². Nearly certain rows stay apart.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from snapsure.kappas._logits import Logits
    >>> logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    >>> Doctor().score(Logits(logits), np.array([0]), None).round(3).tolist()  # .25 + .09 + .04
    [0.38]
    """

    @property
    def name(self) -> str:
        """`doctor`."""
        return "doctor"

    @property
    def settings(self) -> dict[str, Any]:
        """It has no settings."""
        return {}

    def score(self, forward: Forward, y_hat: Ints, prepared: Any) -> Floats:
        """Sum of the squared softmax."""
        weight = others(gaps(forward.logits))
        s, q = weight.sum(dim=1), weight.square().sum(dim=1)
        values: Floats = (1 - (2 * s + (s.square() - q)) / (1 + s).square()).clamp(0, 1).numpy()
        return values
