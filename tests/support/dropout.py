"""Networks with dropout in various places, and MC-dropout as a plain loop."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from snapsure import MCDropout
from snapsure.errors import InvalidInput
from snapsure.testing import kappa_of, small_network

PASSES = 25
STATISTICS = ["mean", "variance", "entropy", "mutual_information"]


def drops(model):
    return {n: m for n, m in model.named_modules() if isinstance(m, nn.modules.dropout._DropoutNd)}


def naive(model, inputs, p=None, seed=0, names=None):
    """Row by row, pass by pass, the whole network each time: softmax, (rows, passes, classes)."""
    model = model.eval()
    for name, module in drops(model).items():
        if module.p > 0 and (names is None or name in names):
            module.train()
            module.p = module.p if p is None else p
    rows = []
    for row in inputs:
        torch.manual_seed(seed)
        with torch.no_grad():
            runs = [model(row[None]).double().softmax(dim=1)[0] for _ in range(PASSES)]
        rows.append(torch.stack(runs).numpy())
    return np.array(rows)


def entropy(p):
    return -np.sum(p * np.log(p), axis=-1)


def by_definition(statistic, runs, y_hat):
    """κ of softmax, (rows, passes, classes)."""
    chosen = runs[np.arange(len(runs)), :, y_hat]
    most = np.log(runs.shape[-1])
    if statistic == "mean":
        return chosen.mean(axis=1)
    if statistic == "variance":
        return 1 - 4 * chosen.var(axis=1)
    whole = entropy(runs.mean(axis=1))
    if statistic == "entropy":
        return 1 - whole / most
    return 1 - (whole - entropy(runs).mean(axis=1)) / most


class Residual(nn.Module):
    """Branches, a module used twice, functions between modules, changes in place."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 12)
        self.again = nn.Linear(12, 12)
        self.relu = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 4))

    def forward(self, x):
        x = self.first(x)
        x += 1.0  # in place, on the output of a module
        y = self.relu(self.again(self.again(x)))
        x = self.drop(x + y)
        return self.head(x + self.again(torch.tanh(x)))


class Images(nn.Module):
    """Channels dropped as a whole, then units."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU())
        self.drop = nn.Dropout2d(0.4)
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(6 * 9, 4))

    def forward(self, x):
        return self.head(self.drop(self.body(x.view(-1, 1, 5, 5))))


class ZeroBranch(nn.Module):
    """A branch that is zero until it is trained, added in place."""

    def __init__(self):
        super().__init__()
        self.trunk, self.branch = nn.Linear(5, 8), nn.Linear(8, 8)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(8, 4)

    def forward(self, x):
        y = self.trunk(x)
        y += self.drop(self.branch(y))
        return self.head(y)


class SometimesLate(nn.Module):
    """Uses a layer again after the dropout, but not for a batch of zeros."""

    def __init__(self):
        super().__init__()
        self.layer, self.drop, self.head = nn.Linear(5, 5), nn.Dropout(0.5), nn.Linear(5, 4)

    def forward(self, x):
        z = self.drop(self.layer(x))
        if (x != 0).any():
            z = self.layer(z)
        return self.head(z)


class InPlace(nn.Module):
    """Drops in place and does not look at the result."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(5, 9), nn.Linear(9, 4)
        self.drop = OwnDropout(0.5, inplace=True)

    def forward(self, x):
        z = self.layer(x)
        self.drop(z)
        return self.head(z)


class OwnDropout(nn.Dropout):
    """A subclass is a dropout too."""


class Attention(nn.Module):
    """A transformer layer, rows first."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(4, 2, 16, dropout=0.0, batch_first=True)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(20, 4)

    def forward(self, x):
        return self.head(self.drop(self.encoder(x.view(-1, 5, 4)).flatten(1)))


class Alone(nn.Module):
    """Calls a layer by itself that it has called inside another, before the dropout."""

    def __init__(self):
        super().__init__()
        self.layer, self.drop, self.head = nn.Linear(5, 5), nn.Dropout(0.5), nn.Linear(5, 4)
        self.body = nn.Sequential(nn.Tanh(), self.layer)

    def forward(self, x):
        return self.head(self.drop(self.layer(self.body(x))))


class Skips(nn.Sequential):
    """Reads what its first layer gives twice."""

    def forward(self, x):
        x = self[0](x)
        return self[3](self[2](self[1](x) + x))


class Shared(nn.Module):
    """Calls a layer by itself that it then calls inside another, where the dropout is too."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(5, 5), nn.Linear(5, 4)
        self.body = nn.Sequential(self.layer, nn.Tanh(), nn.Dropout(0.5))

    def forward(self, x):
        x = self.layer(x)
        return self.head(x + self.body(x))


MODELS = {
    "inside and alone": (Alone, 5),
    "skips": (lambda: Skips(nn.Linear(5, 5), nn.Tanh(), nn.Dropout(0.5), nn.Linear(5, 4)), 5),
    "shared": (Shared, 5),
    "a branch that is zero at first": (ZeroBranch, 5),
    "in place": (InPlace, 5),
    "attention": (Attention, 20),
    "dropout in the head": (lambda: small_network(), 5),
    "dropout before everything": (
        lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 9), nn.ReLU(), nn.Linear(9, 4)),
        5,
    ),
    "branches and changes in place": (Residual, 5),
    "channels": (Images, 25),
}


def two_dropouts():
    trunk = nn.Sequential(nn.Linear(5, 8), nn.ReLU())
    middle = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    return nn.Sequential(trunk, nn.Dropout(0.1), middle, nn.Dropout(0.5), nn.Linear(8, 4))


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 4)

    def forward(self, x):
        return self.linear(functional.dropout(x, 0.5, self.training))


def refusal(model, kappa=None):
    with pytest.raises(InvalidInput) as caught:
        kappa_of(kappa or MCDropout(), model, torch.zeros(3, 5), np.zeros(3, int))
    return str(caught.value)
