"""Doing the pieces of a plan in this process, one after the other."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from snapsure import _validate
from snapsure.scores._data import first_rows
from snapsure.scores._network import Network, Pass, private_copy
from snapsure.scoring._plan import Piece, Plan

Advance = Callable[[int], None]
Values = NDArray[np.float64]


class Worker:
    """Scores pieces; a snapshot stays loaded until a piece of another one comes."""

    def __init__(self, plan: Plan, model: nn.Module) -> None:
        self._plan = plan
        first, _ = next(iter(plan.data.batches(0, plan.bounds[0][1])))
        module = private_copy(model)
        plan.members[0].load_into(module, plan.epochs[-1])  # what is watched is a real snapshot
        self._network = Network(module, plan.kappas, first_rows(first))
        self._loaded = (0, plan.epochs[-1])
        self._prepared: dict[tuple[int, int], list[Any]] = {}

    def do(self, piece: Piece, advance: Advance) -> None:
        """Score one piece and write it: labels last, they tell that it is done."""
        table = self._plan.table
        final = piece.epoch == self._plan.epochs[-1]
        y_hat = None if final else np.array(table.read("y_hat", None, piece.shard))
        if final and len(self._plan.members) > 1:
            y_hat = self._vote(piece)
        votes, scores, labels = self._score(piece, y_hat, advance)
        for name, values in scores.items():
            table.write(name, piece.epoch, piece.shard, values)
        own = votes.argmax(axis=1)
        if final:
            table.write("y_hat", None, piece.shard, own)
            if labels is not None:
                _validate.in_range(labels, votes.shape[1], "labels of `data`")
                table.write("y", None, piece.shard, labels)
        table.write("labels", piece.epoch, piece.shard, own)

    def _score(
        self, piece: Piece, y_hat: NDArray[np.int64] | None, advance: Advance
    ) -> tuple[Values, dict[str, Values], NDArray[np.int64] | None]:
        """Mean class probabilities and κ over the members, and the true labels."""
        members = len(self._plan.members)
        votes: Any = 0.0
        scores: dict[str, Any] = dict.fromkeys(self._plan.names, 0.0)
        labels: list[Any] = []
        for member in range(members):
            self._load(member, piece.epoch)
            prepared = self._prepare(member, piece.epoch)
            parts = list(self._batches(piece, y_hat, prepared, advance))
            probabilities, values, labels = (list(column) for column in zip(*parts, strict=True))
            votes = votes + np.concatenate(probabilities) / members
            for name in scores:
                scores[name] = scores[name] + np.concatenate([v[name] for v in values]) / members
        known = None if labels[0] is None else np.concatenate(labels)
        return votes, {name: np.clip(s, 0, 1) for name, s in scores.items()}, known

    def _batches(
        self,
        piece: Piece,
        y_hat: NDArray[np.int64] | None,
        prepared: list[Any],
        advance: Advance,
    ) -> Iterator[tuple[Values, dict[str, Values], NDArray[np.int64] | None]]:
        at = 0
        for forward, labels in self._passes(piece):
            rows = len(forward.logits)
            probabilities = _probabilities(forward)
            chosen = probabilities.argmax(axis=1) if y_hat is None else y_hat[at : at + rows]
            values = {
                kappa.name: kappa.score(forward, chosen, ready)
                for kappa, ready in zip(self._plan.kappas, prepared, strict=True)
            }
            at += rows
            advance(rows)
            yield probabilities, values, labels

    def _vote(self, piece: Piece) -> NDArray[np.int64]:
        """What the ensemble predicts: its members must be heard before any is scored."""
        votes: Any = 0.0
        for member in range(len(self._plan.members)):
            self._load(member, piece.epoch)
            votes = votes + np.concatenate([_probabilities(f) for f, _ in self._passes(piece)])
        chosen: NDArray[np.int64] = votes.argmax(axis=1)
        return chosen

    def _passes(self, piece: Piece) -> Iterator[tuple[Pass, NDArray[np.int64] | None]]:
        with torch.inference_mode():
            for inputs, labels in self._plan.data.batches(*self._plan.bounds[piece.shard]):
                yield self._network.run(inputs), labels

    def _load(self, member: int, epoch: int) -> None:
        if self._loaded != (member, epoch):
            self._plan.members[member].load_into(self._network.module, epoch)
            self._loaded = (member, epoch)

    def _prepare(self, member: int, epoch: int) -> list[Any]:
        """What the κ functions need once per snapshot, kept while its epoch lasts."""
        self._prepared = {key: value for key, value in self._prepared.items() if key[1] == epoch}
        if (member, epoch) not in self._prepared:
            prepared = [kappa.prepare(self._network) for kappa in self._plan.kappas]
            self._prepared[member, epoch] = prepared
        return self._prepared[member, epoch]


def _probabilities(forward: Pass) -> Values:
    probabilities: Values = forward.logits.cpu().double().softmax(dim=1).numpy()
    return probabilities
