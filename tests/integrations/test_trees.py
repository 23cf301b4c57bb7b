"""Stages of boosted trees as score tables: real models of each library, on scikit-learn's data."""

import pickle
import re
import tracemalloc
from decimal import Decimal
from functools import cache

import lightgbm
import numpy as np
import pytest
import xgboost
from catboost import CatBoost, CatBoostClassifier, Pool
from lightgbm import LGBMClassifier, early_stopping
from scipy.sparse import csc_matrix
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier

from snapsure import AES, Report, eaurc, evaluate
from snapsure.errors import InvalidInput, NotFitted
from snapsure.evaluation import Splits
from snapsure.integrations.trees import score_stages
from tests.support.refusals import refuses

pytestmark = pytest.mark.slow

ROUNDS = 12
DATA = {"two": load_breast_cancer(return_X_y=True), "three": load_wine(return_X_y=True)}


def gradient(rounds, **options):
    return GradientBoostingClassifier(n_estimators=rounds, random_state=0, **options)


def histogram(rounds, **options):
    return HistGradientBoostingClassifier(max_iter=rounds, random_state=0, **options)


def xgb(rounds, **options):
    return XGBClassifier(n_estimators=rounds, n_jobs=1, **options)


def lgbm(rounds, **options):
    return LGBMClassifier(n_estimators=rounds, n_jobs=1, verbose=-1, **options)


def catboost(rounds, **options):
    return CatBoostClassifier(
        iterations=rounds, thread_count=1, verbose=0, allow_writing_files=False, **options
    )


MODELS = {
    "gradient": gradient,
    "gradient exponential": lambda rounds: gradient(rounds, loss="exponential"),
    "histogram": histogram,
    "xgb": xgb,
    "xgb softmax": lambda rounds: xgb(rounds, objective="multi:softmax"),
    "xgb forests": lambda rounds: xgb(rounds, num_parallel_tree=2, subsample=0.5),
    "xgb vector leaves": lambda rounds: xgb(rounds, multi_strategy="multi_output_tree"),
    "lgbm": lgbm,
    "lgbm sigmoid": lambda rounds: lgbm(rounds, sigmoid=2.0),
    "lgbm goss": lambda rounds: lgbm(rounds, data_sample_strategy="goss"),
    "catboost": catboost,
}
ONLY = {
    "gradient exponential": "two",
    "xgb softmax": "three",
    "xgb vector leaves": "three",
    "lgbm goss": "two",  # the other is too small for it: no split is left after ten rounds
}
CASES = [(name, data) for name in MODELS for data in DATA if ONLY.get(name, data) == data]


def halves(data):
    x, y = DATA[data]
    return (x[::2], y[::2]), (x[1::2], y[1::2])


@cache
def fitted(name, data, rounds=ROUNDS):
    return MODELS[name](rounds).fit(*halves(data)[0])


def same_table(a, b):
    for one, other in ((a.epochs, b.epochs), (a.labels, b.labels), (a.y, b.y)):
        assert np.array_equal(one, other)
    assert np.array_equal(a.kappa("softmax"), b.kappa("softmax"))


def own_probabilities(model, x, rounds):
    """What the library itself gives after some rounds."""
    if isinstance(model, XGBClassifier):
        return model.predict_proba(x, iteration_range=(0, rounds))
    if isinstance(model, LGBMClassifier):
        return model.predict_proba(x, num_iteration=rounds)
    if isinstance(model, CatBoostClassifier):
        return model.predict_proba(x, ntree_end=int(rounds))
    return list(model.staged_predict_proba(x))[rounds - 1]


