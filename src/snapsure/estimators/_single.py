"""One snapshot alone, c(x) = κ(x | f^[j]): the final one, or the one that ranks best."""

from collections.abc import Sequence
from typing import Any, ClassVar

from snapsure._types import Floats, Ints
from snapsure.estimators._base import Estimator, State, best_snapshot, rising, rows_of
from snapsure.metrics import eaurc
from snapsure.table import ScoreTable


class Final(Estimator):
    """Return κ of the final snapshot: the reference for all other methods.

    Examples
    --------
    >>> Final().confidence(ScoreTable.from_kappa([[0.1, 0.9], [0.3, 0.7]])).tolist()
    [0.3, 0.7]
    """

    learns: ClassVar[bool] = False

    @property
    def settings(self) -> dict[str, Any]:
        """Return nothing: there are no settings."""
        return {}

    def snapshots(self, epochs: Sequence[int] | Ints) -> list[int]:
        """Return the last epoch."""
        return super().snapshots(epochs) if self._state else [int(rising(epochs)[-1])]

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        return {"epochs": [int(table.epochs[-1])]}

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        values: Floats = rows_of(table, kappa, state["epochs"])[0]
        return values


class BestSnapshot(Estimator):
    """Return κ of the snapshot with the least E-AURC on labelled examples, a rival of PES.

    Examples
    --------
    >>> table = ScoreTable.from_kappa([[0.2, 0.9], [0.7, 0.6]], errors=[True, False])
    >>> BestSnapshot().fit(table).confidence(table).tolist()
    [0.2, 0.9]
    """

    @property
    def settings(self) -> dict[str, Any]:
        """Return nothing: there are no settings."""
        return {}

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        best = best_snapshot(eaurc(table.kappa(kappa), table.errors))
        return {"epochs": [int(table.epochs[best])]}

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        values: Floats = rows_of(table, kappa, state["epochs"])[0]
        return values
