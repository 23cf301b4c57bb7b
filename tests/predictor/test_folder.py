"""One folder to deploy: the same answers from it, and nothing else is read."""

import errno
import hashlib
import itertools
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from snapsure import AES, LES, Ensemble, MCDropout, Predictor, SnapshotStore, _files
from snapsure._json import digest
from snapsure.errors import CorruptFile, InvalidInput, StorageError, WrongArchitecture
from snapsure.snapshots import _weights
from tests.support.deployed import ESTIMATORS, fitted
from tests.support.refusals import refuses

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
    with refuses(InvalidInput, "`epoch`", "got 99"):
        again.snapshots.load(99)


def test_nothing_but_json_and_safetensors(folder):
    content = json.loads((folder / "predictor.json").read_text())
    (snapshots,) = content["snapshots"]
    assert sorted(snapshots) == ["1", "3", "4", "6"]
    for file in snapshots.values():
        assert hashlib.sha256((folder / file["file"]).read_bytes()).hexdigest() == file["sha256"]
    named = {"predictor.json", *(file["file"] for file in snapshots.values())}
    assert {str(path.relative_to(folder)) for path in folder.rglob("*")} == named


def test_the_factory_is_written_down(folder, deployed):
    predictor = Predictor.load(folder, trust=True)
    assert predictor.factory == FACTORY
    with pytest.raises(InvalidInput, match=rf"pass model='{FACTORY}'.*, or trust=True"):
        Predictor.load(folder)
    assert predictor.classes == list("0123456789")
    given = Predictor.load(folder, deployed.digits.model())
    equal(predictor, given, deployed.x)
    assert given.factory == FACTORY


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


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_frozen_weights_are_saved_once_and_loaded_with_each_snapshot(tmp_path):
    model, store = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)), SnapshotStore(tmp_path / "run")
    model[0].requires_grad_(False)
    for epoch in (1, 2):
        nn.init.normal_(model[1].weight)
        store.save(model, epoch, trainable_only=True)
    Predictor(model, store, AES(k=2, start=0)).save(tmp_path / "p")
    (base,) = (tmp_path / "p").glob("base-*")
    assert _weights.read(base).keys() == {"0.weight", "0.bias"}
    other = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
    Predictor.load(tmp_path / "p", model).snapshots.load_into(other, 2)
    assert all(torch.equal(value, model.state_dict()[n]) for n, value in other.state_dict().items())


def test_a_predictor_replaces_another_and_nothing_else(folder, deployed):
    (folder / "snapshots-seed2").mkdir()
    others = ["snapshots-seed2/weights", "snapshots.tar", "answers.csv", "epoch-000001.safetensors"]
    looks_like_ours = "epoch-000001-0123456789ab.safetensors"
    for name in (*others, looks_like_ours):
        (folder / name).write_text(f"the user's own {name}")
    copied = next(folder.glob("epoch-000003-*")).rename(folder / "backup.safetensors")
    for name in ("predictor.json", looks_like_ours):  # as a crash leaves them
        (folder / f".partial-0123456789ab-{name}").touch()

    Predictor(FACTORY, deployed.digits.store, AES(k=2)).save(folder)
    assert Predictor.load(folder, FACTORY).epochs == [2, 6]
    for name in (*others, looks_like_ours):
        assert (folder / name).read_text() == f"the user's own {name}"
    assert copied.exists()
    assert not [*folder.glob(".partial-*")]
    kept = [name for name in names_in(folder) if name.startswith("epoch-")]
    assert len(kept) == 2 + 2  # of the two that are the user's own, and of two snapshots
    assert names_in(folder.parent) == ["predictor"]


def test_what_is_no_predictor_stays(folder):
    predictor = Predictor.load(folder, FACTORY)
    mine = folder.parent / "mine"
    mine.mkdir()
    predictor.save(mine)  # empty
    for path in mine.iterdir():
        path.unlink()
    (mine / "file").touch()
    with pytest.raises(InvalidInput, match=r"mine with file in it\. Choose another"):
        predictor.save(mine)
    with pytest.raises(InvalidInput, match="got the file "):
        predictor.save(mine / "file")
    assert names_in(mine) == ["file"]


def test_nothing_is_written_through_links(folder, tmp_path):
    predictor, before = Predictor.load(folder, FACTORY), names_in(folder)
    (tmp_path / "current").symlink_to(folder)
    with pytest.raises(OSError, match="must be a folder of its own, got a link"):
        predictor.save(tmp_path / "current")
    assert names_in(folder) == before
    target = tmp_path / "theirs.json"
    (folder / "predictor.json").replace(target)
    content = target.read_bytes()
    (folder / "predictor.json").symlink_to(target)
    predictor.save(folder)
    assert not (folder / "predictor.json").is_symlink()
    assert target.read_bytes() == content


