"""A κ and an estimator of one's own deploy like ours, and a name in a file imports no code."""

import json
import sys

import numpy as np
import pytest

from snapsure import AES, Predictor, ScoreTable, SoftmaxResponse, score
from snapsure._json import digest
from snapsure.errors import InvalidInput
from snapsure.estimators import Estimator
from snapsure.estimators import registry as estimators
from snapsure.kappas import Kappa
from snapsure.kappas import registry as kappas

FACTORY = "tests.support.network:digits_network"


class Lead(Kappa):
    """The sigmoid of how far the answer's logit stands above the best of the others."""

    name = "lead"

    def __init__(self, scale=1.0):
        self.scale = scale

    @property
    def settings(self):
        return {"scale": self.scale}

    def score(self, forward, y_hat, prepared):
        logits = self.scale * forward.logits.double().cpu().numpy()
        rows = np.arange(len(logits))
        own = logits[rows, y_hat]
        logits[rows, y_hat] = -np.inf
        return 1 / (1 + np.exp(logits.max(axis=1) - own))


class Median(Estimator):
    """The median of κ over the last snapshots."""

    learns = False

    def __init__(self, last=3):
        super().__init__()
        self.last = last

    @property
    def settings(self):
        return {"last": self.last}

    def _learn(self, table, kappa):
        return {"epochs": table.epochs[-self.last :].tolist()}

    def _answer(self, table, kappa, state):
        return np.median(table.select(state["epochs"]).kappa(kappa), axis=0)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(kappas, "_entries", {**kappas._entries})
    monkeypatch.setattr(estimators, "_METHODS", {**estimators._METHODS})
    kappas.register(Lead)
    estimators.register(Median)


@pytest.fixture
def saved(deployed, tmp_path):
    """A predictor of both, and the folder it was saved to."""
    kappa = Lead(0.5)
    digits = deployed.digits
    table = score(digits.model(), digits.store, (deployed.x, deployed.y), kappa, progress=False)
    made = Median(2).fit(table, "lead")
    predictor = Predictor(FACTORY, digits.store, made, kappa=kappa)
    predictor.save(tmp_path / "predictor")
    assert predictor(deployed.x).confidence.tolist() == made.confidence(table).tolist()
    return predictor, tmp_path / "predictor"


def edit(folder, **changes):
    """Write other content to predictor.json, under a valid hash."""
    content = json.loads((folder / "predictor.json").read_text()) | changes
    content.pop("sha256")
    (folder / "predictor.json").write_text(json.dumps({**content, "sha256": digest(content)}))


def test_passed_to_load(saved, deployed):
    predictor, folder = saved
    again = Predictor.load(folder, FACTORY, custom=[Median, Lead])
    for ours, theirs in zip(predictor(deployed.x), again(deployed.x), strict=True):
        assert ours.tolist() == theirs.tolist()
    assert again.kappa.settings == {"scale": 0.5}


def test_registered(saved, deployed, registered):
    predictor, folder = saved
    again = Predictor.load(folder, FACTORY)
    assert again(deployed.x).confidence.tolist() == predictor(deployed.x).confidence.tolist()


def test_fit_makes_a_registered_kappa_with_the_settings_of_the_table(deployed, registered):
    digits, data = deployed.digits, (deployed.x, deployed.y)
    table = score(digits.model(), digits.store, data, Lead(0.5), progress=False)
    predictor = Predictor.fit(digits.model(), digits.store, table, kappa="lead", risk=0.6)
    assert predictor.kappa.settings == {"scale": 0.5}
    assert predictor(deployed.x).confidence.tolist() == predictor.confidence(table).tolist()


def test_unknown_classes_are_refused_with_the_line_that_makes_them_known(saved):
    _, folder = saved
    with pytest.raises(InvalidInput, match=r"got 'Median'.*custom=\[Median\]"):
        Predictor.load(folder, FACTORY, custom=[Lead])
    with pytest.raises(InvalidInput, match=r"got 'lead'.*register\(YourKappa\)"):
        Predictor.load(folder, FACTORY, custom=[Median])


@pytest.mark.parametrize("name", ["planted:Evil", "planted.Evil", "planted", "os:system", "ABC"])
@pytest.mark.parametrize("beside", [False, True])
def test_a_module_that_a_file_names_is_not_imported(saved, deployed, monkeypatch, name, beside):
    """Neither one inside the folder nor one beside it, where Python would find it."""
    _, folder = saved
    place = folder.parent if beside else folder
    (place / "planted.py").write_text("raise SystemExit('code of a file ran')")
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", ["", str(place), *sys.path])
    content = json.loads((folder / "predictor.json").read_text())
    for changes in (
        {"estimator": {**content["estimator"], "name": name}},
        {"kappa": {**content["kappa"], "name": name}},
        {"model": "planted:network"},
    ):
        edit(folder, **{**content, **changes})
        model = None if "model" in changes else deployed.digits.model()
        with pytest.raises(InvalidInput):
            Predictor.load(folder, model, custom=[Median, Lead])
    assert "planted" not in sys.modules


def test_a_name_that_would_load_another_class_is_not_saved(deployed, tmp_path):
    class Softer(SoftmaxResponse):
        def score(self, forward, y_hat, prepared):
            return super().score(forward, y_hat, prepared) / 2

    mine = type("AES", (Median,), {})
    for estimator, kappa in ((AES(), Softer()), (mine(), None)):
        predictor = Predictor(FACTORY, deployed.digits.store, estimator, kappa=kappa)
        with pytest.raises(InvalidInput, match="of its own"):
            predictor.save(tmp_path / "predictor")
        assert not (tmp_path / "predictor").exists()


def test_a_table_that_names_an_unknown_kappa(deployed):
    table = ScoreTable.from_kappa(deployed.table.kappa("softmax"), deployed.table.errors, name="x")
    with pytest.raises(InvalidInput, match=r"got 'x'.*register\("):
        Predictor(FACTORY, deployed.digits.store, AES().fit(table, "x"))