@pytest.mark.parametrize(("name", "data"), CASES)
def test_every_stage_is_the_librarys_own(name, data):
    model, (x, y) = fitted(name, data), halves(data)[1]
    table = score_stages(model, x, y)
    rows = np.arange(len(y))
    assert table.names == ["softmax"]
    assert table.epochs.tolist() == list(range(1, ROUNDS + 1))
    assert (table.y_hat == model.predict(x).ravel()).all()  # CatBoost answers in a column
    assert (table.labels[-1] == table.y_hat).all()
    assert (table.y == y).all()
    for t, epoch in enumerate(table.epochs):
        probabilities = own_probabilities(model, x, epoch)
        # XGBoost's are float32.
        close = {"rtol": 2e-6} if name.startswith("xgb") else {"rtol": 1e-12}
        np.testing.assert_allclose(
            table.kappa("softmax")[t], probabilities[rows, table.y_hat], **close
        )
        assert (table.labels[t] == probabilities.argmax(axis=1)).all()


@pytest.mark.parametrize("name", ["gradient", "histogram", "xgb", "xgb forests", "lgbm"])
@pytest.mark.parametrize("data", DATA)
def test_a_stage_is_the_model_of_a_shorter_training(name, data):
    (x, _), long = halves(data)[1], fitted(name, data)
    short = fitted(name, data, 5)
    table = score_stages(long, x)
    alone = score_stages(short, x)
    assert (table.labels[4] == alone.y_hat).all()
    same = table.y_hat == alone.y_hat
    assert same.mean() > 0.9
    assert (table.kappa("softmax")[4][same] == alone.kappa("softmax")[-1][same]).all()


@pytest.mark.parametrize("name", ["gradient", "histogram", "xgb", "lgbm", "catboost"])
def test_chosen_stages_are_those_of_the_whole_table(name):
    model, (x, y) = fitted(name, "three"), halves("three")[1]
    whole = score_stages(model, x, y)
    for stages, epochs in (
        ([2, 7], [2, 7, 12]),
        ([7, 2, 12, 2], [2, 7, 12]),
        (1, [12]),
        (3, [1, 6, 12]),  # 6.5 is rounded to even
        (100, list(range(1, 13))),
    ):
        part = score_stages(model, x, y, stages=stages)
        assert part.epochs.tolist() == epochs
        at = part.epochs - 1
        assert (part.labels == whole.labels[at]).all()
        # Sums in other portions, in float64: the last bits may differ.
        np.testing.assert_allclose(part.kappa("softmax"), whole.kappa("softmax")[at], rtol=1e-13)


def test_more_rounds_than_stages():
    model, (x, y) = fitted("xgb", "two", 600), halves("two")[1]
    epochs = score_stages(model, x, y).epochs
    assert (epochs.size, epochs[0], epochs[-1]) == (250, 1, 600)
    assert set(np.diff(epochs)) == {2, 3}
    assert score_stages(model, x, stages=600).epochs.tolist() == list(range(1, 601))


def test_early_stopping_ends_the_stages_where_predict_does():
    (train, (x, y)), most = halves("two"), 200
    stopped = {
        "xgb": xgb(most, early_stopping_rounds=3).fit(*train, eval_set=[(x, y)], verbose=False),
        "lgbm": lgbm(most).fit(*train, eval_X=x, eval_y=y, callbacks=[early_stopping(3, False)]),
        "histogram": histogram(most, early_stopping=True, n_iter_no_change=3).fit(*train),
        "gradient": gradient(most, n_iter_no_change=3).fit(*train),
        "catboost": catboost(most, early_stopping_rounds=3, learning_rate=0.5).fit(
            *train, eval_set=(x, y)
        ),
    }
    last = {name: int(score_stages(model, x).epochs[-1]) for name, model in stopped.items()}
    assert max(last.values()) < most
    assert last["xgb"] == stopped["xgb"].best_iteration + 1
    assert stopped["xgb"].get_booster().num_boosted_rounds() > last["xgb"]
    assert last["lgbm"] == stopped["lgbm"].best_iteration_
    assert last["catboost"] == stopped["catboost"].best_iteration_ + 1
    for model in stopped.values():
        table = score_stages(model, x, y)
        final = model.predict_proba(x)[np.arange(len(y)), table.y_hat]
        np.testing.assert_allclose(table.kappa("softmax")[-1], final, rtol=2e-6)


