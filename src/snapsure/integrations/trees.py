"""Score tables of boosted trees: a stage of boosting is a snapshot, its epoch the rounds so far.

κ is the softmax of the chosen class, computed in float64 from the margins that trees add up: the
float32 probabilities of XGBoost collapse onto exactly 1.0. Only the model handed in decides which
library is used; none is imported here. To add one: two functions and a line in `_LIBRARIES`.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError  # type: ignore[import-untyped]
from sklearn.utils.validation import check_is_fitted  # type: ignore[import-untyped]

from snapsure import _validate
from snapsure._logistic import log_odds, sigmoid
from snapsure._spacing import evenly_spaced
from snapsure._types import Array, Floats, Ints
from snapsure.errors import InvalidInput, NotFitted
from snapsure.table import ScoreTable

__all__ = ["score_stages"]


def score_stages(
    model: Any, X: Any, y: ArrayLike | None = None, *, stages: int | Sequence[int] = 250
) -> ScoreTable:
    """Score the stages of a boosted classifier: one snapshot per number of rounds.

    Parameters
    ----------
    model : fitted classifier
        `GradientBoostingClassifier` or `HistGradientBoostingClassifier` of scikit-learn,
        `XGBClassifier`, `LGBMClassifier` or `CatBoostClassifier`. The final snapshot is what
        `model.predict` uses: with early stopping, the best round.
    X : (n, features)
        Points that were not trained on, in any form that `model.predict` takes.
    y : (n,), optional
        Their classes, as the model was given them.
    stages : int or sequence of int
        How many stages, evenly spaced over the rounds (all, where there are no more than that), or
        after which rounds. The final one is always among them.

    Returns
    -------
    ScoreTable
        κ is `softmax`. Labels are places in `model.classes_`. 16 bytes per stage and point.

    Raises
    ------
    InvalidInput
        For models whose first trees are no earlier model (dart, random forests) or that give no
        class probabilities, for unknown classes, and for stages that the model does not have.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = GradientBoostingClassifier(n_estimators=20, random_state=0).fit(X[::2], y[::2])
    >>> score_stages(model, X[1::2], y[1::2])
    <ScoreTable: softmax; 20 snapshots × 89 points>
    """
    library = _library_of(model)
    epochs = _chosen(stages, library.rounds(model))
    y_hat = predicted(model, X, "model")
    truth = None if y is None else class_ids(y, model, "y")
    if truth is not None:
        _validate.same_length("X", y_hat.shape, "y", truth.size)
    kappa = np.empty((epochs.size, y_hat.size))
    labels = np.empty(kappa.shape, np.int64)
    for i, margins in enumerate(library.margins(model, X, epochs)):
        z = _one_per_class(margins)
        kappa[i], labels[i] = sigmoid(log_odds(z, y_hat)), z.argmax(axis=1)
    labels[-1] = y_hat  # where two classes are equal, each library has its own rule
    return ScoreTable({"softmax": kappa}, labels, truth, y_hat=y_hat, epochs=epochs)


def _staged_margins(model: Any, X: Any, epochs: Ints) -> Iterator[Array]:
    # The exponential loss has probability expit(2 · margin).
    scale = 2.0 if model.loss == "exponential" else 1.0
    wanted = set(epochs.tolist())
    for epoch, margins in enumerate(model.staged_decision_function(X), 1):
        if epoch in wanted:
            yield scale * margins


def _xgboost_rounds(model: Any) -> int:
    booster = model.get_booster()
    learner = json.loads(booster.save_config())["learner"]
    _boosted(learner["gradient_booster"]["name"], "gbtree")
    objective = learner["objective"]["name"]
    _probable(objective, ("binary:logistic", "reg:logistic", "multi:softprob", "multi:softmax"))
    best = booster.attr("best_iteration")
    return int(booster.num_boosted_rounds()) if best is None else int(best) + 1


def _xgboost_margins(model: Any, X: Any, epochs: Ints) -> Iterator[Array]:
    # Each stage goes on from the margins of the one before: the same sums, bit by bit, as all
    # rounds from the first, without T² of them.
    margins, done = None, 0
    for epoch in epochs.tolist():
        margins = model.predict(
            X, output_margin=True, base_margin=margins, iteration_range=(done, epoch)
        )
        done = epoch
        yield margins


def _lightgbm_rounds(model: Any) -> int:
    boosting, objective, _ = _lightgbm_settings(model)
    _boosted(boosting, "gbdt")
    _probable(objective, ("binary", "multiclass"))
    booster = model.booster_
    return int(booster.best_iteration if booster.best_iteration > 0 else model.n_iter_)


def _lightgbm_margins(model: Any, X: Any, epochs: Ints) -> Iterator[Array]:
    margins, done, scale = 0.0, 0, _lightgbm_settings(model)[2]
    for epoch in epochs.tolist():
        margins = margins + model.predict(
            X, raw_score=True, start_iteration=done, num_iteration=epoch - done
        )
        done = epoch
        yield scale * margins


def _lightgbm_settings(model: Any) -> tuple[str, str, float]:
    """Boosting, objective and the slope of its sigmoid, as the trained model itself has them."""
    text = model.booster_.model_to_string(num_iteration=1)
    boosting = re.search(r"^\[boosting: (\w+)\]$", text, re.M)
    objective = re.search(r"^objective=(\w+)(?:.* sigmoid:(\S+))?", text, re.M)
    return (
        boosting[1] if boosting else "unknown",
        objective[1] if objective else "custom",
        float(objective[2] or 1.0) if objective else 1.0,
    )


def _catboost_rounds(model: Any) -> int:
    _probable(
        model.get_all_params()["loss_function"].partition(":")[0],
        ("Logloss", "CrossEntropy", "MultiClass"),
    )
    return int(model.tree_count_)


def _catboost_margins(model: Any, X: Any, epochs: Ints) -> Iterator[Array]:
    wanted = set(epochs.tolist())
    margins = model.staged_predict(X, prediction_type="RawFormulaVal", eval_period=1)
    for epoch, stage in enumerate(margins, 1):
        if epoch in wanted:
            yield stage


@dataclass(frozen=True)
class _Library:
    """How the stages of one class of models are read."""

    rounds: Callable[[Any], int]  # as many as `predict` uses; refuses what has no stages
    margins: Callable[[Any, Any, Ints], Iterator[Array]]  # in log-odds, after each epoch


_LIBRARIES = {
    ("sklearn", "GradientBoostingClassifier"): _Library(
        lambda model: int(model.n_estimators_), _staged_margins
    ),
    ("sklearn", "HistGradientBoostingClassifier"): _Library(
        lambda model: int(model.n_iter_), _staged_margins
    ),
    ("xgboost", "XGBClassifier"): _Library(_xgboost_rounds, _xgboost_margins),
    ("lightgbm", "LGBMClassifier"): _Library(_lightgbm_rounds, _lightgbm_margins),
    ("catboost", "CatBoostClassifier"): _Library(_catboost_rounds, _catboost_margins),
}


def is_boosted(model: Any) -> bool:
    """Whether it is of a class whose stages can be scored."""
    return _known(model) is not None


def chosen_stages(model: Any, stages: int | Sequence[int]) -> Ints:
    """After which rounds the stages are, the final one last."""
    return _chosen(stages, _library_of(model).rounds(model))


def _known(model: Any) -> tuple[str, str] | None:
    places = [(base.__module__.split(".")[0], base.__name__) for base in type(model).__mro__]
    return next((place for place in places if place in _LIBRARIES), None)


def _library_of(model: Any) -> _Library:
    known = _known(model)
    if known is None:
        raise InvalidInput(
            f"`model` must be one of {', '.join(name for _, name in _LIBRARIES)}, "
            f"got {type(model).__name__}: of a pipeline, pass the last step; of another model, "
            "pass the class probabilities of its stages to ScoreTable.from_probabilities"
        )
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise NotFitted(
            f"`model` must be fitted, got {type(model).__name__} that is not: call fit first"
        ) from None
    return _LIBRARIES[known]


def _boosted(got: str, required: str) -> None:
    if got != required:
        raise InvalidInput(
            f"`model` must be boosted with {required}, got {got}, whose first trees are not the "
            f"model as it was after as many rounds: train with {required}"
        )


def _probable(got: str, allowed: Sequence[str]) -> None:
    if got not in allowed:
        raise InvalidInput(
            f"`model` must have the objective {' or '.join(allowed)}, got {got}: "
            "train for class probabilities that sum to 1"
        )


def _chosen(stages: int | Sequence[int], last: int) -> Ints:
    if np.ndim(stages) == 0:
        k = _validate.count(stages, "stages")  # type: ignore[arg-type]
        return evenly_spaced(1, last, min(k, last))
    wanted = _validate.whole_numbers(stages, "stages")
    outside = wanted[(wanted < 1) | (wanted > last)]
    if outside.size:
        raise InvalidInput(
            f"`stages` must lie in 1…{last}, got {outside[0]}: the model predicts with {last} "
            "rounds, ask for no others"
        )
    return np.union1d(wanted, last)


def predicted(model: Any, X: Any, name: str) -> Ints:
    """Places in `model.classes_` of what it predicts."""
    answers = np.asarray(model.predict(X))
    if answers.ndim == 2 and answers.shape[1] == 1:
        answers = answers[:, 0]  # so CatBoost answers, where there are more than two classes
    return class_ids(answers, model, f"{name}.predict(X)")


def class_ids(values: ArrayLike, model: Any, name: str) -> Ints:
    """Places of classes in `model.classes_`."""
    given = np.asarray(values)
    if given.ndim != 1:
        raise InvalidInput(
            f"`{name}` must be 1-D (n,), got shape {given.shape}: one class per point is needed"
        )
    place = {value: i for i, value in enumerate(model.classes_.tolist())}
    ids = [place.get(value, -1) for value in given.tolist()]
    if -1 in ids:
        at = ids.index(-1)
        raise InvalidInput(
            f"`{name}` must hold classes that the model was trained on, got "
            f"{given.tolist()[at]!r} at row {at}: compare with model.classes_"
        )
    return np.array(ids, np.int64)


def _one_per_class(margins: Array) -> Floats:
    """Margins (n, classes) in float64; of two classes, the libraries give the second's alone."""
    z = margins.astype(np.float64).reshape(len(margins), -1)
    return z if z.shape[1] > 1 else np.hstack([np.zeros_like(z), z])
