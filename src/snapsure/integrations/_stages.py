"""What a scikit-learn classifier was earlier in its training: four ways to know, one table.

Boosted trees have their rounds built in, others `staged_predict_proba`; a classifier with
`partial_fit` is trained epoch by epoch and copied on the way; of any other there is the end alone.
A pipeline has the stages of its last step, a search those of the best that it finds.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.base import clone  # type: ignore[import-untyped]
from sklearn.pipeline import Pipeline  # type: ignore[import-untyped]
from sklearn.utils import shuffle  # type: ignore[import-untyped]

from snapsure._spacing import evenly_spaced
from snapsure._types import Array, Ints
from snapsure.errors import InvalidInput
from snapsure.integrations.trees import (
    chosen_stages,
    class_ids,
    is_boosted,
    is_search,
    predicted,
    refuse_no_refit,
    score_stages,
)
from snapsure.table import ScoreTable


class Stages(ABC):
    """A trained classifier, with what it was after some epochs; the last is what it is."""

    def __init__(self, model: Any, epochs: Ints) -> None:
        self.model, self.epochs = model, epochs

    @abstractmethod
    def table(self, X: Any, y: Array | None = None) -> ScoreTable:
        """κ of the stages in `epochs` for new points, and their classes where known."""

    def keep(self, epochs: list[int]) -> None:
        """Forget the stages that answers do not need."""
        self.epochs = np.array(epochs, np.int64)


class Boosted(Stages):
    """Rounds of boosted trees, by their margins."""

    def __init__(self, model: Any, stages: int) -> None:
        super().__init__(model, chosen_stages(model, stages))

    def table(self, X: Any, y: Array | None = None) -> ScoreTable:
        return score_stages(self.model, X, y, stages=self.epochs.tolist())


class Staged(Stages):
    """What `staged_predict_proba` gives, of AdaBoost and the like."""

    def __init__(self, model: Any, stages: int, X: Any) -> None:
        last = sum(1 for _ in model.staged_predict_proba(X))
        super().__init__(model, evenly_spaced(1, last, min(stages, last)))

    def table(self, X: Any, y: Array | None = None) -> ScoreTable:
        wanted = set(self.epochs.tolist())
        each = enumerate(self.model.staged_predict_proba(X), 1)
        chosen = (probabilities for epoch, probabilities in each if epoch in wanted)
        return _tabled(self.model, X, y, chosen, self.epochs)


class Copies(Stages):
    """Copies of a classifier, made while `partial_fit` trained it."""

    def __init__(self, copies: dict[int, Any]) -> None:
        super().__init__(copies[max(copies)], np.array(sorted(copies), np.int64))
        self._copies = copies

    def table(self, X: Any, y: Array | None = None) -> ScoreTable:
        each = (self._copies[epoch].predict_proba(X) for epoch in self.epochs.tolist())
        return _tabled(self.model, X, y, each, self.epochs)

    def keep(self, epochs: list[int]) -> None:
        super().keep(epochs)
        self._copies = {epoch: self._copies[epoch] for epoch in epochs}


class Alone(Stages):
    """The classifier as it is, and nothing before."""

    def __init__(self, model: Any) -> None:
        super().__init__(model, np.array([1], np.int64))

    def table(self, X: Any, y: Array | None = None) -> ScoreTable:
        return _tabled(self.model, X, y, [self.model.predict_proba(X)], self.epochs)


class Piped(Stages):
    """A pipeline: the stages of its last step, on points as that sees them."""

    def __init__(self, before: Pipeline, name: str, last: Stages) -> None:
        super().__init__(Pipeline([*before.steps, (name, last.model)]), last.epochs)
        self._before, self._last = before, last

    def table(self, X: Any, y: Array | None = None) -> ScoreTable:
        return self._last.table(self._before.transform(X), y)

    def keep(self, epochs: list[int]) -> None:
        super().keep(epochs)
        self._last.keep(epochs)


def trained(model: Any, X: Any, y: Array, *, stages: int, epochs: int | None, seed: int) -> Stages:
    """Train a new classifier, and know its stages."""
    options: Any = {"stages": stages, "epochs": epochs, "seed": seed}
    if is_search(model):
        refuse_no_refit(model, "estimator")  # before it takes its time
        # The best is trained once more, now with its stages watched.
        return trained(clone(model).fit(X, y).best_estimator_, X, y, **options)
    if isinstance(model, Pipeline) and len(model) > 1:
        before, (name, _) = clone(model[:-1]), model.steps[-1]
        seen = before.fit_transform(X, y)
        return Piped(before, name, trained(model[-1], seen, y, **options))
    _has(
        model,
        "fit",
        "pass a classifier that is yet to train, or make a table of this one, "
        "snapsure.integrations.trees.score_stages(model, X, y)",
    )
    model = clone(model)
    if stages > 1 and epochs is not None:
        _has(model, "partial_fit", "leave out `epochs`, or choose another classifier")
        return _by_epochs(model, X, y, epochs, stages, seed)
    fitted = clone(model).fit(X, y)
    _has(fitted, "predict_proba", "choose another, or wrap it in CalibratedClassifierCV")
    if stages == 1:
        return Alone(fitted)
    if is_boosted(fitted):
        try:
            return Boosted(fitted, stages)
        except InvalidInput as error:
            told = str(error).replace("`model`", "`estimator`")
            raise InvalidInput(f"{told}, or pass stages=1 to use its end alone") from None
    if hasattr(fitted, "staged_predict_proba"):
        return Staged(fitted, stages, X[:1])
    if hasattr(fitted, "partial_fit") and hasattr(fitted, "n_iter_"):
        if "early_stopping" in model.get_params():
            model.set_params(early_stopping=False)  # it has told how many epochs; no more to stop
        return _by_epochs(model, X, y, int(fitted.n_iter_), stages, seed)
    return Alone(fitted)


def _by_epochs(model: Any, X: Any, y: Array, epochs: int, stages: int, seed: int) -> Copies:
    wanted = set(evenly_spaced(1, epochs, min(stages, epochs)).tolist())
    copies = {}
    for epoch in range(1, epochs + 1):
        # Some classifiers draw the same order anew in every call.
        rows, classes = shuffle(X, y, random_state=(seed + epoch) % 2**32)
        try:
            model.partial_fit(rows, classes, **({"classes": np.unique(y)} if epoch == 1 else {}))
        except ValueError as error:
            raise InvalidInput(
                f"`estimator` must be one that partial_fit can train, got "
                f"{type(model).__name__}, which says {str(error)!r}: follow that, or pass stages=1 "
                "to train it by fit"
            ) from error
        if epoch in wanted:
            copies[epoch] = copy.deepcopy(model)
    _has(copies[epochs], "predict_proba", "choose another, or wrap it in CalibratedClassifierCV")
    return Copies(copies)


def _has(model: Any, method: str, advice: str) -> None:
    if not hasattr(model, method):
        raise InvalidInput(
            f"`estimator` must have {method}, got {type(model).__name__} without it: {advice}"
        )


def _tabled(
    model: Any, X: Any, y: Array | None, probabilities: Iterable[Array], epochs: Ints
) -> ScoreTable:
    y_hat = predicted(model, X, "estimator")
    each = [np.asarray(stage, np.float64) for stage in probabilities]
    labels = np.array([stage.argmax(axis=1) for stage in each])
    labels[-1] = y_hat  # where two classes are equal, or a classifier decides otherwise
    rows = np.arange(y_hat.size)
    kappa = np.array([np.clip(stage[rows, y_hat], 0.0, 1.0) for stage in each])
    truth = None if y is None else class_ids(y, model.classes_, "y")
    return ScoreTable({"softmax": kappa}, labels, truth, y_hat=y_hat, epochs=epochs)
