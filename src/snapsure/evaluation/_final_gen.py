"""GEN of the final snapshot's logits: a rival where a table has these, and not GEN itself."""

from typing import Any, ClassVar

from snapsure._gen import gen
from snapsure._types import Floats
from snapsure.estimators._base import Estimator, State
from snapsure.estimators._logits import logits_of
from snapsure.table import ScoreTable


class FinalGEN(Estimator):
    """`GEN()` of the final logits, with its authors' settings; nothing is learnt."""

    learns: ClassVar[bool] = False
    of_kappa: ClassVar[bool] = False

    @property
    def settings(self) -> dict[str, Any]:
        """Nothing to set."""
        return {}

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        return {"epochs": [int(table.epochs[-1])]}

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        return gen(logits_of(table))
