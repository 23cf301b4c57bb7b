"""Do the pieces of a plan in this process, one after the other."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from snapsure import _validate
from snapsure._types import Array, Ints
from snapsure.networks._data import Digest, first_rows, row_count, to_device
from snapsure.networks._runner import Columns, Runner, Slot
from snapsure.networks._trace import clone
from snapsure.scoring._plan import Done, Piece, Plan

Advance = Callable[[int], None]


class Worker:
    """Do pieces. A group of snapshots stays loaded until other snapshots are needed."""

    def __init__(self, plan: Plan, model: nn.Module, device: torch.device | None = None) -> None:
        self._plan = plan
        self._runner = Runner(model, plan.members, plan.epochs, plan.kappas, device=device)
        self._prepared: dict[Slot, list[Any]] = {}
        self._sample: Any = None

    def do(self, piece: Piece, advance: Advance) -> Done:
        """Do a piece, write its files, and return their hashes."""
        try:
            self._runner.load(piece.epochs)
            if piece.shard is None:
                self._prepare(piece.epochs)
                return Done({}, {})
            self._open_prepared(piece.epochs)
            return self._score(piece.epochs, piece.shard, advance)
        except BaseException:
            # The cause may be too little memory: the next piece starts with all of it.
            self._runner.clear()
            self._prepared = {}
            raise

    def _score(self, epochs: tuple[int, ...], shard: int, advance: Advance) -> Done:
        """Run every batch of a shard through every snapshot."""
        plan, runner, members = self._plan, self._runner, range(len(self._plan.members))
        low, high = plan.bounds[shard]
        known = None if plan.final in epochs else plan.table.read_new("y_hat", None, shard)
        digest, hashes = Digest(), dict[str, str]()
        true: list[Ints] = []
        parts: dict[int, list[Columns]] = {epoch: [] for epoch in epochs}

        at = low
        for batch, y in plan.data.batches(low, high):
            digest.add(batch, y)
            true += [] if y is None else [y]
            inputs, rows = to_device(batch, runner.device), row_count(batch)
            y_hat = None if known is None else known[at - low : at - low + rows]
            for epoch in epochs:  # the final one is the first of its group
                prepared = [self._prepared[member, epoch] for member in members]
                columns = runner.score(epoch, inputs, y_hat, prepared, at)
                if y is not None and runner.classes is not None:
                    _validate.in_range(y, runner.classes, "labels of `data`", at)
                y_hat = columns["labels"] if y_hat is None else y_hat
                parts[epoch].append(columns)
                advance(rows * len(members))
                # At once, because a batch may take long, and what is written is not lost.
                if at + rows == high:
                    hashes |= self._write(epoch, shard, parts[epoch], true, digest.hex())
            at += rows
        return Done(hashes, {str(shard): digest.hex()})

    def _write(
        self, epoch: int, shard: int, parts: list[Columns], true: list[Ints], digest: str
    ) -> dict[str, str]:
        """Write all columns of a snapshot on a shard, and record and return their hashes."""
        plan = self._plan
        plan.check_digest(shard, digest)
        plan.begin()
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        pieces: dict[tuple[str, int | None], Array] = {
            (name, epoch): columns[name] for name in ("labels", *plan.names)
        }
        if epoch == plan.final:
            pieces["y_hat", None], pieces["final", None] = columns["labels"], columns["final"]
            if true:
                pieces["y", None] = np.concatenate(true)
        for (name, of), values in pieces.items():
            plan.table.write(name, of, shard, values)
        keys = [plan.table.key(name, of, shard) for name, of in pieces]
        hashes = {key: plan.table.hashes[key] for key in keys}
        plan.record(Done(hashes, {str(shard): digest}))
        return hashes

    def _prepare(self, epochs: tuple[int, ...]) -> None:
        """Let κ functions see other data under each snapshot."""
        plan, runner = self._plan, self._runner
        if self._sample is None:
            self._sample = clone(first_rows(next(plan.data.batches(*plan.bounds[0]))[0]))
        networks = runner.probe(epochs, self._sample)
        plan.begin()
        try:
            with torch.inference_mode():
                for kappa in plan.kappas:
                    folders = [plan.preparation(kappa, *slot) for slot in runner.slots(epochs)]
                    kappa.prepare(networks, folders)
        except BaseException:
            for epoch in epochs:
                plan.forget_prepared(epoch)
            raise
        for epoch in epochs:
            plan.note_prepared(epoch)

    def _open_prepared(self, epochs: tuple[int, ...]) -> None:
        plan, device = self._plan, self._runner.device
        self._prepared = {
            slot: self._prepared.get(slot)
            or [kappa.prepared(plan.preparation(kappa, *slot), device) for kappa in plan.kappas]
            for slot in self._runner.slots(epochs)
        }
