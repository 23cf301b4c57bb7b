"""A classifier of scikit-learn's kind that answers, or hands the point to a person.

`SelectiveEstimator` trains any classifier, learns on held-out points how far its answers can be
trusted, and keeps a promised error rate among those it gives. No PyTorch.
"""

from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import (  # type: ignore[import-untyped]
    BaseEstimator,
    ClassifierMixin,
    MetaEstimatorMixin,
)
from sklearn.utils import (  # type: ignore[import-untyped]
    _safe_indexing,
    check_random_state,
    get_tags,
    indexable,
)
from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
from sklearn.utils.validation import check_is_fitted, column_or_1d  # type: ignore[import-untyped]

from snapsure import _validate
from snapsure._types import Array, Bools, Floats, Ints
from snapsure.decisions import Platt, Threshold
from snapsure.errors import InvalidInput
from snapsure.estimators import Estimator, Final
from snapsure.evaluation._choose import choose_estimator
from snapsure.integrations._stages import trained
from snapsure.table import ScoreTable

__all__ = ["Decision", "SelectiveEstimator"]

_FEWEST = 10  # points to choose by: with fewer, some split has none to judge on


class Decision(NamedTuple):
    """What a selective classifier says of n points.

    Attributes
    ----------
    label : (n,) array
        The classifier's prediction, also where it is not accepted.
    confidence : (n,) float array
        The probability that it is right.
    accepted : (n,) bool array
        False for points that a person should decide.
    """

    label: Array
    confidence: Floats
    accepted: Bools


