"""AES, averaged early stopping (section 5.2): c(x) = 1/k Σ κ(x | f^[j]) over k snapshots j."""

from collections.abc import Sequence
from typing import Any, ClassVar

from snapsure import _validate
from snapsure._spacing import choose
from snapsure._types import Floats, Ints
from snapsure.estimators._base import Estimator, State, rising, rows_of
from snapsure.table import ScoreTable


class AES(Estimator):
    """Average κ over k snapshots, evenly spaced from the fraction `start` of training to its end.

    AES needs no labels, so nothing checks whether it is better than the final softmax on your data;
    `evaluate` does, if you have labels. With fewer than k snapshots, each is used once.

    Parameters
    ----------
    k : int
        Snapshots to average.
    start : float
        Where to begin, in [0, 1); the paper's 0.4 leaves out the first two fifths of training.

    Examples
    --------
    >>> kappa = [[0.1, 0.9], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6], [0.5, 0.5]]
    >>> AES(k=2).confidence(ScoreTable.from_kappa(kappa)).tolist()  # of epochs 2 and 5
    [0.35, 0.65]
    >>> AES(k=2).snapshots([10, 20, 30, 40, 50])  # the others need no scoring
    [20, 50]
    """

    learns: ClassVar[bool] = False

    def __init__(self, k: int = 30, start: float = 0.4) -> None:
        super().__init__()
        self.k = _validate.count(k, "k")
        self.start = _validate.share(start, "start")

    @property
    def settings(self) -> dict[str, Any]:
        """Return k and start."""
        return {"k": self.k, "start": self.start}

    def snapshots(self, epochs: Sequence[int] | Ints) -> list[int]:
        """Return which of these epochs are averaged."""
        if self._state is not None:
            return super().snapshots(epochs)
        known = rising(epochs)
        return [int(epoch) for epoch in known[choose(known, self.k, self.start)]]

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        return {"epochs": table.epochs[choose(table.epochs, self.k, self.start)].tolist()}

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        mean: Floats = rows_of(table, kappa, state["epochs"]).mean(axis=0)
        return mean
