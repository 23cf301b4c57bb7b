"""κ functions of the logits alone, each defined here and computed in `_logit_scores.py`."""

from typing import Any

import numpy as np

from snapsure import _validate
from snapsure._logit_scores import LogitScores
from snapsure._types import Floats, Ints
from snapsure.kappas._base import Kappa
from snapsure.networks._forward import Forward
from snapsure.networks._forward import Logits as Logits  # for the examples


class LogitKappa(Kappa):
    """Abstract base of κ functions of the logits alone: methods of `LogitScores`, by their name."""

    @property
    def settings(self) -> dict[str, Any]:
        """No settings, unless a subclass has some."""
        return {}

    def score(self, forward: Forward, y_hat: Ints, prepared: Any) -> Floats:
        """Return κ of each example."""
        z = forward.logits.cpu().double().numpy()  # on the CPU: some accelerators have no float64
        rate = getattr(LogitScores(z, np.asarray(y_hat)), self.name)
        return np.clip(rate(**self.settings), 0, 1)  # rounding may leave [0, 1]


class Entropy(LogitKappa):
    """κ = 1 − H(p) / ln C, with H(p) = −Σ p ln p the entropy of the softmax over C classes.

    κ is 1 if one class has all probability, and 0 if all classes have the same. It ignores y_hat: a
    snapshot that is certain of another class has a κ of 1 too.

    H = ln(1 + s) + Σ (z_max − z) e^{z − z_max} / (1 + s), with s the sum of e^{z − z_max} over the
    other classes. No term is negative, so no precision is lost.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([[0.0, 0.0], [3.0, 0.0], [30.0, 0.0]])
    >>> Entropy().score(Logits(logits), np.array([0, 0, 0]), None).round(3).tolist()
    [0.0, 0.725, 1.0]
    """

    name = "entropy"


class Margin(LogitKappa):
    """κ = (1 + m) / 2, with m the softmax of y_hat minus the largest softmax of another class.

    Scheffer, Decomain & Wrobel 2001, [Active Hidden Markov Models for Information
    Extraction](https://doi.org/10.1007/3-540-44816-0_31). κ is below 1/2 where an earlier snapshot
    prefers another class.

    With p of y_hat, o of the best other class and r of the rest, κ = p + r/2 and 1 − κ = o + r/2.
    Neither is a difference, so κ is exact near 0 and near 1.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([[0.5, 0.3, 0.2], [0.3, 0.5, 0.2]]).log()
    >>> Margin().score(Logits(logits), np.array([0, 0]), None).round(3).tolist()
    [0.6, 0.4]
    """

    name = "margin"


class Energy(LogitKappa):
    """κ = squash(T ln Σ e^{z/T}), the negative free energy of the logits z.

    Liu, Wang, Owens & Li 2020, [Energy-based Out-of-distribution
    Detection](https://arxiv.org/abs/2010.03759), who use T = 1. κ ignores y_hat. A constant added
    to all logits of a row raises it, although the softmax stays the same. `squash` maps the energy
    to [0, 1] and keeps the order.

    Parameters
    ----------
    temperature : float
        T, above 0. Near 0 the energy is the largest logit.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([[0.5, 0.5], [2.0, 6.0]]).log()  # energies ln 1 = 0 and ln 8
    >>> Energy().score(Logits(logits), np.array([0, 1]), None).round(3).tolist()
    [0.5, 0.838]
    """

    name = "energy"

    def __init__(self, temperature: float = 1.0) -> None:
        self._temperature = _validate.positive(temperature, "temperature")

    @property
    def settings(self) -> dict[str, Any]:
        """The temperature."""
        return {"temperature": self._temperature}


class MaxLogit(LogitKappa):
    """κ = squash(z[y_hat]), with z the logits.

    Hendrycks et al. 2022, [Scaling Out-of-Distribution Detection for Real-World
    Settings](https://arxiv.org/abs/1911.11132). For the final snapshot z[y_hat] is the largest
    logit; for an earlier one, it is the logit of the same class. A constant added to all logits of
    a row raises κ. `squash` maps the logit to [0, 1] and keeps the order.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([[3.0, 1.0], [-1.0, 0.0]])
    >>> MaxLogit().score(Logits(logits), np.array([0, 0]), None).tolist()
    [0.875, 0.25]
    """

    name = "max_logit"


class Doctor(LogitKappa):
    """κ = Σ p², the probability that two draws from the softmax agree; ĝ in the paper.

    Granese, Romanelli, Gorla, Palamidessi & Piantanida 2021, [DOCTOR: A Simple Method for Detecting
    Misclassification Errors](https://arxiv.org/abs/2106.02395). Their D_α is (1 − ĝ) / ĝ, and they
    reject large values; κ = 1 / (1 + D_α) gives the same order. Their D_β ranks as the softmax
    response does, so it has no κ here. Temperature and input perturbation are left out. κ ignores
    y_hat.

    1 − κ = (2s + s² − q) / (1 + s)², with s and q the sums of e^{z − z_max} and of its square over
    the other classes.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    >>> Doctor().score(Logits(logits), np.array([0]), None).round(3).tolist()  # .25 + .09 + .04
    [0.38]
    """

    name = "doctor"


class GEN(LogitKappa):
    """κ = 1 − G / G_max, with G = Σ pᵞ (1 − p)ᵞ over the largest probabilities of the softmax.

    Liu, Lochman & Zach 2023, [GEN: Pushing the Limits of Softmax-Based Out-of-Distribution
    Detection](https://openreview.net/forum?id=Sie7oeTABS), whose score is −G. G_max = m 4⁻ᵞ is the
    largest value of m terms, so κ lies in [0, 1] and ranks as their score does. κ ignores y_hat.

    Parameters
    ----------
    gamma : float
        γ in (0, 1). A smaller γ gives small probabilities more weight. The paper uses 0.1.
    top : int
        The number of most probable classes in the sum; all classes if there are fewer. The paper
        uses 100 for 1,000 classes.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([[0.0, 0.0], [3.0, 0.0], [30.0, 0.0]])
    >>> GEN().score(Logits(logits), np.array([0, 0, 0]), None).round(3).tolist()
    [0.0, 0.157, 0.943]
    """

    name = "gen"

    def __init__(self, gamma: float = 0.1, top: int = 100) -> None:
        self._gamma = _validate.fraction(gamma, "gamma", open_above=True)
        self._top = _validate.count(top, "top")

    @property
    def settings(self) -> dict[str, Any]:
        """γ, and the number of classes."""
        return {"gamma": self._gamma, "top": self._top}
