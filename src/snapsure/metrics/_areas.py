"""Areas under the risk-coverage curve: AURC, E-AURC, AUGRC and the normalised E-AURC.

Section 3 of the paper, which does not treat ties: `ties="expected"` is the mean over all orders of
the tied examples, `ties="threshold"` accepts tied examples together. Neither depends on the order
of the rows.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol, get_args, overload

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


class _Area(Protocol):
    def __call__(self, rows: Scores, losses: Losses, weights: Weights) -> Floats: ...


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
    _validate.choice(ties, get_args(Ties), "ties")
    area = _threshold_area if ties == "threshold" else _expected_area
    return _compute(area, HARMONIC, kappa, losses)


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
    _validate.choice(ties, get_args(Ties), "ties")
    area = _threshold_area if ties == "threshold" else _expected_area
    return _compute(area, LINEAR, kappa, losses)


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

    It is not computed as a difference of two areas but from how far each error ranks above its
    place in the best order: never negative, and exactly 0 for a perfect ranking. Arguments as for
    `aurc`.

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
    excess = _threshold_excess if ties == "threshold" else _expected_excess
    return _compute(excess, HARMONIC, kappa, losses)


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

    Parameters
    ----------
    losses : (n,)
        0/1 errors, or any loss ≥ 0.
    method : "exact" or "integral"
        The sum (equation 3 of the paper), or its approximation r + (1 − r) ln(1 − r) for an error
        rate r.

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


def _compute(area: _Area, weights: Weights, kappa: ArrayLike, losses: ArrayLike) -> float | Floats:
    """Compute the area of each row of κ; return one number for one row."""
    scores = _validate.kappa(kappa, ndim=(1, 2))
    loss = _validate.losses(losses, scores.shape)
    rows = scores[None] if scores.ndim == 1 else scores

    if loss.dtype == np.bool_:
        areas = area(rows, loss, weights)
    else:  # scaled by a power of two, which is exact, so that weighted sums cannot overflow
        exponent = int(np.frexp(loss.max())[1])
        areas = np.ldexp(area(rows, np.ldexp(loss, -exponent), weights), exponent)
    return float(areas[0]) if scores.ndim == 1 else areas


def _expected_area(rows: Scores, losses: Losses, weights: Weights) -> Floats:
    n = losses.size
    top = weights.span(n, n + 1)
    if losses.dtype == np.bool_:

        def sum_blocks(blocks: Iterable[ErrorBlock]) -> Floats:
            """Sum φ(n) − φ(place) over the errors of each row."""
            sums = ((top - weights.at(b.places)).sum(axis=1) + _untie(b, weights) for b in blocks)
            return np.asarray(sum(sums)) / weights.scale(n)

        return reduce_errors(rows, losses, sum_blocks)
    totals = [_weigh(expected_losses(row, losses), weights, float(top[0])) for row in rows]
    return np.array(totals) / weights.scale(n)


def _expected_excess(rows: Scores, losses: Losses, weights: Weights) -> Floats:
    if losses.dtype == np.bool_:
        return reduce_errors(rows, losses, partial(_sum_excess, errors=losses, weights=weights))
    losses = _subtract_least(losses)
    best = np.sort(losses)
    totals = [-_weigh(best - expected_losses(row, losses), weights, 0.0) for row in rows]
    return np.maximum(0.0, np.array(totals) / losses.size) + 0.0


def _sum_excess(blocks: Iterable[ErrorBlock], errors: Bools, weights: Weights) -> Floats:
    """Sum how far E errors rank above the best order, whose j-th error has place n − E + j."""
    total, best = np.zeros(1), errors.size - int(np.count_nonzero(errors))
    for block in blocks:
        above, end = weights.at(block.places), best + block.places.shape[1]
        np.subtract(weights.span(best, end), above, out=above)
        total = total + above.sum(axis=1) + _untie(block, weights)
        best = end
    return np.maximum(0.0, total / errors.size)


def _untie(block: ErrorBlock, weights: Weights) -> Floats:
    """Return what ties add: an error, sorted last within a tie, ranks higher on average."""
    if not block.row.size:
        return np.zeros(len(block.places))
    gain = weights.rise(block.start, block.middle, block.end)
    gain *= block.end - block.middle
    added = np.bincount(block.row, weights=gain, minlength=len(block.places))
    return added.astype(np.float64, copy=False)


def _weigh(ranked: Floats, weights: Weights, top: float) -> float:
    """Sum (top − φ(place)) · loss over losses in their order, block by block."""
    total = 0.0
    for low in range(0, ranked.size, _BLOCK):
        part = ranked[low : low + _BLOCK]
        total += float((top - weights.span(low, low + part.size)) @ part)
    return total


def _subtract_least(losses: Losses) -> Losses:
    """Subtract the least loss: no excess changes, and a common offset costs no digits."""
    return losses if losses.dtype == np.bool_ else losses - losses.min()


def _threshold_area(rows: Scores, losses: Losses, weights: Weights) -> Floats:
    return np.array([np.mean(_threshold_risks(row, losses, weights)) for row in rows])


def _threshold_excess(rows: Scores, losses: Losses, weights: Weights) -> Floats:
    losses = _subtract_least(losses)
    best = np.cumsum(np.sort(losses), dtype=np.float64) / np.arange(1, losses.size + 1)
    excess = [np.mean(_threshold_risks(row, losses, weights) - best) for row in rows]
    return np.maximum(0.0, excess)


def _threshold_risks(kappa: Scores, losses: Losses, weights: Weights) -> Floats:
    """Return the risk of {κ ≥ κᵢ} for each example i, most confident first."""
    _, end, loss = tie_groups(kappa, losses)
    return np.repeat(weights.risk(loss, end, kappa.size), np.diff(end, prepend=0))
