"""A task of the study of few passes that trains in seconds."""

import torch
from torch import nn

from experiments.passes.tasks import Task
from tests.support.problem import CLASSES, points


def build_network():
    return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES))


def make_small_task(*_):
    train, test = points(400), points(200, seed=1)
    return Task("words", train, test, build_network, _shake, 5e-4, 10, 3, CLASSES, seeds=2)


def _shake(x):
    return x + 0.1 * torch.randn_like(x)
