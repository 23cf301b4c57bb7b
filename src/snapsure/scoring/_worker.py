"""Doing the pieces of a plan in this process, one after the other."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snapsure import _validate
from snapsure._types import Floats, Ints
from snapsure.errors import InvalidInput
from snapsure.kappas._base import Kappa, exponentials
from snapsure.networks._data import first_rows, refuse_infinite, row_count, to_device
from snapsure.networks._digest import Digest
from snapsure.networks._network import Network, not_taken, one_logit, private_copy
from snapsure.networks._replay import cloned
from snapsure.scoring._kept import Columns, Kept, OtherRows
from snapsure.scoring._plan import Piece, Plan

Advance = Callable[[int], None]
Slot = tuple[int, int]  # member, epoch


class Worker:
    """Does pieces; a group of snapshots stays loaded until a piece of others comes."""

    def __init__(self, plan: Plan, model: nn.Module, device: torch.device | None = None) -> None:
        self._plan, self._model, self._device = plan, model, device
        first, _ = next(iter(plan.data.batches(0, plan.bounds[0][1])))
        self._sample = cloned(first_rows(first))
        self._networks: dict[Slot, Network] = {}
        self._prepared: dict[Slot, list[Any]] = {}

    def do(self, piece: Piece, advance: Advance) -> None:
        """Do what is missing of a piece, and write it."""
        try:
            self._do(piece, advance)
        except BaseException as error:
            # What made it fail may be too little memory: the next piece starts with all of it.
            self._networks, self._prepared = {}, {}
            # Another process that scores the same, and was faster, removes what it needs no more.
            if not (isinstance(error, OSError) and self._plan.is_over(piece)):
                raise

    def _do(self, piece: Piece, advance: Advance) -> None:
        missing = self._plan.missing(piece)
        if not missing.epochs:
            return
        slots = [(m, e) for e in missing.epochs for m in range(len(self._plan.members))]
        self._load(slots)
        if missing.shard is None:
            self._prepare(slots, missing.epochs)
        else:
            self._open_prepared(slots)
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
        labels: list[Ints | None] = []
        device = next(iter(self._networks.values())).device
        at, digest = 0, Digest()
        with torch.inference_mode():
            for batch, y in self._plan.data.batches(*self._plan.bounds[shard]):
                digest.add(batch, y)
                inputs, rows, so_far = to_device(batch, device), row_count(batch), digest.hex()
                y_hat = None if known is None else known[at : at + rows]
                for epoch in epochs:  # the final one is the first of its group
                    columns = kept.known(epoch, at, rows)
                    if columns is None:
                        columns = self._scored(epoch, inputs, y_hat, y, start + at)
                    y_hat = columns["labels"] if y_hat is None else y_hat
                    kept.add(epoch, columns, at + rows, so_far)
                    advance(rows * len(self._plan.members))
                    if kept.due:
                        self._plan.claim.take()
                        kept.write()
                labels.append(y)
                at += rows
        return None if labels[0] is None else np.concatenate(labels), so_far  # type: ignore[arg-type]

    def _scored(
        self, epoch: int, inputs: Any, y_hat: Ints | None, y: Ints | None, row: int
    ) -> Columns:
        """Columns of a batch, which begins with `row`."""
        try:
            columns, classes = self._columns(epoch, inputs, y_hat)
        except InvalidInput:  # for which the inputs may be to blame
            refuse_infinite(inputs, "data", row)
            raise
        if classes == 1:
            raise one_logit("(rows, 1)")
        if y is not None:
            _validate.in_range(y, classes, "labels of `data`", row)
        return columns

    def _columns(self, epoch: int, inputs: Any, y_hat: Ints | None) -> tuple[Columns, int]:
        """κ and own prediction of a batch, means over the members, and how many classes are."""
        slots = [(member, epoch) for member in range(len(self._plan.members))]
        networks = [self._networks[slot] for slot in slots]
        ready = [self._prepared[slot] for slot in slots]
        return columns_of(networks, self._plan.kappas, ready, inputs, y_hat)

    def _load(self, slots: list[Slot]) -> None:
        """Have these snapshots loaded, in networks that are there already if there are any."""
        free = [slot for slot in self._networks if slot not in slots]
        for slot in slots:
            if slot in self._networks:
                continue
            member, epoch = slot
            network = self._networks.pop(free.pop()) if free else None
            module = private_copy(self._model, self._device) if network is None else network.module
            self._plan.members[member].load_into(module, epoch)
            # What is watched is a real snapshot: one of random weights may run otherwise.
            self._networks[slot] = network or self._watched(module)

    def _watched(self, module: nn.Module) -> Network:
        try:
            return watched(module, self._plan.kappas, self._sample, self._device)
        except InvalidInput:
            refuse_infinite(self._sample, "data")
            raise
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError) as error:  # what PyTorch says of shapes and types
            raise not_taken("data", self._sample, error, module) from error

    def _prepare(self, slots: list[Slot], epochs: tuple[int, ...]) -> None:
        networks = [self._networks[slot] for slot in slots]
        self._plan.claim.take()
        try:
            with torch.inference_mode():
                for kappa in self._plan.kappas:
                    kappa.prepare(networks, [self._plan.folder(kappa, *slot) for slot in slots])
        except BaseException:
            for epoch in epochs:
                self._plan.forget_prepared(epoch)
            raise
        for epoch in epochs:
            self._plan.note_prepared(epoch)

    def _open_prepared(self, slots: list[Slot]) -> None:
        self._prepared = {
            slot: self._prepared.get(slot)
            or [
                kappa.prepared(self._plan.folder(kappa, *slot), self._networks[slot].device)
                for kappa in self._plan.kappas
            ]
            for slot in slots
        }


def columns_of(
    networks: Sequence[Network],
    kappas: Sequence[Kappa],
    ready: Sequence[Sequence[Any]],
    inputs: Any,
    y_hat: Ints | None,
) -> tuple[Columns, int]:
    """κ and prediction of the members of one epoch together, and how many classes there are.

    `ready` is, for each member, what each κ function has prepared.
    """
    forwards = [network.run(inputs) for network in networks]
    labels = vote([forward.logits for forward in forwards])
    columns: Columns = {"labels": labels}
    for kappa, *prepared in zip(kappas, *ready, strict=True):
        chosen = labels if y_hat is None else y_hat
        pairs = zip(forwards, prepared, strict=True)
        values = [kappa.score(forward, chosen, own) for forward, own in pairs]
        columns[kappa.name] = mean_kappa(values)
    for network in networks:
        network.forget()
    return columns, forwards[0].logits.shape[1]


def vote(logits: Sequence[Tensor]) -> Ints:
    """What members predict together: the class of their mean probability; one, of its logits."""
    if len(logits) == 1:
        alone: Ints = logits[0].cpu().double().numpy().argmax(axis=1)
        return alone
    each = [exponentials(one) for one in logits]
    together: Ints = _mean([e / e.sum(axis=1, keepdims=True) for e in each]).argmax(axis=1)
    return together


def mean_kappa(values: Sequence[Floats]) -> Floats:
    """The members' mean κ."""
    held: Floats = np.clip(_mean(values), 0, 1)
    return held


def _mean(values: Sequence[Floats]) -> Floats:
    """One after the other, so that the last bit is the same for any number of rows."""
    total = values[0] / len(values)
    for value in values[1:]:
        total = total + value / len(values)
    return total


def watched(
    module: nn.Module, kappas: Sequence[Kappa], sample: Any, device: torch.device | None = None
) -> Network:
    """A network that keeps of each pass what these κ functions read."""
    return Network(
        module,
        sample,
        layers=[layer for kappa in kappas for layer in kappa.layers],
        samplings=[kappa.sampling for kappa in kappas if kappa.sampling],
        device=device,
    )