@pytest.mark.parametrize("name", ["gradient", "histogram", "lgbm", "catboost"])
def test_classes_of_any_kind(name):
    wine = load_wine()
    for classes in (wine.target_names, np.array([7, 3, 5])):
        y = classes[wine.target]
        model = MODELS[name](3).fit(wine.data[::2], y[::2])
        table = score_stages(model, wine.data, list(y))
        answers = model.predict(wine.data).ravel()
        assert (model.classes_[table.y_hat] == answers).all()
        assert (model.classes_[table.y] == y).all()
        assert (table.errors == (answers != y)).all()


@pytest.mark.parametrize("name", ["gradient", "histogram", "xgb", "lgbm"])
@pytest.mark.parametrize("data", DATA)
def test_pickled_and_saved_models_subclasses_and_sparse_inputs(name, data, tmp_path):
    model, (x, y) = fitted(name, data), halves(data)[1]
    expected = score_stages(model, x, y)
    loaded = pickle.loads(pickle.dumps(model))
    same_table(score_stages(loaded, x, y), expected)
    loaded.__class__ = type("Mine", (type(model),), {})
    same_table(score_stages(loaded, x, y), expected)
    if name != "histogram" and data == "three":  # it takes none; zeros are missing to XGBoost
        same_table(score_stages(model, csc_matrix(x), y), expected)
    for path in (tmp_path / "model.json", tmp_path / "model.ubj") if name == "xgb" else ():
        model.save_model(path)
        saved = XGBClassifier(n_jobs=1)
        saved.load_model(path)
        same_table(score_stages(saved, x, y), expected)


def test_continued_training():
    train, (x, y) = halves("two")
    for first, more in ((lgbm(5), "init_model"), (xgb(5), "xgb_model")):
        model = type(first)(**first.get_params()).set_params(n_estimators=4)
        model.fit(*train, **{more: first.fit(*train)})
        table = score_stages(model, x, y)
        assert table.epochs[-1] == 9
        final = model.predict_proba(x)[np.arange(len(y)), table.y_hat]
        np.testing.assert_allclose(table.kappa("softmax")[-1], final, rtol=2e-6)


@pytest.mark.parametrize("data", DATA)
def test_confident_answers_do_not_collapse(data):
    """Against the softmax of the same margins in 28 digits."""
    (x, y), (points, _) = halves(data)
    model = xgb(25, learning_rate=1.0, min_child_weight=0.0, reg_lambda=0.0).fit(x, y)
    table = score_stages(model, points, stages=1)
    (kappa,) = table.kappa("softmax")
    margins = model.predict(points, output_margin=True).reshape(len(points), -1)
    if margins.shape[1] == 1:
        margins = np.hstack([np.zeros_like(margins), margins])
    sum_of_others = [
        sum(Decimal(float(z - row[c])).exp() for j, z in enumerate(row.astype(float)) if j != c)
        for row, c in zip(margins, table.y_hat, strict=True)
    ]
    exact = np.array([float(1 / (1 + others)) for others in sum_of_others])
    np.testing.assert_allclose(kappa, exact, rtol=0, atol=2.5e-16)
    single = model.predict_proba(points)[np.arange(len(points)), table.y_hat]
    assert (single == 1).sum() > 0.2 * len(points)
    assert (kappa == 1).sum() == 0
    assert np.unique(kappa).size > np.unique(single).size


