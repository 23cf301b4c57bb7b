"""Weights of a module around the network, or of the network in it: the sentence says which."""

import pytest
import torch
from torch import nn

from snapsure import Recorder, SnapshotStore
from snapsure.errors import StorageError, WrongArchitecture


class Module(nn.Module):
    """As a LightningModule has its network, in an attribute."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 2)


def sentence(kind, function, *args):
    with pytest.raises(kind) as caught:
        function(*args)
    return str(caught.value)


def test_the_network_was_saved_and_the_module_is_given(tmp_path):
    own, others = SnapshotStore(tmp_path / "own"), tmp_path / "others"
    own.save(nn.Linear(3, 2), 1)
    others.mkdir()
    torch.save(nn.Linear(3, 2).state_dict(), others / "epoch-1.pt")
    ending = (
        " must have the architecture of `model`, got differences: missing in the snapshot: "
        "net.bias, net.weight; unknown to the model: bias, weight: the model has 'net.' before the "
        "snapshot's names, as a module around the network has: pass the part that was saved, "
        "model.get_submodule('net')"
    )
    assert sentence(WrongArchitecture, own.load_into, Module(), 1) == (
        f"snapshot of epoch 1 in {own.path}{ending}"
    )
    adopted = SnapshotStore.adopt(others)
    assert sentence(WrongArchitecture, adopted.load_into, Module(), 1) == (
        f"checkpoint of epoch 1 ({others / 'epoch-1.pt'}){ending}"
    )
    model = Module()
    for store in (own, adopted):
        store.load_into(model.get_submodule("net"), 1)  # as it says


def test_the_module_was_saved_and_the_network_is_given(tmp_path):
    """Checkpoints of other tools find it; a store says of what the snapshot was taken."""
    own, others = SnapshotStore(tmp_path / "own"), tmp_path / "others"
    own.save(Module(), 1)
    assert sentence(WrongArchitecture, own.load_into, nn.Linear(3, 2), 1) == (
        f"snapshot of epoch 1 in {own.path} must have the architecture of `model`, got "
        "differences: missing in the snapshot: bias, weight; unknown to the model: net.bias, "
        "net.weight: the snapshot has 'net.' before the model's names: pass the module that was "
        "recorded, of which this model is the part 'net'"
    )
    others.mkdir()
    around = nn.ModuleDict({"lit": Module()})
    torch.save(around.state_dict(), others / "epoch-1.pt")
    SnapshotStore.adopt(others).load_into(nn.Linear(3, 2), 1)
    short = SnapshotStore.adopt(others, prefix="lit")
    assert sentence(WrongArchitecture, short.load_into, nn.Linear(3, 2), 1).endswith(
        "unknown to the model: net.bias, net.weight: the model's names come after 'lit.net.' "
        "there: pass that as `prefix`"
    )
    SnapshotStore.adopt(others, prefix="lit.net.").load_into(nn.Linear(3, 2), 1)  # as it says


def test_a_recorder_tries_its_folder_when_it_is_made(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "run"
    assert sentence(StorageError, Recorder, below) == (
        f"cannot write to {below} (Not a directory): choose a folder that can be written to"
    )

    def denied(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", denied)
    run = tmp_path / "run"
    assert sentence(StorageError, Recorder, run) == (
        f"cannot write to {run} (Permission denied): choose a folder that can be written to"
    )
    monkeypatch.undo()
    Recorder(run)
    assert list(run.iterdir()) == []  # nothing is left of the trial
