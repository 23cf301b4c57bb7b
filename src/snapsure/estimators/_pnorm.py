"""MaxLogit-pNorm (Cattelan & Silva 2024): c(x) = max (z − z̄) / ‖z − z̄‖ₚ of the final logits z.

z̄ is the mean of z over the classes.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from snapsure import _validate
from snapsure._types import Floats
from snapsure.errors import InvalidInput
from snapsure.estimators._base import EQUAL, Estimator, Fitted, State
from snapsure.estimators._logits import logits_of, softmax_response, top_log_odds
from snapsure.metrics import aurc
from snapsure.table import ScoreTable


class _FittedPNorm(Fitted):
    p: float | None


class MaxLogitPNorm(Estimator):
    """Divide the largest final logit by the p-norm of all logits, centred.

    From How to Fix a Broken Confidence Estimator. p has the least AURC on labelled examples among
    0, 1, …, 9, the grid of the authors' code, the smallest of equals. As in their code, the softmax
    response is used instead unless it is worse.

    ‖·‖₀ counts the logits that are not 0, so p = 0 divides by the number of classes. With two
    classes the centred logits are ±a and every p > 0 gives the same to all examples, so the softmax
    response is used.

    Parameters
    ----------
    grid : sequence of float
        The p to choose from, each ≥ 0.

    Attributes
    ----------
    p_ : float or None
        The p chosen; None for the softmax response.

    Examples
    --------
    >>> logits = [[9.0, 8.0, 0.0], [2.0, 0.0, 0.0], [3.0, 0.0, 0.0], [8.0, 6.5, 0.0]]
    >>> table = ScoreTable({"softmax": [[0.5] * 4]}, [[0] * 4], y=[1, 0, 0, 1], logits=logits)
    >>> model = MaxLogitPNorm().fit(table)
    >>> model.p_
    1.0
    >>> model.confidence(table).round(3).tolist()
    [0.294, 0.5, 0.5, 0.328]
    """

    of_kappa: ClassVar[bool] = False
    fitted_type: ClassVar[type] = _FittedPNorm

    def __init__(self, grid: Sequence[float] = tuple(range(10))) -> None:
        super().__init__()
        self.grid = [_validate.at_least(p, 0, "grid") for p in grid]
        if not self.grid:
            raise InvalidInput(
                "`grid` must hold at least one p, got none. Leave it out to use 0, 1, …, 9."
            )

    @property
    def settings(self) -> dict[str, Any]:
        """Return the p to choose from."""
        return {"grid": self.grid}

    @property
    def p_(self) -> float | None:
        """The p chosen; None for the softmax response."""
        p: float | None = self.fitted["p"]
        return p

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        z, wrong = logits_of(table), table.errors
        areas = np.array([aurc(_normalised(z, p), wrong) for p in self.grid])
        better = z.shape[1] > 2 and areas.min() < aurc(top_log_odds(z), wrong) - EQUAL
        equals = np.flatnonzero(areas <= areas.min() + EQUAL)
        p = min(self.grid[i] for i in equals) if better else None
        return {"epochs": [int(table.epochs[-1])], "p": p}

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        z, p = logits_of(table), state["p"]
        return softmax_response(z) if p is None else _normalised(z, p)


def _normalised(z: Floats, p: float) -> Floats:
    """Return the confidences; 0 for equal logits, which favour no class."""
    centred = z - z.mean(axis=1, keepdims=True)
    size = np.abs(centred)
    scale = size.max(axis=1)
    flat = scale == 0
    scale[flat] = 1
    if p == 0:
        norm = np.count_nonzero(size, axis=1).astype(np.float64)
    else:
        norm = scale * ((size / scale[:, None]) ** p).sum(axis=1) ** (1 / p)
    norm[flat] = 1
    confidence: Floats = centred.max(axis=1) / norm
    return confidence
