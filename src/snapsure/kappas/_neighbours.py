"""κ functions of the nearest training embeddings: exact, and block by block in bounded memory."""

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from snapsure import _validate
from snapsure._types import Floats, Ints
from snapsure.errors import InvalidInput
from snapsure.kappas._base import Kappa
from snapsure.networks._data import Rows
from snapsure.networks._forward import Forward, Snapshot
from snapsure.networks._reference import Reference, squares_of, write_reference

# Largest blocks of queries and references whose distances are computed at a time.
_QUERIES, _REFERENCES = 512, 1 << 14
# Smaller groups of columns cost as much as they save.
_SMALLEST_GROUP = 5
# Error of a float32 distance above which its row is computed again in float64.
_TOLERANCE = 1e-5


class NeighbourKappa(Kappa):
    """Abstract base of κ functions of the training embeddings nearest to an example."""

    prepares = True

    def __init__(self, reference: Any, k: int, layer: str | None) -> None:
        self._reference = Rows.of(reference, "reference")
        self._k = _validate.count(k, "k")
        self._layer = layer

    @property
    def layers(self) -> list[str | None]:
        """The layer whose input is the embedding."""
        return [self._layer]

    @property
    def settings(self) -> dict[str, Any]:
        """k, the layer, and the identity of the reference."""
        return {"k": self._k, "layer": self._layer, "reference": self._reference.whole_identity()}

    @abstractmethod
    def embed(self, forward: Forward) -> Tensor:
        """Return the embeddings of a pass, (n, features)."""

    def prepare(self, snapshots: Sequence[Snapshot], folders: Sequence[Path]) -> None:
        """Write the embeddings of the reference under each snapshot, reading its rows once."""
        with ExitStack() as files:
            add = [
                files.enter_context(write_reference(folder, self._reference.n))
                for folder in folders
            ]
            for inputs, y in self._reference.batches():
                if y is None:
                    raise InvalidInput(
                        "`reference` must come with labels, got inputs alone. "
                        "Pass (inputs, labels) or a data set of pairs."
                    )
                for i, snapshot in enumerate(snapshots):
                    add[i](self.embed(snapshot.run(inputs)), y)
                    snapshot.forget()

    def prepared(self, folder: Path, device: torch.device) -> Reference:
        """Open the embedded reference."""
        return Reference.open(folder, _search_device(device))

    def _embedding(self, forward: Forward) -> Tensor:
        """Return the layer's input, on a device and in a type that distances can be taken in."""
        embedding = forward.embedding(self._layer)
        embedding = embedding.to(_search_device(embedding.device))
        return embedding if embedding.dtype == torch.float64 else embedding.float()


class NNDistance(NeighbourKappa):
    """κ = Σ e^{−d} over the neighbours of class y_hat / Σ e^{−d} over all k neighbours.

    Mandelbaum & Weinshall 2017, [Distance-based Confidence Score for Neural Network
    Classifiers](https://arxiv.org/abs/1709.09844). Neighbours are the k nearest training embeddings
    (inputs of the last linear layer), and d is the Euclidean distance. The smallest d is subtracted
    first, because the plain formula is 0/0 at ordinary distances. The search is exact. While a
    snapshot is scored, the embeddings lie in files beside the scores, so memory stays bounded.

    Parameters
    ----------
    reference : DataLoader, Dataset or (inputs, labels)
        Training examples with their labels.
    k : int
        The number of neighbours; all examples if there are fewer.
    layer : str, optional
        Name of the module whose input is the embedding.

    Examples
    --------
    >>> train, labels = torch.eye(4), [0, 1, 2, 3]
    >>> kappa = NNDistance((train, labels), k=2)
    >>> kappa.name, kappa.settings["k"]
    ('nn_distance', 2)
    """

    name = "nn_distance"

    def __init__(self, reference: Any, k: int = 500, *, layer: str | None = None) -> None:
        super().__init__(reference, k, layer)

    def embed(self, forward: Forward) -> Tensor:
        """Return the layer's input."""
        return self._embedding(forward)

    def score(self, forward: Forward, y_hat: Ints, prepared: Reference) -> Floats:
        """Return the share of the predicted class among the neighbours, weighted by nearness."""
        queries = self.embed(forward) - prepared.center
        chosen = torch.as_tensor(y_hat, device=queries.device)
        parts = [
            share_of(queries[part], chosen[part], prepared, self._k) for part in _blocks(queries)
        ]
        values: Floats = torch.cat(parts).cpu().numpy()
        return values


