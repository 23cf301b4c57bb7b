"""Some of the snapshots, and several trainings as one: nothing is copied."""

import pytest
import torch
from torch import nn

from snapsure import Ensemble, SnapshotStore
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.snapshots import Snapshots
from tests.support.refusals import refuses


def store_of(folder, epochs):
    store = SnapshotStore(folder)
    for epoch in epochs:
        store.save({"weight": torch.full((2, 3), float(epoch)), "bias": torch.zeros(2)}, epoch)
    return store


@pytest.fixture
def store(tmp_path):
    return store_of(tmp_path / "run", [2, 4, 6, 8])


def test_some_of_them(store):
    some = store.select([8, 4, 4])
    assert isinstance(some, Snapshots)
    assert not isinstance(some, SnapshotStore)
    assert (some.epochs, len(some), 6 in some, list(some)) == ([4, 8], 2, False, [4, 8])
    assert some.members == [some]
    assert some.sha256(4) == store.sha256(4)
    assert (some.load(8)["weight"] == 8).all()
    model = nn.Linear(3, 2)
    some.load_into(model, 4)
    assert (model.weight == 4).all()
    some.verify()
    assert some.select([8]).epochs == [8]
    assert repr(some) == f"SnapshotStore({str(store.path)!r}).select([4, 8])"


def test_what_is_not_selected_is_not_there(store):
    some = store.select([4, 8])
    for call in (some.load, some.sha256):
        with refuses(InvalidInput, "`epoch`", "got 6"):
            call(6)
    with refuses(InvalidInput, "`epoch`", "got 3"):
        store.select([3])
    with refuses(InvalidInput, "`epochs`", "got none"):
        store.select([])


def test_an_ensemble_is_its_members(store, tmp_path):
    other = store_of(tmp_path / "other", [2, 4, 6, 8])
    both = Ensemble([store, tmp_path / "other"])
    assert both.epochs == [2, 4, 6, 8]
    assert [member.path for member in both.members] == [store.path, other.path]
    assert both.sha256(4) == f"{store.sha256(4)} {other.sha256(4)}"
    both.verify()
    assert repr(both) == f"Ensemble([{store!r}, {other!r}])"
    some = both.select([4, 8])
    assert some.epochs == [4, 8]
    assert [member.epochs for member in some.members] == [[4, 8], [4, 8]]
    for call in (lambda: both.load(4), lambda: both.load_into(nn.Linear(3, 2), 4)):
        with refuses(InvalidInput, "got 2 of them", ".members"):
            call()
    (other.path / "epoch-000006.safetensors").unlink()
    with refuses(CorruptFile, f"epoch 6 ({other.path}", "got no file"):
        both.verify()
