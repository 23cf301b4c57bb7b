"""How good a probability of being right is. p: higher is surer. errors: 0 right, 1 wrong."""

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _validate
from snapsure._types import Bools, Floats


def nll(p: ArrayLike, errors: ArrayLike) -> float:
    """Mean negative log-likelihood of "was right".

    Infinite where an outcome that happened was given probability 0.

    Parameters
    ----------
    p : (n,)
        Probability that the prediction is right.
    errors : (n,)
        1 where it was wrong.

    Examples
    --------
    >>> round(nll([0.5, 0.5], [0, 1]), 4)
    0.6931
    """
    return float(log_losses(*_pair(p, errors)).mean())


def brier(p: ArrayLike, errors: ArrayLike) -> float:
    """Mean squared distance of p from what happened. Arguments as for `nll`.

    Examples
    --------
    >>> brier([1.0, 0.5], [0, 1])
    0.125
    """
    return float(squared_distances(*_pair(p, errors)).mean())


def ece(p: ArrayLike, errors: ArrayLike, bins: int = 15) -> float:
    """Expected calibration error: mean gap of p and accuracy over equal-width bins (lower, upper].

    Arguments as for `nll`; `bins` is their number.

    Examples
    --------
    >>> ece([0.75, 0.75, 0.75, 0.75], [0, 0, 0, 1])
    0.0
    """
    probability, wrong = _pair(p, errors)
    bins = _validate.count(bins, "bins")
    at = np.searchsorted(np.arange(1, bins) / bins, probability)
    gaps = np.bincount(at, weights=probability - ~wrong, minlength=bins)
    return float(np.abs(gaps).sum() / probability.size)


def log_losses(probability: Floats, wrong: Bools) -> Floats:
    """What each point adds to the NLL."""
    with np.errstate(divide="ignore"):
        losses: Floats = 0.0 - np.where(wrong, np.log1p(-probability), np.log(probability))
    return losses


def squared_distances(probability: Floats, wrong: Bools) -> Floats:
    """What each point adds to the Brier score."""
    distances: Floats = (probability - ~wrong) ** 2
    return distances


def _pair(p: ArrayLike, errors: ArrayLike) -> tuple[Floats, Bools]:
    probability = _validate.probabilities(p)
    return probability, _validate.errors(errors, probability.shape, of="p")
