"""Score tables of boosted trees: a stage of boosting is a snapshot, its epoch the rounds so far.

κ is the softmax of the chosen class, computed in float64 from the margins that trees add up: the
float32 probabilities of XGBoost collapse onto exactly 1.0. How each library is read:
`_boosting.py`.
"""

from collections.abc import Sequence
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
from snapsure._types import Array, Ints
from snapsure.errors import InvalidInput, NotFitted
from snapsure.integrations._boosting import LIBRARIES, Library, known, one_per_class
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
        `XGBClassifier`, `LGBMClassifier`, `CatBoostClassifier` or `CatBoost`; a `Booster` of
        XGBoost or LightGBM, as their `train` returns it; or a `Pipeline` that ends with one of
        these, or a search over one (`GridSearchCV`), of which the best is scored. The final
        snapshot is what `model.predict` uses: with early stopping the best round, except of
        XGBoost's `Booster`, which predicts with all.
    X : (n, features)
        Points that were not trained on, in any form that `model.predict` takes; of a `Booster`,
        arrays, data frames and sparse matrices too.
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
    model, X = _innermost(model, X)
    library = _library_of(model)
    epochs = _chosen(stages, library.rounds(model))
    classes = library.classes(model)
    y_hat = class_ids(_column(library.answers(model, X)), classes, "model.predict(X)")
    hint = (
        f"a {type(model).__name__} has no names for its classes: number them 0…{len(classes) - 1}"
    )
    told = hint if library.raw else "compare with model.classes_"
    truth = None if y is None else class_ids(y, classes, "y", told)
    if truth is not None:
        _validate.same_length("X", y_hat.shape, "y", truth.size)
    kappa = np.empty((epochs.size, y_hat.size))
    labels = np.empty(kappa.shape, np.int64)
    for i, margins in enumerate(library.margins(model, X, epochs)):
        z = one_per_class(margins)
        kappa[i], labels[i] = sigmoid(log_odds(z, y_hat)), z.argmax(axis=1)
    labels[-1] = y_hat  # where two classes are equal, each library has its own rule
    return ScoreTable({"softmax": kappa}, labels, truth, y_hat=y_hat, epochs=epochs)


def is_boosted(model: Any) -> bool:
    """Whether it is of a class whose stages can be scored."""
    return known(model) is not None


def chosen_stages(model: Any, stages: int | Sequence[int]) -> Ints:
    """After which rounds the stages are, the final one last."""
    return _chosen(stages, _library_of(model).rounds(model))


def refuse_no_refit(search: Any, name: str) -> None:
    """Refuse a search that is left without its best model."""
    if not search.refit:
        raise InvalidInput(
            f"`{name}` must train its best again on all points, got "
            f"{type(search).__name__}(refit=False): leave out `refit`"
        )


def is_search(model: Any) -> bool:
    """Whether it looks for the best of several models, as GridSearchCV does."""
    return isinstance(model, BaseSearchCV)


def _innermost(model: Any, X: Any) -> tuple[Any, Any]:
    """The classifier inside pipelines and searches, and the points as it sees them."""
    while True:
        if is_search(model):
            refuse_no_refit(model, "model")
            _refuse_unfitted(model)
            model = model.best_estimator_
        elif isinstance(model, Pipeline):
            _refuse_unfitted(model)
            X = model[:-1].transform(X) if len(model) > 1 else X
            model = model[-1]
        else:
            return model, X


def _library_of(model: Any) -> Library:
    place = known(model)
    if place is None:
        names = dict.fromkeys(name for _, name in LIBRARIES)
        raise InvalidInput(
            f"`model` must be one of {', '.join(names)}, or a Pipeline or search over one, got "
            f"{type(model).__name__}: of another model, stack the class probabilities of its "
            "stages (of one with partial_fit, predict_proba after each epoch) in "
            "ScoreTable.from_probabilities(probs, y)"
        )
    library = LIBRARIES[place]
    if not library.raw:
        _refuse_unfitted(model)
    return library


def _refuse_unfitted(model: Any) -> None:
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise NotFitted(
            f"`model` must be fitted, got {type(model).__name__} that is not: call fit first"
        ) from None


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
    return class_ids(_column(model.predict(X)), model.classes_, f"{name}.predict(X)")


def _column(answers: Any) -> Array:
    column = np.asarray(answers)
    # So CatBoost answers, where there are more than two classes.
    return column[:, 0] if column.ndim == 2 and column.shape[1] == 1 else column


def class_ids(
    values: ArrayLike, classes: Array, name: str, hint: str = "compare with model.classes_"
) -> Ints:
    """Places of values among the classes."""
    given = np.asarray(values)
    if given.ndim != 1:
        raise InvalidInput(
            f"`{name}` must be 1-D (n,), got shape {given.shape}: one class per point is needed"
        )
    place = {value: i for i, value in enumerate(np.asarray(classes).tolist())}
    ids = [place.get(value, -1) for value in given.tolist()]
    if -1 in ids:
        at = ids.index(-1)
        raise InvalidInput(
            f"`{name}` must hold classes that the model was trained on, got "
            f"{given.tolist()[at]!r} at row {at}: {hint}"
        )
    return np.array(ids, np.int64)
