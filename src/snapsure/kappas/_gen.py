"""GEN: an entropy that listens to small probabilities."""

from typing import Any

import numpy as np

from snapsure import _validate
from snapsure._gen import gen
from snapsure._types import Floats, Ints
from snapsure.kappas._base import Kappa
from snapsure.networks._forward import Forward


class GEN(Kappa):
    """κ = 1 − G / G_most, G = Σ pᵞ (1 − p)ᵞ over the largest probabilities of the softmax.

    Liu, Lochman & Zach 2023 (GEN: Pushing the Limits of Softmax-Based Out-of-Distribution
    Detection), whose score is −G. G_most = m 4⁻ᵞ is the most that m terms could have, so that κ
    lies in [0, 1] and ranks as theirs. It does not speak of y_hat.

    Parameters
    ----------
    gamma : float
        γ in (0, 1); the smaller, the more small probabilities count. 0.1 is theirs.
    top : int
        How many classes, the most probable ones; all if there are fewer. 100 is theirs, for 1,000
        classes.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from snapsure.kappas._logits import Logits
    >>> logits = torch.tensor([[0.0, 0.0], [3.0, 0.0], [30.0, 0.0]])
    >>> GEN().score(Logits(logits), np.array([0, 0, 0]), None).round(3).tolist()
    [0.0, 0.157, 0.943]
    """

    def __init__(self, gamma: float = 0.1, top: int = 100) -> None:
        self._gamma = _validate.fraction(gamma, "gamma", open_above=True)
        self._top = _validate.count(top, "top")

    @property
    def name(self) -> str:
        """`gen`."""
        return "gen"

    @property
    def settings(self) -> dict[str, Any]:
        """γ, and how many classes."""
        return {"gamma": self._gamma, "top": self._top}

    def score(self, forward: Forward, y_hat: Ints, prepared: Any) -> Floats:
        """The softmax's generalised entropy, mapped to [0, 1]."""
        logits = np.ascontiguousarray(forward.logits.cpu().double().numpy())  # sums have an order
        return gen(logits, self._gamma, self._top)
