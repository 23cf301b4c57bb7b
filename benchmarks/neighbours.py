"""NNDistance against what finds neighbours elsewhere, all of it in one run."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from sklearn.neighbors import KNeighborsClassifier  # type: ignore[import-untyped]
from torch import Tensor

from benchmarks.harness import Case
from snapsure import NNDistance
from snapsure.kappas._neighbours import share_of
from snapsure.networks._reference import Reference


def cases() -> Iterator[Case]:
    """Every row of the table."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(50_000, 512, generator=generator)
    queries = torch.randn(2000, 512, generator=generator)
    labels = torch.arange(50_000) % 100
    y_hat = np.arange(2000) % 100
    peer = KNeighborsClassifier(500, weights=lambda d: np.exp(-d), algorithm="brute")
    peer.fit(points.numpy(), labels.numpy())
    reference = Reference.of(points.clone(), labels)

    def ours() -> Tensor:
        near = [
            share_of(q - reference.center, torch.as_tensor(y), reference, 500)
            for q, y in zip(torch.split(queries, 500), np.split(y_hat, 4), strict=True)
        ]
        return torch.cat(near)

    def theirs() -> Any:
        return peer.predict_proba(queries.numpy())[np.arange(2000), y_hat]

    def by_cdist() -> Tensor:
        """Torch as one would write it; as exact as float32 is."""
        shares = []
        for some, y in zip(torch.split(queries, 500), np.split(y_hat, 4), strict=True):
            distance, at = torch.cdist(some, points).topk(500, largest=False)
            shares.append(_weighed(distance, labels[at], torch.as_tensor(y)))
        return torch.cat(shares)

    name = f"{NNDistance.__name__}, 50,000 × 512, 2,000 queries, k = 500"
    knn = "scikit-learn's KNeighborsClassifier"
    yield Case(name, knn, ours, theirs, at_least=1.5, rounds=5)
    yield Case(name, "torch.cdist and topk", ours, by_cdist, at_least=1, rounds=5)
    if find_spec("faiss") is None:
        return
    import faiss  # type: ignore[import-not-found, import-untyped, unused-ignore]

    faiss.omp_set_num_threads(torch.get_num_threads())
    index = faiss.IndexFlatL2(512)
    index.add(points.numpy())

    def by_faiss() -> Tensor:
        squares, at = index.search(queries.numpy(), 500)
        distance = torch.from_numpy(squares).clamp(min=0).sqrt()
        return _weighed(distance, labels[torch.from_numpy(at)], torch.as_tensor(y_hat))

    yield Case(name, "faiss, an exact index", ours, by_faiss, at_least=1, rounds=5)


def memory() -> dict[str, float]:
    """Not measured."""
    return {}


def _weighed(distance: Tensor, near: Tensor, chosen: Tensor) -> Tensor:
    """Share of the class chosen among neighbours, by e^−distance."""
    weight = (distance.amin(dim=1, keepdim=True) - distance).exp()
    return (weight * (near == chosen[:, None])).sum(dim=1) / weight.sum(dim=1)
