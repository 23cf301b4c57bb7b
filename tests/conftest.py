"""A small convolutional network, really trained on scikit-learn's digits, once for all tests."""

import os
from dataclasses import dataclass

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from snapsure import Recorder, SnapshotStore
from snapsure.networks import _ways
from tests.support import processes
from tests.support.network import digits_network

EPOCHS, TRAIN = 6, 1000


@dataclass
class Digits:
    """The trained network's snapshots, and the data it was and was not trained on."""

    store: SnapshotStore
    train: tuple
    test: tuple

    def model(self):
        return digits_network()


def train_digits(folder, seed):
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target)
    torch.manual_seed(seed)
    model = digits_network()
    recorder = Recorder(folder)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for rows in torch.randperm(TRAIN).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
        recorder.record(model, epoch)
    return Digits(
        recorder.store, (images[:TRAIN], labels[:TRAIN]), (images[TRAIN:], labels[TRAIN:])
    )


@pytest.fixture(autouse=True)
def _seeded():
    """What a test draws does not depend on the tests before it."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _eager(monkeypatch):
    """Only a network that waits on purpose is slow enough for another way to run to be measured."""
    monkeypatch.setattr(_ways, "_WORTH", 10.0)


@pytest.fixture(scope="session", autouse=True)
def _unflushed():
    """No test cuts the power, and even a kill loses nothing that was written: nobody waits."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _commands():
    """What commands are forked from ends with the tests."""
    yield
    processes.end_server()


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    return train_digits(tmp_path_factory.mktemp("digits"), seed=0)


@pytest.fixture(scope="session")
def other_digits(tmp_path_factory):
    """A second member for ensembles."""
    return train_digits(tmp_path_factory.mktemp("other"), seed=1)
