"""SPTD: how often, and how late, snapshots disagree with the final answer."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from snapsure import _validate
from snapsure.errors import InvalidInput
from snapsure.estimators._table import epochs_of


class SPTD:
    """Confidence = 1 − Σ v a / Σ v over the snapshots; a = 1 where a snapshot's label is not y_hat.

    Rabanser et al. 2022 (Selective Prediction via Training Dynamics), the variant that sums over
    snapshots (not that of the latest disagreement), with their weights v = (t/T)^k, which count
    late disagreement more. Theirs is the sum itself; divided by Σ v it lies in [0, 1] and ranks
    alike. It needs labels of the snapshots and no κ, so many points tie: all that no snapshot ever
    doubted have confidence 1.

    Parameters
    ----------
    k : float
        How late disagreement must be to count, ≥ 0; 0 counts all alike. The default is ours, the
        middle of 1 … 3, where Rabanser's thesis (2025) reports the best results.

    Examples
    --------
    >>> labels = [[0, 1, 2], [0, 0, 2], [0, 0, 1], [0, 0, 1]]
    >>> SPTD(k=1).confidence(labels).tolist()  # disagreement of weight 0, 1 and 1 + 2 of 10
    [1.0, 0.9, 0.7]
    """

    def __init__(self, k: float = 2.0) -> None:
        self.k = _validate.at_least(k, 0, "k")

    def confidence(
        self,
        labels: ArrayLike,
        epochs: ArrayLike | None = None,
        *,
        y_hat: ArrayLike | None = None,
    ) -> NDArray[np.float64]:
        """Agreement with the final answer, (n,).

        Parameters
        ----------
        labels : (T, n)
            What each snapshot itself predicts, the final one last: `ScoreTable.labels`.
        epochs : (T,), optional
            Their epochs; 1 … T if not given.
        y_hat : (n,), optional
            The final classifier's answer, where it is not that of the last snapshot.
        """
        own = _validate.whole_numbers(labels, "labels")
        if own.ndim != 2 or not own.size:
            raise InvalidInput(
                f"`labels` must be (snapshots, n), got shape {own.shape}: pass `table.labels`"
            )
        known = epochs_of(epochs, len(own))
        if known[0] < 0:
            raise InvalidInput(f"`epochs` must be ≥ 0, got {known[0]}: count from 0 or 1")
        final = own[-1] if y_hat is None else _validate.whole_numbers(y_hat, "y_hat")
        _validate.same_length("labels", own.shape, "y_hat", final.size)
        weight = (known / max(known[-1], 1)) ** self.k
        weight[-1] = 1  # also of a run that ends with epoch 0
        agreement: NDArray[np.float64] = weight @ (own == final) / weight.sum()
        return agreement
