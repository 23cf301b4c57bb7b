"""Deep k-nearest neighbours against scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torch import nn

from snapsure import NNDistance, score
from snapsure.errors import InvalidInput
from snapsure.kappas import DeepKNN
from snapsure.testing import KappaContract, kappa_of, small_network


class TestDeepKNN(KappaContract):
    def make(self, inputs, labels):
        reference = torch.randn(80, 5, generator=torch.Generator().manual_seed(2))
        return DeepKNN((reference.to(inputs.dtype), np.arange(80) % 4), k=10)

    def test_one_class_is_certain(self, inputs):
        """Distances are as many classes as there may be: a point is not near for having one."""
        one = self.run(inputs, np.zeros(60, int), classes=1)
        np.testing.assert_allclose(one, self.run(inputs, np.arange(60) % 4), atol=1e-6)


class Embedding(nn.Module):
    """The input is the embedding."""

    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, 3)

    def forward(self, x):
        return self.fc(x)


def sun(queries, points, k):
    """Distance to the k-th nearest of the normalised points, by scikit-learn."""
    unit = [x.double().numpy() for x in (queries, points)]
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in unit]
    search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(unit[1])
    return search.kneighbors(unit[0])[0][:, -1]


@pytest.mark.parametrize("k", [1, 7, 30])
@pytest.mark.parametrize(("n", "height"), [(30, 0.0), (40_000, 0.0), (40_000, 20.0)])
def test_equals_scikit_learn(n, k, height):
    rng = torch.Generator().manual_seed(5)
    points = torch.randn(n, 16, generator=rng) * 3 + height
    queries = torch.randn(600, 16, generator=rng) * 0.1 + height
    kappa = DeepKNN((points, np.arange(n) % 3), k=k)
    ours = kappa_of(kappa, Embedding(16), queries, np.zeros(600, int), batch_size=600)
    np.testing.assert_allclose(2 * (1 - ours), sun(queries, points, k), atol=1e-6)


def test_by_hand():
    # Directions (1, 0), (0, 1), (−1, 0): from (5, 0) they are 0, √2 and 2 away.
    points = torch.tensor([[2.0, 0.0], [0.0, 0.5], [-3.0, 0.0]])
    for k, distance in ((1, 0), (2, 2**0.5), (3, 2), (9, 2)):
        kappa = DeepKNN((points, [0, 1, 2]), k=k)
        ours = kappa_of(kappa, Embedding(2), torch.tensor([[5.0, 0.0]]), np.array([0]))
        assert ours[0] == pytest.approx(1 - distance / 2, abs=1e-7)


def test_lengths_change_nothing():
    rng = torch.Generator().manual_seed(3)
    points, queries = torch.randn(50, 4, generator=rng), torch.randn(9, 4, generator=rng)
    longer = points * torch.rand(50, 1, generator=rng).add(0.1)
    plain, scaled = (
        kappa_of(DeepKNN((x, np.zeros(50, int)), k=5), Embedding(4), q, np.zeros(9, int))
        for x, q in ((points, queries), (longer, queries * 100))
    )
    np.testing.assert_allclose(plain, scaled, atol=1e-6)


def test_a_zero_embedding_has_no_direction():
    points = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    ours = kappa_of(DeepKNN((points, [0, 1]), k=1), Embedding(2), torch.zeros(2, 2), np.zeros(2))
    np.testing.assert_allclose(ours, 0.5)


def test_beside_nn_distance_in_one_scoring(digits):
    kappas = [NNDistance(digits.train, k=50), DeepKNN(digits.train, k=10)]
    table = score(digits.model(), digits.store, digits.test[0][:50], kappas, progress=False)
    alone = score(digits.model(), digits.store, digits.test[0][:50], kappas[1], progress=False)
    np.testing.assert_array_equal(table.kappa("deep_knn"), alone.kappa("deep_knn"))


def test_refusals():
    with pytest.raises(InvalidInput) as caught:
        DeepKNN((torch.zeros(4, 5), [0, 1, 0, 1]), k=0)
    assert str(caught.value) == "`k` must be a whole number ≥ 1, got 0. Use at least 1."
    with pytest.raises(InvalidInput) as caught:
        kappa_of(DeepKNN(torch.zeros(4, 5)), small_network(), torch.zeros(3, 5), np.zeros(3, int))
    assert str(caught.value) == (
        "`reference` must come with labels, got inputs alone: "
        "pass (inputs, labels) or a data set of pairs"
    )
