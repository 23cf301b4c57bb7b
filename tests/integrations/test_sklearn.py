"""`SelectiveEstimator` over real classifiers of each kind, and scikit-learn's own checks of it."""

import pickle
import subprocess
import sys
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator
from xgboost import XGBClassifier

from snapsure import Threshold
from snapsure.errors import Infeasible, InvalidInput
from snapsure.estimators import Final
from snapsure.evaluation._choose import choose_estimator
from snapsure.integrations.sklearn import Decision, SelectiveEstimator, _hold_out
from snapsure.integrations.trees import score_stages
from tests.support.refusals import refuses

pytestmark = pytest.mark.slow

X, Y = load_digits(return_X_y=True)
X = np.asarray(X + np.random.default_rng(0).normal(0, 3, X.shape))  # so that some are wrong
TRAIN, NEW = (X[:1200], Y[:1200]), (X[1200:], Y[1200:])
ROUNDS = 12

MODELS = {
    "gradient": lambda: GradientBoostingClassifier(
        n_estimators=ROUNDS, max_features=8, max_depth=2, random_state=0
    ),
    "histogram": lambda: HistGradientBoostingClassifier(
        max_iter=ROUNDS, max_leaf_nodes=7, random_state=0
    ),
    "xgboost": lambda: XGBClassifier(n_estimators=ROUNDS, max_depth=2, n_jobs=1),
    "lightgbm": lambda: LGBMClassifier(n_estimators=ROUNDS, num_leaves=4, n_jobs=1, verbose=-1),
    "catboost": lambda: CatBoostClassifier(
        iterations=ROUNDS, depth=3, thread_count=1, verbose=0, allow_writing_files=False
    ),
    "adaboost": lambda: AdaBoostClassifier(
        DecisionTreeClassifier(max_depth=5), n_estimators=ROUNDS, random_state=0
    ),
    "network": lambda: MLPClassifier((16,), learning_rate_init=0.01, random_state=0),
    "linear by epochs": lambda: SGDClassifier(loss="log_loss", random_state=0),
    "linear": lambda: LogisticRegression(max_iter=2000),
    "pipeline": lambda: make_pipeline(
        StandardScaler(), SelectKBest(k=30), GradientBoostingClassifier(n_estimators=4)
    ),
    "pipeline by epochs": lambda: make_pipeline(
        StandardScaler(), MLPClassifier((16,), learning_rate_init=0.01, random_state=0)
    ),
}
LOGISTIC = MODELS["linear"]()
EPOCHS = {"network": ROUNDS, "linear by epochs": ROUNDS, "pipeline by epochs": ROUNDS}


@cache
def fitted(name, risk=None):
    model = SelectiveEstimator(
        MODELS[name](), risk, held_out=0.5, epochs=EPOCHS.get(name), random_state=0
    )
    return model.fit(*TRAIN)


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_the_classifier_and_of_the_threshold(name):
    model, (x, _) = fitted(name, 0.5), NEW
    label, confidence, accepted = model.decide(x)
    assert (label == np.asarray(model.estimator_.predict(x)).ravel()).all()
    assert (confidence == model.confidence(x)).all()
    assert confidence.min() >= 0
    assert confidence.max() <= 1
    assert (accepted == (confidence >= model.threshold_.theta)).all()
    assert (model.predict(x) == np.where(accepted, label, -1)).all()
    np.testing.assert_array_equal(model.predict_proba(x), model.estimator_.predict_proba(x))
    assert (model.classes_ == np.arange(10)).all()
    assert model.n_features_in_ == 64
    assert model.threshold_.risk == 0.5
    assert model.threshold_.delta == 0.05
    assert model.threshold_.n == 300  # half of the half that was held out
    assert set(model.stages_) <= set(range(1, 51))


