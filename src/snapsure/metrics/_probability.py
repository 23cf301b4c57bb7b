"""How good a probability of being right is."""

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _validate
from snapsure._types import Bools, Floats


def nll(p: ArrayLike, errors: ArrayLike) -> float:
    """Compute the mean negative log-likelihood of "was right".

    It is infinite where an outcome that happened had probability 0.

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
    return float(log_losses(*_validate_pair(p, errors)).mean())


def brier(p: ArrayLike, errors: ArrayLike) -> float:
    """Compute the mean squared distance of p from the outcome. Arguments as for `nll`.

    Examples
    --------
    >>> brier([1.0, 0.5], [0, 1])
    0.125
    """
    return float(squared_distances(*_validate_pair(p, errors)).mean())


def ece(p: ArrayLike, errors: ArrayLike, bins: int = 15) -> float:
    """Compute the expected calibration error: the mean gap between p and accuracy over bins.

    `bins` is the number of bins (lower, upper] of equal width. Other arguments as for `nll`.

    Examples
    --------
    >>> ece([0.75, 0.75, 0.75, 0.75], [0, 0, 0, 1])
    0.0
    """
    probability, wrong = _validate_pair(p, errors)
    bins = _validate.count(bins, "bins")
    at = np.searchsorted(np.arange(1, bins) / bins, probability)
    gaps = np.bincount(at, weights=probability - ~wrong, minlength=bins)
    return float(np.abs(gaps).sum() / probability.size)


def log_losses(probability: Floats, wrong: Bools) -> Floats:
    """Return what each example adds to the NLL."""
    with np.errstate(divide="ignore"):
        losses: Floats = 0.0 - np.where(wrong, np.log1p(-probability), np.log(probability))
    return losses


def squared_distances(probability: Floats, wrong: Bools) -> Floats:
    """Return what each example adds to the Brier score."""
    distances: Floats = (probability - ~wrong) ** 2
    return distances


def _validate_pair(p: ArrayLike, errors: ArrayLike) -> tuple[Floats, Bools]:
    probability = _validate.probabilities(p)
    return probability, _validate.errors(errors, probability.shape, of="p")
