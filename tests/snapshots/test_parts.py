"""Weights of a module around the network, or of the network in it: the sentence says which."""

import torch
from torch import nn

from snapsure import Recorder, SnapshotStore
from snapsure.errors import StorageError, WrongArchitecture
from tests.support.refusals import refuses


class Module(nn.Module):
    """As a LightningModule has its network, in an attribute."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 2)


def test_the_network_was_saved_and_the_module_is_given(tmp_path):
    own, others = SnapshotStore(tmp_path / "own"), tmp_path / "others"
    own.save(nn.Linear(3, 2), 1)
    others.mkdir()
    torch.save(nn.Linear(3, 2).state_dict(), others / "epoch-1.pt")
    adopted = SnapshotStore.adopt(others)
    for store, origin in ((own, own.path), (adopted, others / "epoch-1.pt")):
        with refuses(
            WrongArchitecture,
            origin,
            "missing in the snapshot: net.bias, net.weight; unknown to the model: bias, weight",
            "model.get_submodule('net')",
        ):
            store.load_into(Module(), 1)
    model = Module()
    for store in (own, adopted):
        store.load_into(model.get_submodule("net"), 1)  # as it says


def test_the_module_was_saved_and_the_network_is_given(tmp_path):
    """Checkpoints of other tools find it; a store says of what the snapshot was taken."""
    own, others = SnapshotStore(tmp_path / "own"), tmp_path / "others"
    own.save(Module(), 1)
    with refuses(
        WrongArchitecture,
        own.path,
        "missing in the snapshot: bias, weight; unknown to the model: net.bias, net.weight",
        "is the part 'net'",
    ):
        own.load_into(nn.Linear(3, 2), 1)
    named = SnapshotStore(tmp_path / "named")
    named.save(nn.ModuleDict({"base_model": nn.Linear(3, 2)}), 1)  # as peft names it too
    with refuses(WrongArchitecture, "is the part 'base_model'"):
        named.load_into(nn.Linear(3, 2), 1)
    others.mkdir()
    around = nn.ModuleDict({"lit": Module()})
    torch.save(around.state_dict(), others / "epoch-1.pt")
    SnapshotStore.adopt(others).load_into(nn.Linear(3, 2), 1)
    SnapshotStore.adopt(others, state="lit").load_into(nn.Linear(3, 2), 1)


def test_a_recorder_tries_its_folder_when_it_is_made(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "run"
    with refuses(StorageError, below, "Not a directory"):
        Recorder(below)

    def denied(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", denied)
    run = tmp_path / "run"
    with refuses(StorageError, run, "Permission denied"):
        Recorder(run)
    monkeypatch.undo()
    Recorder(run)
    assert list(run.iterdir()) == []  # nothing is left of the trial