@pytest.mark.parametrize("name", ["xgboost", "pipeline by epochs", "linear"])
def test_without_a_risk_all_are_accepted(name):
    model, (x, y) = fitted(name), NEW
    assert model.threshold_ is None
    assert model.decide(x).accepted.all()
    assert (model.predict(x) == model.estimator_.predict(x)).all()
    assert model.score(x, y) == model.estimator_.score(x, y)


@pytest.mark.parametrize("name", ["network", "pipeline", "catboost"])
def test_the_same_seed_gives_the_same_and_a_pickle_too(name):
    model, (x, _) = fitted(name, 0.5), NEW
    before = model.decide(x)
    if name == "network":
        assert all(map(np.array_equal, before, clone(model).fit(*TRAIN).decide(x)))
    assert all(map(np.array_equal, before, pickle.loads(pickle.dumps(model)).decide(x)))


def test_confidence_is_what_the_room_of_the_evaluation_chooses():
    """Every stage, from the held-out rows alone, by the table's own way."""
    model = SelectiveEstimator(MODELS["histogram"](), held_out=0.4, random_state=3).fit(*TRAIN)
    x, y = TRAIN
    random = np.random.default_rng(np.random.RandomState(3).randint(2**31))
    held = np.sort(random.permutation(_hold_out(y, 0.4, random)))
    train = np.setdiff1d(np.arange(y.size), held)
    alone = MODELS["histogram"]().fit(x[train], y[train])
    assert (model.predict_proba(x) == alone.predict_proba(x)).all()
    random.integers(2**31)  # the epochs' seed
    table = score_stages(alone, x[held], y[held])
    choice = choose_estimator(table, "softmax", None, int(random.integers(2**31)))
    assert model.reason_ == choice.reason
    score = choice.estimator.confidence(score_stages(alone, NEW[0]))
    if choice.calibration is not None:
        score = choice.calibration.predict_proba(score)
    np.testing.assert_allclose(model.confidence(NEW[0]), score, rtol=1e-12)


def test_epochs_are_those_of_partial_fit():
    model = SelectiveEstimator(MODELS["network"](), epochs=7, passes=1, random_state=0)
    assert model.fit(*TRAIN).estimator_.t_ == 7 * (1200 - 360)  # points seen
    assert model.stages_[-1] == 7
    own = SGDClassifier(loss="log_loss", early_stopping=True, random_state=0)
    model = SelectiveEstimator(own, stages=3, random_state=0).fit(*TRAIN)
    assert model.estimator_.early_stopping is False
    assert len(model.stages_) <= 3
    assert own.early_stopping is True
    alone = SelectiveEstimator(MODELS["gradient"](), stages=1, random_state=0).fit(*TRAIN)
    assert alone.stages_ == [1]
    assert isinstance(alone.confidence_estimator_, Final)
    bayes = SelectiveEstimator(GaussianNB(), random_state=0).fit(*TRAIN)  # no epochs of its own
    assert bayes.stages_ == [1]


@pytest.mark.parametrize(
    ("seed", "share", "counts"),
    [(0, 0.3, [100, 50, 1]), (1, 0.5, [7, 7, 7]), (2, 0.1, [1000, 30]), (3, 0.9, [5, 5])],
)
def test_every_class_is_held_out_alike_and_trained_on(seed, share, counts):
    random = np.random.default_rng(seed)
    y = random.permutation(np.repeat(np.arange(len(counts)), counts))
    held = _hold_out(y, share, random)
    assert np.unique(held).size == held.size == min(round(share * y.size), y.size - len(counts))
    for label, count in enumerate(counts):
        taken = int((y[held] == label).sum())
        assert taken < count
        assert abs(taken - held.size * (count - 1) / (y.size - len(counts))) < 1 + 1e-9


