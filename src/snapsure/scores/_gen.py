"""GEN: an entropy that listens to small probabilities."""

from typing import Any

import torch

from snapsure import _validate
from snapsure._types import Floats, Ints
from snapsure.networks._forward import Forward
from snapsure.scores._base import Kappa
from snapsure.scores._logits import gaps, others


class GEN(Kappa):
    """κ = 1 − G / G_most, G = Σ pᵞ (1 − p)ᵞ over the largest probabilities of the softmax.

    Liu, Lochman & Zach 2023 (GEN: Pushing the Limits of Softmax-Based Out-of-Distribution
    Detection), whose score is −G. G_most = m 4⁻ᵞ is the most that m terms could have, so that κ
    lies in [0, 1] and ranks as theirs. It does not speak of y_hat.

    1 − p of the largest class is taken from the others alone. Nearly certain rows stay apart.

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
    >>> from snapsure.scores._logits import Logits
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
        gap = gaps(forward.logits)
        weight = others(gap)
        missing = weight.sum(dim=1, keepdim=True)
        top = min(self._top, gap.shape[1])
        largest = torch.zeros_like(gap, dtype=torch.bool)
        largest.scatter_(1, gap.argmax(dim=1, keepdim=True), True)
        rest = torch.where(largest, missing, 1 + missing - weight)  # (1 − p) (1 + missing)
        terms = self._gamma * (gap + rest.log() - 2 * missing.log1p())
        found = terms.exp().topk(top, dim=1).values if top < gap.shape[1] else terms.exp()
        values: Floats = (1 - found.sum(dim=1) / (top * 0.25**self._gamma)).clamp(0, 1).numpy()
        return values
