"""NN-distance against a float64 reference that takes every distance."""

import numpy as np
import pytest
import torch
from torch import nn

from snapsure import NNDistance
from snapsure.errors import InvalidInput
from snapsure.kappas._neighbours import _least
from snapsure.testing import KappaContract, kappa_of, small_network


class TestNNDistance(KappaContract):
    tolerance = 1e-5

    def make(self, inputs, labels):
        reference = torch.randn(80, 5, generator=torch.Generator().manual_seed(2))
        classes = int(max(labels)) + 1
        return NNDistance((reference.to(inputs.dtype), np.arange(80) % classes), k=30)


def plain(queries, y_hat, points, labels, k):
    """Every distance in float64, the k smallest, their weights."""
    values = []
    for query, answer in zip(queries.double().numpy(), y_hat, strict=True):
        distance = np.sqrt(((points.double().numpy() - query) ** 2).sum(axis=1))
        near = np.argsort(distance, kind="stable")[:k]
        weight = np.exp(distance.min() - distance[near])
        values.append(weight[labels[near] == answer].sum() / weight.sum())
    return np.array(values)


class Embedding(nn.Module):
    """The input is the embedding."""

    def __init__(self, width, classes=10):
        super().__init__()
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        return self.fc(x)


@pytest.mark.parametrize("n", [30, 40_000])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("height", [0.0, 1.0, 300.0])
def test_equals_the_plain_definition_at_any_distance(n, scale, height):
    rng = torch.Generator().manual_seed(5)
    points = torch.randn(n, 16, generator=rng) * scale + height * scale
    queries = torch.randn(20, 16, generator=rng) * scale + height * scale
    queries[:3] = points[:3]  # distance 0
    labels, y_hat = np.arange(n) % 10, np.arange(20) % 10
    ours = kappa_of(NNDistance((points, labels), k=25), Embedding(16), queries, y_hat)
    expected = plain(queries, y_hat, points, labels, 25)
    np.testing.assert_allclose(ours, expected, atol=3e-5)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (7, 7), (100, 1), (100, 30), (999, 25), (1000, 250)])
@pytest.mark.parametrize("tied", [False, True])
def test_the_least_are_those_of_a_sort(n, k, tied):
    squares = torch.randn(20, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    squares = squares.round() if tied else squares
    least, at = _least(squares, k)
    assert torch.equal(least.sort(dim=1).values, squares.sort(dim=1).values[:, :k])
    assert torch.equal(least, squares.gather(1, at))
    assert all(len(set(row)) == k for row in at.tolist())  # each place once


def test_a_tight_cluster_far_from_the_mean_is_computed_again_in_float64():
    rng = torch.Generator().manual_seed(6)
    points = torch.cat([torch.randn(200, 8, generator=rng), torch.full((200, 8), 1000.0)])
    points[200:] += torch.randn(200, 8, generator=rng)
    queries = points[200:220] + 0.01
    labels, y_hat = np.arange(400) % 4, np.arange(20) % 4
    ours = kappa_of(NNDistance((points, labels), k=50), Embedding(8, 4), queries, y_hat)
    np.testing.assert_allclose(ours, plain(queries, y_hat, points, labels, 50), atol=1e-5)


def test_where_the_plain_formula_is_zero_over_zero():
    points = torch.tensor([[0.0], [5000.0]])
    kappa = NNDistance((points, [0, 1]), k=2)
    values = kappa_of(kappa, Embedding(1, 2), torch.tensor([[2000.0], [4000.0]]), np.array([0, 0]))
    assert values.tolist() == [1.0, 0.0]


def test_fewer_points_than_k_are_all_used():
    points = torch.randn(5, 3)
    y_hat = np.array([0, 1])
    ours = kappa_of(NNDistance((points, [0, 0, 1, 1, 1])), Embedding(3, 2), points[:2], y_hat)
    expected = plain(points[:2], y_hat, points, np.array([0, 0, 1, 1, 1]), 5)
    np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_the_embedding_is_the_input_of_the_last_linear_layer_or_the_one_named():
    model = small_network().eval()
    points, queries = torch.randn(50, 5), torch.randn(6, 5)
    labels, y_hat = np.arange(50) % 4, np.arange(6) % 4
    with torch.no_grad():
        for layer, part in ((None, model[:5]), ("3", model[:3]), ("0", model[:0])):
            ours = kappa_of(NNDistance((points, labels), k=10, layer=layer), model, queries, y_hat)
            expected = plain(part(queries), y_hat, part(points), labels, 10)
            np.testing.assert_allclose(ours, expected, atol=1e-5)


def refusal(kappa, model, inputs=None):
    inputs = torch.zeros(3, 5) if inputs is None else inputs
    with pytest.raises(InvalidInput) as caught:
        kappa_of(kappa, model, inputs, np.zeros(len(inputs), int))
    return str(caught.value)


def test_refusals():
    reference = (torch.zeros(4, 5), [0, 1, 0, 1])
    assert refusal(NNDistance(reference, layer="fc"), small_network()).startswith(
        "`layer` must name a module of the model, got 'fc'"
    )
    assert refusal(NNDistance(torch.zeros(4, 5)), small_network()).startswith(
        "`reference` must come with labels, got inputs alone"
    )
    convolution = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten())
    images = (torch.zeros(4, 1, 3, 3), [0, 1, 0, 1])
    assert refusal(NNDistance(images), convolution, torch.zeros(2, 1, 3, 3)).startswith(
        "`model` must have a linear layer whose input is the embedding, got none that ran"
    )
    assert refusal(NNDistance(images, layer="0"), convolution, torch.zeros(2, 1, 3, 3)).startswith(
        "The embedding must be (rows, features), got shape (4, 1, 3, 3) at Conv2d"
    )
    with pytest.raises(InvalidInput) as caught:
        NNDistance((torch.zeros(4, 5), [0, 1]))
    assert str(caught.value).startswith(
        "`reference` must give one label per point, got 2 labels for 4 points"
    )
