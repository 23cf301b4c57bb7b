"""Areas under the risk-coverage curve: AURC, E-AURC, AUGRC and the normalised E-AURC.

Section 3 of the paper, which does not treat ties: `ties="expected"` is the mean over all orders of
the tied examples, `ties="threshold"` accepts tied examples together. Neither depends on the order
of the rows.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, get_args, overload

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _validate
from snapsure._types import Bools, Floats, Losses, Optimal, Scores, Ties
from snapsure.errors import InvalidInput
from snapsure.metrics._rank import ErrorBlock, expected_losses, reduce_errors, tie_groups
from snapsure.metrics._weights import HARMONIC, LINEAR, Weights

# Type checkers read an array whose number of axes they do not know as `Row`.
Row = Sequence[float] | np.ndarray[tuple[int], np.dtype[Any]]
Rows = Sequence[Sequence[float]] | np.ndarray[tuple[int, int], np.dtype[Any]]

_BLOCK = 1 << 15


@overload
def aurc(kappa: Row, losses: ArrayLike, *, ties: Ties = ...) -> float: ...
@overload
def aurc(kappa: Rows, losses: ArrayLike, *, ties: Ties = ...) -> Floats: ...
@overload
def aurc(kappa: ArrayLike, losses: ArrayLike, *, ties: Ties = ...) -> float | Floats: ...
def aurc(kappa: ArrayLike, losses: ArrayLike, *, ties: Ties = "expected") -> float | Floats:
    """Compute the area under the risk-coverage curve.

    (1/n) Σᵢ (mean loss of the i most confident examples)

    Parameters
    ----------
    kappa : (n,) or (T, n)
        Confidence, higher is more confident; one row per snapshot.
    losses : (n,)
        0/1 errors, or any loss ≥ 0.
    ties : "expected" or "threshold"
        Average over all orders of tied examples (in closed form), or accept them together.

    Returns
    -------
    float for κ of shape (n,), an array (T,) for (T, n).

    Raises
    ------
    InvalidInput
        For NaN, infinite or empty input, shapes that differ, negative losses.

    Examples
    --------
    Only the most confident of four answers is wrong: (1 + 1/2 + 1/3 + 1/4) / 4.

    >>> round(aurc([0.9, 0.8, 0.7, 0.6], [1, 0, 0, 0]), 6)
    0.520833
    """
    return _compute(kappa, losses, HARMONIC, ties)


@overload
def augrc(kappa: Row, losses: ArrayLike, *, ties: Ties = ...) -> float: ...
@overload
def augrc(kappa: Rows, losses: ArrayLike, *, ties: Ties = ...) -> Floats: ...
@overload
def augrc(kappa: ArrayLike, losses: ArrayLike, *, ties: Ties = ...) -> float | Floats: ...
def augrc(kappa: ArrayLike, losses: ArrayLike, *, ties: Ties = "expected") -> float | Floats:
    """Compute the area under the generalised risk-coverage curve (Traub et al. 2024).

    (1/n) Σᵢ (summed loss of the i most confident examples) / n: the risk is not divided by the
    coverage, so that one confident mistake does not dominate. Arguments as for `aurc`.

    Examples
    --------
    >>> augrc([0.9, 0.8, 0.7, 0.6], [1, 0, 0, 0])
    0.25
    """
    return _compute(kappa, losses, LINEAR, ties)


@overload
def eaurc(kappa: Row, losses: ArrayLike, *, ties: Ties = ..., optimal: Optimal = ...) -> float: ...
@overload
def eaurc(
    kappa: Rows, losses: ArrayLike, *, ties: Ties = ..., optimal: Optimal = ...
) -> Floats: ...
@overload
def eaurc(
    kappa: ArrayLike, losses: ArrayLike, *, ties: Ties = ..., optimal: Optimal = ...
) -> float | Floats: ...
def eaurc(
    kappa: ArrayLike, losses: ArrayLike, *, ties: Ties = "expected", optimal: Optimal = "exact"
) -> float | Floats:
    """Compute the excess AURC over the best order in hindsight, AURC(κ) − AURC(κ*).

    It sums how far each error ranks above its place in the best order: never negative, and exactly
    0 for a perfect ranking. `optimal="integral"` subtracts the paper's approximation of AURC(κ*)
    instead (0/1 errors only; the result can fall a little below 0). Arguments as for `aurc`.

    Examples
    --------
    >>> eaurc([0.9, 0.8, 0.2], [0, 0, 1])
    0.0
    >>> round(eaurc([0.9, 0.8, 0.2], [1, 0, 0]), 6)
    0.5
    """
    _validate.choice(optimal, get_args(Optimal), "optimal")
    if optimal == "integral":
        return aurc(kappa, losses, ties=ties) - aurc_optimal(losses, method="integral")
    return _compute(kappa, losses, HARMONIC, ties, excess=True)


@overload
def naurc(kappa: Row, losses: ArrayLike, *, ties: Ties = ...) -> float: ...
@overload
def naurc(kappa: Rows, losses: ArrayLike, *, ties: Ties = ...) -> Floats: ...
@overload
def naurc(kappa: ArrayLike, losses: ArrayLike, *, ties: Ties = ...) -> float | Floats: ...
def naurc(kappa: ArrayLike, losses: ArrayLike, *, ties: Ties = "expected") -> float | Floats:
    """Compute E-AURC relative to the gap between the best order and a random one.

    0 is the best order in hindsight, 1 is the average of a random order, more is worse than random.
    Where every order is equally good (all losses are equal) it is 0. Arguments as for `aurc`.

    Examples
    --------
    >>> round(naurc([0.5, 0.5, 0.5, 0.5], [1, 0, 0, 1]), 6)
    1.0
    """
    excess = eaurc(kappa, losses, ties=ties)
    loss = _subtract_least(_validate.losses(losses))
    # Sorted, because the rounding of a mean depends on the order of its rows.
    gap = float(np.sort(loss).mean()) - _exact_optimal(loss)
    return excess / gap if gap > 0 else excess * 0.0


def aurc_optimal(losses: ArrayLike, *, method: Optimal = "exact") -> float:
    """Compute the AURC of κ*, the best order in hindsight: examples by their loss.

    `method="exact"` is the sum (equation 3 of the paper), "integral" its approximation
    r + (1 − r) ln(1 − r) for 0/1 errors of rate r. `losses` as for `aurc`.

    Examples
    --------
    The paper's example, 2,934 errors in 10,000 examples:

    >>> errors = [1] * 2934 + [0] * 7066
    >>> f"{aurc_optimal(errors):.5f} {aurc_optimal(errors, method='integral'):.5f}"
    '0.04802 0.04800'
    """
    _validate.choice(method, get_args(Optimal), "method")
    loss = _validate.losses(losses)
    if method == "exact":
        return _exact_optimal(loss)
    if loss.dtype != np.bool_:
        raise InvalidInput(
            "`losses` must be 0/1 errors for the integral, got "
            f'{loss[(loss != 0) & (loss != 1)][0]}. Use the exact sum, method="exact" '
            '(in `eaurc`: optimal="exact").'
        )
    rate = float(loss.mean())
    return rate + (1 - rate) * float(np.log1p(-rate)) if rate < 1 else 1.0


def _exact_optimal(losses: Losses) -> float:
    if losses.dtype == np.bool_:
        return optimal_area(losses.size, int(np.count_nonzero(losses)))
    return float(np.mean(np.cumsum(np.sort(losses)) / np.arange(1, losses.size + 1)))


def optimal_area(n: int, errors: int) -> float:
    """Compute the AURC of n examples whose errors all rank last."""
    i = np.arange(1, errors + 1)
    return float(np.sum(i / (n - errors + i))) / n


def _compute(
    kappa: ArrayLike, losses: ArrayLike, weights: Weights, ties: Ties, *, excess: bool = False
) -> float | Floats:
    """Compute the area of each row of κ, or its excess; return one number for one row."""
    _validate.choice(ties, get_args(Ties), "ties")
    scores = _validate.kappa(kappa, ndim=(1, 2))
    loss = _validate.losses(losses, scores.shape)
    rows, exponent = np.atleast_2d(scores), 0
    if loss.dtype != np.bool_:  # scaled by a power of two, which is exact: no sum overflows
        exponent = int(np.frexp(loss.max())[1])
        loss = np.ldexp(loss, -exponent)
    if excess:
        loss = _subtract_least(loss)

    if ties == "threshold":
        areas = _average_thresholds(rows, loss, weights, excess)
    elif loss.dtype == np.bool_:
        areas = reduce_errors(rows, loss, partial(_sum_errors, loss, weights, excess))
    else:
        areas = _sum_losses(rows, loss, weights, excess)
    areas = np.ldexp(np.maximum(0.0, areas) + 0.0, exponent)
    return float(areas[0]) if scores.ndim == 1 else areas


def _sum_errors(
    errors: Bools, weights: Weights, excess: bool, blocks: Iterable[ErrorBlock]
) -> Floats:
    """Sum φ(n) − φ(place) over the errors of each row.

    The excess has φ of the best order instead of φ(n): its j-th of E errors has place n − E + j.
    """
    n, total = errors.size, np.zeros(1)
    top, end = weights.span(n, n + 1), n - int(np.count_nonzero(errors))
    for block in blocks:
        if excess:
            start, end = end, end + block.places.shape[1]
            top = weights.span(start, end)
        above = weights.at(block.places)
        np.subtract(top, above, out=above)
        added = above.sum(axis=1)
        if block.row.size:  # an error, sorted last within a tie, ranks higher on average
            gain = weights.rise(block.start, block.middle, block.end)
            gain *= block.end - block.middle
            added += np.bincount(block.row, weights=gain, minlength=len(added))
        total = total + added
    return total / weights.scale(n)


def _sum_losses(rows: Scores, losses: Floats, weights: Weights, excess: bool) -> Floats:
    """Sum (φ(n) − φ(place)) · loss over each row; the excess, −φ(place) · (loss − best loss)."""
    n, totals = losses.size, np.zeros(len(rows))
    best = np.sort(losses) if excess else np.zeros(1)
    top = 0.0 if excess else float(weights.span(n, n + 1)[0])
    for i, row in enumerate(rows):
        ranked = expected_losses(row, losses) - best
        for low in range(0, n, _BLOCK):  # a block fits in the cache
            part = ranked[low : low + _BLOCK]
            totals[i] += float((top - weights.span(low, low + part.size)) @ part)
    return totals / weights.scale(n)


def _average_thresholds(rows: Scores, losses: Losses, weights: Weights, excess: bool) -> Floats:
    """Average the risk of {κ ≥ κᵢ} over the examples i, or how far it is above the best order's."""
    n, best = losses.size, np.zeros(1)
    if excess:
        best = np.cumsum(np.sort(losses), dtype=np.float64) / np.arange(1, n + 1)
    areas = []
    for row in rows:
        _, end, loss = tie_groups(row, losses)
        risks = np.repeat(weights.risk(loss, end, n), np.diff(end, prepend=0))
        areas.append(np.mean(risks - best))
    return np.array(areas)


def _subtract_least(losses: Losses) -> Losses:
    """Subtract the least loss: no excess changes, and a common offset costs no digits."""
    return losses if losses.dtype == np.bool_ else losses - losses.min()
