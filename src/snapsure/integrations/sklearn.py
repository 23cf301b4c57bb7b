"""A scikit-learn classifier that answers, or sends the example to review.

`SelectiveEstimator` trains any classifier, learns from held-out examples how far to trust its
answers, and keeps a promised error rate among those it gives. It does not need PyTorch.
"""

from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.base import (  # type: ignore[import-untyped]
    BaseEstimator,
    ClassifierMixin,
    MetaEstimatorMixin,
)
from sklearn.frozen import FrozenEstimator  # type: ignore[import-untyped]
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
from snapsure.errors import Infeasible, InvalidInput
from snapsure.estimators import Estimator, Final
from snapsure.evaluation._choose import choose_estimator
from snapsure.integrations._stages import read_stages, train_stages
from snapsure.integrations.trees import refuse_unfitted
from snapsure.table import ScoreTable

__all__ = ["Decision", "SelectiveEstimator"]

_MIN_EXAMPLES = 10  # to choose an estimator by: with fewer, some split has none to judge on


class Decision(NamedTuple):
    """The answers of a selective classifier, one per example.

    `label` is the predicted class, also where it is not accepted; `confidence` is the probability
    that it is right; `accepted` is False for examples to send to review.
    """

    label: Array
    confidence: Floats
    accepted: Bools


