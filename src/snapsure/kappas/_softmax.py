"""Softmax response: what the network itself gives as the probability of its answer."""

from typing import Any

from snapsure._types import Floats, Ints
from snapsure.kappas._base import Kappa, softmax_of
from snapsure.networks._forward import Forward


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
        """It has no settings."""
        return {}

    def score(self, forward: Forward, y_hat: Ints, prepared: Any) -> Floats:
        """Softmax of the chosen class."""
        return softmax_of(forward.logits, y_hat)
