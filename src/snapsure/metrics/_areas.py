"""Areas under the risk-coverage curve: AURC, E-AURC, AUGRC and the normalised E-AURC.

κ higher is surer; losses lower is better. Section 3 of the paper, with its silence on ties filled:
`ties="expected"` is the mean over all orders of the tied points, `ties="threshold"` accepts tied
points together. Row order changes neither.
"""

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _validate
from snapsure._types import Floats, Losses, Optimal, Scores, Ties
from snapsure.errors import InvalidInput
from snapsure.metrics._error_areas import error_area, error_excess
from snapsure.metrics._rank import expected_losses, tie_groups
from snapsure.metrics._weights import HARMONIC, LINEAR, Weights

Area = Callable[[Scores, Losses], Floats]

# A float for κ of shape (n,), an array for (T, n). Type checkers do not see the number of axes, so
# that a union or overloads would have every caller say which of the two theirs is.
AreaOfRows = Any

_BLOCK = 1 << 15


def aurc(kappa: ArrayLike, losses: ArrayLike, *, ties: Ties = "expected") -> AreaOfRows:
    """Area under the risk-coverage curve, (1/n) Σᵢ (mean loss of the i most confident points).

    Parameters
    ----------
    kappa : (n,) or (T, n)
        Confidence, higher is surer; one row per snapshot.
    losses : (n,)
        0/1 errors, or any loss ≥ 0.
    ties : "expected" or "threshold"
        Tied points in a random order (its mean, in closed form), or accepted together.

    Returns
    -------
    float for κ of shape (n,), an array (T,) for (T, n).

    Raises
    ------
    InvalidInput
        For NaN, infinite or empty input, shapes that differ, negative losses.

    Examples
    --------
    Only the most confident of four points is wrong: (1 + 1/2 + 1/3 + 1/4) / 4.

    >>> round(aurc([0.9, 0.8, 0.7, 0.6], [1, 0, 0, 0]), 6)
    0.520833
    """
    _validate.choice(ties, get_args(Ties), "ties")
    if ties == "threshold":
        return _by_row(lambda k, loss: _threshold_area(k, loss, HARMONIC), kappa, losses)
    return _by_row(lambda k, loss: _expected_area(k, loss, HARMONIC), kappa, losses)


def augrc(kappa: ArrayLike, losses: ArrayLike, *, ties: Ties = "expected") -> AreaOfRows:
    """Area under the generalised risk-coverage curve (Traub et al. 2024).

    (1/n) Σᵢ (summed loss of the i most confident points) / n: the risk is not divided by the
    coverage, so that a single sure mistake does not dominate. Arguments as for `aurc`.

    Examples
    --------
    >>> augrc([0.9, 0.8, 0.7, 0.6], [1, 0, 0, 0])
    0.25
    """
    _validate.choice(ties, get_args(Ties), "ties")
    if ties == "threshold":
        return _by_row(lambda k, loss: _threshold_area(k, loss, LINEAR), kappa, losses)
    return _by_row(lambda k, loss: _expected_area(k, loss, LINEAR), kappa, losses)


def eaurc(
    kappa: ArrayLike, losses: ArrayLike, *, ties: Ties = "expected", optimal: Optimal = "exact"
) -> AreaOfRows:
    """Excess AURC over the best order in hindsight, AURC(κ) − AURC(κ*).

    Not computed as a difference of two areas, but by how far each error stands above its place in
    the best order: never negative, and exactly 0 for a perfect ranking. Arguments as for `aurc`.

    Parameters
    ----------
    optimal : "exact" or "integral"
        "integral" subtracts the paper's approximation of AURC(κ*) instead (0/1 errors only; the
        result can then fall a little below 0).

    Examples
    --------
    >>> eaurc([0.9, 0.8, 0.2], [0, 0, 1])
    0.0
    >>> round(eaurc([0.9, 0.8, 0.2], [1, 0, 0]), 6)
    0.5
    """
    _validate.choice(ties, get_args(Ties), "ties")
    _validate.choice(optimal, get_args(Optimal), "optimal")
    if optimal == "integral":
        return aurc(kappa, losses, ties=ties) - aurc_optimal(losses, method="integral")
    return _by_row(_threshold_excess if ties == "threshold" else _expected_excess, kappa, losses)


def naurc(kappa: ArrayLike, losses: ArrayLike, *, ties: Ties = "expected") -> AreaOfRows:
    """E-AURC over the gap between the best order and a random one.

    0 is the best order in hindsight, 1 is what a random order gives on average, more is worse than
    random. Where every order is equal (all losses the same) it is 0. Arguments as for `aurc`.

    Examples
    --------
    >>> round(naurc([0.5, 0.5, 0.5, 0.5], [1, 0, 0, 1]), 6)
    1.0
    """
    excess = eaurc(kappa, losses, ties=ties)
    loss = _from_zero(_validate.losses(losses))
    # Sorted, because the rounding of a mean depends on the order of its rows.
    gap = float(np.sort(loss).mean()) - _optimal(loss)
    return excess / gap if gap > 0 else excess * 0.0


