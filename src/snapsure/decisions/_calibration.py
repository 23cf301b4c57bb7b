"""Turn a confidence into the probability of being right."""

import math
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _json, _validate
from snapsure._logistic import logit, platt_curve, sigmoid
from snapsure._types import Floats
from snapsure.errors import InvalidInput, NotFitted


class PlattState(TypedDict):
    """What a saved Platt holds.

    Examples
    --------
    >>> sorted(Platt().fit([0.9, 0.8, 0.6, 0.4, 0.3], [0, 0, 1, 0, 1]).as_dict())
    ['intercept', 'log_odds', 'slope']
    """

    slope: float
    intercept: float
    log_odds: bool


class Platt:
    """Logistic regression, without penalty, from κ to "was right".

    Where all κ lie in [0, 1], it is fitted to the log-odds log κ / (1 − κ), so that the identity is
    one of its curves (later values outside count as 0 or 1); elsewhere to κ itself. Log-odds end at
    ±27.6: κ within 10⁻¹² of 0 or 1 counts as that.

    Where this has no solution (only right or only wrong answers, or a κ that separates them
    perfectly), the targets are Platt's: (right + 1) / (right + 2) and 1 / (wrong + 2) instead of 1
    and 0. A constant κ gives the share of right answers.

    Examples
    --------
    >>> platt = Platt().fit([0.9, 0.8, 0.6, 0.4, 0.3], [0, 0, 1, 0, 1])
    >>> p = platt.predict_proba([0.9, 0.3])
    >>> bool(p[0] > p[1])
    True
    """

    def __init__(self) -> None:
        self._state: PlattState | None = None

    @property
    def coef_(self) -> tuple[float, float]:
        """Slope and intercept."""
        state = self.as_dict()
        return state["slope"], state["intercept"]

    @property
    def log_odds_(self) -> bool:
        """Whether slope and intercept apply to the log-odds of κ."""
        return self.as_dict()["log_odds"]

    def fit(self, kappa: ArrayLike, errors: ArrayLike) -> "Platt":
        """Fit to held-out examples: κ (n,), errors (n,)."""
        score = _validate.scores(kappa)
        wrong = _validate.errors(errors, score.shape)
        log_odds = bool(score.min() >= 0 and score.max() <= 1)
        slope, intercept = platt_curve(logit(score) if log_odds else score, wrong)
        if not math.isfinite(slope):
            raise InvalidInput(
                "`kappa` must not be too small for a finite slope, got values within "
                f"±{np.abs(score).max():.2g}. Multiply them."
            )
        self._state = {"slope": slope, "intercept": intercept, "log_odds": log_odds}
        return self

    def predict_proba(self, kappa: ArrayLike) -> Floats:
        """Return the probability of being right, (n,)."""
        slope, intercept = self.coef_
        score = _validate.scores(kappa)
        with np.errstate(over="ignore"):  # an overflow gives 0 or 1
            z = slope * (logit(score) if self.log_odds_ else score) + intercept
        return sigmoid(z)

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        _json.write(path, "Platt", {**self.as_dict()})

    @classmethod
    def load(cls, path: str | Path) -> "Platt":
        """Read what `save` wrote."""
        return cls.from_dict(_json.read(path, "Platt", PlattState))

    def as_dict(self) -> PlattState:
        """Return the fitted curve."""
        if self._state is None:
            raise NotFitted("Platt must be fitted before use, got one that is not. Call `fit`.")
        return self._state.copy()

    @classmethod
    def from_dict(cls, state: PlattState) -> "Platt":
        """Restore what `as_dict` returned."""
        platt = cls()
        platt._state = state
        return platt
