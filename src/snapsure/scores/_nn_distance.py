"""NN-distance: do the nearest training points, as the network sees them, share the answer?"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from snapsure import _validate
from snapsure.errors import InvalidInput
from snapsure.scores._base import Forward, Kappa, Snapshot, Values
from snapsure.scores._data import Rows

# Distances are taken for blocks of at most this many queries and references at a time.
_QUERIES, _REFERENCES = 512, 1 << 14
# What float32 may do to a distance before its row is computed again in float64.
_TOLERANCE = 1e-5


class Reference(NamedTuple):
    """Embeddings of the training points under one snapshot, about their mean."""

    center: Tensor
    points: Tensor
    squares: Tensor  # of the points' distances to the center
    labels: Tensor

    @classmethod
    def of(cls, points: Tensor, labels: Tensor) -> "Reference":
        """Embeddings as they come."""
        center = points.mean(dim=0)
        points = points - center
        return cls(center, points, _squares(points), labels)


class NNDistance(Kappa):
    """κ = Σ e^{−d} over neighbours of the class y_hat / Σ e^{−d} over all k neighbours.

    Mandelbaum & Weinshall 2017. Neighbours are the k nearest training embeddings (inputs of the
    last linear layer), d their Euclidean distance, the smallest one subtracted first: the plain
    formula is 0/0 at ordinary distances. Exact, and in bounded memory.

    Parameters
    ----------
    reference : DataLoader, Dataset or (inputs, labels)
        Training points with their labels.
    k : int
        Neighbours; of fewer points, all are used.
    layer : str, optional
        Name of the module whose input is the embedding.
    """

    def __init__(self, reference: Any, k: int = 500, *, layer: str | None = None) -> None:
        self._reference = Rows.of(reference, "reference")
        self._k = _validate.count(k, "k")
        self._layer = layer

    @property
    def name(self) -> str:
        """`nn_distance`."""
        return "nn_distance"

    @property
    def layers(self) -> list[str | None]:
        """The embedding's layer."""
        return [self._layer]

    @property
    def settings(self) -> dict[str, Any]:
        """k, the layer, and what the reference is."""
        return {"k": self._k, "layer": self._layer, "reference": self._reference.identity()}

    def prepare(self, snapshot: Snapshot) -> Reference:
        """Embed the reference, once per snapshot."""
        parts, labels = [], []
        for forward, y in snapshot.passes(self._reference):
            if y is None:
                raise InvalidInput(
                    "`reference` must come with labels, got inputs alone: "
                    "pass (inputs, labels) or a data set of pairs"
                )
            parts.append(_embedding(forward, self._layer))
            labels.append(torch.as_tensor(y, device=parts[-1].device))
        return Reference.of(torch.cat(parts), torch.cat(labels))

    def score(self, forward: Forward, y_hat: NDArray[np.int64], prepared: Reference) -> Values:
        """Share of the answer's class among the neighbours, weighted by nearness."""
        queries = _embedding(forward, self._layer) - prepared.center
        chosen = torch.as_tensor(y_hat, device=queries.device)
        parts = [
            _shares(queries[low : low + _QUERIES], chosen[low : low + _QUERIES], prepared, self._k)
            for low in range(0, len(queries), _QUERIES)
        ]
        values: Values = torch.cat(parts).cpu().numpy()
        return values


def _embedding(forward: Forward, layer: str | None) -> Tensor:
    embedding = forward.embedding(layer)
    if embedding.device.type == "mps":  # it has no float64
        embedding = embedding.cpu()
    return embedding if embedding.dtype == torch.float64 else embedding.float()


def _shares(queries: Tensor, chosen: Tensor, reference: Reference, k: int) -> Tensor:
    squares, labels = _nearest(queries, reference, k)
    distance = squares.clamp_min(0).double().sqrt()
    if queries.dtype != torch.float64:
        uncertain = _uncertain(queries, reference, distance)
        if uncertain.any():
            squares, again = _nearest(queries[uncertain].double(), reference, k)
            distance[uncertain], labels[uncertain] = squares.clamp_min(0).sqrt(), again
    weight = (distance.amin(dim=1, keepdim=True) - distance).exp()
    return (weight * (labels == chosen[:, None])).sum(dim=1) / weight.sum(dim=1)


def _nearest(queries: Tensor, reference: Reference, k: int) -> tuple[Tensor, Tensor]:
    """Squared distances and labels of the k nearest, block of references by block."""
    best = queries.new_empty((len(queries), 0))
    labels = reference.labels.new_empty((len(queries), 0))
    for low in range(0, len(reference.points), _REFERENCES):
        part = slice(low, low + _REFERENCES)
        block = reference.points[part].to(queries.dtype)
        with torch.autocast(queries.device.type, enabled=False):
            exact = block.dtype != reference.points.dtype
            lengths = _squares(block) if exact else reference.squares[part]
            squares = torch.addmm(lengths, queries, block.T, alpha=-2)
        near, at = squares.topk(min(k, len(block)), dim=1, largest=False, sorted=False)
        best = torch.cat((best, near), dim=1)
        labels = torch.cat((labels, reference.labels[part][at]), dim=1)
        if best.shape[1] > k:
            best, at = best.topk(k, dim=1, largest=False, sorted=False)
            labels = labels.gather(1, at)
    return best + _squares(queries)[:, None], labels


def _squares(points: Tensor) -> Tensor:
    squares: Tensor = torch.linalg.vecdot(points, points)
    return squares


def _uncertain(queries: Tensor, reference: Reference, distance: Tensor) -> Tensor:
    """Rows whose distances lose more than the tolerance to float32: near points far out."""
    if torch.get_float32_matmul_precision() != "highest":
        return torch.ones(len(queries), dtype=torch.bool, device=queries.device)
    lost = torch.finfo(queries.dtype).eps * (_squares(queries) + reference.squares.max())
    return lost > 2 * _TOLERANCE * distance.amin(dim=1)
