"""The contract suites refuse what breaks a contract, and nothing else."""

import itertools
import os

import numpy as np
import pytest
import torch

from snapsure.estimators import BestSnapshot, Final
from snapsure.kappas import SoftmaxResponse
from snapsure.scoring import LocalExecutor
from snapsure.testing import EstimatorContract, ExecutorContract, KappaContract

INPUTS = torch.randn(60, 5, generator=torch.Generator().manual_seed(1))
LABELS = np.arange(60) % 4


def kappas(change):
    """Return the suite of a κ whose values are changed, given also how often it has scored."""

    class Changed(SoftmaxResponse):
        def score(self, forward, y_hat, prepared):
            return change(super().score(forward, y_hat, prepared), y_hat, next(calls))

    calls = itertools.count()
    suite = KappaContract()
    suite.make = lambda inputs, labels: Changed()
    return suite


def stretch(values):
    """From 0 to 1, both included, where there are several values."""
    return (values - values.min()) / np.ptp(values) if len(values) > 1 else values


def test_a_kappa_may_be_anything_from_0_to_1():
    kappas(lambda values, y_hat, call: stretch(values)).test_shape_range_and_type(INPUTS, LABELS)


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values[:-1],
        lambda values: values.astype(np.float32),
        lambda values: stretch(values) - 1e-9,
        lambda values: stretch(values) + 1e-9,
        lambda values: values.round(1),
    ],
    ids=["one too few", "float32", "below 0", "above 1", "ties"],
)
def test_a_kappa_of_wrong_values_is_refused(change):
    with pytest.raises(AssertionError):
        kappas(lambda values, y_hat, call: change(values)).test_shape_range_and_type(INPUTS, LABELS)


def test_a_kappa_that_depends_on_its_batch_is_refused():
    suite = kappas(lambda values, y_hat, call: values * (1 - 1e-4 / len(values)))
    for size in (1, 7):
        with pytest.raises(AssertionError):
            suite.test_batch_size_changes_nothing(INPUTS, LABELS, size)
    with pytest.raises(AssertionError):
        suite.test_one_sample(INPUTS, LABELS)
    rounding = kappas(lambda values, y_hat, call: values * (1 - 1e-7 / len(values)))
    rounding.test_batch_size_changes_nothing(INPUTS, LABELS, 1)
    rounding.test_one_sample(INPUTS, LABELS)


def test_a_kappa_that_differs_from_time_to_time_is_refused():
    suite = kappas(lambda values, y_hat, call: values - 1e-12 * call)
    with pytest.raises(AssertionError):
        suite.test_the_same_again_is_the_same_to_the_bit(INPUTS, LABELS)


def test_a_kappa_that_needs_float32_is_refused():
    suite = kappas(lambda values, y_hat, call: values * (0.5 if call else 1))
    with pytest.raises(AssertionError):
        suite.test_networks_of_other_precision(INPUTS, LABELS, torch.float64)


@pytest.mark.parametrize("answer", range(4))
def test_a_kappa_that_cannot_score_a_class_is_refused(answer):
    suite = kappas(lambda values, y_hat, call: np.where(y_hat == answer, np.nan, values))
    with pytest.raises(AssertionError):
        suite.test_every_class_can_be_the_answer(INPUTS, LABELS)


def test_a_kappa_that_doubts_the_only_class_is_refused():
    with pytest.raises(AssertionError):
        kappas(lambda values, y_hat, call: values * 0.99).test_one_class_is_certain(INPUTS)


@pytest.mark.parametrize("broken", [{"settings": {"k": (1, 2)}}, {"name": ""}])
def test_a_kappa_whose_settings_json_changes_or_without_a_name_is_refused(broken):
    suite = KappaContract()
    suite.make = lambda inputs, labels: type("Broken", (SoftmaxResponse,), broken)()
    with pytest.raises(AssertionError):
        suite.test_settings_are_json(INPUTS, LABELS)


class Changed(BestSnapshot):
    """The snapshot that ranks best, with something wrong."""

    def __init__(self, wrong="nothing"):
        super().__init__()
        self.wrong = wrong

    @property
    def settings(self):
        return {"wrong": self.wrong}

    def snapshots(self, epochs):
        return super().snapshots(epochs)[: 1 if self.wrong == "snapshots" else None]

    def _learn(self, table, kappa):
        state = {**super()._learn(table, kappa), "first": float(table.kappa(kappa)[0, 0])}
        return {**state, "epochs": [5]} if self.wrong == "snapshots" else state

    def _answer(self, table, kappa, state):
        values = super()._answer(table, "softmax" if self.wrong == "kappa" else kappa, state)
        change = {
            "type": lambda: values.astype(np.float32),
            "shape": lambda: values[:, None],
            "infinite": lambda: values / 0.0,
            "beyond": lambda: values + 1e-9 if values.max() > 1 - 1e-9 else values + 1,
            "negative": lambda: values - 1,
            "ends": lambda: (values > np.median(values)).astype(float),
            "ranks": lambda: values + 1e-9 * values.mean(),
            "order": lambda: values + 1e-6 * state["first"],
        }
        with np.errstate(divide="ignore"):
            return change.get(self.wrong, lambda: values)()