def test_stages_are_not_kept_in_memory():
    x, y = load_digits(return_X_y=True)
    model = histogram(40, max_leaf_nodes=4).fit(x[:300], y[:300])
    all_probabilities = 40 * len(x) * 10 * 8
    tracemalloc.start()
    table = score_stages(model, x, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert table.labels.shape == (40, len(x))
    assert peak < all_probabilities / 2


@pytest.mark.parametrize("make", [gradient, xgb])
def test_end_to_end_to_a_page(make, tmp_path):
    """AES, PES and LES, judged, and on the page what the functions give."""
    x, y = load_digits(return_X_y=True)
    table = score_stages(make(40, max_depth=2).fit(x[:500], y[:500]), x[500:], y[500:])
    found = evaluate(table, protocol=Splits(2), resamples=100)
    results = {each.method: each.eaurc for each in found.boards["softmax"].rows}
    assert list(results) == ["final", "AES", "LES", "PES", "best snapshot"]
    assert results["final"] == eaurc(table.kappa("softmax")[-1], table.errors)
    assert results["AES"] == eaurc(AES(30).confidence(table), table.errors)
    assert all(0 <= results[name] <= 1 for name in ("PES", "LES"))

    names = [f"digit {i}" for i in range(10)]
    page = Report(table, classes=names, title="Trees").save(tmp_path / "trees.html").read_text()
    words = " ".join(page.split())
    assert "1,297 examples" in words
    assert "40 snapshots; confidence: softmax" in words
    first = int(re.search(r"row (\d+)", words[words.index("The surest mistakes") :]).group(1))
    assert table.errors[first]
    assert f"true <strong>digit {table.y[first]}</strong>" in words


def test_models_that_are_not_known():
    (x, y), _ = halves("three")
    for model in (
        RandomForestClassifier(),
        OneVsRestClassifier(histogram(3)),
        SGDClassifier(loss="log_loss"),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ):
        last = model[-1] if isinstance(model, Pipeline) else model
        facts = "`model`", "XGBClassifier", "Booster", "CatBoost", f"got {type(last).__name__}"
        with refuses(InvalidInput, *facts, "ScoreTable.from_probabilities"):
            score_stages(model.fit(x / x.max(axis=0), y), x, y)


@pytest.mark.parametrize("name", ["gradient", "histogram", "xgb", "lgbm", "catboost"])
def test_a_pipeline_is_scored_as_its_last_step_on_what_that_sees(name):
    train, (x, y) = halves("three")
    pipe = make_pipeline(StandardScaler(), SelectKBest(k=8), MODELS[name](5)).fit(*train)
    same_table(score_stages(pipe, x, y), score_stages(pipe[-1], pipe[:-1].transform(x), y))
    assert np.array_equal(score_stages(pipe, x).y_hat, np.ravel(pipe.predict(x)))
    alone = make_pipeline(MODELS[name](5)).fit(*train)
    same_table(score_stages(alone, x, y), score_stages(alone[-1], x, y))


def test_a_search_is_scored_as_the_best_that_it_found():
    train, (x, y) = halves("three")
    rounds = {"gradientboostingclassifier__n_estimators": [2, 5]}
    pipe = make_pipeline(StandardScaler(), gradient(3))
    for search in (
        GridSearchCV(pipe, rounds, cv=2),
        RandomizedSearchCV(pipe, rounds, n_iter=2, cv=2),
        make_pipeline(StandardScaler(), GridSearchCV(gradient(3), {"n_estimators": [2, 5]}, cv=2)),
    ):
        with refuses(NotFitted, "`model`", type(search).__name__, "fit"):
            score_stages(search, x)
        table = score_stages(search.fit(*train), x, y)
        inner = search[-1] if isinstance(search, Pipeline) else search
        assert table.epochs[-1] == next(iter(inner.best_params_.values()))
        assert np.array_equal(table.y_hat, search.predict(x))
        final = search.predict_proba(x)[np.arange(len(y)), table.y_hat]
        np.testing.assert_allclose(table.kappa("softmax")[-1], final, rtol=1e-12)
    without = GridSearchCV(pipe, rounds, cv=2, refit=False).fit(*train)
    with refuses(InvalidInput, "`model`", "GridSearchCV(refit=False)", "`refit`"):
        score_stages(without, x)


@pytest.mark.parametrize("name", ["xgb", "xgb softmax", "xgb forests", "xgb vector leaves"])
def test_a_raw_booster_of_xgboost_is_its_classifier(name, tmp_path):
    for data in DATA if name not in ONLY else [ONLY[name]]:
        model, (x, y) = fitted(name, data), halves(data)[1]
        booster, expected = model.get_booster(), score_stages(model, x, y)
        booster.save_model(tmp_path / "model.ubj")
        loaded = xgboost.Booster(model_file=tmp_path / "model.ubj")
        for one in (booster, loaded):
            for points in (x, xgboost.DMatrix(x)):
                same_table(score_stages(one, points, y), expected)
            sparse = csc_matrix(x)  # whose zeros XGBoost takes for missing, here and there
            same_table(score_stages(one, sparse, y), score_stages(model, sparse, y))
        same_table(
            score_stages(booster, x, y, stages=[3, 7]), score_stages(model, x, y, stages=[3, 7])
        )


def test_a_matrix_of_the_users_own_stays_as_it_was():
    x, y = halves("three")[1]
    booster = fitted("xgb", "three").get_booster()
    own = np.random.default_rng(0).normal(size=(len(y), 3)).astype(np.float32)
    for points in (xgboost.DMatrix(x), xgboost.DMatrix(x, base_margin=own.ravel())):
        before = booster.predict(points, output_margin=True)
        table = score_stages(booster, points, y)
        assert np.array_equal(table.y_hat, before.argmax(axis=1))
        assert np.array_equal(booster.predict(points, output_margin=True), before)


def test_a_raw_booster_of_lightgbm_is_its_classifier(tmp_path):
    for name, data in (("lgbm", "two"), ("lgbm", "three"), ("lgbm sigmoid", "two")):
        model, (x, y) = fitted(name, data), halves(data)[1]
        model.booster_.save_model(tmp_path / "model.txt")
        loaded = lightgbm.Booster(model_file=tmp_path / "model.txt")
        for one in (model.booster_, loaded):
            same_table(score_stages(one, x, y), score_stages(model, x, y))
            same_table(
                score_stages(one, x, y, stages=[3, 7]), score_stages(model, x, y, stages=[3, 7])
            )


def test_boosters_that_stopped_early_end_where_they_predict():
    """XGBoost's own predicts with all rounds, unlike its classifier; LightGBM's with the best."""
    train, (x, y) = halves("two")
    model = xgb(200, early_stopping_rounds=3).fit(*train, eval_set=[(x, y)], verbose=False)
    booster = model.get_booster()
    assert score_stages(booster, x).epochs[-1] == booster.num_boosted_rounds()
    assert score_stages(model, x).epochs[-1] == booster.best_iteration + 1
    rounds = lightgbm.train(
        {"objective": "binary", "verbose": -1, "num_threads": 1},
        lightgbm.Dataset(*train),
        200,
        valid_sets=[lightgbm.Dataset(x, y)],
        callbacks=[early_stopping(3, verbose=False)],
    )
    assert score_stages(rounds, x).epochs[-1] == rounds.best_iteration < 200
    final = np.where(rounds.predict(x) > 0.5, rounds.predict(x), 1 - rounds.predict(x))
    np.testing.assert_allclose(score_stages(rounds, x).kappa("softmax")[-1], final, rtol=1e-12)


@pytest.mark.parametrize("data", DATA)
def test_a_plain_catboost_is_its_classifier(data):
    (x, y), (points, truth) = halves(data)
    settings = {"iterations": 5, "thread_count": 1, "verbose": 0, "allow_writing_files": False}
    loss = {"loss_function": "Logloss" if data == "two" else "MultiClass"}
    plain = CatBoost(settings | loss).fit(x, y)
    same_table(
        score_stages(plain, points, truth),
        score_stages(CatBoostClassifier(**settings, **loss).fit(x, y), points, truth),
    )
    same_table(score_stages(plain, Pool(points), truth), score_stages(plain, points, truth))
    regression = CatBoost(settings | {"loss_function": "RMSE"}).fit(x, y)
    with refuses(InvalidInput, "`model`", "Logloss or CrossEntropy or MultiClass", "got RMSE"):
        score_stages(regression, points)


def test_classes_and_stages_that_do_not_fit():
    model, (x, y) = fitted("xgb", "three"), halves("three")[1]
    many = xgb(3).fit(x, np.stack([y == 0, y == 1], axis=1))
    foreign, names = np.where(y == 2, 3, y), load_wine().target_names[y]
    for arguments, options, facts in (
        ((model, x, foreign), {}, ["`y`", f"got 3 at row {np.flatnonzero(y == 2)[0]}", "classes_"]),
        ((model, x, names), {}, ["`y`", "got 'class_0' at row 0", "classes_"]),
        ((model, x, y[:-1]), {}, ["`y`", "`X`", f"{len(y) - 1} for {len(y)}"]),
        ((model, x, y[:, None]), {}, ["`y`", "1-D", f"({len(y)}, 1)"]),
        ((model, x), {"stages": [3, 13]}, ["`stages`", "12", "got 13"]),
        ((model, x), {"stages": 0}, ["`stages`", "got 0"]),
        ((many, x), {}, ["`model.predict(X)`", "1-D", f"({len(y)}, 2)"]),
    ):
        with refuses(InvalidInput, *facts):
            score_stages(*arguments, **options)


def logistic_loss(y_true, y_pred):
    p = 1 / (1 + np.exp(-y_pred))
    return p - y_true, p * (1 - p)


LOGISTIC = "binary:logistic or reg:logistic or multi:softprob or multi:softmax"


@pytest.mark.parametrize(
    ("model", "facts"),
    [
        # Their first trees are no earlier model.
        (xgb(3, booster="dart"), ["gbtree", "got dart", "Train with gbtree"]),
        (xgb(3, booster="gblinear"), ["gbtree", "got gblinear"]),
        (lgbm(3, boosting_type="dart"), ["gbdt", "got dart", "Train with gbdt"]),
        (lgbm(3, boosting_type="rf", subsample=0.5, subsample_freq=1), ["gbdt", "got rf"]),
        # They have no class probabilities.
        (xgb(3, objective="binary:hinge"), [LOGISTIC, "got binary:hinge", "probabilities"]),
        (xgb(3, objective="binary:logitraw"), [LOGISTIC, "got binary:logitraw"]),
        (
            lgbm(3, objective="multiclassova", num_class=2),
            ["binary or multiclass", "got multiclassova"],
        ),
        (lgbm(3, objective=logistic_loss), ["binary or multiclass", "got custom"]),
        (
            catboost(3, loss_function="MultiClassOneVsAll"),
            ["Logloss or CrossEntropy or MultiClass", "got MultiClassOneVsAll"],
        ),
    ],
)
def test_models_whose_stages_are_no_classifiers(model, facts):
    (x, y), _ = halves("two")
    with refuses(InvalidInput, "`model`", *facts):
        score_stages(model.fit(x, y), x)


def test_what_raw_boosters_are_refused_for():
    (x, y), _ = halves("three")
    settings = {"booster": "dart", "objective": "binary:logistic"}
    dart = xgboost.train(settings, xgboost.DMatrix(x, y > 0), 2)
    regression = lightgbm.train({"verbose": -1}, lightgbm.Dataset(x, y), 2)
    for model, facts in (
        (dart, ["gbtree", "got dart"]),
        (regression, ["binary or multiclass", "got regression"]),
    ):
        with refuses(InvalidInput, "`model`", *facts):
            score_stages(model, x)
    names = load_wine().target_names
    for booster in (fitted("xgb", "three").get_booster(), fitted("lgbm", "three").booster_):
        with refuses(InvalidInput, "`y`", "got 'class_0' at row 0", "Booster", "0…2"):
            score_stages(booster, x, names[y])


@pytest.mark.parametrize("make", [gradient, histogram, xgb, lgbm, catboost, xgboost.Booster])
def test_models_that_are_not_fitted(make):
    model = make() if make is xgboost.Booster else make(3)
    with refuses(NotFitted, "`model`", type(model).__name__):
        score_stages(model, np.zeros((2, 3)))