def test_string_classes():
    names = np.array([f"digit {i}" for i in range(10)])
    for y in (names[TRAIN[1]], names[TRAIN[1]].astype(object), pd.Series(names[TRAIN[1]])):
        model = SelectiveEstimator(
            MODELS["histogram"](), 0.6, held_out=0.5, reject="reject", random_state=0
        ).fit(TRAIN[0], y)
        answers, (label, _, accepted) = model.predict(NEW[0]), model.decide(NEW[0])
        assert model.classes_.tolist() == names.tolist()
        assert set(label) <= set(names)
        assert (answers[accepted] == label[accepted]).all()
        assert (answers[~accepted] == "reject").all()


def test_names_of_features_in_a_pipeline_and_a_search():
    frame = pd.DataFrame(TRAIN[0], columns=[f"pixel {i}" for i in range(64)])
    inner = SelectiveEstimator(MODELS["linear by epochs"](), epochs=3, random_state=0)
    assert inner.fit(frame, TRAIN[1]).feature_names_in_.tolist() == frame.columns.tolist()
    assert not hasattr(inner.fit(*TRAIN), "feature_names_in_")
    pipe = make_pipeline(StandardScaler(), inner.set_params(risk=0.5, held_out=0.5))
    search = GridSearchCV(
        pipe,
        {
            "selectiveestimator__estimator__alpha": [1e-4, 1e-2],
            "selectiveestimator__epochs": [2, 4],
        },
        cv=2,
        error_score="raise",
    ).fit(frame, TRAIN[1])
    new = pd.DataFrame(NEW[0], columns=frame.columns)
    last = search.best_estimator_[-1]
    decided = last.decide(search.best_estimator_[:-1].transform(new))
    assert isinstance(decided, Decision)
    expected = np.where(decided.accepted, decided.label, -1)
    assert (search.predict(new) == expected).all()
    assert search.score(new, NEW[1]) == (expected == NEW[1]).mean()


def test_a_classifier_that_is_never_wrong():
    x = np.arange(400.0)[:, None]
    y = (x[:, 0] >= 200).astype(int)
    model = SelectiveEstimator(GradientBoostingClassifier(n_estimators=3), 0.2, random_state=0)
    model.fit(x, y)
    assert "0 wrong of 60" in model.reason_
    assert isinstance(model.threshold_, Threshold)


def test_no_torch_and_no_library_of_trees_is_loaded():
    code = "import sys, snapsure.integrations.sklearn; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = told.stdout.split()
    assert {"xgboost", "lightgbm", "catboost", "torch"}.isdisjoint(loaded)


