"""Deep k-nearest neighbours: how far the training points are, as the network sees them."""

from typing import Any

import torch
from torch import Tensor

from snapsure._types import Floats, Ints
from snapsure.kappas._neighbours import NeighbourKappa, blocks, embedding_of, nearest
from snapsure.networks._forward import Forward
from snapsure.networks._reference import Reference


class DeepKNN(NeighbourKappa):
    """κ = 1 − d / 2, d the distance to the k-th nearest training embedding, all of length 1.

    Sun, Ming, Zhu & Li 2022 (Out-of-Distribution Detection with Deep Nearest Neighbors), who score
    −d. Embeddings are the inputs of the last linear layer, divided by their Euclidean length, so d
    lies in [0, 2]. The search is exact and in float64. It does not speak of y_hat.

    Parameters
    ----------
    reference : DataLoader, Dataset or (inputs, labels)
        Training points with their labels.
    k : int
        Which neighbour; of fewer points, the farthest. The paper takes 50 for CIFAR-10, 200 for
        CIFAR-100, 1,000 for ImageNet.
    layer : str, optional
        Name of the module whose input is the embedding.

    Examples
    --------
    >>> train, labels = torch.eye(4), [0, 1, 2, 3]
    >>> kappa = DeepKNN((train, labels), k=2)
    >>> kappa.name, kappa.settings["k"]
    ('deep_knn', 2)
    """

    def __init__(self, reference: Any, k: int = 50, *, layer: str | None = None) -> None:
        super().__init__(reference, k, layer)

    @property
    def name(self) -> str:
        """`deep_knn`."""
        return "deep_knn"

    def points(self, forward: Forward) -> Tensor:
        """Embeddings of length 1 (but for zero, which has no direction and stays)."""
        return torch.nn.functional.normalize(embedding_of(forward, self._layer), dim=1)

    def score(self, forward: Forward, y_hat: Ints, prepared: Reference) -> Floats:
        """Nearness of the k-th neighbour."""
        queries = self.points(forward).double() - prepared.center
        squares = [nearest(queries[part], prepared, self._k)[0] for part in blocks(queries)]
        distance = torch.cat(squares).amax(dim=1).sqrt()
        values: Floats = (1 - distance / 2).clamp(0, 1).cpu().numpy()
        return values
