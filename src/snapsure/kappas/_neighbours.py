"""Nearest training embeddings under a snapshot: exact, and block by block in bounded memory."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from snapsure import _validate
from snapsure.errors import InvalidInput
from snapsure.kappas._base import Kappa
from snapsure.networks._data import Rows
from snapsure.networks._forward import Forward, Snapshot
from snapsure.networks._reference import Reference, squares_of, written

# Distances are taken for blocks of at most this many queries and references at a time.
_QUERIES, _REFERENCES = 512, 1 << 14
# Smaller groups of columns cost as much as they save.
_SMALLEST_GROUP = 5


class NeighbourKappa(Kappa):
    """A κ of the training points that are nearest to a row, as the network sees both."""

    def __init__(self, reference: Any, k: int, layer: str | None) -> None:
        self._reference = Rows.of(reference, "reference")
        self._k = _validate.count(k, "k")
        self._layer = layer

    @property
    def layers(self) -> list[str | None]:
        """The embedding's layer."""
        return [self._layer]

    @property
    def settings(self) -> dict[str, Any]:
        """k, the layer, and what the reference is."""
        return {"k": self._k, "layer": self._layer, "reference": self._reference.whole_identity()}

    @property
    def prepares(self) -> bool:
        """Embeddings of the training points are needed first."""
        return True

    @abstractmethod
    def points(self, forward: Forward) -> Tensor:
        """Where the rows of a pass lie, (rows, features)."""

    def prepare(self, snapshots: Sequence[Snapshot], folders: Sequence[Path]) -> None:
        """Embed the reference, once per snapshot, its rows being read once for all of these."""
        _embed(self._reference, snapshots, folders, self.points)

    def prepared(self, folder: Path, device: torch.device) -> Reference:
        """The embedded reference."""
        return Reference.open(folder, _searching(device))


def embedding_of(forward: Forward, layer: str | None) -> Tensor:
    """A pass's embeddings, where they are searched, in a type that distances can be taken in."""
    embedding = forward.embedding(layer)
    embedding = embedding.to(_searching(embedding.device))
    return embedding if embedding.dtype == torch.float64 else embedding.float()


def _searching(device: torch.device) -> torch.device:
    """Where neighbours are searched."""
    return torch.device("cpu") if device.type == "mps" else device  # it has no float64


def _embed(
    reference: Rows,
    snapshots: Sequence[Snapshot],
    folders: Sequence[Path],
    points_of: Callable[[Forward], Tensor],
) -> None:
    """Write each snapshot's points to its folder, the rows being read once for all of them."""
    with ExitStack() as files:
        add = [files.enter_context(written(folder, reference.n)) for folder in folders]
        for inputs, y in reference.batches():
            if y is None:
                raise InvalidInput(
                    "`reference` must come with labels, got inputs alone: "
                    "pass (inputs, labels) or a data set of pairs"
                )
            for i, snapshot in enumerate(snapshots):
                add[i](points_of(snapshot.run(inputs)), y)
                snapshot.forget()


def blocks(queries: Tensor) -> Iterator[slice]:
    """Rows to search at a time."""
    return (slice(low, low + _QUERIES) for low in range(0, len(queries), _QUERIES))


def nearest(queries: Tensor, reference: Reference, k: int) -> tuple[Tensor, Tensor]:
    """Squared distances and labels of the k nearest; of fewer points, of all.

    Queries are about the reference's center; distances are taken in their type.
    """
    best = queries.new_empty((len(queries), 0))
    labels = reference.labels.new_empty((len(queries), 0))
    for low in range(0, len(reference.points), _REFERENCES):
        part = slice(low, low + _REFERENCES)
        block = reference.points[part].to(queries.dtype)
        with torch.autocast(queries.device.type, enabled=False):
            exact = block.dtype != reference.points.dtype
            lengths = squares_of(block) if exact else reference.squares[part]
            squares = torch.addmm(lengths, queries, block.T, alpha=-2)
        near, at = _least(squares, min(k, len(block)))
        best = torch.cat((best, near), dim=1)
        labels = torch.cat((labels, reference.labels[part][at]), dim=1)
        if best.shape[1] > k:
            best, at = best.topk(k, dim=1, largest=False, sorted=False)
            labels = labels.gather(1, at)
    return (best + squares_of(queries)[:, None]).clamp_min(0), labels


def _least(squares: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k least of each row and where they are, in any order.

    Columns are taken in groups first. The k least lie in the k groups whose own least are least:
    each other group has k values elsewhere that are no greater than any of its own.
    """
    n = squares.shape[1]
    size = math.isqrt(n // k)  # for which n / size groups and k · size values are the fewest
    if size < _SMALLEST_GROUP:
        return squares.topk(k, dim=1, largest=False, sorted=False)
    groups = n // size
    first = squares[:, : size * groups].reshape(len(squares), size, groups).amin(dim=1)
    group = first.topk(k, dim=1, largest=False, sorted=False).indices
    columns = torch.arange(n, device=squares.device)
    at = (group[:, None] + columns[: size * groups : groups, None]).flatten(1)
    rest = columns[size * groups :].expand(len(at), -1)
    at = torch.cat((at, rest), dim=1)
    least, among = squares.gather(1, at).topk(k, dim=1, largest=False, sorted=False)
    return least, at.gather(1, among)
