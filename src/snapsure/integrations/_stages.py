"""What a scikit-learn classifier was earlier in its training.

Boosted trees have their rounds built in, others `staged_predict_proba`; a classifier with
`partial_fit` is trained epoch by epoch and copied on the way; any other has its final state alone.
A pipeline has the stages of its last step, a search those of the best model that it finds.
"""

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.base import clone  # type: ignore[import-untyped]
from sklearn.model_selection._search import BaseSearchCV  # type: ignore[import-untyped]
from sklearn.pipeline import Pipeline  # type: ignore[import-untyped]
from sklearn.utils import shuffle  # type: ignore[import-untyped]

from snapsure._spacing import evenly_spaced
from snapsure._types import Array, Ints
from snapsure.errors import InvalidInput
from snapsure.integrations.trees import (
    choose_stages,
    find_classes,
    flatten,
    is_boosted,
    pick_stages,
    refuse_no_refit,
    score_stages,
)
from snapsure.table import ScoreTable

_NO_PROBABILITIES = "Choose another, or wrap it in CalibratedClassifierCV."


class Stages:
    """A trained classifier, and its states after some epochs; the last is its final state.

    `copies` are its states by epoch; None where it has its stages built in.
    """

    def __init__(self, model: Any, epochs: Ints, copies: dict[int, Any] | None = None) -> None:
        self.model, self.epochs, self.copies = model, epochs, copies
        self._before: list[Pipeline] = []
        self._last = model

    def put_after(self, before: Pipeline, name: str) -> "Stages":
        """Make this the last step of a pipeline, after the steps that transform its inputs."""
        self._before.insert(0, before)
        self.model = Pipeline([*before.steps, (name, self.model)])
        return self

    def keep(self, epochs: list[int]) -> None:
        """Forget the stages that answers do not need."""
        self.epochs = np.array(epochs, np.int64)
        if self.copies is not None:
            self.copies = {epoch: self.copies[epoch] for epoch in epochs}

    def table(self, X: Any, y: Array | None = None) -> ScoreTable:
        """Score the stages in `epochs` on examples, with their classes where known."""
        for steps in self._before:
            X = steps.transform(X)
        model = self._last
        stages: Iterable[Array]
        if self.copies is not None:
            stages = (self.copies[epoch].predict_proba(X) for epoch in self.epochs.tolist())
        elif is_boosted(model):
            return score_stages(model, X, y, stages=self.epochs.tolist())
        else:
            stages = pick_stages(model.staged_predict_proba(X), self.epochs)

        y_hat = find_classes(flatten(model.predict(X)), model.classes_, "estimator.predict(X)")
        each = [np.asarray(probabilities, np.float64) for probabilities in stages]
        labels = np.array([probabilities.argmax(axis=1) for probabilities in each])
        labels[-1] = y_hat  # two classes may be equal, or the classifier may decide otherwise
        rows = np.arange(y_hat.size)
        kappa = np.array([np.clip(probabilities[rows, y_hat], 0.0, 1.0) for probabilities in each])
        truth = None if y is None else find_classes(y, model.classes_, "y")
        return ScoreTable({"softmax": kappa}, labels, truth, y_hat=y_hat, epochs=self.epochs)


def train_stages(
    model: Any, X: Any, y: Array, *, stages: int, epochs: int | None, seed: int
) -> Stages:
    """Train a new classifier, and keep its stages."""
    options: Any = {"stages": stages, "epochs": epochs, "seed": seed}
    if isinstance(model, BaseSearchCV):
        refuse_no_refit(model, "estimator")  # before the search takes its time
        # Train the best once more, to record its stages.
        return train_stages(clone(model).fit(X, y).best_estimator_, X, y, **options)
    if isinstance(model, Pipeline) and len(model) > 1:
        before, (name, _) = clone(model[:-1]), model.steps[-1]
        transformed = before.fit_transform(X, y)
        return train_stages(model[-1], transformed, y, **options).put_after(before, name)

    _require(
        model,
        "fit",
        "Pass a classifier that is not yet trained, or make a table of this one by "
        "snapsure.integrations.trees.score_stages(model, X, y).",
    )
    model = clone(model)
    if stages > 1 and epochs is not None:
        _require(model, "partial_fit", "Leave out `epochs`, or choose another classifier.")
        return _train_by_epoch(model, X, y, epochs, stages, seed)

    found = read_stages(clone(model).fit(X, y), X, stages=stages)
    fitted = found.model
    if stages == 1 or found.copies is None:
        return found
    if not hasattr(fitted, "partial_fit") or not hasattr(fitted, "n_iter_"):
        return found
    if "early_stopping" in model.get_params():
        model.set_params(early_stopping=False)  # n_iter_ says how many epochs it takes
    return _train_by_epoch(model, X, y, int(fitted.n_iter_), stages, seed)


def read_stages(model: Any, X: Any, *, stages: int) -> Stages:
    """Return the stages that a trained classifier has built in, or its final state alone.

    `X` are inputs of the classifier; one is enough to count its stages.
    """
    if isinstance(model, BaseSearchCV):
        refuse_no_refit(model, "estimator")
        model = model.best_estimator_
    if isinstance(model, Pipeline) and len(model) > 1:
        before, (name, last) = model[:-1], model.steps[-1]
        return read_stages(last, before.transform(X), stages=stages).put_after(before, name)

    _require(model, "predict_proba", _NO_PROBABILITIES)
    if stages > 1 and is_boosted(model):
        try:
            return Stages(model, choose_stages(model, stages))
        except InvalidInput as error:
            message = str(error).replace("`model`", "`estimator`")
            raise InvalidInput(f"{message} Or pass stages=1 to use its final state.") from None
    if stages > 1 and hasattr(model, "staged_predict_proba"):
        last = sum(1 for _ in model.staged_predict_proba(X[:1]))
        return Stages(model, evenly_spaced(1, last, min(stages, last)))
    return Stages(model, np.ones(1, np.int64), {1: model})


def _train_by_epoch(model: Any, X: Any, y: Array, epochs: int, stages: int, seed: int) -> Stages:
    wanted = evenly_spaced(1, epochs, min(stages, epochs))
    copies = {}
    for epoch in range(1, epochs + 1):
        # Some classifiers draw the same order again in every call.
        rows, classes = shuffle(X, y, random_state=(seed + epoch) % 2**32)
        try:
            model.partial_fit(rows, classes, **({"classes": np.unique(y)} if epoch == 1 else {}))
        except ValueError as error:
            raise InvalidInput(
                "`estimator` must be one that partial_fit can train, got "
                f"{type(model).__name__}, which says {str(error)!r}. Follow that, or pass stages=1 "
                "to train it by `fit`."
            ) from error
        if epoch in wanted:
            copies[epoch] = copy.deepcopy(model)
    _require(copies[epochs], "predict_proba", _NO_PROBABILITIES)
    return Stages(copies[epochs], wanted, copies)


def _require(model: Any, method: str, remedy: str) -> None:
    if not hasattr(model, method):
        raise InvalidInput(
            f"`estimator` must have {method}, got {type(model).__name__} without it. {remedy}"
        )
