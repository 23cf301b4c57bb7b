"""The network of the tests, in a module that loads next to nothing beside PyTorch."""

from torch import nn


def digits_network():
    """Convolutions and batch normalisation, then a head with dropout."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 32),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(32, 10),
    )
