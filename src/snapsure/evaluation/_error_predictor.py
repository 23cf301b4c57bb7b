"""A rival that needs no snapshots: learn from labels where the final network errs."""

from typing import Any, ClassVar

import numpy as np

from snapsure._logistic import log_odds, sigmoid
from snapsure._types import Floats
from snapsure.estimators._base import Estimator, State
from snapsure.estimators._les import enough, weighed
from snapsure.estimators._logits import logits_of
from snapsure.table import ScoreTable


class ErrorPredictor(Estimator):
    """Probability of being right, from a logistic regression on the final snapshot's logits.

    The features are every class's logit, less their mean, and the log-odds of the softmax response,
    standardised; the penalties are LES's, the small one on the log-odds. So it knows which classes
    are confused, where the softmax knows how sure the network is. Embeddings, the other thing that
    such predictors are given, are not in a score table. With as few errors as make LES Platt's
    curve, it is that too.
    """

    calibrated = True
    of_kappa: ClassVar[bool] = False

    @property
    def settings(self) -> dict[str, Any]:
        """Nothing to set."""
        return {}

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        features = _features(table)
        used = features if enough(table.errors) else features[-1:]
        center, spread, weights = weighed(used, table.errors)
        return {
            "epochs": [int(table.epochs[-1])],
            "center": center.tolist(),
            "spread": spread.tolist(),
            "weights": weights.tolist(),
        }

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        used = _features(table)[-len(state["center"]) :]
        scaled = (used.T - state["center"]) / state["spread"]
        return sigmoid(scaled @ np.array(state["weights"][:-1]) + state["weights"][-1])


def _features(table: ScoreTable) -> Floats:
    """(classes + 1, n), what is known of the answer's own softmax last."""
    logits = logits_of(table)
    centred = logits - logits.mean(axis=1, keepdims=True)
    return np.vstack((centred.T, log_odds(logits, table.y_hat)))