class SelectiveEstimator(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier with a reject option and a promised error rate.

    `fit` trains the classifier on some of the examples and holds the others out. These choose how
    to compute the confidence from its stages (from the final one, unless AES, LES, PES or an
    earlier stage ranks right above wrong significantly better), turn it into a probability, and,
    with `risk`, set the threshold, on a half of them that nothing else has used.

    Parameters
    ----------
    estimator : classifier with `predict_proba`, or a Pipeline or a search over one
        Stages are available for scikit-learn's gradient boosting, XGBoost, LightGBM, CatBoost, for
        classifiers with `staged_predict_proba`, and for those with `partial_fit`, which is called
        once per epoch (MLPClassifier, SGDClassifier). Any other has its final stage alone.
        A search (`GridSearchCV`) finds the best model on the examples that are not held out, and
        that model is trained once more.
        Pass one that is trained already as `FrozenEstimator(model)`, or with `prefit=True`: then
        `fit` holds out all the examples, which the classifier must not have seen. `clone` and
        cross-validation keep the training of a `FrozenEstimator` alone.
    risk : float, optional
        The error rate to promise among accepted examples; without it, all are accepted.
    delta : float
        How often the promise may be broken, over draws of the held-out examples.
    held_out : float
        The share of the examples to hold out, the same in every class.
    stages : int
        The most stages to use, evenly spaced. 1: the final one alone, trained by `fit`.
    epochs : int, optional
        How many epochs to train by `partial_fit`; by default as many as the classifier's own `fit`
        takes (its `n_iter_`), for which it is trained twice.
    passes : int, optional
        The most stages that an answer may use.
    prefit : bool
        Whether `estimator` is trained already.
    infeasible : "raise" or "reject"
        What to do where the held-out examples cannot promise the risk: raise `Infeasible`, or send
        all examples to review, so that a search or a cross-validation continues.
    reject : int, float or str
        What `predict` returns for examples to send to review: a number where classes are numbers, a
        string where they are strings, and none of the classes.
    random_state : int, RandomState or None
        Fixes what is held out and how it is split. The classifier has its own seed.

    Attributes
    ----------
    estimator_ : classifier or Pipeline
        Trained on the examples that were not held out.
    classes_, n_features_in_, feature_names_in_
        As of `estimator_`.
    confidence_estimator_ : Estimator
        The chosen one; `reason_` says why.
    calibration_ : Platt or None
        From its confidence to a probability; None where it is one already.
    threshold_ : Threshold or None
        It holds the promise; None without `risk`. Where no promise is possible (`infeasible=
        "reject"`), it accepts nothing: `theta` is infinite.
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
        prefit: bool = False,
        infeasible: Literal["raise", "reject"] = "raise",
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
        self.prefit = prefit
        self.infeasible = infeasible
        self.reject = reject
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "SelectiveEstimator":
        """Train on some of the examples; learn from the others how far to trust the answers.

        Raises
        ------
        Infeasible
            If the held-out examples cannot prove the risk; the message says which they can.
            With `infeasible="reject"`, all examples go to review instead.
        InvalidInput
            If a parameter breaks its rule, or the classifier has no probabilities.
        """
        X, y = indexable(X, column_or_1d(y, warn=True))
        check_classification_targets(y)
        self._check_parameters(np.unique(y))
        random = np.random.default_rng(check_random_state(self.random_state).randint(2**31))

        # Rows to train on, to choose an estimator by, and (with a risk) to promise by.
        is_trained = self.prefit or isinstance(self.estimator, FrozenEstimator)
        some = np.arange(y.size) if is_trained else _hold_out(y, self.held_out, random)
        held = random.permutation(some)
        if held.size < 2:
            raise InvalidInput(
                "`X` must have examples to train on and examples to hold out, got "
                f"{y.size} in {np.unique(y).size} class{'es' * (np.unique(y).size > 1)}. Pass more."
            )
        train = np.setdiff1d(np.arange(y.size), held)
        cut = held.size if self.risk is None else held.size // 2
        choose, promise = np.sort(held[:cut]), np.sort(held[cut:])

        seed = int(random.integers(2**31))
        if is_trained:
            frozen = isinstance(self.estimator, FrozenEstimator)
            model = self.estimator.estimator if frozen else self.estimator
            remedy = "Train it; where `clone` makes it new, pass FrozenEstimator(model)."
            refuse_unfitted(model, "estimator", remedy)
            self._stages = read_stages(model, X, stages=self.stages)
        else:
            self._stages = train_stages(
                self.estimator,
                _safe_indexing(X, train),
                y[train],
                stages=self.stages,
                epochs=self.epochs,
                seed=seed,
            )
        self.estimator_ = self._stages.model
        self.classes_ = np.asarray(self.estimator_.classes_)
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if getattr(self.estimator_, name, None) is not None:
                setattr(self, name, getattr(self.estimator_, name))

        table = self._stages.table(_safe_indexing(X, choose), y[choose])
        self._choose(table, int(random.integers(2**31)))
        self.threshold_ = None
        if self.risk is not None:
            table = self._stages.table(_safe_indexing(X, promise), y[promise])
            self.threshold_ = self._promise(self._confidence(table), table.errors, self.risk)
        return self

    def predict(self, X: Any) -> Array:
        """Return the class of each example, (n,); `reject` for those to send to review."""
        check_is_fitted(self)
        if self.threshold_ is None:
            return np.asarray(self.estimator_.predict(X)).reshape(-1)
        label, _, accepted = self.decide(X)
        # As an array, it widens labels of few bits, such as uint8, instead of wrapping around.
        return np.where(accepted, label, np.asarray(self.reject))

    def predict_proba(self, X: Any) -> Floats:
        """Return the class probabilities of the final classifier, (n, classes)."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)  # type: ignore[no-any-return]

    def confidence(self, X: Any) -> Floats:
        """Return the probability that the predicted class is right, (n,)."""
        return self.decide(X).confidence

    def decide(self, X: Any) -> Decision:
        """Return label, confidence, and whether it is accepted, for each example.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> X, y = load_iris(return_X_y=True)
        >>> selective = SelectiveEstimator(LogisticRegression(max_iter=1000), random_state=0)
        >>> selective.fit(X, y).decide(X[:2]).accepted  # without a risk, all are accepted
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
        """Return the tags of the classifier inside, but with one class per example."""
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        if inner.classifier_tags is not None:
            tags.classifier_tags.multi_class = inner.classifier_tags.multi_class
            tags.classifier_tags.poor_score = inner.classifier_tags.poor_score
        return tags

    def _check_parameters(self, classes: Array) -> None:
        _validate.fraction(self.delta, "delta", open_above=True)
        _validate.fraction(self.held_out, "held_out", open_above=True)
        _validate.count(self.stages, "stages")
        _validate.choice(self.infeasible, ("raise", "reject"), "infeasible")
        for name in ("epochs", "passes"):
            if getattr(self, name) is not None:
                _validate.count(getattr(self, name), name)
        if self.risk is None:
            return  # nothing is rejected
        _validate.fraction(self.risk, "risk", open_above=True)
        words = classes.dtype.kind not in "biuf"
        if not isinstance(self.reject, str if words else Real):
            remedy = "Pass reject='reject'." if words else "Pass reject=-1, or another number."
            raise InvalidInput(
                f"`reject` must be a {'string' if words else 'number'} like the classes, got "
                f"{self.reject!r}. {remedy}"
            )
        if self.reject in classes.tolist():
            raise InvalidInput(
                f"`reject` must be none of the classes, got {self.reject!r}, which is one. Pass "
                "another value."
            )

    def _promise(self, confidence: Floats, errors: Bools, risk: float) -> Threshold:
        try:
            return Threshold.at_risk(confidence, errors, risk, self.delta)
        except Infeasible:
            if self.infeasible == "raise":
                raise
            # What accepts nothing keeps every promise.
            return Threshold(np.inf, 0.0, risk=risk, delta=self.delta, n=errors.size)

    def _choose(self, table: ScoreTable, seed: int) -> None:
        n, wrong = table.y_hat.size, int(table.errors.sum())
        self.confidence_estimator_: Estimator
        self.calibration_: Platt | None
        if n >= _MIN_EXAMPLES and 1 < wrong < n - 1:
            choice = choose_estimator(table, "softmax", self.passes, seed)
            self.confidence_estimator_, self.calibration_ = choice.estimator, choice.calibration
            self.reason_ = choice.reason
        else:
            final = Final().fit(table)
            self.confidence_estimator_ = final
            self.calibration_ = Platt().fit(final.confidence(table), table.errors)
            self.reason_ = (
                f"the final softmax: {wrong} wrong of {n} held-out examples are too few to choose "
                "another"
            )
        self._stages.keep(self.confidence_estimator_.snapshots(table.epochs))
        self.stages_ = self._stages.epochs.tolist()

    def _confidence(self, table: ScoreTable) -> Floats:
        score = self.confidence_estimator_.confidence(table)
        return score if self.calibration_ is None else self.calibration_.predict_proba(score)


def _hold_out(y: Array, share: float, random: np.random.Generator) -> Ints:
    """Draw rows, the same share of every class; one example of each always stays to train on."""
    codes = np.unique(y, return_inverse=True)[1]
    order = random.permutation(y.size)
    order = order[np.argsort(codes[order], kind="stable")]
    free = order[np.diff(codes[order], prepend=-1) == 0]
    n = min(round(share * y.size), free.size)
    places = (np.arange(n) + random.random()) * (free.size / max(1, n))
    rows: Ints = free[places.astype(np.int64)]
    return rows
