"""Scores of logits in [0, 1], higher is surer: for κ functions, score tables and the predictor.

Each row's largest logit is subtracted first. Its own weight is then exactly 1, and the weights of
the other classes are what certainty lacks. Sums over the others alone lose no precision, however
small they are, so nearly certain examples keep their order. Every number depends on its own row
alone, to the last bit.
"""

import math
from functools import cached_property

import numpy as np

from snapsure._types import Floats, Ints

FINAL_NUMBERS = ("entropy", "margin", "energy", "max_logit", "gen")
# No score depends on gaps beyond this; a difference of two huge logits may be infinite.
_FARTHEST = -1e9


class LogitScores:
    """Scores of logits z, (n, classes), about one class per row; `kappas` documents each."""

    def __init__(self, z: Floats, y_hat: Ints) -> None:
        self.z = np.ascontiguousarray(z)  # sums depend on the order in memory
        self._answer = y_hat[:, None]
        self._top = self.z.argmax(axis=1)[:, None]
        self._largest = np.take_along_axis(self.z, self._top, axis=1)
        with np.errstate(over="ignore"):
            self._gap = np.maximum(self.z - self._largest, _FARTHEST)

    @cached_property
    def _others(self) -> Floats:
        """e^gap of every class, and 0 for the class with the largest logit."""
        weight: Floats = np.exp(self._gap)
        np.put_along_axis(weight, self._top, 0, axis=1)
        return weight

    @cached_property
    def _missing(self) -> Floats:
        missing: Floats = self._others.sum(axis=1)
        return missing

    def entropy(self) -> Floats:
        """Return 1 − H(p) / ln C."""
        missing = self._missing
        entropy = np.log1p(missing) - (self._others * self._gap).sum(axis=1) / (1 + missing)
        return 1 - entropy / (math.log(self.z.shape[1]) or 1.0)  # one class has no entropy

    def margin(self) -> Floats:
        """Return (1 + m) / 2, with m the lead of the chosen class."""
        weight = self._others.copy()
        np.put_along_axis(weight, self._top, 1, axis=1)
        answer = np.take_along_axis(weight, self._answer, axis=1)[:, 0]
        np.put_along_axis(weight, self._answer, 0, axis=1)
        best = weight.argmax(axis=1)[:, None]
        rival = np.take_along_axis(weight, best, axis=1)[:, 0]
        np.put_along_axis(weight, best, 0, axis=1)
        rest = weight.sum(axis=1)
        total = answer + rival + rest
        low, high = (answer + rest / 2) / total, 1 - (rival + rest / 2) / total
        return np.where(low < 0.5, low, high)

    def energy(self, temperature: float = 1.0) -> Floats:
        """Return squash(T ln Σ e^{z/T})."""
        missing = self._missing
        if temperature != 1:
            with np.errstate(over="ignore"):
                weight = np.exp(self._gap / temperature)
            np.put_along_axis(weight, self._top, 0, axis=1)
            missing = weight.sum(axis=1)
        return squash(self._largest[:, 0] + temperature * np.log1p(missing))

    def max_logit(self) -> Floats:
        """Return squash(z of the chosen class)."""
        return squash(np.take_along_axis(self.z, self._answer, axis=1)[:, 0])

    def doctor(self) -> Floats:
        """Return Σ p²."""
        s, q = self._missing, np.square(self._others).sum(axis=1)
        value: Floats = 1 - (2 * s + (np.square(s) - q)) / np.square(1 + s)
        return value

    def gen(self, gamma: float = 0.1, top: int = 100) -> Floats:
        """Return 1 − G / G_max."""
        missing = self._missing[:, None]
        rest = 1 + missing - self._others  # (1 − p) (1 + missing)
        np.put_along_axis(rest, self._top, missing, axis=1)
        with np.errstate(divide="ignore"):  # where nothing is missing, the term is 0
            terms = np.exp(gamma * (self._gap + np.log(rest) - 2 * np.log1p(missing)))
        top = min(top, terms.shape[1])
        if top < terms.shape[1]:
            terms = -np.partition(-terms, top - 1, axis=1)[:, :top]
        kappa: Floats = np.clip(1 - terms.sum(axis=1) / (top * 0.25**gamma), 0, 1)
        return kappa


def final_numbers(z: Floats, y_hat: Ints) -> Floats:
    """Return the FINAL_NUMBERS of logits z, (n, classes), for predictions y_hat: (n, 5)."""
    scores = LogitScores(z, y_hat)
    columns = [getattr(scores, name)() for name in FINAL_NUMBERS]
    return np.clip(np.stack(columns, axis=1), 0, 1)


def squash(x: Floats) -> Floats:
    """Map any number to [0, 1] by 1/2 + x / (2 (1 + |x|)), which keeps the order.

    It approaches 0 and 1 as 1/x does, not as e^−x: float32 logits that differ stay apart up to 10⁸,
    where a sigmoid merges them from 37 on.
    """
    short = 0.5 / (1 + np.abs(x))  # distance to the nearer end, so both keep full precision
    return np.where(x < 0, short, 1 - short)
