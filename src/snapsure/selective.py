"""A threshold: for a share of the points, or for a risk that can be promised."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from snapsure import _validate
from snapsure.errors import Infeasible
from snapsure.metrics._rank import tie_groups

__all__ = ["SelectiveClassifier"]


class SelectiveClassifier:
    """Accepts the points whose κ is at least `theta`, and hands the others to a person.

    Attributes
    ----------
    theta : float
        The threshold.
    coverage : float
        Share of the points it was made from that it accepts.
    risk_bound : float or None
        What the risk stays under, with probability 1 − delta; None if nothing was promised.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> kappa = rng.random(5000)
    >>> errors = rng.random(5000) > kappa
    >>> chosen = SelectiveClassifier.at_risk(kappa, errors, risk=0.2, delta=0.01)
    >>> bool(errors[chosen.accepts(kappa)].mean() < 0.2)
    True
    """

    def __init__(self, theta: float, coverage: float, risk_bound: float | None = None) -> None:
        self.theta, self.coverage, self.risk_bound = theta, coverage, risk_bound

    def __repr__(self) -> str:
        """Threshold, coverage and promise."""
        promise = "" if self.risk_bound is None else f", risk ≤ {self.risk_bound:.4g}"
        return f"<SelectiveClassifier: κ ≥ {self.theta:.6g}, coverage {self.coverage:.3g}{promise}>"

    @classmethod
    def at_coverage(cls, kappa: ArrayLike, coverage: float) -> "SelectiveClassifier":
        """The highest threshold that accepts at least this share of the points.

        Tied points are accepted together.
        """
        score = _validate.kappa(kappa)
        share = _validate.fraction(coverage, "coverage") * score.size
        theta, end, _ = tie_groups(score, np.zeros(score.size, dtype=np.bool_))
        at = int(np.searchsorted(end, max(1, math.ceil(share * (1 - 1e-12)))))
        return cls(float(theta[at]), float(end[at] / score.size))

    @classmethod
    def at_risk(
        cls, kappa: ArrayLike, errors: ArrayLike, risk: float, delta: float = 0.001
    ) -> "SelectiveClassifier":
        """A threshold whose risk on new points is at most `risk`, with probability 1 − delta.

        Geifman & El-Yaniv 2017 (SGR): a binary search over the thresholds that κ offers; each one
        tried is tested by the exact binomial (Clopper-Pearson) bound at delta over their number.

        Parameters
        ----------
        kappa, errors : (n,)
            Held-out points like those to come, which nothing was fitted on.
        risk : float
            The risk to promise, in (0, 1).
        delta : float
            How often the promise may be broken, over draws of the held-out points.

        Raises
        ------
        Infeasible
            If no threshold tried can promise it; says the smallest risk that can be promised.
        """
        score = _validate.kappa(kappa)
        wrong = _validate.errors(errors, score.shape)
        limit = _validate.fraction(risk, "risk", open_above=True)
        theta, end, loss = tie_groups(score, wrong)
        tries = max(1, math.ceil(math.log2(end.size + 1)))
        level = _validate.fraction(delta, "delta", open_above=True) / tries
        low, high, found, bounds = 0, end.size - 1, None, {}
        while low <= high:
            middle = (low + high) // 2
            bounds[middle] = _upper_bound(int(loss[middle]), int(end[middle]), level)
            if bounds[middle] <= limit:
                found, low = middle, middle + 1
            else:
                high = middle - 1
        if found is None:
            best = min(bounds, key=lambda at: bounds[at])
            raise Infeasible(
                f"`risk` must be one that {score.size} points can promise at delta = {delta}, got "
                f"{risk}: the smallest is {bounds[best]:.4g}, at coverage "
                f"{end[best] / score.size:.3g}; accept that, or hold out more points"
            )
        return cls(float(theta[found]), float(end[found] / score.size), bounds[found])

    def accepts(self, kappa: ArrayLike) -> NDArray[np.bool_]:
        """Which points to accept, (n,)."""
        return _validate.kappa(kappa) >= self.theta


def _upper_bound(errors: int, n: int, delta: float) -> float:
    """The largest error rate that still gives so few errors in n with probability delta."""
    if errors == n:
        return 1.0
    from scipy.special import betaincinv  # type: ignore[import-untyped]

    return float(betaincinv(errors + 1, n - errors, 1 - delta))
