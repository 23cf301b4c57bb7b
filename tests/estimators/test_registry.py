"""The registry of methods, and a user's own method from one file and one line."""

import subprocess
import sys
from typing import ClassVar

import numpy as np
import pytest

from snapsure.errors import InvalidInput
from snapsure.estimators import AES, LES, Estimator, Method, register, registry
from snapsure.estimators._base import rows_of
from snapsure.evaluation import choose, compare, confidences, evaluate
from snapsure.table import ScoreTable


class Median(Estimator):
    """Median κ of all snapshots."""

    learns: ClassVar[bool] = False

    @property
    def settings(self):
        return {}

    def _learn(self, table, kappa):
        return {"epochs": table.epochs.tolist()}

    def _answer(self, table, kappa, state):
        return np.median(rows_of(table, kappa, state["epochs"]), axis=0)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    return register(Median)


@pytest.fixture(scope="module")
def table():
    """Snapshots of which a few are far off: the median ranks best."""
    rng = np.random.default_rng(0)
    ease = rng.random(1500)
    noise = rng.normal(0, 0.1, (9, 1500)) + 3 * (rng.random((9, 1500)) < 0.25) * rng.normal(
        size=(9, 1500)
    )
    return ScoreTable.from_kappa(np.clip(ease + noise, 0.001, 0.999), rng.random(1500) > ease)


def test_every_method_has_one_name_and_one_sentence():
    assert len(set(registry.names())) == len(registry.names())
    for name in registry.names():
        method = registry.get(name)
        assert method.name == name
        assert method.description.endswith(".")
        assert isinstance(method.make(), Estimator)
        assert method.make().learns == ("labels" in method.needs)
        is_regression = name.startswith("LES") or name == "error predictor"
        assert method.make().calibrated == (is_regression or name == "temperature by NLL")


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(InvalidInput, match=r"must be one of final, AES, .*, got 'luck'.*register"):
        registry.get("luck")


def test_the_method_of_an_estimator():
    assert registry.find_method(AES(k=7)).name == "AES"
    assert registry.find_method(LES(passes=3)).name == "LES (3 passes)"
    assert registry.find_method(Median()) is None


def test_a_registered_class_takes_part_everywhere(registered, table):
    result = evaluate(table, resamples=100)
    assert result["Median"].outcome == "better"
    assert compare(table)["Median"].eaurc == pytest.approx(result["Median"].eaurc, rel=0.2)
    assert "Median" in confidences(table)
    assert registry.get("Median").description == "Median κ of all snapshots."
    assert registry.get("Median").needs == ()
    assert register(type("Learning", (Median,), {"learns": True})).learns
    assert registry.get("Learning").needs == ("labels",)

    assert "Median" in [row.method for row in choose(table).candidates]
    assert "Median" not in [row.method for row in choose(table, passes=3).candidates]


def test_a_method_that_is_not_registered_is_compared_by_its_record(table):
    result = evaluate(table, methods=[Method("mine", Median)], resamples=20)
    assert result["mine"].outcome == "better"


def test_settings_make_another_method(registered, table):
    register(Method("AES (k=2)", lambda: AES(2), "Mean κ of two snapshots."))
    assert evaluate(table, resamples=20)["AES (k=2)"].passes == 2


def test_names_of_the_library_cannot_be_taken(registered):
    with pytest.raises(InvalidInput, match="got 'AES', which snapsure uses"):
        register(Method("AES", Median))
    with pytest.raises(InvalidInput, match="got 'LES', which snapsure uses"):
        register(type("LES", (Median,), {}))
    with pytest.raises(InvalidInput, match="got 'Final', which snapsure uses"):
        register(type("Final", (Median,), {}))


def test_the_same_name_again_is_the_new_class(registered):
    """As when a cell of a notebook runs again."""
    again = register(type("Median", (Median,), {}))
    assert registry.find_class("Median") is again


def test_saved_and_loaded(registered, table, tmp_path):
    estimator = Median().fit(table)
    estimator.save(tmp_path / "median.json")
    again = registry.find_class("Median").load(tmp_path / "median.json")
    np.testing.assert_array_equal(again.confidence(table), estimator.confidence(table))


def test_a_class_in_a_file_is_found_by_its_name_and_never_imported(tmp_path):
    (tmp_path / "evil.py").write_text("raise SystemExit('a name imported code')")
    asked = "from snapsure.estimators import registry; registry.find_class('evil:Evil')"
    ran = subprocess.run(
        [sys.executable, "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "a name imported code" not in ran.stderr
    with pytest.raises(InvalidInput, match=r"got 'Median'.*register\(Median\).*custom=\[Median\]"):
        registry.find_class("Median")
    assert registry.find_class("Median", custom=[Median]) is Median
