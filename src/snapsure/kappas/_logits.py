"""κ functions of the logits alone.

Most subtract the largest logit of a row first. Its own weight is then exactly 1, and the weights of
the other classes are what certainty lacks. Sums over the others alone lose no precision, however
small they are, so nearly certain examples keep their order.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapsure import _validate
from snapsure._gen import gen
from snapsure._types import Floats, Ints
from snapsure.errors import InvalidInput
from snapsure.kappas._base import Kappa
from snapsure.networks._forward import Forward, Sampling


class Logits(Forward):
    """A pass of which only the logits are known."""

    def embedding(self, layer: str | None) -> Tensor:
        """Refuse, because only the logits are known."""
        raise InvalidInput(
            "κ must need logits alone, got one that reads embeddings. Score with the network."
        )

    def samples(self, sampling: Sampling) -> Iterator[Tensor]:
        """Refuse, because only the logits are known."""
        raise InvalidInput(
            "κ must need logits alone, got one that samples dropout. Score with the network."
        )

    def rates(self, sampling: Sampling) -> Mapping[str, float]:
        """Return no rates, because no dropout is known."""
        return {}


class LogitKappa(Kappa):
    """Abstract base of κ functions of the logits alone."""

    @property
    def settings(self) -> dict[str, Any]:
        """No settings, unless a subclass has some."""
        return {}

    @abstractmethod
    def rate(self, z: Tensor, y_hat: Tensor) -> Tensor:
        """Return κ from the logits z, (n, classes) in float64, and the predictions, (n, 1)."""

    def score(self, forward: Forward, y_hat: Ints, prepared: Any) -> Floats:
        """Return κ of each example."""
        z = forward.logits.cpu().double()  # on the CPU: not every accelerator has float64
        values: Floats = self.rate(z, torch.tensor(y_hat).long()[:, None]).clamp(0, 1).numpy()
        return values


class Entropy(LogitKappa):
    """κ = 1 − H(p) / ln C, with H(p) = −Σ p ln p the entropy of the softmax over C classes.

    κ is 1 if one class has all probability, and 0 if all classes have the same. It ignores y_hat: a
    snapshot that is certain of another class has a κ of 1 too.

    H = ln(1 + s) + Σ (z_max − z) e^{z − z_max} / (1 + s), with s the sum of e^{z − z_max} over the
    other classes. No term is negative, so no precision is lost.

    Examples
    --------
    >>> logits = torch.tensor([[0.0, 0.0], [3.0, 0.0], [30.0, 0.0]])
    >>> Entropy().score(Logits(logits), np.array([0, 0, 0]), None).round(3).tolist()
    [0.0, 0.725, 1.0]
    """

    name = "entropy"

    def rate(self, z: Tensor, y_hat: Tensor) -> Tensor:
        """Return the certainty of the softmax."""
        gap = gaps(z)
        weight = _others(gap)
        missing = weight.sum(dim=1)
        entropy = missing.log1p() - (weight * gap).sum(dim=1) / (1 + missing)
        return 1 - entropy / (math.log(z.shape[1]) or 1.0)  # one class has no entropy


class Margin(LogitKappa):
    """κ = (1 + m) / 2, with m the softmax of y_hat minus the largest softmax of another class.

    Scheffer, Decomain & Wrobel 2001, [Active Hidden Markov Models for Information
    Extraction](https://doi.org/10.1007/3-540-44816-0_31). κ is below 1/2 where an earlier snapshot
    prefers another class.

    With p of y_hat, o of the best other class and r of the rest, κ = p + r/2 and 1 − κ = o + r/2.
    Neither is a difference, so κ is exact near 0 and near 1.

    Examples
    --------
    >>> logits = torch.tensor([[0.5, 0.3, 0.2], [0.3, 0.5, 0.2]]).log()
    >>> Margin().score(Logits(logits), np.array([0, 0]), None).round(3).tolist()
    [0.6, 0.4]
    """

    name = "margin"

    def rate(self, z: Tensor, y_hat: Tensor) -> Tensor:
        """Return half of one plus the lead of the predicted class."""
        weight = gaps(z).exp()
        others = weight.scatter(1, y_hat, 0)
        best = others.argmax(dim=1, keepdim=True)
        rest = others.scatter(1, best, 0).sum(dim=1)
        answer, rival = weight.gather(1, y_hat)[:, 0], others.gather(1, best)[:, 0]
        total = answer + rival + rest
        low, high = (answer + rest / 2) / total, 1 - (rival + rest / 2) / total
        return low.where(low < 0.5, high)


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

    def rate(self, z: Tensor, y_hat: Tensor) -> Tensor:
        """Return the log-sum-exp of the logits, mapped to [0, 1]."""
        return squash(self._temperature * (z / self._temperature).logsumexp(dim=1))


class MaxLogit(LogitKappa):
    """κ = squash(z[y_hat]), with z the logits.

    Hendrycks et al. 2022, [Scaling Out-of-Distribution Detection for Real-World
    Settings](https://arxiv.org/abs/1911.11132). For the final snapshot z[y_hat] is the largest
    logit; for an earlier one, it is the logit of the same class. A constant added to all logits of
    a row raises κ. `squash` maps the logit to [0, 1] and keeps the order.

    Examples
    --------
    >>> logits = torch.tensor([[3.0, 1.0], [-1.0, 0.0]])
    >>> MaxLogit().score(Logits(logits), np.array([0, 0]), None).tolist()
    [0.875, 0.25]
    """

    name = "max_logit"

    def rate(self, z: Tensor, y_hat: Tensor) -> Tensor:
        """Return the logit of the predicted class, mapped to [0, 1]."""
        return squash(z.gather(1, y_hat)[:, 0])


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
    >>> logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    >>> Doctor().score(Logits(logits), np.array([0]), None).round(3).tolist()  # .25 + .09 + .04
    [0.38]
    """

    name = "doctor"

    def rate(self, z: Tensor, y_hat: Tensor) -> Tensor:
        """Return the sum of the squared softmax."""
        weight = _others(gaps(z))
        s, q = weight.sum(dim=1), weight.square().sum(dim=1)
        return 1 - (2 * s + (s.square() - q)) / (1 + s).square()


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

    def rate(self, z: Tensor, y_hat: Tensor) -> Tensor:
        """Return the generalised entropy of the softmax, mapped to [0, 1]."""
        logits = np.ascontiguousarray(z.numpy())  # sums depend on the memory layout
        return torch.from_numpy(gen(logits, self._gamma, self._top))


def gaps(logits: Tensor) -> Tensor:
    """Return the logits minus the largest of each row, in float64 on the CPU."""
    z = logits.cpu().double()
    return z - z.amax(dim=1, keepdim=True)


def _others(gap: Tensor) -> Tensor:
    """Return e^gap of every class, and 0 for the class with the largest logit."""
    return gap.exp().scatter(1, gap.argmax(dim=1, keepdim=True), 0)


def squash(x: Tensor) -> Tensor:
    """Map any number to [0, 1] by 1/2 + x / (2 (1 + |x|)), which keeps the order.

    It approaches 0 and 1 as 1/x does, not as e^−x: float32 logits that differ stay apart up to 10⁸,
    where a sigmoid merges them from 37 on.

    Examples
    --------
    >>> squash(torch.tensor([-3.0, 0.0, 1.0])).tolist()
    [0.125, 0.5, 0.75]
    """
    short = 0.5 / (1 + x.double().abs())  # distance to the nearer end, so both keep full precision
    return short.where(x < 0, 1 - short)