class SelectiveEstimator(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier with a reject option and a promised error rate.

    `fit` trains the classifier on some of the points. The others are held out: they choose how
    confidence is read off its stages (the final one alone, unless AES, LES, PES or an earlier stage
    ranks right from wrong better by more than chance), turn it into a probability, and, with
    `risk`, set the threshold, on a half of them that nothing else has used.

    Parameters
    ----------
    estimator : classifier with `predict_proba`, or a Pipeline or a search over one
        Of a search (`GridSearchCV`), the best is found on the points that are not held out, and
        trained once more. Stages are known of scikit-learn's gradient boosting, XGBoost, LightGBM,
        CatBoost, of what has `staged_predict_proba`, and of what has `partial_fit`, which is called
        once per epoch (MLPClassifier, SGDClassifier). Any other has its final stage alone.
    risk : float, optional
        The error rate to promise among accepted points; without it, all are accepted.
    delta : float
        How often the promise may be broken, over draws of the held-out points.
    held_out : float
        The share of the points to hold out, of every class the same.
    stages : int
        The most stages to look at, evenly spaced. 1: the final one alone, trained by `fit`.
    epochs : int, optional
        How many epochs `partial_fit` trains; by default as many as the classifier's own `fit` takes
        (its `n_iter_`), for which it is trained twice.
    passes : int, optional
        The most stages that an answer may use.
    reject : int, float or str
        What `predict` answers for points that a person should decide: a number where classes are
        numbers, a string where they are strings, and none of the classes.
    random_state : int, RandomState or None
        Of what is held out and how it is split. The classifier has a seed of its own.

    Attributes
    ----------
    estimator_ : classifier or Pipeline
        Trained on the points that were not held out.
    classes_ : (classes,) array
    n_features_in_ : int
    feature_names_in_ : (features,) array
        Where `X` has names of type str.
    confidence_estimator_ : Estimator
        What was chosen; `reason_` says why.
    calibration_ : Platt or None
        From its confidence to a probability; None where it is one.
    threshold_ : Threshold or None
        With the promise; None without `risk`.
    stages_ : list of int
        The stages that an answer uses.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = HistGradientBoostingClassifier(max_iter=30, random_state=0)
    >>> selective = SelectiveEstimator(model, risk=0.1, random_state=0).fit(X[:1500], y[:1500])
    >>> label, confidence, accepted = selective.decide(X[1500:])
    >>> bool((selective.predict(X[1500:]) == np.where(accepted, label, -1)).all())
    True
    """

    def __init__(
        self,
        estimator: Any,
        risk: float | None = None,
        delta: float = 0.05,
        *,
        held_out: float = 0.3,
        stages: int = 50,
        epochs: int | None = None,
        passes: int | None = None,
        reject: float | str = -1,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.risk = risk
        self.delta = delta
        self.held_out = held_out
        self.stages = stages
        self.epochs = epochs
        self.passes = passes
        self.reject = reject
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "SelectiveEstimator":
        """Train on some of the points; learn on the others how far answers can be trusted.

        Raises
        ------
        Infeasible
            If the held-out points cannot prove the risk; says which they could.
        InvalidInput
            If a parameter breaks its rule, or the classifier gives no probabilities.
        """
        self._check_parameters()
        X, y = indexable(X, column_or_1d(y, warn=True))
        check_classification_targets(y)
        self._check_reject(np.unique(y))
        random = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        train, learn, rest = self._parts(y, random)
        self._train(_safe_indexing(X, train), y[train], int(random.integers(2**31)))
        table = self._stages.table(_safe_indexing(X, learn), y[learn])
        self._choose(table, int(random.integers(2**31)))
        self.threshold_ = None
        if self.risk is not None:
            final = self._stages.table(_safe_indexing(X, rest), y[rest])
            confidence = self._confidence(final)
            self.threshold_ = Threshold.at_risk(confidence, final.errors, self.risk, self.delta)
        return self

    def predict(self, X: Any) -> Array:
        """The class of each point, (n,); `reject` where a person should decide."""
        check_is_fitted(self)
        if self.threshold_ is None:
            return np.asarray(self.estimator_.predict(X)).reshape(-1)
        label, _, accepted = self.decide(X)
        return np.where(accepted, label, self.reject)

    def predict_proba(self, X: Any) -> Floats:
        """Class probabilities of the final classifier, (n, classes), as it gives them."""
        check_is_fitted(self)
        probabilities: Floats = self.estimator_.predict_proba(X)
        return probabilities

    def confidence(self, X: Any) -> Floats:
        """The probability that the predicted class is right, (n,)."""
        return self.decide(X).confidence

    def decide(self, X: Any) -> Decision:
        """Label, confidence, and whether it is accepted, of each point.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> X, y = load_iris(return_X_y=True)
        >>> selective = SelectiveEstimator(LogisticRegression(max_iter=1000), random_state=0)
        >>> selective.fit(X, y).decide(X[:2]).accepted  # no risk is promised: all are accepted
        array([ True,  True])
        """
        check_is_fitted(self)
        table = self._stages.table(X)
        confidence = self._confidence(table)
        accepted = np.ones(confidence.size, np.bool_)
        if self.threshold_ is not None:
            accepted = self.threshold_.accepts(confidence)
        return Decision(self.classes_[table.y_hat], confidence, accepted)

    def __sklearn_tags__(self) -> Any:
        """What the classifier inside takes, but one class per point."""
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        if inner.classifier_tags is not None:
            tags.classifier_tags.multi_class = inner.classifier_tags.multi_class
            tags.classifier_tags.poor_score = inner.classifier_tags.poor_score
        return tags

    def _check_parameters(self) -> None:
        if self.risk is not None:
            _validate.fraction(self.risk, "risk", open_above=True)
        _validate.fraction(self.delta, "delta", open_above=True)
        _validate.fraction(self.held_out, "held_out", open_above=True)
        _validate.count(self.stages, "stages")
        for name in ("epochs", "passes"):
            if getattr(self, name) is not None:
                _validate.count(getattr(self, name), name)

    def _check_reject(self, classes: Array) -> None:
        if self.risk is None:
            return  # nothing is rejected
        words = classes.dtype.kind not in "biuf"
        if not isinstance(self.reject, str if words else Real):
            advice = "pass reject='reject'" if words else "pass reject=-1, or another number"
            raise InvalidInput(
                f"`reject` must be a {'string' if words else 'number'} as the classes are, got "
                f"{self.reject!r}: {advice}"
            )
        if self.reject in classes.tolist():
            raise InvalidInput(
                f"`reject` must be none of the classes, got {self.reject!r}, which is one: pass "
                "another"
            )

    def _parts(self, y: Array, random: np.random.Generator) -> tuple[Ints, Ints, Ints]:
        """Rows to train on, to choose by, and (with a risk) to promise by."""
        held = random.permutation(_held_out(y, self.held_out, random))
        if held.size < 2:
            raise InvalidInput(
                f"`X` must have points to train on and points to hold out, got "
                f"{y.size} sample{'s' * (y.size > 1)} of {np.unique(y).size} class"
                f"{'es' * (np.unique(y).size > 1)}: pass more"
            )
        train = np.setdiff1d(np.arange(y.size), held)
        cut = held.size if self.risk is None else held.size // 2
        return train, np.sort(held[:cut]), np.sort(held[cut:])

    def _train(self, X: Any, y: Array, seed: int) -> None:
        self._stages = trained(
            self.estimator, X, y, stages=self.stages, epochs=self.epochs, seed=seed
        )
        self.estimator_ = self._stages.model
        self.classes_ = np.asarray(self.estimator_.classes_)
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if getattr(self.estimator_, name, None) is not None:
                setattr(self, name, getattr(self.estimator_, name))

    def _choose(self, table: ScoreTable, seed: int) -> None:
        n, wrong = table.y_hat.size, int(table.errors.sum())
        self.confidence_estimator_: Estimator
        self.calibration_: Platt | None
        if n >= _FEWEST and 1 < wrong < n - 1:
            choice = choose_estimator(table, "softmax", self.passes, seed)
            self.confidence_estimator_, self.calibration_ = choice.estimator, choice.calibration
            self.reason_ = choice.reason
        else:
            self.confidence_estimator_ = Final().fit(table)
            self.calibration_ = Platt().fit(
                self.confidence_estimator_.confidence(table), table.errors
            )
            self.reason_ = (
                f"the final softmax alone: {wrong} wrong of {n} held-out points are too few to "
                "choose another by"
            )
        self._stages.keep(self.confidence_estimator_.snapshots(table.epochs))
        self.stages_ = self._stages.epochs.tolist()

    def _confidence(self, table: ScoreTable) -> Floats:
        score = self.confidence_estimator_.confidence(table)
        return score if self.calibration_ is None else self.calibration_.predict_proba(score)


def _held_out(y: Array, share: float, random: np.random.Generator) -> Ints:
    """Rows to hold out, of every class the same share; one point of each is always trained on."""
    codes = np.unique(y, return_inverse=True)[1]
    order = random.permutation(y.size)
    order = order[np.argsort(codes[order], kind="stable")]
    free = order[np.diff(codes[order], prepend=-1) == 0]
    n = min(round(share * y.size), free.size)
    places = (np.arange(n) + random.random()) * (free.size / max(1, n))
    rows: Ints = free[places.astype(np.int64)]
    return rows