# Of the checks that scikit-learn has for classifiers, all pass where nothing is promised.
@pytest.mark.parametrize(
    "model",
    [
        SelectiveEstimator(LogisticRegression()),
        SelectiveEstimator(GradientBoostingClassifier(n_estimators=5, random_state=0), stages=3),
        SelectiveEstimator(SGDClassifier(loss="log_loss", random_state=0), epochs=10, passes=1),
    ],
    ids=lambda model: type(model.estimator).__name__,
)
def test_scikit_learns_own_checks(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a check is skipped, or training too short
        check_estimator(model)


# With a promise, these cannot.
REJECTS = {
    "check_classifiers_classes": "its classes are strings, and so must `reject` be",
    "check_classifiers_train": "it expects the likeliest class everywhere, not a reject value",
    "check_methods_subset_invariance": (
        "the last bit of a probability differs between batches, and a point may lie at the "
        "threshold itself"
    ),
}


def causes(error):
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def test_scikit_learns_own_checks_with_a_promise():
    """Others fail only where a check has too few points to promise anything, as it is told."""
    model = SelectiveEstimator(LogisticRegression(), 0.99, 0.9, held_out=0.5, reject=-7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = check_estimator(model, on_fail=None, on_skip=None, expected_failed_checks=REJECTS)
    failed = [one for one in done if one["status"] == "failed"]
    for one in failed:
        assert any(isinstance(error, Infeasible) for error in causes(one["exception"])), one
    assert sum(one["status"] == "passed" for one in done) > 30


@pytest.mark.parametrize(
    ("estimator", "grid", "last"),
    [
        (MODELS["gradient"](), {"n_estimators": [3, 6]}, {3, 6}),
        (MODELS["pipeline"](), {"gradientboostingclassifier__n_estimators": [3, 6]}, {3, 6}),
        (
            SGDClassifier(loss="log_loss", random_state=0),
            {"alpha": [1e-4, 1e-2], "max_iter": [7]},
            {7},
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Maximum number of iteration reached")
def test_a_search_inside_has_the_stages_of_its_best(estimator, grid, last):
    search = GridSearchCV(estimator, grid, cv=2)
    model = SelectiveEstimator(search, 0.5, held_out=0.5, random_state=0).fit(*TRAIN)
    assert not hasattr(search, "best_estimator_")  # a copy of it was trained
    assert type(model.estimator_) is type(estimator)
    assert model.stages_[-1] in last
    assert all(model.estimator_.get_params()[name] in given for name, given in grid.items())
    assert np.array_equal(model.decide(NEW[0]).label, model.estimator_.predict(NEW[0]))
    assert model.n_features_in_ == 64


def test_a_search_as_the_last_step_and_around():
    inner = GridSearchCV(MODELS["histogram"](), {"max_iter": [2, 4]}, cv=2)
    model = SelectiveEstimator(make_pipeline(StandardScaler(), inner), random_state=0)
    assert model.fit(*TRAIN).stages_[-1] in (2, 4)
    assert isinstance(model.estimator_[-1], HistGradientBoostingClassifier)
    around = GridSearchCV(
        SelectiveEstimator(MODELS["histogram"](), 0.5, held_out=0.5, random_state=0),
        {"estimator__max_iter": [2, 4]},
        cv=2,
        error_score="raise",
    ).fit(*TRAIN)
    best = around.best_estimator_
    assert best.estimator_.n_iter_ == around.best_params_["estimator__max_iter"]
    assert np.array_equal(around.predict(NEW[0]), best.predict(NEW[0]))


@pytest.mark.parametrize(
    "name", ["histogram", "adaboost", "linear", "pipeline", "linear by epochs"]
)
def test_a_trained_classifier_is_not_trained_again(name):
    """All examples are held out; a frozen one keeps its training through `clone`."""
    (x, y), half = TRAIN, slice(600)
    trained = MODELS[name]().fit(x[half], y[half])
    before = trained.predict_proba(NEW[0])
    frozen = SelectiveEstimator(FrozenEstimator(trained), 0.5, random_state=0)
    models = [SelectiveEstimator(trained, 0.5, prefit=True, random_state=0), clone(frozen)]
    answers = [model.fit(x[600:], y[600:]).decide(NEW[0]) for model in models]
    assert all(map(np.array_equal, *answers))
    for model in models:
        assert model.threshold_.n == 300  # half of all
        np.testing.assert_array_equal(model.predict_proba(NEW[0]), before)
        assert (model.decide(NEW[0]).label == np.asarray(trained.predict(NEW[0])).ravel()).all()
    if name.startswith("linear"):  # epochs that have passed cannot be read
        assert models[0].stages_ == [1]


def test_a_trained_search_has_the_stages_of_its_best():
    search = GridSearchCV(MODELS["gradient"](), {"n_estimators": [3, 6]}, cv=2).fit(*TRAIN)
    model = SelectiveEstimator(FrozenEstimator(search), random_state=0).fit(*NEW)
    assert model.estimator_ is search.best_estimator_
    assert set(model.stages_) <= set(range(1, 7))


@pytest.mark.parametrize(("kind", "reject"), [("u1", -1), ("i1", 1000)])
def test_the_reject_value_is_exact_beside_labels_of_few_bits(kind, reject):
    X, y = TRAIN
    model = SelectiveEstimator(
        LOGISTIC, 0.001, infeasible="reject", reject=reject, random_state=0
    ).fit(X, np.asarray(y).astype(kind))
    assert set(model.predict(X[:20]).tolist()) == {reject}


def test_a_promise_that_is_not_possible_may_reject_all():
    strict = SelectiveEstimator(LOGISTIC, 0.001, infeasible="reject", random_state=0).fit(*TRAIN)
    assert not strict.decide(NEW[0]).accepted.any()
    assert (strict.predict(NEW[0]) == -1).all()
    assert (strict.threshold_.theta, strict.threshold_.n) == (np.inf, 180)
    scores = cross_val_score(strict, *TRAIN, cv=2, error_score="raise")
    assert scores.tolist() == [0, 0]


DART = XGBClassifier(n_estimators=2, booster="dart", n_jobs=1)
BALANCED = SGDClassifier(loss="log_loss", class_weight="balanced", random_state=0)


@pytest.mark.parametrize(
    ("estimator", "options", "facts"),
    [
        (
            GridSearchCV(MODELS["histogram"](), {"max_iter": [2]}, refit=False),
            {},
            ["`estimator`", "GridSearchCV(refit=False)", "`refit`"],
        ),
        (LOGISTIC, {"risk": 0.2, "reject": 3}, ["`reject`", "got 3"]),
        (LOGISTIC, {"risk": 0.2, "reject": "no"}, ["`reject`", "number", "got 'no'", "reject=-1"]),
        (LOGISTIC, {"risk": 0.2, "reject": None}, ["`reject`", "number", "None", "reject=-1"]),
        (LinearSVC(), {}, ["`estimator`", "predict_proba", "LinearSVC", "CalibratedClassifierCV"]),
        (LOGISTIC, {"epochs": 3}, ["`estimator`", "partial_fit", "LogisticReg", "`epochs`"]),
        (DART, {}, ["`estimator`", "gbtree", "got dart", "stages=1"]),
        (BALANCED, {}, ["`estimator`", "partial_fit", "SGDClassifier", "balanced", "stages=1"]),
        (LOGISTIC, {"prefit": True}, ["`estimator`", "LogisticRegression", "FrozenEstimator"]),
        (LOGISTIC, {"risk": 0.001, "infeasible": "skip"}, ["`infeasible`", "got 'skip'"]),
        (LOGISTIC, {"risk": 1.5}, ["`risk`", "1.5"]),
        (LOGISTIC, {"held_out": 0}, ["`held_out`", "0"]),
        (LOGISTIC, {"stages": 0}, ["`stages`", "got 0"]),
    ],
)
def test_refusals(estimator, options, facts):
    with refuses(InvalidInput, *facts):
        SelectiveEstimator(estimator, random_state=0, **options).fit(*TRAIN)


def test_refusals_by_the_data():
    with refuses(InvalidInput, "`reject`", "string", "got -1", "reject='reject'"):
        SelectiveEstimator(LOGISTIC, 0.2).fit(TRAIN[0], TRAIN[1].astype(str))
    with refuses(InvalidInput, "`X`", "hold out", "got 1 in 1 class"):
        SelectiveEstimator(LOGISTIC).fit(X[:1], Y[:1])
    with refuses(Infeasible, "`risk`", "180", "got 0.001"):
        SelectiveEstimator(LOGISTIC, 0.001, random_state=0).fit(*TRAIN)
    booster = MODELS["xgboost"]().fit(*TRAIN).get_booster()
    with refuses(InvalidInput, "`estimator`", "fit", "Booster", "score_stages"):
        SelectiveEstimator(booster).fit(*TRAIN)
    with pytest.raises(NotFittedError):
        SelectiveEstimator(LOGISTIC).decide(X)


def test_the_ways_out_that_the_refusals_name():
    wrapped = CalibratedClassifierCV(LinearSVC(), cv=2)
    for model, stages in ((wrapped, 50), (BALANCED, 1), (DART, 1)):
        model = SelectiveEstimator(model, stages=stages, random_state=0)
        assert model.fit(*TRAIN).stages_ == [1]
