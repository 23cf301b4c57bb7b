"""From a confidence to the probability of being right."""

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
    """What a saved Platt holds."""

    slope: float
    intercept: float
    log_odds: bool


class Platt:
    """Logistic regression, without penalty, from κ to "was right".

    It is fitted to the log-odds log κ / (1 − κ) where all κ lie in [0, 1], so that the identity is
    among the curves it can draw (and later values beyond count as 0 or 1); to κ itself elsewhere.
    Log-odds end at ±27.6: κ within 10⁻¹² of 0 or of 1 count as that.

    Where that has no answer (only right or only wrong points, or a κ that parts them perfectly),
    the targets are Platt's own: (right + 1) / (right + 2) and 1 / (wrong + 2) instead of 1 and 0.
    A constant κ gives the share of right points.

    Attributes
    ----------
    coef_ : (slope, intercept)
    log_odds_ : bool
        Whether they are of the log-odds.

    Examples
    --------
    >>> platt = Platt().fit([0.9, 0.8, 0.6, 0.4, 0.3], [0, 0, 1, 0, 1])
    >>> p = platt.predict_proba([0.9, 0.3])
    >>> bool(p[0] > p[1])
    True
    """

    def __init__(self) -> None:
        self._fitted: tuple[tuple[float, float], bool] | None = None

    @property
    def coef_(self) -> tuple[float, float]:
        """Slope and intercept."""
        return self._known()[0]

    @property
    def log_odds_(self) -> bool:
        """Whether they are of the log-odds of κ."""
        return self._known()[1]

    def fit(self, kappa: ArrayLike, errors: ArrayLike) -> "Platt":
        """Fit on held-out points: κ (n,), errors (n,)."""
        score = _validate.scores(kappa)
        wrong = _validate.errors(errors, score.shape)
        log_odds = bool(score.min() >= 0 and score.max() <= 1)
        curve = platt_curve(logit(score) if log_odds else score, wrong)
        if not math.isfinite(curve[0]):
            raise InvalidInput(
                "`kappa` must be such that float64 has a slope over it, got values within "
                f"±{np.abs(score).max():.2g}: multiply them"
            )
        self._fitted = curve, log_odds
        return self

    def predict_proba(self, kappa: ArrayLike) -> Floats:
        """Probability of being right, (n,)."""
        (slope, intercept), log_odds = self._known()
        score = _validate.scores(kappa)
        with np.errstate(over="ignore"):  # beyond all float64 lie 0 and 1
            z = slope * (logit(score) if log_odds else score) + intercept
        return sigmoid(z)

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        _json.write(path, "Platt", {**self.as_dict()})

    @classmethod
    def load(cls, path: str | Path) -> "Platt":
        """Read what `save` wrote."""
        return cls.from_dict(_json.read(path, "Platt", PlattState))

    def as_dict(self) -> PlattState:
        """The curve, in JSON's types."""
        (slope, intercept), log_odds = self._known()
        return {"slope": slope, "intercept": intercept, "log_odds": log_odds}

    @classmethod
    def from_dict(cls, content: PlattState) -> "Platt":
        """What `as_dict` told of."""
        platt = cls()
        platt._fitted = (content["slope"], content["intercept"]), content["log_odds"]
        return platt

    def _known(self) -> tuple[tuple[float, float], bool]:
        if self._fitted is None:
            raise NotFitted(
                "Platt must be fitted before it is used, got one that is not: call .fit"
            )
        return self._fitted
