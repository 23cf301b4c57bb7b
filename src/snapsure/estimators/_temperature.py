"""Temperature scaling (Guo et al. 2017): c(x) = max softmax(z / T) of the final logits z."""

import math
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta

from snapsure import _validate
from snapsure._types import Floats, Ints, Matrix
from snapsure.errors import InvalidInput
from snapsure.estimators._base import EQUAL, Estimator, Fitted, State
from snapsure.estimators._logits import labels_of, logits_of, softmax_response
from snapsure.metrics import aurc
from snapsure.table import ScoreTable

# The grid of Cattelan & Silva: 0.01, 0.02, …, 1.99.
_GRID = np.arange(1, 200) / 100
# The least NLL may be at T = 0 (every example right) or at infinity (no better than chance).
_COLDEST, _HOTTEST = 1e-6, 1e6
_STEPS = 200
_TOGETHER = 1 << 14  # logits divided at once: what a core's cache holds


class _FittedTemperature(Fitted):
    temperature: Annotated[float, Meta(gt=0)]


class Temperature(Estimator):
    """Return the softmax response of the final logits divided by T > 0.

    With `by="nll"`, T has the least mean negative log-likelihood of the classes, −ln softmax(z/T)
    at y; this is convex in 1/T, and Newton's method finds it. With `by="aurc"`, T has the least
    AURC among 0.01, 0.02, …, 1.99, the nearest to 1 of equals (Cattelan & Silva 2024). An example
    of none of the classes (y = −1) has no likelihood, so NLL leaves it out; for AURC it is an
    error. T changes no prediction, but it changes which example is surer.

    `Platt` differs: it maps a κ to the probability of being right, and keeps its order.

    Parameters
    ----------
    by : "nll" or "aurc"
        What T minimises.

    Attributes
    ----------
    temperature_ : float

    Examples
    --------
    >>> logits = np.log([[0.8, 0.2], [0.8, 0.2], [0.8, 0.2], [0.8, 0.2]])
    >>> table = ScoreTable({"softmax": [[0.8] * 4]}, [[0] * 4], y=[0, 0, 0, 1], logits=logits)
    >>> model = Temperature().fit(table)  # right in 3 of 4
    >>> model.confidence(table).round(6).tolist()
    [0.75, 0.75, 0.75, 0.75]
    """

    of_kappa: ClassVar[bool] = False
    fitted_type: ClassVar[type] = _FittedTemperature

    def __init__(self, by: Literal["nll", "aurc"] = "nll") -> None:
        super().__init__()
        _validate.choice(by, ("nll", "aurc"), "by")
        self.by = by
        self.calibrated = by == "nll"

    @property
    def settings(self) -> dict[str, Any]:
        """Return what T minimises."""
        return {"by": self.by}

    @property
    def temperature_(self) -> float:
        """T."""
        return float(self.fitted["temperature"])

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        z, y = logits_of(table), labels_of(table)
        if self.by == "aurc":
            best = _minimise_aurc(z, y)
        else:
            known = y != _validate.NO_CLASS
            if not known.any():
                raise InvalidInput(
                    f"`table` must have examples that belong to a class, got {y.size} of none "
                    "(y = −1). Add some."
                )
            best = _minimise_nll(z[known], y[known])
        return {"epochs": [int(table.epochs[-1])], "temperature": best}

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        return softmax_response(logits_of(table) / state["temperature"])


def _minimise_aurc(z: Floats, y: Ints) -> float:
    areas = aurc(_odds_over_grid(z), z.argmax(axis=1) != y)
    equals = _GRID[areas <= areas.min() + EQUAL]
    return float(equals[np.abs(np.log(equals)).argmin()])


def _odds_over_grid(z: Floats) -> Matrix:
    """Return log-odds of each row's largest softmax, (temperatures of the grid, n)."""
    odds = np.empty((_GRID.size, len(z)))
    together = max(1, _TOGETHER // z.shape[1])
    for low in range(0, len(z), together):
        part = z[low : low + together]
        top = part.argmax(axis=1)[:, None]
        others = part - np.take_along_axis(part, top, axis=1)
        np.put_along_axis(others, top, -np.inf, axis=1)
        second = others.max(axis=1)
        below = np.ascontiguousarray((others - second[:, None]).T)
        for last in range(_GRID.size // 2, _GRID.size):
            power, at = np.exp(below / _GRID[last]), last
            while True:
                total = np.log(power.sum(axis=0))
                odds[at, low : low + together] = -(second / _GRID[at] + total)
                if at % 2 == 0:  # its half is not on the grid
                    break
                at //= 2
                power *= power  # e^(x/T) squared belongs to T/2
    return odds


def _minimise_nll(z: Floats, y: Ints) -> float:
    """Find β = 1/T by Newton's method, bracketed by where the slope changes sign."""
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
        last, beta = beta, newton if low <= newton <= high else math.sqrt(low * high)
        if abs(beta - last) <= 1e-12 * beta:
            break
    return 1 / beta


def _slope(z: Floats, y: Ints, beta: float) -> tuple[float, float]:
    """Return the first and second derivative by β of the mean NLL of softmax(βz)."""
    p = np.exp(beta * z)
    p /= p.sum(axis=1, keepdims=True)
    mean = (p * z).sum(axis=1)
    variance = (p * (z - mean[:, None]) ** 2).sum(axis=1)
    return float(np.mean(mean - z[np.arange(len(z)), y])), float(variance.mean())