def estimators(make):
    suite = EstimatorContract()
    suite.make = make
    return suite


@pytest.mark.parametrize(
    ("wrong", "test"),
    [
        ("type", "test_one_finite_confidence_per_example"),
        ("shape", "test_one_finite_confidence_per_example"),
        ("infinite", "test_one_finite_confidence_per_example"),
        ("beyond", "test_a_probability_is_one"),
        ("negative", "test_a_probability_is_one"),
        ("ranks", "test_an_example_is_scored_by_itself"),
        ("order", "test_the_order_of_rows_changes_nothing"),
        ("snapshots", "test_a_table_of_the_snapshots_it_names_is_enough"),
        ("kappa", "test_fitted_on_another_kappa_it_answers_by_that"),
    ],
)
def test_an_estimator_is_refused_for_what_is_wrong(wrong, test):
    made = {name: type("Made", (Changed,), {"calibrated": True}) for name in ("nothing", wrong)}
    getattr(estimators(lambda: made["nothing"]()), test)()
    error = AssertionError if wrong != "kappa" else (AssertionError, LookupError, ValueError)
    with pytest.raises(error):
        getattr(estimators(lambda: made[wrong](wrong)), test)()


def test_an_estimator_that_is_not_a_probability_may_be_any_number():
    estimators(lambda: Changed("beyond")).test_a_probability_is_one()


def test_a_probability_may_be_0_and_1():
    certain = type("Certain", (Changed,), {"calibrated": True})
    estimators(lambda: certain("ends")).test_a_probability_is_one()


def test_an_estimator_that_forgets_is_refused(tmp_path):
    class Forgetful(Changed):
        @classmethod
        def load(cls, path):
            again = super().load(path)
            again._state["epochs"] = [5]
            return again

    class Renamed(Changed):
        @classmethod
        def load(cls, path):
            again = super().load(path)
            again.wrong = "else"
            return again

    estimators(Changed).test_saved_and_loaded_it_answers_to_the_bit(tmp_path)
    for broken in (Forgetful, Renamed):
        with pytest.raises(AssertionError):
            estimators(broken).test_saved_and_loaded_it_answers_to_the_bit(tmp_path)


def test_an_estimator_that_answers_unfitted_must_need_no_fit(tmp_path):
    class Guess(Changed):
        def confidence(self, table):
            return super().confidence(table) if self.is_fitted else np.zeros(table.y_hat.size)

    class Unsure(Final):
        def fit(self, table, kappa="softmax"):
            return super().fit(table, "other")

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        estimators(Guess).test_unfitted_it_says_so_or_needs_no_fit(tmp_path)
    with pytest.raises(AssertionError):
        estimators(Unsure).test_unfitted_it_says_so_or_needs_no_fit(tmp_path)


def test_an_estimator_that_learns_must_refuse_a_table_without_labels():
    class Blind(Changed):
        def fit(self, table, kappa="softmax"):
            return self

    class Demanding(Final):
        def fit(self, table, kappa="softmax"):
            table.errors  # noqa: B018
            return super().fit(table, kappa)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        estimators(Blind).test_a_table_without_labels_is_refused_or_enough()
    with pytest.raises(ValueError, match="`y`"):
        estimators(Demanding).test_a_table_without_labels_is_refused_or_enough()


def test_an_estimator_whose_settings_do_not_make_it_again_is_refused():
    class Tuple(Changed):
        settings = property(lambda self: {"wrong": (1, 2)})

    class Counting(Changed):
        made = itertools.count()
        settings = property(lambda self: {"wrong": self.wrong})

        def __init__(self, wrong="nothing"):
            super().__init__(f"{wrong}{next(self.made)}")

    for broken in (Tuple, Counting):
        with pytest.raises(AssertionError):
            estimators(broken).test_settings_are_json_and_make_it_again()


class Touched(ExecutorContract):
    """Scores as it should, and then changes what was written."""

    make = LocalExecutor

    def __init__(self, change):
        self.change = change

    def scored(self, folder, *arguments):
        return self.change(folder, super().scored(folder, *arguments))


@pytest.fixture
def trained(tmp_path):
    return ExecutorContract.trained.__wrapped__(ExecutorContract(), tmp_path)


def test_an_executor_of_other_bytes_is_refused(trained, tmp_path):
    def turn(folder, files):
        return {name: content + b"!" * (folder.name == "theirs") for name, content in files.items()}

    def drop(folder, files):
        return {name: files[name] for name in files if not name.startswith("softmax/")}

    def swap(folder, files):
        names = [name for name in files if name.startswith("softmax/")]
        others = names[::-1] if folder.name == "theirs" else names
        return {**files, **{name: files[other] for name, other in zip(names, others, strict=True)}}

    for change in (turn, drop, swap):
        with pytest.raises(AssertionError):
            Touched(change).test_the_table_is_that_of_this_process_to_the_byte(trained, tmp_path)


def test_an_executor_that_does_again_what_is_done_is_refused(trained, tmp_path):
    def touch(folder, files):
        for name in files:
            os.utime(folder / name, ns=(0, next(times)))
        return files

    times = itertools.count()
    with pytest.raises(AssertionError):
        Touched(touch).test_what_is_done_is_not_done_again(trained, tmp_path)
