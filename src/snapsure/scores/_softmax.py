"""Softmax response: what the network itself gives as the probability of its answer."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from snapsure.scores._base import Forward, Kappa, Values, softmax_of


class SoftmaxResponse(Kappa):
    """κ = softmax(logits)[y_hat], in float64.

    Computed as 1 minus the other classes where it is large, so that confident points keep their
    order instead of collapsing onto 1.0.
    """

    @property
    def name(self) -> str:
        """`softmax`."""
        return "softmax"

    @property
    def settings(self) -> dict[str, Any]:
        """None."""
        return {}

    def score(self, forward: Forward, y_hat: NDArray[np.int64], prepared: Any) -> Values:
        """Softmax of the chosen class."""
        values: Values = softmax_of(forward.logits, y_hat).cpu().numpy()
        return values
