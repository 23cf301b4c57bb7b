"""Helpers for rivals that work on the final logits, and GEN, which needs nothing else."""

from typing import Any, ClassVar

import numpy as np

from snapsure import _validate
from snapsure._logistic import log_odds, sigmoid
from snapsure._logit_scores import LogitScores
from snapsure._types import Floats, Ints
from snapsure.errors import InvalidInput
from snapsure.estimators._base import Estimator, State
from snapsure.table import ScoreTable

# Squares of logits, and logits divided by a small temperature, must fit float64.
_LARGEST = 1e150


def logits_of(table: ScoreTable) -> Floats:
    """Return the final logits, and refuse a table without them or with values too large."""
    if table.logits is None:
        raise InvalidInput(
            "`table` must have the final snapshot's logits, got a table without. Pass logits= to "
            "ScoreTable, or use table.with_logits."
        )
    if table.logits.shape[1] < 2:
        raise InvalidInput(
            "`table` must have logits of at least two classes, got one column. For a model with "
            "one logit z, pass np.column_stack([0 * z, z])."
        )
    if max(table.logits.max(), -table.logits.min()) > _LARGEST:
        row, at = np.argwhere(np.abs(table.logits) > _LARGEST)[0]
        raise InvalidInput(
            f"`table` must have logits within ±{_LARGEST:g}, got {table.logits[row, at]:g} at "
            f"class {at} of row {row}. The network has diverged; use an earlier snapshot."
        )
    return table.logits


def labels_of(table: ScoreTable) -> Ints:
    """Return the true classes, each a column of the logits, or −1 for none of them."""
    assert table.y is not None  # `fit` has asked for errors
    _validate.in_range(table.y, logits_of(table).shape[1], "`y`")
    return table.y


def top_log_odds(logits: Floats) -> Floats:
    """Return log-odds of each row's largest softmax: they keep the order where it rounds to 1."""
    return log_odds(logits, logits.argmax(axis=1))


def softmax_response(logits: Floats) -> Floats:
    """Return the largest softmax of each row."""
    return sigmoid(top_log_odds(logits))


class FinalGEN(Estimator):
    """Return GEN of the final logits, with its authors' settings: 1 − Σ (p (1 − p))^γ, scaled."""

    learns: ClassVar[bool] = False
    of_kappa: ClassVar[bool] = False

    @property
    def settings(self) -> dict[str, Any]:
        """There are none."""
        return {}

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        return {"epochs": [int(table.epochs[-1])]}

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        return LogitScores(logits_of(table), table.y_hat).gen()
