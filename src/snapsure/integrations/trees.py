"""Score tables of boosted trees: a stage of boosting is a snapshot, its epoch the rounds so far.

κ is the softmax of the chosen class, computed in float64 from the margins that trees add up: the
float32 probabilities of XGBoost collapse onto exactly 1.0. The class of the model decides which
library is used; none is imported here. To add a library, add a line to `LIBRARIES`.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError  # type: ignore[import-untyped]
from sklearn.model_selection._search import BaseSearchCV  # type: ignore[import-untyped]
from sklearn.pipeline import Pipeline  # type: ignore[import-untyped]
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
        `XGBClassifier`, `LGBMClassifier`, `CatBoostClassifier`, `CatBoost`, a `Booster` of XGBoost
        or LightGBM; a `Pipeline` that ends with one of these, or the best model of a search
        (`GridSearchCV`). The final snapshot is what `model.predict` uses: with early stopping the
        best round, except for XGBoost's `Booster`, which predicts with all rounds.
    X : (n, features)
        Examples that were not trained on, in any form that `model.predict` takes; for a `Booster`
        also arrays, data frames and sparse matrices.
    y : (n,), optional
        Their classes, as in the training data.
    stages : int or sequence of int
        How many stages, evenly spaced over the rounds (at most all), or after which rounds. The
        final one is always included.

    Returns
    -------
    ScoreTable
        κ is `softmax`. Labels are places in `model.classes_`.

    Raises
    ------
    InvalidInput
        For models whose first trees are not an earlier model (dart, random forests) or that have no
        class probabilities, for unknown classes, and for stages that the model does not have.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = GradientBoostingClassifier(n_estimators=20, random_state=0).fit(X[::2], y[::2])
    >>> score_stages(model, X[1::2], y[1::2])
    <ScoreTable: softmax; 20 snapshots × 89 examples>
    """
    while isinstance(model, BaseSearchCV | Pipeline):
        if isinstance(model, BaseSearchCV):
            refuse_no_refit(model, "model")
            refuse_unfitted(model)
            model = model.best_estimator_
        else:
            refuse_unfitted(model)
            X = model[:-1].transform(X) if len(model) > 1 else X
            model = model[-1]
    library, epochs = _find_library(model), choose_stages(model, stages)

    if library.is_raw:
        (final,) = library.margins(model, X, epochs[-1:])
        z = _one_margin_per_class(final)
        classes, answers, name = np.arange(z.shape[1]), z.argmax(axis=1), type(model).__name__
        hint = f"A {name} has no names for its classes; number them 0…{classes[-1]}."
    else:
        classes, answers = model.classes_, library.answers(model, X)
        hint = "Compare with `model.classes_`."
    y_hat = find_classes(flatten(answers), classes, "model.predict(X)", hint)
    truth = None
    if y is not None:
        truth = find_classes(y, classes, "y", hint)
        _validate.same_length("X", y_hat.shape, "y", truth.size)

    kappa = np.empty((epochs.size, y_hat.size))
    labels = np.empty(kappa.shape, np.int64)
    for i, margins in enumerate(library.margins(model, X, epochs)):
        z = _one_margin_per_class(margins)
        kappa[i], labels[i] = sigmoid(log_odds(z, y_hat)), z.argmax(axis=1)
    labels[-1] = y_hat  # each library breaks ties between classes by its own rule
    return ScoreTable({"softmax": kappa}, labels, truth, y_hat=y_hat, epochs=epochs)


def is_boosted(model: Any) -> bool:
    """Say whether the stages of models of this class can be scored."""
    return _look_up(model) is not None


def choose_stages(model: Any, stages: int | Sequence[int]) -> Ints:
    """Return after which rounds the stages are, the final one last."""
    last = _find_library(model).rounds(model)
    if np.ndim(stages) == 0:
        k = _validate.count(stages, "stages")  # type: ignore[arg-type]
        return evenly_spaced(1, last, min(k, last))
    wanted = _validate.whole_numbers(stages, "stages")
    outside = wanted[(wanted < 1) | (wanted > last)]
    if outside.size:
        raise InvalidInput(
            f"`stages` must be between 1 and {last}, got {outside[0]}. The model predicts with "
            f"{last} rounds."
        )
    return np.union1d(wanted, last)


def pick_stages(stages: Iterable[Array], epochs: Ints) -> Iterator[Array]:
    """Yield the stages after some rounds, from those after every round."""
    wanted = set(epochs.tolist())
    return (stage for epoch, stage in enumerate(stages, 1) if epoch in wanted)


