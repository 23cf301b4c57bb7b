"""What rivals that work on logits share: the softmax response in NumPy."""

import numpy as np
from numpy.typing import NDArray

from snapsure._logistic import sigmoid

Floats = NDArray[np.float64]


def log_odds(logits: Floats) -> Floats:
    """Log-odds of each row's largest softmax: its order, where the softmax itself rounds to 1."""
    others = logits - logits.max(axis=1, keepdims=True)
    others[np.arange(len(others)), logits.argmax(axis=1)] = -np.inf
    top = others.max(axis=1)
    odds: Floats = -(top + np.log(np.exp(others - top[:, None]).sum(axis=1)))
    return odds


def softmax_response(logits: Floats) -> Floats:
    """The largest softmax of each row."""
    return sigmoid(log_odds(logits))
