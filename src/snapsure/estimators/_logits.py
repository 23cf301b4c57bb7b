"""What works on logits alone, in NumPy: the softmax response, and GEN."""

import numpy as np

from snapsure import _validate
from snapsure._logistic import log_odds, sigmoid
from snapsure._types import Floats, Ints
from snapsure.errors import InvalidInput
from snapsure.table import ScoreTable

# Squares of logits, and logits over a small temperature, must still be float64.
_LARGEST = 1e150


def logits_of(table: ScoreTable) -> Floats:
    """The final snapshot's logits, of two classes or more, of a size to be squared."""
    if table.logits is None:
        raise InvalidInput(
            "`table` must have the final snapshot's logits, got one without: make it by "
            "ScoreTable(..., logits=...)"
        )
    if table.logits.shape[1] < 2:
        raise InvalidInput(
            "`table` must have logits of at least two classes, got one column: for a model of two "
            "classes with one logit z, pass np.column_stack([0 * z, z])"
        )
    if max(table.logits.max(), -table.logits.min()) > _LARGEST:
        row, at = np.argwhere(np.abs(table.logits) > _LARGEST)[0]
        raise InvalidInput(
            f"`table` must have logits within ±{_LARGEST:g}, got {table.logits[row, at]:g} at "
            f"class {at} of row {row}: the network has diverged; take an earlier snapshot"
        )
    return table.logits


def labels_of(table: ScoreTable) -> Ints:
    """True classes, each one that the logits have, or −1 for none of them."""
    assert table.y is not None  # `fit` has asked for errors
    _validate.in_range(table.y, logits_of(table).shape[1], "`y`")
    return table.y


def top_log_odds(logits: Floats) -> Floats:
    """Log-odds of each row's largest softmax: its order, where the softmax itself rounds to 1."""
    return log_odds(logits, logits.argmax(axis=1))


def softmax_response(logits: Floats) -> Floats:
    """The largest softmax of each row."""
    return sigmoid(top_log_odds(logits))


def gen(logits: Floats, gamma: float = 0.1, top: int = 100) -> Floats:
    """1 − G / G_most of each row; `scores.GEN` says what that is.

    1 − p of the largest class is taken from the others alone. Nearly certain rows stay apart.
    """
    gap = logits - logits.max(axis=1, keepdims=True)
    largest = gap.argmax(axis=1)[:, None]
    weight = np.exp(gap)
    np.put_along_axis(weight, largest, 0, axis=1)
    missing = weight.sum(axis=1, keepdims=True)
    rest = 1 + missing - weight  # (1 − p) (1 + missing)
    np.put_along_axis(rest, largest, missing, axis=1)
    with np.errstate(divide="ignore"):  # where nothing is missing, its term is 0
        terms = np.exp(gamma * (gap + np.log(rest) - 2 * np.log1p(missing)))
    top = min(top, gap.shape[1])
    if top < gap.shape[1]:
        terms = -np.partition(-terms, top - 1, axis=1)[:, :top]
    kappa: Floats = np.clip(1 - terms.sum(axis=1) / (top * 0.25**gamma), 0, 1)
    return kappa