def refuse_no_refit(search: Any, name: str) -> None:
    """Refuse a search that does not keep its best model."""
    if not search.refit:
        raise InvalidInput(
            f"`{name}` must train its best model on all examples, got "
            f"{type(search).__name__}(refit=False). Leave out `refit`."
        )


def find_classes(
    values: ArrayLike, classes: Array, name: str, hint: str = "Compare with `model.classes_`."
) -> Ints:
    """Return the places of values among the classes."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise InvalidInput(
            f"`{name}` must be 1-D (n,), got shape {array.shape}. Pass one class per example."
        )
    place = {value: i for i, value in enumerate(np.asarray(classes).tolist())}
    ids = [place.get(value, -1) for value in array.tolist()]
    if -1 in ids:
        at = ids.index(-1)
        raise InvalidInput(
            f"`{name}` must hold classes that the model was trained on, got "
            f"{array.tolist()[at]!r} at row {at}. {hint}"
        )
    return np.array(ids, np.int64)


def flatten(answers: Any) -> Array:
    """Return answers as (n,): CatBoost's are (n, 1) for more than two classes."""
    column = np.asarray(answers)
    return column[:, 0] if column.ndim == 2 and column.shape[1] == 1 else column


def _one_margin_per_class(margins: Array) -> Floats:
    """Return margins (n, classes) as float64; for two classes libraries give the second alone."""
    z = margins.astype(np.float64).reshape(len(margins), -1)
    return z if z.shape[1] > 1 else np.hstack([np.zeros_like(z), z])


def refuse_unfitted(model: Any, name: str = "model", remedy: str = "Call `fit` first.") -> None:
    """Refuse a model of scikit-learn that is not trained."""
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise NotFitted(
            f"`{name}` must be fitted, got {type(model).__name__} that is not. {remedy}"
        ) from None


@dataclass(frozen=True)
class Library:
    """How to read the stages of one class of models."""

    rounds: Callable[[Any], int]  # as many as `predict` uses; refuses models without stages
    margins: Callable[[Any, Any, Ints], Iterator[Array]]  # in log-odds, after each epoch
    answers: Callable[[Any, Any], Array] = lambda model, X: model.predict(X)
    is_raw: bool = False  # it predicts margins or probabilities, of classes 0, 1, 2 …


def _staged_margins(model: Any, X: Any, epochs: Ints) -> Iterator[Array]:
    # The exponential loss has probability expit(2 · margin).
    scale = 2.0 if model.loss == "exponential" else 1.0
    return (scale * each for each in pick_stages(model.staged_decision_function(X), epochs))


def _xgboost_rounds(model: Any) -> int:
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    rounds = 0
    with suppress(ValueError):  # XGBoost's error for a model that has seen no data
        rounds = int(booster.num_boosted_rounds())
    _refuse_untrained(booster, rounds)
    learner = json.loads(booster.save_config())["learner"]
    _refuse_boosting(learner["gradient_booster"]["name"], "gbtree")
    logistic = ("binary:logistic", "reg:logistic", "multi:softprob", "multi:softmax")
    _refuse_objective(learner["objective"]["name"], logistic)

    # After early stopping, XGBClassifier predicts with the best round, Booster with all.
    best = None if booster is model else booster.attr("best_iteration")
    return rounds if best is None else int(best) + 1


def _xgboost_margins(model: Any, X: Any, epochs: Ints) -> Iterator[Array]:
    # Each stage continues from the margins of the one before: the same sums, bit by bit, as all
    # rounds from the first, without T² of them.
    margins = None
    for rounds in pairwise([0, *epochs.tolist()]):
        margins = model.predict(X, output_margin=True, base_margin=margins, iteration_range=rounds)
        yield margins


def _xgboost_booster_margins(booster: Any, X: Any, epochs: Ints) -> Iterator[Array]:
    xgboost = sys.modules["xgboost"]  # the booster has imported it
    matrix = X if isinstance(X, xgboost.DMatrix) else xgboost.DMatrix(X, enable_categorical=True)
    before = matrix.get_base_margin()  # the matrix may be the user's: restore it
    try:
        for rounds in pairwise([0, *epochs.tolist()]):
            margins = booster.predict(matrix, output_margin=True, iteration_range=rounds)
            yield margins
            matrix.set_base_margin(margins.ravel())
    finally:
        matrix.set_base_margin(before)