def test_a_save_that_fails_leaves_the_old_one(folder, deployed, monkeypatch):
    """At whatever file it fails; the next save removes what it left."""
    other = Predictor(FACTORY, deployed.digits.store, AES(k=2))
    replace, epochs = Path.replace, Predictor.load(folder, FACTORY).epochs
    for fails_at in range(3):  # two snapshots and predictor.json
        turns = itertools.count()

        def failing(self, target, turns=turns, fails_at=fails_at):
            if next(turns) == fails_at:
                raise OSError(5, "the disk is gone")
            return replace(self, target)

        monkeypatch.setattr(Path, "replace", failing)
        with pytest.raises(OSError, match="the disk is gone"):
            other.save(folder)
        monkeypatch.undo()
        assert Predictor.load(folder, FACTORY).epochs == epochs
    other.save(folder)
    assert len(names_in(folder)) == 3


def test_a_superseded_predictor_never_comes_back(folder, deployed):
    Predictor(FACTORY, deployed.digits.store, AES(k=2)).save(folder)
    folder.rename(folder.with_name("moved"))
    with pytest.raises(InvalidInput, match=r"got no predictor\.json in it"):
        Predictor.load(folder, FACTORY)
    assert names_in(folder.parent) == ["moved"]


def test_a_read_only_disk_gets_a_sentence(folder, monkeypatch):
    predictor, before = Predictor.load(folder, FACTORY), names_in(folder)

    def refuse(temporary):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(_files, "_open_locked", refuse)
    assert Predictor.load(folder, FACTORY).epochs == predictor.epochs
    with pytest.raises(StorageError, match=r"Cannot write .*\(Read-only file system\)\. Choose"):
        predictor.save(folder)
    assert names_in(folder) == before


def test_it_saves_what_it_answers_with_or_nothing(deployed, tmp_path):
    """Trained again while a predictor is in memory, the folder's weights are not its own."""
    store = SnapshotStore(tmp_path / "run")
    for epoch in deployed.digits.store.epochs:
        store.save(deployed.digits.store.load(epoch), epoch)
    predictor = Predictor(deployed.digits.model(), store, AES(k=2))
    for epoch in store.epochs:
        store.save(deployed.digits.model(), epoch)
    with pytest.raises(CorruptFile, match="must not change while it is in use"):
        predictor.save(tmp_path / "p")
    assert not (tmp_path / "p" / "predictor.json").exists()


def test_one_that_is_saved_while_another_is_loaded(folder, deployed, monkeypatch):
    """The reader gets the old one or the new one, whole."""
    other = Predictor(FACTORY, deployed.digits.store, AES(k=2))
    read = _weights.read

    def late(path):
        monkeypatch.setattr(_weights, "read", read)
        other.save(folder)
        return read(path)

    monkeypatch.setattr(_weights, "read", late)
    assert Predictor.load(folder, FACTORY).epochs == [2, 6]


def test_what_is_torn_is_told(folder, tmp_path):
    (weights,) = folder.glob("epoch-000003-*")
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CorruptFile, match="SHA-256 differs"):
        Predictor.load(folder, FACTORY)
    weights.write_bytes(content)
    Predictor.load(folder, FACTORY)
    weights.unlink()
    with pytest.raises(CorruptFile, match=r"cannot be read \(No such file"):
        Predictor.load(folder, FACTORY)


def test_what_does_not_fit_is_refused(folder, tmp_path):
    with pytest.raises(WrongArchitecture):
        Predictor.load(folder, nn.Linear(3, 2))
    with pytest.raises(InvalidInput, match=r"got no predictor\.json in it\. Check the path"):
        Predictor.load(tmp_path / "nowhere")
    path = folder / "predictor.json"
    content = json.loads(path.read_text())

    def told(**changes):
        changed = {name: value for name, value in (content | changes).items() if name != "sha256"}
        path.write_text(json.dumps({**changed, "sha256": digest(changed)}))
        with pytest.raises((InvalidInput, CorruptFile)) as caught:
            Predictor.load(folder, trust=True)
        return str(caught.value)

    assert told(version=4).endswith("must be a predictor of format 3, got 4. Update snapsure.")
    assert told(version=1).endswith("got 1. Save the predictor again.")
    outside = {"1": {"file": "../run/epoch-000001.safetensors", "sha256": "0" * 64}}
    assert "`$.snapshots[0]" in told(snapshots=[outside])
    assert "True at `$.version`" in told(version=True)
    assert "names no function that makes the network" in told(model=None)
    assert "'another' at `$.format`" in told(format="another")
    assert "`name`" in told(estimator={})
    assert "other settings of κ" in told(kappa={"name": "softmax", "settings": {"scale": 2}})
    path.write_text(json.dumps(content).replace('"delta": null', '"delta": 0.5'))
    with pytest.raises(CorruptFile, match="its SHA-256 differs"):
        Predictor.load(folder, FACTORY)
    path.write_text("{")
    with pytest.raises(CorruptFile):
        Predictor.load(folder, FACTORY)
    path.write_text(json.dumps(content))
    for path in folder.glob("*.safetensors"):
        path.unlink()
    with pytest.raises(CorruptFile):
        Predictor.load(folder, FACTORY)


def test_no_pickle_is_read(folder, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a pickle was read")

    monkeypatch.setattr("pickle.load", refuse)
    monkeypatch.setattr("pickle.loads", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    assert Predictor.load(folder, FACTORY).epochs == [1, 3, 4, 6]
