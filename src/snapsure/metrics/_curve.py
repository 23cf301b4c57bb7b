"""The risk-coverage curve and what can be read off it."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _validate
from snapsure._display import Display, draw
from snapsure._types import Floats
from snapsure.metrics._rank import tie_groups


class RCCurve(NamedTuple):
    """A risk-coverage curve: one entry per distinct κ, with rising coverage.

    The threshold `theta` accepts the examples with κ ≥ theta: `coverage` is their share, `risk`
    their mean loss.

    Examples
    --------
    >>> curve = rc_curve([0.9, 0.8, 0.4], [0, 0, 1])
    >>> curve.coverage.round(2).tolist(), curve.theta.tolist()
    ([0.33, 0.67, 1.0], [0.9, 0.8, 0.4])
    """

    coverage: Floats
    risk: Floats
    theta: Floats

    def plot(self, name: str = "κ", others: "Mapping[str, RCCurve] | None" = None) -> Display:
        """Draw risk against coverage under a name, beside `others` of the same examples, by name.

        Notebooks show the result; `.save("curves.png")` writes it, or `.svg`, or `.pdf`.
        """
        return draw("curves", {name: self, **(others or {})})


def rc_curve(kappa: ArrayLike, losses: ArrayLike) -> RCCurve:
    """Compute the selective risk against coverage, for every threshold that κ offers.

    `risk[i]` is the mean loss of the examples with κ ≥ `theta[i]`, `coverage[i]` their share.
    `kappa` (n,) is higher for more confident answers; `losses` (n,) are 0/1 errors or any loss ≥ 0.

    Examples
    --------
    >>> rc_curve([0.9, 0.8, 0.8, 0.6], [0, 0, 1, 1]).risk.round(3).tolist()
    [0.0, 0.333, 0.5]
    """
    scores = _validate.scores(kappa)  # thresholds are in the unit of κ
    theta, end, loss = tie_groups(scores, _validate.losses(losses, scores.shape))
    return RCCurve(end / end[-1], loss / end, theta)


def risk_at_coverage(kappa: ArrayLike, losses: ArrayLike, coverage: float) -> float:
    """Compute the mean loss of the ⌈coverage · n⌉ most confident examples.

    Examples tied at the edge count by the mean over their orders.

    Examples
    --------
    >>> risk_at_coverage([0.9, 0.8, 0.7, 0.6], [0, 1, 0, 1], 0.5)
    0.5
    """
    scores = _validate.kappa(kappa)
    _, end, loss = tie_groups(scores, _validate.losses(losses, scores.shape))
    share = _validate.fraction(coverage, "coverage") * scores.size
    # 0.07 · 100 is a little over 7 in binary, and still means seven examples.
    accepted = max(1, math.ceil(share * (1 - 1e-12)))
    i = int(np.searchsorted(end, accepted))
    start, before = (int(end[i - 1]), float(loss[i - 1])) if i else (0, 0.0)
    share_of_tie = (accepted - start) / (int(end[i]) - start)
    return (before + share_of_tie * (float(loss[i]) - before)) / accepted


def coverage_at_risk(kappa: ArrayLike, losses: ArrayLike, risk: float) -> float:
    """Compute the largest coverage whose mean loss is at most `risk`; 0 if there is none.

    Tied examples are accepted together, as by any threshold. This describes the examples given; for
    a promise about new ones, use `Threshold.at_risk`.

    Examples
    --------
    >>> coverage_at_risk([0.9, 0.8, 0.7, 0.6], [0, 0, 1, 1], 0.4)
    0.75
    """
    scores = _validate.kappa(kappa)
    values = _validate.losses(losses, scores.shape)
    _, end, loss = tie_groups(scores, values)
    # Sums of losses such as 0.1 are off in their last bit.
    limit = _validate.at_least(risk, 0, "risk") * (1 + 1e-12)
    if limit > 1 and values.dtype == np.bool_:
        _validate.fraction(risk, "risk")  # refuses 5 for 5 %
    fits = np.flatnonzero(loss / end <= limit)
    return float(end[fits[-1]] / end[-1]) if fits.size else 0.0
