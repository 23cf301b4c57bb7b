"""SPTD: how often, and how late, snapshots disagree with the final answer."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from snapsure import _validate
from snapsure._types import Floats, Ints
from snapsure.errors import InvalidInput
from snapsure.estimators._base import Estimator, State, rising
from snapsure.table import ScoreTable


class SPTD(Estimator):
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
    >>> table = ScoreTable({"softmax": [[0.5] * 3] * 4}, labels)
    >>> SPTD(k=1).confidence(table).tolist()  # disagreement of weight 0, 1 and 1 + 2 of 10
    [1.0, 0.9, 0.7]
    """

    learns: ClassVar[bool] = False
    of_kappa: ClassVar[bool] = False

    def __init__(self, k: float = 2.0) -> None:
        super().__init__()
        self.k = _validate.at_least(k, 0, "k")

    @property
    def settings(self) -> dict[str, Any]:
        """Its k."""
        return {"k": self.k}

    def snapshots(self, epochs: Sequence[int] | Ints) -> list[int]:
        """All of them."""
        return super().snapshots(epochs) if self._state else rising(epochs).tolist()

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        return {"epochs": table.epochs.tolist()}

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        epochs = table.epochs
        if epochs[0] < 0:
            raise InvalidInput(f"`epochs` must be ≥ 0, got {epochs[0]}: count from 0 or 1")
        weight = (epochs / max(epochs[-1], 1)) ** self.k
        weight[-1] = 1  # also of a run that ends with epoch 0
        # Snapshot by snapshot, not by a matrix product, whose last bit depends on the column:
        # points that the same snapshots doubt are tied.
        doubt, total = np.zeros(table.y_hat.size), 0.0
        for v, labels in zip(weight.tolist(), table.labels, strict=True):
            doubt += v * (labels != table.y_hat)
            total += v
        return 1 - doubt / total