def _lightgbm_rounds(model: Any) -> int:
    booster = getattr(model, "booster_", model)
    rounds = int(booster.current_iteration())
    _refuse_untrained(booster, rounds)
    boosting, objective, _ = _lightgbm_settings(booster)
    _refuse_boosting(boosting, "gbdt")
    _refuse_objective(objective, ("binary", "multiclass"))
    return int(booster.best_iteration) if booster.best_iteration > 0 else rounds


def _lightgbm_margins(model: Any, X: Any, epochs: Ints) -> Iterator[Array]:
    scale = _lightgbm_settings(getattr(model, "booster_", model))[2]
    margins = 0.0
    for start, end in pairwise([0, *epochs.tolist()]):
        more = {"start_iteration": start, "num_iteration": end - start}
        margins = margins + model.predict(X, raw_score=True, **more)
        yield scale * margins


def _lightgbm_settings(booster: Any) -> tuple[str, str, float]:
    """Return boosting, objective and the slope of its sigmoid, read from the trained model."""
    text = booster.model_to_string(num_iteration=1)
    boosting = re.search(r"^\[boosting: (\w+)\]$", text, re.M)
    objective = re.search(r"^objective=(\w+)(?:.* sigmoid:(\S+))?", text, re.M)
    return (
        boosting[1] if boosting else "unknown",
        objective[1] if objective else "custom",
        float(objective[2] or 1.0) if objective else 1.0,
    )


def _catboost_rounds(model: Any) -> int:
    loss = model.get_all_params()["loss_function"].partition(":")[0]
    _refuse_objective(loss, ("Logloss", "CrossEntropy", "MultiClass"))
    return int(model.tree_count_)


def _catboost_margins(model: Any, X: Any, epochs: Ints) -> Iterator[Array]:
    margins = model.staged_predict(X, prediction_type="RawFormulaVal", eval_period=1)
    return pick_stages(margins, epochs)


GRADIENT = Library(lambda model: int(model.n_estimators_), _staged_margins)
HISTOGRAM = Library(lambda model: int(model.n_iter_), _staged_margins)
LIBRARIES = {
    ("sklearn", "GradientBoostingClassifier"): GRADIENT,
    ("sklearn", "HistGradientBoostingClassifier"): HISTOGRAM,
    ("xgboost", "XGBClassifier"): Library(_xgboost_rounds, _xgboost_margins),
    ("xgboost", "Booster"): Library(_xgboost_rounds, _xgboost_booster_margins, is_raw=True),
    ("lightgbm", "LGBMClassifier"): Library(_lightgbm_rounds, _lightgbm_margins),
    ("lightgbm", "Booster"): Library(_lightgbm_rounds, _lightgbm_margins, is_raw=True),
    ("catboost", "CatBoostClassifier"): Library(_catboost_rounds, _catboost_margins),
    ("catboost", "CatBoost"): Library(
        _catboost_rounds,
        _catboost_margins,
        lambda model, X: model.predict(X, prediction_type="Class"),
    ),
}


def _look_up(model: Any) -> Library | None:
    names = [(base.__module__.split(".")[0], base.__name__) for base in type(model).__mro__]
    return next((LIBRARIES[name] for name in names if name in LIBRARIES), None)


def _find_library(model: Any) -> Library:
    if (library := _look_up(model)) is None:
        names = dict.fromkeys(name for _, name in LIBRARIES)
        raise InvalidInput(
            f"`model` must be one of {', '.join(names)}, or a Pipeline or search over one, got "
            f"{type(model).__name__}. For another model, stack the class probabilities of its "
            "stages (with partial_fit: predict_proba after each epoch) in "
            "ScoreTable.from_probabilities(probs, y)."
        )
    if not library.is_raw:
        refuse_unfitted(model)
    return library


def _refuse_untrained(booster: Any, rounds: int) -> None:
    if not rounds:
        raise NotFitted(
            f"`model` must be trained, got a {type(booster).__name__} without rounds. Train it "
            "first."
        )


def _refuse_boosting(got: str, required: str) -> None:
    if got != required:
        raise InvalidInput(
            f"`model` must be boosted with {required}, got {got}, whose first trees are not an "
            f"earlier model. Train with {required}."
        )


def _refuse_objective(got: str, allowed: Sequence[str]) -> None:
    if got not in allowed:
        raise InvalidInput(
            f"`model` must have the objective {' or '.join(allowed)}, got {got}. "
            "Train for class probabilities that sum to 1."
        )
