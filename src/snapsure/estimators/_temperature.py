"""Temperature scaling: the final logits divided by one number."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from snapsure import _validate
from snapsure.estimators._logits import Floats, log_odds, softmax_response
from snapsure.estimators._table import EQUAL, fitted, read_json, write_json
from snapsure.metrics import aurc

# What Cattelan & Silva search for the least AURC: 0.01, 0.02, …, 1.99.
_GRID = np.arange(1, 200) / 100
# The least NLL may lie at 0 (every point right) or at infinity (no better than chance).
_COLDEST, _HOTTEST = 1e-6, 1e6
_STEPS = 200


class Temperature:
    """Softmax response of the final logits divided by T > 0.

    With `by="nll"`, T has the least mean negative log-likelihood of the classes, −ln softmax(z/T)
    at y (Guo, Pleiss, Sun & Weinberger 2017); this is convex in 1/T, and Newton's method finds it.
    With `by="aurc"`, T has the least AURC of 0.01, 0.02, …, 1.99, the one nearest to 1 of equals
    (Cattelan & Silva 2024). T changes no prediction, but it does change which point is surer.

    `Platt` is another thing: it maps a κ to the probability of being right, and keeps its order.

    Parameters
    ----------
    by : "nll" or "aurc"
        What T is chosen by.

    Attributes
    ----------
    temperature_ : float

    Examples
    --------
    >>> logits = np.log([[0.8, 0.2], [0.8, 0.2], [0.8, 0.2], [0.8, 0.2]])
    >>> model = Temperature().fit(logits, y=[0, 0, 0, 1])  # right in 3 of 4, so 3/4 is honest
    >>> model.confidence(logits).round(6).tolist()
    [0.75, 0.75, 0.75, 0.75]
    """

    def __init__(self, by: str = "nll") -> None:
        _validate.choice(by, ("nll", "aurc"), "by")
        self.by = by
        self.temperature_: float | None = None

    def fit(self, logits: ArrayLike, y: ArrayLike) -> "Temperature":
        """Choose T on held-out points.

        Parameters
        ----------
        logits : (n, classes)
            Of the final snapshot.
        y : (n,)
            True classes.
        """
        z = _validate.logits(logits)
        labels = _validate.labels(y, z.shape, "y", "logits")
        choose = _of_least_nll if self.by == "nll" else _of_least_aurc
        self.temperature_ = choose(z, labels)
        return self

    def confidence(self, logits: ArrayLike) -> Floats:
        """The largest softmax of logits / T, (n,)."""
        temperature = fitted(self.temperature_, "Temperature")
        return softmax_response(_validate.logits(logits) / temperature)

    def save(self, path: str | Path) -> None:
        """Write T as JSON."""
        temperature = fitted(self.temperature_, "Temperature")
        write_json(path, "Temperature", {"by": self.by, "temperature": temperature})

    @classmethod
    def load(cls, path: str | Path) -> "Temperature":
        """Read what `save` wrote."""
        content = read_json(path, "Temperature", "temperature")
        model = cls(content["by"])
        model.temperature_ = content["temperature"]
        return model


def _of_least_aurc(z: Floats, y: NDArray[np.int64]) -> float:
    wrong = z.argmax(axis=1) != y
    areas = np.array([aurc(log_odds(z / temperature), wrong) for temperature in _GRID])
    equals = _GRID[areas <= areas.min() + EQUAL]
    return float(equals[np.abs(np.log(equals)).argmin()])


def _of_least_nll(z: Floats, y: NDArray[np.int64]) -> float:
    """Newton's method for β = 1/T, kept between the points where the slope changes sign."""
    z = z - z.max(axis=1, keepdims=True)
    low, high = 1 / _HOTTEST, 1 / _COLDEST
    if _slope(z, y, low)[0] >= 0:
        return _HOTTEST
    if _slope(z, y, high)[0] <= 0:
        return _COLDEST
    beta = 1.0
    for _ in range(_STEPS):
        slope, curvature = _slope(z, y, beta)
        low, high = (low, beta) if slope > 0 else (beta, high)
        newton = beta - slope / curvature if curvature > 0 else np.inf
        last, beta = beta, newton if low < newton < high else math.sqrt(low * high)
        if abs(beta - last) <= 1e-12 * beta:
            break
    return 1 / beta


def _slope(z: Floats, y: NDArray[np.int64], beta: float) -> tuple[float, float]:
    """First and second derivative by β of the mean NLL of softmax(βz)."""
    p = np.exp(beta * z)
    p /= p.sum(axis=1, keepdims=True)
    mean = (p * z).sum(axis=1)
    variance = (p * (z - mean[:, None]) ** 2).sum(axis=1)
    return float(np.mean(mean - z[np.arange(len(z)), y])), float(variance.mean())
