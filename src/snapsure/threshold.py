"""A threshold: for a share of the points, or for a risk that can be promised."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _json, _validate
from snapsure._types import Bools, Ints
from snapsure.errors import Infeasible
from snapsure.metrics._rank import tie_groups

# Each step of the grid is halved so often: 2³ − 1 thresholds inside it can be reached.
_HALVINGS = 3


class Threshold:
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
    >>> chosen = Threshold.at_risk(kappa, errors, risk=0.2, delta=0.01)
    >>> bool(errors[chosen.accepts(kappa)].mean() < 0.2)
    True
    """

    def __init__(self, theta: float, coverage: float, risk_bound: float | None = None) -> None:
        self.theta, self.coverage, self.risk_bound = theta, coverage, risk_bound

    def __repr__(self) -> str:
        """Threshold, coverage and promise."""
        promise = "" if self.risk_bound is None else f", risk ≤ {self.risk_bound:.4g}"
        return f"<Threshold: κ ≥ {self.theta:.6g}, coverage {self.coverage:.3g}{promise}>"

    @classmethod
    def at_coverage(cls, kappa: ArrayLike, coverage: float) -> "Threshold":
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
    ) -> "Threshold":
        """A threshold whose risk on new points is at most `risk`, with probability 1 − delta.

        The idea of SGR (Geifman & El-Yaniv 2017): each threshold tried is tested by the exact
        binomial (Clopper-Pearson) bound, at delta over the number of thresholds that could be
        tried: log₂ n at even steps of coverage, and those that three halvings of any step can
        reach. (Halving alone, as in SGR, gives up where the first half is too small a set to
        promise anything.)

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
        share = _validate.fraction(delta, "delta", open_above=True)
        theta, end, loss = tie_groups(score, wrong)
        grid = _grid(end)
        level = share / (len(grid) * 2**_HALVINGS)
        bounds = {at: upper_bound(int(loss[at]), int(end[at]), level) for at in grid}
        kept = [at for at in grid if bounds[at] <= limit]
        if not kept:
            best = min(bounds, key=lambda at: bounds[at])
            smallest = math.ceil(bounds[best] * 1e4) / 1e4  # up, so that it can be asked for
            offer = (
                f"the smallest is {smallest:g}, at coverage {end[best] / score.size:.3g}; accept "
                "that, or hold out more points"
                if smallest < 1
                else "none can be promised; hold out more points"
            )
            raise Infeasible(
                f"`risk` must be one that {score.size} points can promise at delta = {delta}, got "
                f"{risk}: {offer}"
            )
        low = kept[-1]
        high = next((at for at in grid if at > low), low)
        for _ in range(_HALVINGS):  # the limit lies between the two
            if high - low < 2:
                break
            middle = (low + high) // 2
            bounds[middle] = upper_bound(int(loss[middle]), int(end[middle]), level)
            low, high = (middle, high) if bounds[middle] <= limit else (low, middle)
        return cls(float(theta[low]), float(end[low] / score.size), bounds[low])

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        _json.write(path, "Threshold", self.as_dict())

    @classmethod
    def load(cls, path: str | Path) -> "Threshold":
        """Read what `save` wrote."""
        return cls.from_dict(_json.read(path, "Threshold", ("theta", "coverage", "risk_bound")))

    def as_dict(self) -> dict[str, Any]:
        """All of it, in JSON's types."""
        return {"theta": self.theta, "coverage": self.coverage, "risk_bound": self.risk_bound}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Threshold":
        """What `as_dict` told of."""
        return cls(content["theta"], content["coverage"], content["risk_bound"])

    def accepts(self, kappa: ArrayLike) -> Bools:
        """Which points to accept, (n,)."""
        return _validate.kappa(kappa) >= self.theta


def _grid(end: Ints) -> list[int]:
    """Thresholds at log₂ n even steps of coverage: fixed by κ alone, before errors are seen."""
    n = int(end[-1])
    steps = math.ceil(math.log2(n)) if n > 1 else 1
    counts = np.ceil(np.arange(1, steps + 1) * n / steps)
    return [int(at) for at in np.unique(np.searchsorted(end, counts))]


def upper_bound(errors: int, n: int, delta: float) -> float:
    """The largest error rate that still gives so few errors in n with probability delta."""
    if errors == n:
        return 1.0
    from scipy.special import betaincinv  # type: ignore[import-untyped]

    return float(betaincinv(errors + 1, n - errors, 1 - delta))
