"""One folder to deploy: the same answers from it, and nothing else is read."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from snapsure import AES, LES, Ensemble, MCDropout, Predictor
from snapsure._json import digest
from snapsure.errors import CorruptFile, InvalidInput, WrongArchitecture
from tests.support.deployed import ESTIMATORS, fitted

FACTORY = "tests.support.network:digits_network"


@pytest.fixture
def folder(deployed, tmp_path):
    """A saved predictor."""
    made, _, threshold = fitted(LES(k=4), deployed)
    predictor = Predictor(FACTORY, deployed.digits.store, made, threshold, classes=[*"0123456789"])
    predictor.save(tmp_path / "predictor")
    return tmp_path / "predictor"


def equal(ours, theirs, x):
    for a, b in zip(ours(x), theirs(x), strict=True):
        assert a.tolist() == b.tolist()


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_the_same_answers(deployed, estimator, tmp_path):
    made, platt, threshold = fitted(estimator, deployed)
    digits = deployed.digits
    predictor = Predictor(digits.model(), digits.store, made, threshold, calibration=platt)
    predictor.save(tmp_path / "p")
    again = Predictor.load(tmp_path / "p", digits.model())
    equal(predictor, again, deployed.x)
    assert again.epochs == predictor.epochs
    assert repr(again) == repr(predictor)


def test_nothing_but_json_and_safetensors(folder):
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    epochs = [f"snapshots/epoch-{epoch:06}.safetensors" for epoch in (1, 3, 4, 6)]
    assert files == ["predictor.json", *epochs, "snapshots/manifest.json"]


def test_the_factory_is_written_down(folder, deployed):
    predictor = Predictor.load(folder, trust=True)
    assert predictor.factory == FACTORY
    with pytest.raises(InvalidInput, match=rf"pass model='{FACTORY}', or trust=True"):
        Predictor.load(folder)
    assert predictor.classes == list("0123456789")
    equal(predictor, Predictor.load(folder, deployed.digits.model()), deployed.x)


def test_unfitted_it_keeps_the_epochs_of_the_whole_training(deployed, tmp_path):
    predictor = Predictor(deployed.digits.model(), deployed.digits.store, AES(k=2))
    predictor.save(tmp_path / "p")
    assert Predictor.load(tmp_path / "p", deployed.digits.model()).epochs == [2, 6]


def test_an_ensemble_and_dropout(deployed, other_digits, tmp_path):
    ensemble = Ensemble([deployed.digits.store, other_digits.store])
    kappa = MCDropout(3)
    predictor = Predictor(deployed.digits.model(), ensemble, AES(k=2), kappa=kappa)
    predictor.save(tmp_path / "p")
    again = Predictor.load(tmp_path / "p", deployed.digits.model())
    equal(predictor, again, deployed.x[:50])
    assert again.passes == 12


def test_replaced_whole(folder, deployed):
    Predictor(FACTORY, deployed.digits.store, AES(k=2)).save(folder)
    assert Predictor.load(folder, FACTORY).epochs == [2, 6]
    assert [path.name for path in folder.parent.iterdir()] == ["predictor"]
    (folder.parent / "mine").mkdir()
    (folder.parent / "mine" / "file").touch()
    predictor = Predictor.load(folder, FACTORY)
    with pytest.raises(InvalidInput, match="mine with file in it: choose another"):
        predictor.save(folder.parent / "mine")
    with pytest.raises(InvalidInput, match="got the file "):
        predictor.save(folder.parent / "mine" / "file")
    (folder / "answers.csv").touch()
    with pytest.raises(InvalidInput, match=r"with answers\.csv in it"):
        predictor.save(folder)
    (folder / "answers.csv").unlink()
    (folder.parent / "current").symlink_to(folder)
    predictor.save(folder.parent / "current")
    assert (folder.parent / "current").is_symlink()
    assert Predictor.load(folder.parent / "current", FACTORY).epochs == [2, 6]


def test_a_save_that_fails_leaves_the_old_one(folder, deployed, monkeypatch):
    other = Predictor(FACTORY, deployed.digits.store, AES(k=2))
    rename, epochs = Path.rename, Predictor.load(folder, FACTORY).epochs

    def failing(self, target):
        if self.name.startswith(".partial-"):
            raise OSError(5, "the disk is gone")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="the disk is gone"):
        other.save(folder)
    monkeypatch.undo()
    assert Predictor.load(folder, FACTORY).epochs == epochs
    # Killed between the two moves, the old one is found again.
    folder.rename(folder.with_name(".replaced-0123456789ab-predictor"))
    with pytest.raises(InvalidInput, match="got no predictor"):  # what is another's stays away
        Predictor.load(folder.with_name("ictor"), FACTORY)
    with pytest.raises(InvalidInput, match="got no predictor"):
        Predictor.load(folder.with_name("ab-predictor"), FACTORY)
    assert Predictor.load(folder, FACTORY).epochs == epochs
    assert [path.name for path in folder.parent.iterdir()] == ["predictor"]


def test_what_is_torn_is_told(folder, tmp_path):
    weights = folder / "snapshots" / "epoch-000003.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CorruptFile, match="SHA-256 differs"):
        Predictor.load(folder, FACTORY)
    weights.write_bytes(content)
    Predictor.load(folder, FACTORY)
    weights.unlink()
    with pytest.raises(CorruptFile, match="got no file"):
        Predictor.load(folder, FACTORY)


def test_other_snapshots_are_told(folder, deployed):
    from snapsure import SnapshotStore

    SnapshotStore(folder / "snapshots").save(deployed.digits.model(), 3)
    with pytest.raises(CorruptFile, match="must hold the snapshots that the predictor was saved"):
        Predictor.load(folder, FACTORY)


def test_what_does_not_fit_is_refused(folder, tmp_path):
    with pytest.raises(WrongArchitecture):
        Predictor.load(folder, nn.Linear(3, 2))
    with pytest.raises(InvalidInput, match=r"got no predictor\.json in it: check the path"):
        Predictor.load(tmp_path / "nowhere")
    path = folder / "predictor.json"
    content = json.loads(path.read_text())

    def told(**changes):
        changed = {name: value for name, value in (content | changes).items() if name != "sha256"}
        path.write_text(json.dumps({**changed, "sha256": digest(changed)}))
        with pytest.raises((InvalidInput, CorruptFile)) as caught:
            Predictor.load(folder, trust=True)
        return str(caught.value)

    assert told(version=2) == (
        f"{folder} must be a predictor of format 1, got 2: update snapsure to read it"
    )
    assert told(version=0).endswith("got 0: save the predictor again")
    assert "True at `$.version`" in told(version=True)
    assert "names no function that makes the network" in told(model=None)
    assert "'another' at `$.format`" in told(format="another")
    assert "`name`" in told(estimator={})
    path.write_text(json.dumps(content).replace('"delta": null', '"delta": 0.5'))
    with pytest.raises(CorruptFile, match="its SHA-256 differs"):
        Predictor.load(folder, FACTORY)
    path.write_text("{")
    with pytest.raises(CorruptFile):
        Predictor.load(folder, FACTORY)
    path.write_text(json.dumps(content))
    shutil.rmtree(folder / "snapshots")
    with pytest.raises(CorruptFile):
        Predictor.load(folder, FACTORY)


def test_no_pickle_is_read(folder, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a pickle was read")

    monkeypatch.setattr("pickle.load", refuse)
    monkeypatch.setattr("pickle.loads", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    assert Predictor.load(folder, FACTORY).epochs == [1, 3, 4, 6]
