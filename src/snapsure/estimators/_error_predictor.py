"""ErrorPredictor: a rival that needs no snapshots, and learns where the final network errs.

p = σ(w · x + b), x = (z − z̄, log-odds of the softmax response), z the final logits.
"""

from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from snapsure._logistic import fit_logistic, log_odds, sigmoid
from snapsure._types import Bools, Floats
from snapsure.estimators._base import Estimator, Fitted, State
from snapsure.estimators._logits import logits_of
from snapsure.estimators._search import FEW, count_fewer
from snapsure.table import ScoreTable

_PENALTY, _OF_LOG_ODDS = 10.0, 0.3


class _FittedErrorPredictor(Fitted):
    center: list[float]
    spread: list[Annotated[float, Meta(gt=0)]]
    weights: list[float]


class ErrorPredictor(Estimator):
    """Probability of being right, by a logistic regression on the final snapshot's logits.

    The features are every class's logit, less their mean, and the log-odds of the softmax response,
    standardised; the penalty on a weight w is 10 · w² / 2, but 0.3 · w² / 2 on that of the
    log-odds. So it knows which classes are confused, while the softmax response knows how sure the
    network is. With fewer than 30 errors to learn from, it uses the log-odds alone.
    """

    calibrated = True
    of_kappa: ClassVar[bool] = False
    fitted_type: ClassVar[type] = _FittedErrorPredictor

    @property
    def settings(self) -> dict[str, Any]:
        """There are none."""
        return {}

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        learnt = fit_error_weights(make_features(table), table.errors)
        return {"epochs": [int(table.epochs[-1])], **learnt}

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        return predict_right(make_features(table), state)


def make_features(table: ScoreTable) -> Floats:
    """Return the features, (classes + 1, n), the log-odds of the answer's own softmax last."""
    logits = logits_of(table)
    centred = logits - logits.mean(axis=1, keepdims=True)
    return np.vstack((centred.T, log_odds(logits, table.y_hat)))


def fit_error_weights(features: Floats, wrong: Bools) -> State:
    """Fit weights of features (d, n); of the last feature alone if there are few errors."""
    used = features if count_fewer(wrong) >= FEW else features[-1:]
    center, spread = used.mean(axis=1), used.std(axis=1)
    flat = used.min(axis=1) == used.max(axis=1)  # its spread may be a rounding error
    center[flat], spread[flat] = used[flat, 0], 1.0
    penalty = np.array([*np.full(len(used) - 1, _PENALTY), _OF_LOG_ODDS, 0.0])
    design = np.column_stack(((used.T - center) / spread, np.ones(wrong.size)))
    weights = fit_logistic(design, (~wrong).astype(np.float64), penalty)
    return {
        "center": center.tolist(),
        "spread": spread.tolist(),
        "weights": weights.tolist(),
    }


def predict_right(features: Floats, state: State) -> Floats:
    """Return the probability of being right by fitted weights."""
    scaled = (features[-len(state["center"]) :].T - state["center"]) / state["spread"]
    return sigmoid(scaled @ np.array(state["weights"][:-1]) + state["weights"][-1])
