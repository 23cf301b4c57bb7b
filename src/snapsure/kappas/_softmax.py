"""Softmax response: the probability that the network itself gives to the prediction."""

from typing import Any

from snapsure._types import Floats, Ints
from snapsure.kappas._base import Kappa, softmax_of
from snapsure.networks._forward import Forward


class SoftmaxResponse(Kappa):
    """κ = softmax(logits)[y_hat], in float64.

    Large values are computed as 1 minus the other classes, so that confident examples keep their
    order instead of collapsing onto 1.0.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> from snapsure import SnapshotStore, score
    >>> model, store = torch.nn.Linear(3, 2), SnapshotStore(tempfile.mkdtemp())
    >>> store.save(model, epoch=1)
    >>> table = score(model, store, torch.rand(5, 3), SoftmaxResponse(), progress=False)
    >>> bool((table.kappa("softmax") >= 0.5).all())  # the larger of two probabilities
    True
    """

    name = "softmax"

    @property
    def settings(self) -> dict[str, Any]:
        """No settings."""
        return {}

    def score(self, forward: Forward, y_hat: Ints, prepared: Any) -> Floats:
        """Return the softmax of the predicted class."""
        return softmax_of(forward.logits, y_hat)
