"""From a confidence to the probability of being right.

`Platt` is what the paper uses; `Isotonic` and `Temperature` are there to compare with.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from snapsure import _validate
from snapsure._logistic import fit_logistic, logit, platt_curve, sigmoid
from snapsure.estimators._table import fitted

__all__ = ["Platt"]

Floats = NDArray[np.float64]


class Platt:
    """Logistic regression, without penalty, from κ to "was right".

    Where that has no answer (only right or only wrong points, or a κ that parts them perfectly),
    the targets are Platt's own: (right + 1) / (right + 2) and 1 / (wrong + 2) instead of 1 and 0.
    A constant κ gives the share of right points.

    Examples
    --------
    >>> platt = Platt().fit([0.9, 0.8, 0.6, 0.4, 0.3], [0, 0, 1, 0, 1])
    >>> p = platt.predict_proba([0.9, 0.3])
    >>> bool(p[0] > p[1])
    True
    """

    def __init__(self) -> None:
        self.coef_: tuple[float, float] | None = None  # (slope, intercept) in units of κ

    def fit(self, kappa: ArrayLike, errors: ArrayLike) -> "Platt":
        """Fit on held-out points: κ (n,), errors (n,)."""
        score = _validate.kappa(kappa).astype(np.float64)
        self.coef_ = platt_curve(score, _validate.errors(errors, score.shape))
        return self

    def predict_proba(self, kappa: ArrayLike) -> Floats:
        """Probability of being right, (n,)."""
        slope, intercept = fitted(self.coef_, "Platt")
        return sigmoid(slope * _validate.kappa(kappa).astype(np.float64) + intercept)


class Temperature:
    """p = sigmoid(logit(κ) / T): one number, for a κ that is nearly a probability already."""

    def __init__(self) -> None:
        self.temperature_: float | None = None

    def fit(self, kappa: ArrayLike, errors: ArrayLike) -> "Temperature":
        """Fit on held-out points: κ (n,) in [0, 1], errors (n,)."""
        p = _validate.probabilities(kappa, "kappa")
        wrong = _validate.errors(errors, p.shape)
        sharpness = fit_logistic(logit(p)[:, None], (~wrong).astype(np.float64), np.full(1, 1e-6))
        self.temperature_ = 1 / max(float(sharpness[0]), 1e-6)
        return self

    def predict_proba(self, kappa: ArrayLike) -> Floats:
        """Probability of being right, (n,)."""
        temperature = fitted(self.temperature_, "Temperature")
        return sigmoid(logit(_validate.probabilities(kappa, "kappa")) / temperature)


class Isotonic:
    """The best rising step function from κ to "was right"."""

    def __init__(self) -> None:
        self._steps: Any = None

    def fit(self, kappa: ArrayLike, errors: ArrayLike) -> "Isotonic":
        """Fit on held-out points: κ (n,), errors (n,)."""
        from sklearn.isotonic import IsotonicRegression  # type: ignore[import-untyped]

        score = _validate.kappa(kappa).astype(np.float64)
        wrong = _validate.errors(errors, score.shape)
        self._steps = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        self._steps.fit(score, (~wrong).astype(np.float64))
        return self

    def predict_proba(self, kappa: ArrayLike) -> Floats:
        """Probability of being right, (n,)."""
        steps = fitted(self._steps, "Isotonic")
        values: Floats = steps.predict(_validate.kappa(kappa).astype(np.float64))
        return values
