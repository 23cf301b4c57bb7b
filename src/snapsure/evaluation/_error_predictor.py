"""A rival that needs no snapshots: learn from labels where the final network errs."""

from typing import Any, ClassVar

import numpy as np

from snapsure._logistic import log_odds, sigmoid
from snapsure._types import Bools, Floats
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
    curve, it looks at the log-odds alone.
    """

    calibrated = True
    of_kappa: ClassVar[bool] = False

    @property
    def settings(self) -> dict[str, Any]:
        """Nothing to set."""
        return {}

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        return {"epochs": [int(table.epochs[-1])], **learnt(features_of(table), table.errors)}

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        return answered(features_of(table), state)


def features_of(table: ScoreTable) -> Floats:
    """(classes + 1, n), what is known of the answer's own softmax last."""
    logits = logits_of(table)
    centred = logits - logits.mean(axis=1, keepdims=True)
    return np.vstack((centred.T, log_odds(logits, table.y_hat)))


def learnt(features: Floats, wrong: Bools) -> State:
    """Weights of features (d, n); of the last alone where the errors are few."""
    used = features if enough(wrong) else features[-1:]
    names = ("center", "spread", "weights")
    return {name: part.tolist() for name, part in zip(names, weighed(used, wrong), strict=True)}


def answered(features: Floats, state: State) -> Floats:
    """Probability of being right, by what was learnt."""
    scaled = (features[-len(state["center"]) :].T - state["center"]) / state["spread"]
    return sigmoid(scaled @ np.array(state["weights"][:-1]) + state["weights"][-1])