class DeepKNN(NeighbourKappa):
    """κ = 1 − d / 2, with d the distance to the k-th nearest training embedding, all of length 1.

    Sun, Ming, Zhu & Li 2022, [Out-of-Distribution Detection with Deep Nearest
    Neighbors](https://arxiv.org/abs/2204.06507), whose score is −d. Embeddings are the inputs of
    the last linear layer, divided by their Euclidean length, so d lies in [0, 2]. The search is
    exact and in float64. κ ignores y_hat.

    Parameters
    ----------
    reference, layer
        As of `NNDistance`.
    k : int
        Which neighbour; the farthest if there are fewer. The paper uses 50 for CIFAR-10, 200 for
        CIFAR-100 and 1,000 for ImageNet.

    Examples
    --------
    >>> train, labels = torch.eye(4), [0, 1, 2, 3]
    >>> kappa = DeepKNN((train, labels), k=2)
    >>> kappa.name, kappa.settings["k"]
    ('deep_knn', 2)
    """

    name = "deep_knn"

    def __init__(self, reference: Any, k: int = 50, *, layer: str | None = None) -> None:
        super().__init__(reference, k, layer)

    def embed(self, forward: Forward) -> Tensor:
        """Return the layer's input at length 1; zeros have no direction and stay as they are."""
        return torch.nn.functional.normalize(self._embedding(forward), dim=1)

    def score(self, forward: Forward, y_hat: Ints, prepared: Reference) -> Floats:
        """Return how near the k-th neighbour is."""
        queries = self.embed(forward).double() - prepared.center
        squares = [_find_nearest(queries[part], prepared, self._k)[0] for part in _blocks(queries)]
        distance = torch.cat(squares).amax(dim=1).sqrt()
        values: Floats = (1 - distance / 2).clamp(0, 1).cpu().numpy()
        return values


def share_of(queries: Tensor, chosen: Tensor, reference: Reference, k: int) -> Tensor:
    """Return the share of the chosen class among the k nearest, weighted by e^{−d}."""
    squares, labels = _find_nearest(queries, reference, k)
    distance = squares.double().sqrt()

    if queries.dtype != torch.float64:
        again = _loses_precision(queries, reference, distance)
        if again.any():
            squares, exact = _find_nearest(queries[again].double(), reference, k)
            distance[again], labels[again] = squares.sqrt(), exact

    weight = (distance.amin(dim=1, keepdim=True) - distance).exp()
    return (weight * (labels == chosen[:, None])).sum(dim=1) / weight.sum(dim=1)


def _loses_precision(queries: Tensor, reference: Reference, distance: Tensor) -> Tensor:
    """Mark rows whose float32 distances are off by more than the tolerance: near pairs far out."""
    if torch.get_float32_matmul_precision() != "highest":
        return torch.ones(len(queries), dtype=torch.bool, device=queries.device)
    lost = torch.finfo(queries.dtype).eps * (squares_of(queries) + reference.squares.max())
    return lost > 2 * _TOLERANCE * distance.amin(dim=1)


def _search_device(device: torch.device) -> torch.device:
    return torch.device("cpu") if device.type == "mps" else device  # mps has no float64


def _blocks(queries: Tensor) -> Iterator[slice]:
    return (slice(low, low + _QUERIES) for low in range(0, len(queries), _QUERIES))


def _find_nearest(queries: Tensor, reference: Reference, k: int) -> tuple[Tensor, Tensor]:
    """Return squared distances and labels of the k nearest, or of all if there are fewer.

    Queries are relative to the reference's center. Distances are computed in the queries' type.
    """
    best = queries.new_empty((len(queries), 0))
    labels = reference.labels.new_empty((len(queries), 0))
    for low in range(0, len(reference.points), _REFERENCES):
        part = slice(low, low + _REFERENCES)
        block = reference.points[part].to(queries.dtype)
        with torch.autocast(queries.device.type, enabled=False):
            converted = block.dtype != reference.points.dtype
            lengths = squares_of(block) if converted else reference.squares[part]
            squares = torch.addmm(lengths, queries, block.T, alpha=-2)

        near, at = _find_least(squares, min(k, len(block)))
        best = torch.cat((best, near), dim=1)
        labels = torch.cat((labels, reference.labels[part][at]), dim=1)
        if best.shape[1] > k:
            best, at = best.topk(k, dim=1, largest=False, sorted=False)
            labels = labels.gather(1, at)
    return (best + squares_of(queries)[:, None]).clamp_min(0), labels


def _find_least(squares: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k least values of each row and their columns, in any order.

    Columns are grouped first. The k least values lie in the k groups with the least minima: every
    other group has k values elsewhere that are no greater than any of its own.
    """
    n = squares.shape[1]
    size = math.isqrt(n // k)  # minimises the n / size groups plus the k · size values to look at
    if size < _SMALLEST_GROUP:
        return squares.topk(k, dim=1, largest=False, sorted=False)

    groups = n // size
    minima = squares[:, : size * groups].reshape(len(squares), size, groups).amin(dim=1)
    group = minima.topk(k, dim=1, largest=False, sorted=False).indices

    columns = torch.arange(n, device=squares.device)
    at = (group[:, None] + columns[: size * groups : groups, None]).flatten(1)
    rest = columns[size * groups :].expand(len(at), -1)
    at = torch.cat((at, rest), dim=1)
    least, among = squares.gather(1, at).topk(k, dim=1, largest=False, sorted=False)
    return least, at.gather(1, among)