def aurc_optimal(losses: ArrayLike, *, method: Optimal = "exact") -> float:
    """AURC of κ*, the best order in hindsight: the points by their loss.

    Parameters
    ----------
    losses : (n,)
        0/1 errors, or any loss ≥ 0.
    method : "exact" or "integral"
        The sum (equation 3 of the paper), or its approximation r + (1 − r) ln(1 − r) for an error
        rate r.

    Examples
    --------
    The paper's example, 2,934 errors in 10,000 points:

    >>> errors = [1] * 2934 + [0] * 7066
    >>> f"{aurc_optimal(errors):.5f} {aurc_optimal(errors, method='integral'):.5f}"
    '0.04802 0.04800'
    """
    _validate.choice(method, get_args(Optimal), "method")
    loss = _validate.losses(losses)
    if method == "exact":
        return _optimal(loss)
    if loss.dtype != np.bool_:
        raise InvalidInput(
            "`losses` must be 0/1 errors for the integral, "
            f"got {loss[(loss != 0) & (loss != 1)][0]}: "
            'use the exact sum, method="exact" (in `eaurc`: optimal="exact")'
        )
    rate = float(loss.mean())
    return rate + (1 - rate) * float(np.log1p(-rate)) if rate < 1 else 1.0


def _by_row(area: Area, kappa: ArrayLike, losses: ArrayLike) -> float | Floats:
    scores = _validate.kappa(kappa, ndim=(1, 2))
    loss = _validate.losses(losses, scores.shape)
    rows = scores[None] if scores.ndim == 1 else scores
    if loss.dtype == np.bool_:
        areas = area(rows, loss)
    else:  # in units of a power of two, which rounds nothing: weighed sums are never too large
        exponent = int(np.frexp(loss.max())[1])
        areas = np.ldexp(area(rows, np.ldexp(loss, -exponent)), exponent)
    return float(areas[0]) if scores.ndim == 1 else areas


def _expected_area(rows: Scores, losses: Losses, weights: Weights) -> Floats:
    if losses.dtype == np.bool_:
        return error_area(rows, losses, weights)
    n = losses.size
    top = float(weights.span(n, n + 1)[0])
    total = [_weigh(expected_losses(row, losses), weights, top) for row in rows]
    return np.array(total) / weights.scale(n)


def _expected_excess(rows: Scores, losses: Losses) -> Floats:
    if losses.dtype == np.bool_:
        return error_excess(rows, losses)
    losses = _from_zero(losses)
    best = np.sort(losses)
    total = [-_weigh(best - expected_losses(row, losses), HARMONIC, 0.0) for row in rows]
    return np.maximum(0.0, np.array(total) / losses.size) + 0.0


def _weigh(ranked: Floats, weights: Weights, top: float) -> float:
    """Σ (top − φ(place)) · loss over losses in their order, block by block."""
    total = 0.0
    for low in range(0, ranked.size, _BLOCK):
        part = ranked[low : low + _BLOCK]
        total += float((top - weights.span(low, low + part.size)) @ part)
    return total


def _from_zero(losses: Losses) -> Losses:
    """Losses less the smallest: no excess changes, and nothing is lost to a common height."""
    return losses if losses.dtype == np.bool_ else losses - losses.min()


def _threshold_area(rows: Scores, losses: Losses, weights: Weights) -> Floats:
    return np.array([np.mean(_threshold_risks(row, losses, weights)) for row in rows])


def _threshold_excess(rows: Scores, losses: Losses) -> Floats:
    losses = _from_zero(losses)
    best = np.cumsum(np.sort(losses), dtype=np.float64) / np.arange(1, losses.size + 1)
    excess = [np.mean(_threshold_risks(row, losses, HARMONIC) - best) for row in rows]
    return np.maximum(0.0, excess)


def _threshold_risks(kappa: Scores, losses: Losses, weights: Weights) -> Floats:
    """The risk of {κ ≥ κᵢ} for each point i, from the surest on."""
    _, end, loss = tie_groups(kappa, losses)
    return np.repeat(weights.risk(loss, end, kappa.size), np.diff(end, prepend=0))


def _optimal(losses: Losses) -> float:
    n = losses.size
    if losses.dtype == np.bool_:
        errors = int(np.count_nonzero(losses))
        i = np.arange(1, errors + 1)
        return float(np.sum(i / (n - errors + i))) / n
    return float(np.mean(np.cumsum(np.sort(losses)) / np.arange(1, n + 1)))
