"""NN-distance against every distance in float64, deep k-NN against scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torch import nn

from snapsure import NNDistance, score
from snapsure.errors import InvalidInput
from snapsure.kappas import DeepKNN
from snapsure.kappas._neighbours import _find_least
from snapsure.networks._network import Network
from snapsure.testing import KappaContract, kappa_of, small_network


class TestNNDistance(KappaContract):
    tolerance = 1e-5

    def make(self, inputs, labels):
        reference = torch.randn(80, 5, generator=torch.Generator().manual_seed(2))
        classes = int(max(labels)) + 1
        return NNDistance((reference.to(inputs.dtype), np.arange(80) % classes), k=30)


class TestDeepKNN(KappaContract):
    def make(self, inputs, labels):
        reference = torch.randn(80, 5, generator=torch.Generator().manual_seed(2))
        return DeepKNN((reference.to(inputs.dtype), np.arange(80) % 4), k=10)

    def test_one_class_is_certain(self, inputs):
        """Distances do not depend on the classes."""
        one = self.run(inputs, np.zeros(60, int), classes=1)
        np.testing.assert_allclose(one, self.run(inputs, np.arange(60) % 4), atol=1e-6)


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
    least, at = _find_least(squares, k)
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


def test_distances_are_exact_where_float32_products_need_not_be():
    """PyTorch may then round factors to bfloat16. The points have a mean of exactly 0."""
    rng = torch.Generator().manual_seed(7)
    half, queries = torch.randint(-4096, 4096, (120, 8), generator=rng).div(1024).split([100, 20])
    points = torch.cat([half, -half])
    labels, y_hat = np.arange(200) % 4, np.arange(20) % 4
    kappa, before = NNDistance((points, labels), k=50), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        ours = kappa_of(kappa, Embedding(8, 4), queries, y_hat)
    finally:
        torch.set_float32_matmul_precision(before)
    expected = plain(queries, y_hat, points, labels, 50)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-12)


def test_the_search_is_on_the_cpu_where_an_accelerator_has_no_float64(tmp_path):
    kappa = NNDistance((torch.eye(3), [0, 1, 2]))
    with torch.inference_mode():
        kappa.prepare([Network(Embedding(3), [kappa])], [tmp_path / "new"])
    opened = kappa.prepared(tmp_path / "new", torch.device("mps"))
    assert {part.device.type for part in opened} == {"cpu"}
    assert kappa.prepared(tmp_path / "new", torch.device("meta")).points.device.type == "meta"


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


def sun(queries, points, k):
    """Distance to the k-th nearest of the normalised points, by scikit-learn."""
    unit = [x.double().numpy() for x in (queries, points)]
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in unit]
    search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(unit[1])
    return search.kneighbors(unit[0])[0][:, -1]


@pytest.mark.parametrize("k", [1, 7, 30])
@pytest.mark.parametrize(("n", "height"), [(30, 0.0), (40_000, 0.0), (40_000, 20.0)])
def test_deep_knn_is_scikit_learns(n, k, height):
    rng = torch.Generator().manual_seed(5)
    points = torch.randn(n, 16, generator=rng) * 3 + height
    queries = torch.randn(600, 16, generator=rng) * 0.1 + height
    kappa = DeepKNN((points, np.arange(n) % 3), k=k)
    ours = kappa_of(kappa, Embedding(16), queries, np.zeros(600, int), batch_size=600)
    np.testing.assert_allclose(2 * (1 - ours), sun(queries, points, k), atol=1e-6)


def test_deep_knn_by_hand():
    # Directions (1, 0), (0, 1), (−1, 0): from (5, 0) they are 0, √2 and 2 away.
    points = torch.tensor([[2.0, 0.0], [0.0, 0.5], [-3.0, 0.0]])
    for k, distance in ((1, 0), (2, 2**0.5), (3, 2), (9, 2)):
        kappa = DeepKNN((points, [0, 1, 2]), k=k)
        ours = kappa_of(kappa, Embedding(2), torch.tensor([[5.0, 0.0]]), np.array([0]))
        assert ours[0] == pytest.approx(1 - distance / 2, abs=1e-7)
    zero = kappa_of(DeepKNN((points[:2], [0, 1]), k=1), Embedding(2), torch.zeros(2, 2), [0, 0])
    np.testing.assert_allclose(zero, 0.5)  # it has no direction


def test_lengths_change_nothing_for_deep_knn():
    rng = torch.Generator().manual_seed(3)
    points, queries = torch.randn(50, 4, generator=rng), torch.randn(9, 4, generator=rng)
    longer = points * torch.rand(50, 1, generator=rng).add(0.1)
    plain, scaled = (
        kappa_of(DeepKNN((x, np.zeros(50, int)), k=5), Embedding(4), q, np.zeros(9, int))
        for x, q in ((points, queries), (longer, queries * 100))
    )
    np.testing.assert_allclose(plain, scaled, atol=1e-6)


def test_both_in_one_scoring(digits):
    kappas = [NNDistance(digits.train, k=50), DeepKNN(digits.train, k=10)]
    table = score(digits.model(), digits.store, digits.test[0][:50], kappas, progress=False)
    alone = score(digits.model(), digits.store, digits.test[0][:50], kappas[1], progress=False)
    np.testing.assert_array_equal(table.kappa("deep_knn"), alone.kappa("deep_knn"))


@pytest.mark.parametrize("layers", [8, 9])
def test_the_first_eight_layers_are_named(layers):
    kappa = NNDistance((torch.eye(3), [0, 1, 2]), layer="fc")
    model = nn.Sequential(nn.Linear(3, 3), *[nn.ReLU() for _ in range(layers - 1)])
    with pytest.raises(InvalidInput, match="The model has 0, 1, 2, 3, 4, 5, 6, 7") as caught:
        kappa_of(kappa, model, torch.eye(3), np.zeros(3, int))
    assert ("…" in str(caught.value)) == (layers > 8)


@pytest.mark.parametrize("kind", [NNDistance, DeepKNN])
def test_refusals(kind):
    points, labels = torch.zeros(4, 5), [0, 1, 0, 1]
    images = torch.zeros(4, 1, 3, 3)
    convolution = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten())
    for arguments, model, x, words in (
        (((points, labels), 9), small_network(), points, "`layer` must name .* got 'fc'"),
        ((points,), small_network(), points, r"`reference` must come with labels.*Pass \(inputs"),
        (((images, labels),), convolution, images, "a linear layer .* got none .*[Nn]ame a module"),
        (((images, labels), 9), convolution, images, r"\(rows, features\), got shape \(4, 1, 3"),
    ):
        layer = {2: "fc" if model is not convolution else "0"}.get(len(arguments))
        with pytest.raises(InvalidInput, match=words):
            kappa_of(kind(*arguments, layer=layer), model, x, np.zeros(4, int))
    with pytest.raises(InvalidInput, match=r"`reference` must .* got 2 labels for 4"):
        kind((points, [0, 1]))
    with pytest.raises(InvalidInput, match="`k` must be a whole number ≥ 1, got 0"):
        kind((points, labels), k=0)
