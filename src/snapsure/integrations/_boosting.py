"""How the stages of a boosted model are read, library by library.

Only the model handed in decides which library is used; none is imported here. To add one: two
functions and a line in `LIBRARIES`.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from snapsure._types import Array, Floats, Ints
from snapsure.errors import InvalidInput, NotFitted


def one_per_class(margins: Array) -> Floats:
    """Margins (n, classes) in float64; of two classes, the libraries give the second's alone."""
    z = margins.astype(np.float64).reshape(len(margins), -1)
    return z if z.shape[1] > 1 else np.hstack([np.zeros_like(z), z])


def _staged_margins(model: Any, X: Any, epochs: Ints) -> Iterator[Array]:
    # The exponential loss has probability expit(2 · margin).
    scale = 2.0 if model.loss == "exponential" else 1.0
    wanted = set(epochs.tolist())
    for epoch, margins in enumerate(model.staged_decision_function(X), 1):
        if epoch in wanted:
            yield scale * margins


def _xgboost_rounds(model: Any) -> int:
    booster = model.get_booster()
    rounds, best = _xgboost_booster_rounds(booster), booster.attr("best_iteration")
    return rounds if best is None else int(best) + 1


def _xgboost_booster_rounds(booster: Any) -> int:
    # All of them, also after early stopping: so Booster.predict does, unlike XGBClassifier's.
    try:
        rounds = int(booster.num_boosted_rounds())
    except ValueError:  # XGBoost's own error: it has seen no data
        rounds = 0
    _trained(booster, rounds)
    learner = _xgboost_learner(booster)
    _boosted(learner["gradient_booster"]["name"], "gbtree")
    objective = learner["objective"]["name"]
    _probable(objective, ("binary:logistic", "reg:logistic", "multi:softprob", "multi:softmax"))
    return rounds


def _xgboost_learner(booster: Any) -> Any:
    return json.loads(booster.save_config())["learner"]


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


def _xgboost_booster_margins(booster: Any, X: Any, epochs: Ints) -> Iterator[Array]:
    points, done = _xgboost_points(X), 0
    before = points.get_base_margin()  # the matrix may be the user's, who gets it back as it was
    try:
        for epoch in epochs.tolist():
            margins = booster.predict(points, output_margin=True, iteration_range=(done, epoch))
            yield margins
            points.set_base_margin(margins.ravel())
            done = epoch
    finally:
        points.set_base_margin(before)


def _xgboost_points(X: Any) -> Any:
    xgboost = sys.modules["xgboost"]  # where the model comes from
    return X if isinstance(X, xgboost.DMatrix) else xgboost.DMatrix(X, enable_categorical=True)


def _xgboost_booster_classes(booster: Any) -> Array:
    return np.arange(max(2, int(_xgboost_learner(booster)["learner_model_param"]["num_class"])))


def _lightgbm_rounds(model: Any) -> int:
    # LGBMClassifier has it in a Booster, with which it predicts.
    return _lightgbm_booster_rounds(model.booster_)


def _lightgbm_booster_rounds(booster: Any) -> int:
    rounds = int(booster.current_iteration())
    _trained(booster, rounds)
    boosting, objective, _ = _lightgbm_settings(booster)
    _boosted(boosting, "gbdt")
    _probable(objective, ("binary", "multiclass"))
    return int(booster.best_iteration) if booster.best_iteration > 0 else rounds


def _lightgbm_margins(model: Any, X: Any, epochs: Ints) -> Iterator[Array]:
    return _summed(model, model.booster_, X, epochs)


def _lightgbm_booster_margins(booster: Any, X: Any, epochs: Ints) -> Iterator[Array]:
    return _summed(booster, booster, X, epochs)


def _summed(model: Any, booster: Any, X: Any, epochs: Ints) -> Iterator[Array]:
    margins, done, scale = 0.0, 0, _lightgbm_settings(booster)[2]
    for epoch in epochs.tolist():
        margins = margins + model.predict(
            X, raw_score=True, start_iteration=done, num_iteration=epoch - done
        )
        done = epoch
        yield scale * margins


def _lightgbm_settings(booster: Any) -> tuple[str, str, float]:
    """Boosting, objective and the slope of its sigmoid, as the trained model itself has them."""
    text = booster.model_to_string(num_iteration=1)
    boosting = re.search(r"^\[boosting: (\w+)\]$", text, re.M)
    objective = re.search(r"^objective=(\w+)(?:.* sigmoid:(\S+))?", text, re.M)
    return (
        boosting[1] if boosting else "unknown",
        objective[1] if objective else "custom",
        float(objective[2] or 1.0) if objective else 1.0,
    )


def _lightgbm_booster_classes(booster: Any) -> Array:
    return np.arange(max(2, booster.num_model_per_iteration()))


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
class Library:
    """How the stages of one class of models are read."""

    rounds: Callable[[Any], int]  # as many as `predict` uses; refuses what has no stages
    margins: Callable[[Any, Any, Ints], Iterator[Array]]  # in log-odds, after each epoch
    answers: Callable[[Any, Any], Array] = lambda model, X: model.predict(X)
    classes: Callable[[Any], Array] = lambda model: model.classes_
    raw: bool = False  # no estimator of scikit-learn's kind: classes are 0, 1, 2 …


def _largest(read: Callable[..., Array]) -> Callable[[Any, Any], Array]:
    """Answers of a raw booster, whose own are margins or probabilities."""
    return lambda booster, X: one_per_class(read(booster, X)).argmax(axis=1)


LIBRARIES = {
    ("sklearn", "GradientBoostingClassifier"): Library(
        lambda model: int(model.n_estimators_), _staged_margins
    ),
    ("sklearn", "HistGradientBoostingClassifier"): Library(
        lambda model: int(model.n_iter_), _staged_margins
    ),
    ("xgboost", "XGBClassifier"): Library(_xgboost_rounds, _xgboost_margins),
    ("xgboost", "Booster"): Library(
        _xgboost_booster_rounds,
        _xgboost_booster_margins,
        _largest(lambda booster, X: booster.predict(_xgboost_points(X), output_margin=True)),
        _xgboost_booster_classes,
        raw=True,
    ),
    ("lightgbm", "LGBMClassifier"): Library(_lightgbm_rounds, _lightgbm_margins),
    ("lightgbm", "Booster"): Library(
        _lightgbm_booster_rounds,
        _lightgbm_booster_margins,
        _largest(lambda booster, X: booster.predict(X, raw_score=True)),
        _lightgbm_booster_classes,
        raw=True,
    ),
    ("catboost", "CatBoostClassifier"): Library(_catboost_rounds, _catboost_margins),
    ("catboost", "CatBoost"): Library(
        _catboost_rounds,
        _catboost_margins,
        lambda model, X: model.predict(X, prediction_type="Class"),
    ),
}


def known(model: Any) -> tuple[str, str] | None:
    """The line of `LIBRARIES` that a model belongs to, if there is one."""
    places = [(base.__module__.split(".")[0], base.__name__) for base in type(model).__mro__]
    return next((place for place in places if place in LIBRARIES), None)


def _trained(booster: Any, rounds: int) -> None:
    if not rounds:
        raise NotFitted(
            f"`model` must be trained, got a {type(booster).__name__} without rounds: train it "
            "first"
        )


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
