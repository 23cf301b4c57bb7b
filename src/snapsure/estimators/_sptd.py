"""SPTD (Rabanser et al. 2022): how often, and how late, snapshots disagree with the final answer.

c(x) = 1 − Σ v_t a_t / Σ v_t with v_t = (t/T)^k, and a_t = 1 where snapshot t disagrees.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from snapsure import _validate
from snapsure._types import Floats, Ints
from snapsure.errors import InvalidInput
from snapsure.estimators._base import Estimator, State, rising
from snapsure.table import ScoreTable


class SPTD(Estimator):
    """Score examples by how rarely, and how early, snapshots disagree with the final prediction.

    This is the variant of Selective Prediction via Training Dynamics that sums over snapshots.
    Divided by Σ v_t, the sum lies in [0, 1] and ranks as theirs does. SPTD needs the snapshots'
    predictions and no κ, so many examples tie: all that no snapshot disagrees on have confidence 1.

    Parameters
    ----------
    k : float
        Weight of late disagreement, ≥ 0; 0 counts every snapshot the same. The default is the
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
        """Return k."""
        return {"k": self.k}

    def snapshots(self, epochs: Sequence[int] | Ints) -> list[int]:
        """Return all epochs: each snapshot counts."""
        return super().snapshots(epochs) if self._state else rising(epochs).tolist()

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        return {"epochs": table.epochs.tolist()}

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        epochs = table.epochs
        if epochs[0] < 0:
            raise InvalidInput(f"`epochs` must be at least 0, got {epochs[0]}. Count from 0 or 1.")
        weight = (epochs / max(epochs[-1], 1)) ** self.k
        weight[-1] = 1  # also of a run that ends with epoch 0
        # Not by a matrix product, whose last bit depends on the column: examples that the same
        # snapshots disagree on must tie.
        doubt, total = np.zeros(table.y_hat.size), 0.0
        for v, labels in zip(weight.tolist(), table.labels, strict=True):
            doubt += v * (labels != table.y_hat)
            total += v
        return 1 - doubt / total
