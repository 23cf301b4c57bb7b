"""Doing the pieces of a plan in this process, one after the other."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from snapsure import _validate
from snapsure._types import Ints
from snapsure.networks._data import Digest, first_rows, row_count, to_device
from snapsure.networks._runner import Runner, Slot
from snapsure.networks._trace import clone
from snapsure.scoring._kept import Kept, OtherRows
from snapsure.scoring._plan import Piece, Plan

Advance = Callable[[int], None]


class Worker:
    """Does pieces; a group of snapshots stays loaded until a piece of others comes."""

    def __init__(self, plan: Plan, model: nn.Module, device: torch.device | None = None) -> None:
        self._plan = plan
        self._runner = Runner(model, plan.members, plan.epochs, plan.kappas, device=device)
        self._prepared: dict[Slot, list[Any]] = {}
        self._sample: Any = None

    def do(self, piece: Piece, advance: Advance) -> None:
        """Do what is missing of a piece, and write it."""
        try:
            self._do(piece, advance)
        except BaseException as error:
            # What made it fail may be too little memory: the next piece starts with all of it.
            self._runner.clear()
            self._prepared = {}
            # Another process that scores the same, and was faster, removes what it needs no more.
            if not (isinstance(error, OSError) and self._plan.is_over(piece)):
                raise

    def _do(self, piece: Piece, advance: Advance) -> None:
        missing = self._plan.missing(piece)
        if not missing.epochs:
            return
        self._runner.load(missing.epochs)
        if missing.shard is None:
            self._prepare(missing.epochs)
        else:
            self._open_prepared(missing.epochs)
            self._score(missing.epochs, missing.shard, advance)

    def _score(self, epochs: tuple[int, ...], shard: int, advance: Advance) -> None:
        """What is left of a shard, and then all of it to its files."""
        kept = Kept(self._plan.kept_folder(shard), epochs, ("labels", *self._plan.names))
        try:
            y, digest = self._pass(epochs, shard, kept, advance)
        except OtherRows:  # nothing of the shard is done yet: it begins again
            kept.forget()
            kept = Kept(self._plan.kept_folder(shard), epochs, ("labels", *self._plan.names))
            y, digest = self._pass(epochs, shard, kept, advance)
        final, table, scored = self._plan.final, self._plan.table, kept.columns()
        self._plan.claim.take()
        self._plan.note_inputs(shard, digest)
        left = self._plan.missing(Piece(epochs, shard)).epochs  # others may have been faster
        for epoch, columns in scored.items():
            if epoch not in left:
                continue
            if epoch == final:
                if y is not None:
                    table.write("y", None, shard, y)
                table.write("y_hat", None, shard, columns["labels"])
            for name in (*self._plan.names, "labels"):  # last what tells that all is there
                table.write(name, epoch, shard, columns[name])
        kept.forget()

    def _pass(
        self, epochs: tuple[int, ...], shard: int, kept: Kept, advance: Advance
    ) -> tuple[Ints | None, str]:
        """One pass over the rows of a shard, each batch going through every snapshot."""
        final, start = self._plan.final, self._plan.bounds[shard][0]
        known = None if final in epochs else np.array(self._plan.table.read("y_hat", None, shard))
        members = range(len(self._plan.members))
        labels: list[Ints | None] = []
        at, digest = 0, Digest()
        for batch, y in self._plan.data.batches(*self._plan.bounds[shard]):
            digest.add(batch, y)
            inputs, rows = to_device(batch, self._runner.device), row_count(batch)
            so_far = digest.hex()
            y_hat = None if known is None else known[at : at + rows]
            for epoch in epochs:  # the final one is the first of its group
                columns = kept.known(epoch, at, rows)
                if columns is None:
                    prepared = [self._prepared[member, epoch] for member in members]
                    columns = self._runner.score(epoch, inputs, y_hat, prepared, start + at)
                    if y is not None and self._runner.classes is not None:
                        _validate.in_range(y, self._runner.classes, "labels of `data`", start + at)
                y_hat = columns["labels"] if y_hat is None else y_hat
                kept.add(epoch, columns, at + rows, so_far)
                advance(rows * len(members))
                if kept.due:
                    self._plan.claim.take()
                    kept.write()
            labels.append(y)
            at += rows
        return None if labels[0] is None else np.concatenate(labels), so_far  # type: ignore[arg-type]

    def _prepare(self, epochs: tuple[int, ...]) -> None:
        if self._sample is None:
            first, _ = next(self._plan.data.batches(*self._plan.bounds[0]))
            self._sample = clone(first_rows(first))
        self._runner.probe(epochs, self._sample)
        folders = self._runner.slots(epochs)
        self._plan.claim.take()
        try:
            with torch.inference_mode():
                for kappa in self._plan.kappas:
                    kappa.prepare(
                        self._runner.networks(epochs),
                        [self._plan.folder(kappa, *slot) for slot in folders],
                    )
        except BaseException:
            for epoch in epochs:
                self._plan.forget_prepared(epoch)
            raise
        for epoch in epochs:
            self._plan.note_prepared(epoch)

    def _open_prepared(self, epochs: tuple[int, ...]) -> None:
        self._prepared = {
            slot: self._prepared.get(slot)
            or [
                kappa.prepared(self._plan.folder(kappa, *slot), self._runner.device)
                for kappa in self._plan.kappas
            ]
            for slot in self._runner.slots(epochs)
        }
