"""Networks with convolutions, and one that is slow in some ways to run it."""

import time

import torch
from torch import nn

from snapsure import SnapshotStore

X = torch.randn(40, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def network(*layers):
    """A network whose normalisations have statistics that matter."""
    torch.manual_seed(0)
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 4))
    with torch.no_grad():
        for _ in range(3):
            model(X * 2 + 1)
    return model.eval()


def wait(seconds):
    """Keep a core busy, whatever else runs on it."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Slow(nn.Conv2d):
    """Takes a while where it runs as PyTorch runs it, or where it does not."""

    slow_eager = True  # no capitals: not part of what identifies a model

    def forward(self, x):
        if self.weight.is_contiguous() == Slow.slow_eager:
            wait(0.02)
        return super().forward(x)


def slow_network():
    return network(Slow(3, 3, 3), nn.BatchNorm2d(3), nn.ReLU())


def record(model, folder, epochs):
    """Snapshots of weights that wander."""
    store = SnapshotStore(folder)
    for epoch in epochs:
        with torch.no_grad():
            for weights in model.parameters():
                weights.add_(torch.randn_like(weights) * 0.1)
        store.save(model, epoch)
    return store
