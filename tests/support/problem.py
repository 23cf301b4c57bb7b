"""A small problem whose network does not settle: snapshots that differ, errors enough."""

import pytest
import torch
from torch import nn

from snapsure import SnapshotStore
from snapsure.errors import InvalidInput

CLASSES = 3


def network():
    """With dropout and batch normalisation: what a resumed training may get wrong."""
    return nn.Sequential(
        nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, CLASSES)
    )


def points(n=300, seed=0):
    """Inputs, and labels that they tell three times of four."""
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=chance)
    y = x[:, :CLASSES].argmax(dim=1)
    wrong = torch.rand(n, generator=chance) < 0.25
    return x, torch.where(wrong, torch.randint(0, CLASSES, (n,), generator=chance), y)


def trained(folder, epochs=10, seed=0):
    """A store with a snapshot per epoch."""
    torch.manual_seed(seed)
    store, model = SnapshotStore(folder), network()
    optimizer = torch.optim.SGD(model.parameters(), 0.3)
    x, y = points()
    for epoch in range(1, epochs + 1):
        model.train()
        for rows in torch.split(torch.randperm(len(y)), 50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        store.save(model, epoch)
    return store


def refusal(function, kind=InvalidInput):
    """What is said when a call is refused."""
    with pytest.raises(kind) as caught:
        function()
    return str(caught.value)
