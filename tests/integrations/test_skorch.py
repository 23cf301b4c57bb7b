"""Checkpoints that skorch's own callbacks write, as they are."""

import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from skorch import NeuralNetClassifier
from skorch.callbacks import Checkpoint, TrainEndCheckpoint
from torch import nn

from snapsure import SnapshotStore, SoftmaxResponse, score
from snapsure.errors import InvalidInput
from tests.support.refusals import refuses

pytestmark = pytest.mark.slow

X, Y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)


def trained(*callbacks, epochs=3):
    """A classifier after some epochs."""
    torch.manual_seed(0)
    net = NeuralNetClassifier(
        nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)),
        criterion=nn.CrossEntropyLoss,
        criterion__weight=torch.ones(10),  # so that the criterion has something to save
        max_epochs=epochs,
        lr=0.1,
        verbose=0,
        callbacks=list(callbacks),
    )
    return net.fit(X[:1000], Y[:1000])


def every_epoch(folder, name="params_{last_epoch[epoch]}.pt", **more):
    return Checkpoint(monitor=None, f_params=name, dirname=str(folder), **more)


def same(state, module):
    own = module.state_dict()
    return state.keys() == own.keys() and all(torch.equal(state[name], own[name]) for name in own)


def test_every_epoch_and_the_end(tmp_path):
    net = trained(every_epoch(tmp_path), TrainEndCheckpoint(dirname=str(tmp_path)))
    assert {"optimizer.pt", "criterion.pt", "train_end_params.pt", "train_end_criterion.pt"} <= {
        path.name for path in tmp_path.iterdir()
    }
    store = SnapshotStore.adopt(tmp_path)
    assert store.epochs == [1, 2, 3]  # the end is the third again
    assert same(store.load(3), net.module_)
    assert not same(store.load(2), net.module_)
    table = score(net.module_, tmp_path, (X[1000:], Y[1000:]), SoftmaxResponse(), progress=False)
    assert table.epochs.tolist() == [1, 2, 3]
    assert np.array_equal(table.y_hat, net.predict(X[1000:]))


def test_an_end_that_no_other_file_has(tmp_path):
    def first_two(net):
        return len(net.history) < 3

    saved = Checkpoint(
        monitor=first_two, f_params="params_{last_epoch[epoch]}.pt", dirname=str(tmp_path)
    )
    net = trained(saved, TrainEndCheckpoint(dirname=str(tmp_path)), epochs=5)
    store = SnapshotStore.adopt(tmp_path)
    assert store.epochs == [1, 2, 5]
    assert same(store.load(5), net.module_)


def test_one_file_that_is_written_again_and_again(tmp_path):
    net = trained(every_epoch(tmp_path, "params.pt"))
    store = SnapshotStore.adopt(tmp_path)
    assert store.epochs == [3]
    assert same(store.load(3), net.module_)


def test_safetensors(tmp_path):
    more = {"use_safetensors": True, "f_optimizer": None}
    net = trained(
        every_epoch(tmp_path, "params_{last_epoch[epoch]}.safetensors", **more),
        TrainEndCheckpoint(dirname=str(tmp_path), **more),
    )
    store = SnapshotStore.adopt(tmp_path)
    assert store.epochs == [1, 2, 3]
    assert same(store.load(3), net.module_)


@pytest.mark.parametrize("content", ["", "[]", "{}", "[1]", json.dumps([{"loss": 1}])])
def test_a_history_that_tells_nothing(tmp_path, content):
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "params.pt")
    (tmp_path / "history.json").write_text(content)
    with refuses(InvalidInput, "`folder`", f"got params in {tmp_path}"):
        SnapshotStore.adopt(tmp_path)
