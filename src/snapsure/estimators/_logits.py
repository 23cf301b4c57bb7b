"""What rivals that work on logits share: the softmax response in NumPy."""

from snapsure import _validate
from snapsure._logistic import log_odds, sigmoid
from snapsure._types import Floats, Ints
from snapsure.errors import InvalidInput
from snapsure.table import ScoreTable


def logits_of(table: ScoreTable) -> Floats:
    """The final snapshot's logits."""
    if table.logits is None:
        raise InvalidInput(
            "`table` must have the final snapshot's logits, got one without: make it by "
            "ScoreTable(..., logits=...)"
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
