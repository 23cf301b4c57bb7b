"""NN-distance: do the nearest training points, as the network sees them, share the answer?"""

from typing import Any

import torch
from torch import Tensor

from snapsure._types import Floats, Ints
from snapsure.kappas._neighbours import NeighbourKappa, blocks, embedding_of, nearest
from snapsure.networks._forward import Forward
from snapsure.networks._reference import Reference, squares_of

# What float32 may do to a distance before its row is computed again in float64.
_TOLERANCE = 1e-5


class NNDistance(NeighbourKappa):
    """κ = Σ e^{−d} over neighbours of the class y_hat / Σ e^{−d} over all k neighbours.

    Mandelbaum & Weinshall 2017. Neighbours are the k nearest training embeddings (inputs of the
    last linear layer), d their Euclidean distance, the smallest one subtracted first: the plain
    formula is 0/0 at ordinary distances. Exact, and in bounded memory: the embeddings of a snapshot
    lie in files beside the scores while it is scored, and are searched block by block.

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
        super().__init__(reference, k, layer)

    @property
    def name(self) -> str:
        """`nn_distance`."""
        return "nn_distance"

    def points(self, forward: Forward) -> Tensor:
        """The embeddings."""
        return embedding_of(forward, self._layer)

    def score(self, forward: Forward, y_hat: Ints, prepared: Reference) -> Floats:
        """Share of the answer's class among the neighbours, weighted by nearness."""
        queries = self.points(forward) - prepared.center
        chosen = torch.as_tensor(y_hat, device=queries.device)
        parts = [
            _shares(queries[part], chosen[part], prepared, self._k) for part in blocks(queries)
        ]
        values: Floats = torch.cat(parts).cpu().numpy()
        return values


def _shares(queries: Tensor, chosen: Tensor, reference: Reference, k: int) -> Tensor:
    squares, labels = nearest(queries, reference, k)
    distance = squares.double().sqrt()
    if queries.dtype != torch.float64:
        uncertain = _uncertain(queries, reference, distance)
        if uncertain.any():
            squares, again = nearest(queries[uncertain].double(), reference, k)
            distance[uncertain], labels[uncertain] = squares.sqrt(), again
    weight = (distance.amin(dim=1, keepdim=True) - distance).exp()
    return (weight * (labels == chosen[:, None])).sum(dim=1) / weight.sum(dim=1)


def _uncertain(queries: Tensor, reference: Reference, distance: Tensor) -> Tensor:
    """Rows whose distances lose more than the tolerance to float32: near points far out."""
    if torch.get_float32_matmul_precision() != "highest":
        return torch.ones(len(queries), dtype=torch.bool, device=queries.device)
    lost = torch.finfo(queries.dtype).eps * (squares_of(queries) + reference.squares.max())
    return lost > 2 * _TOLERANCE * distance.amin(dim=1)
