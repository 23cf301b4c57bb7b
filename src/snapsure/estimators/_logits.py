"""What rivals that work on logits share: the softmax response in NumPy."""

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
