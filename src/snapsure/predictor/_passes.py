"""The snapshots that answers need, kept in memory, and what their passes over a batch say."""

import copy
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from snapsure._types import Floats, Ints
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.kappas._base import Kappa
from snapsure.kappas._logits import Logits
from snapsure.networks._data import (
    BATCH,
    Rows,
    first_rows,
    refuse_infinite,
    row_count,
    to_device,
)
from snapsure.networks._network import (
    Network,
    called,
    device_of,
    finite,
    not_taken,
    one_logit,
    private_copy,
    refuse_probabilities,
    versions,
)
from snapsure.networks._replay import cloned
from snapsure.scoring._worker import columns_of, mean_kappa, vote, watched
from snapsure.snapshots._base import Snapshots
from snapsure.snapshots._store import SnapshotStore
from snapsure.table import ScoreTable

# Rows that are answered together where the snapshots do not fit into memory at once.
_CHUNK = 1 << 16


class _Part(NamedTuple):
    """What some snapshots, the latest first, say of some rows."""

    kappa: Floats  # (snapshots, rows)
    labels: Ints  # (snapshots, rows)
    logits: Floats | None  # of the first of them, where asked for, and it has no other members


class Passes:
    """Networks with the weights of some snapshots, and their κ of new inputs.

    Parameters
    ----------
    model : nn.Module
        Of the snapshots' architecture; it is copied.
    snapshots : Snapshots
        Of one training, or of an ensemble's members.
    epochs : rising
        Which of them; the last one predicts.
    kappa : Kappa
        That asks for nothing but a pass over the input, with dropout or without.
    memory : int
        Bytes that weights may take; beyond it, snapshots take turns.
    own_labels : bool
        Whether each snapshot's own prediction, and the final one's logits, are asked for; else
        predictions are the final one's.
    device : torch.device, optional
        Where networks run, if not on the best.
    """

    def __init__(
        self,
        model: nn.Module,
        snapshots: Snapshots,
        epochs: Sequence[int],
        kappa: Kappa,
        memory: int,
        *,
        own_labels: bool,
        device: torch.device | None = None,
    ) -> None:
        self._members, self._kappa, self._own_labels = snapshots.members, kappa, own_labels
        self._watches = bool(kappa.sampling or kappa.layers)
        self.epochs = np.array(epochs)
        bytes_each = sum(value.nbytes for value in model.state_dict().values())
        size = max(1, memory // max(1, bytes_each) // len(self._members))
        latest = list(epochs)[::-1]
        self._groups = [latest[i : i + size] for i in range(0, len(latest), size)]
        loaded = len(self._groups[0]) * len(self._members)
        self.modules = [private_copy(model, device) for _ in range(loaded)]
        self.device = device or device_of(self.modules[0])
        self.classes: int | None = None  # known from the first batch on
        # Of all, from the beginning: those that are loaded later must be of the same training.
        self._hashes = {
            (id(member), epoch): member.sha256(epoch)
            for epoch in epochs
            for member in self._members
        }
        self._load(self._groups[0])
        self._networks: list[Network] = []
        self._spoils: bool | None = None
        # Dropout is watched, and weights take turns, by one thread at a time.
        self._turn = threading.Lock()

    @property
    def in_turns(self) -> bool:
        """Whether the snapshots are not all in memory at once."""
        return len(self._groups) > 1

    def table(self, inputs: Any) -> ScoreTable | None:
        """The score table of one batch that needs no cutting, in the network's own form."""
        short = isinstance(inputs, Tensor) and inputs.ndim > 0 and 0 < len(inputs) <= BATCH
        return self._table(inputs, None) if short and not self.in_turns else None

    def tables(self, rows: Rows, start: int = 0) -> Iterator[ScoreTable]:
        """Score tables of the rows from a multiple of the batch size on, part by part."""
        if not self.in_turns:
            for inputs, y in rows.batches(start):
                yield self._table(inputs, y)
            return
        size = max(1, _CHUNK // rows.batch_size) * rows.batch_size if rows.divisible else rows.n
        for low in range(start, rows.n, size):
            with self._turn:
                table = self._table_in_turns(rows, low, min(low + size, rows.n))
            yield table

    def _table(self, inputs: Any, y: Ints | None) -> ScoreTable:
        """The score table of one batch, by snapshots that are all in memory."""
        if not self._watches:
            return self._made(self._part(inputs, None), y)
        with self._turn:
            return self._made(self._part(inputs, None), y)

    def _table_in_turns(self, rows: Rows, low: int, high: int) -> ScoreTable:
        """The score table of many rows, by one group of snapshots after the other."""
        groups: list[_Part] = []
        true: list[Ints] = []
        for group in self._groups:
            self._load(group)
            parts, at = [], 0
            for inputs, y in rows.batches(low, high):
                true += [] if y is None or groups else [y]
                count = row_count(inputs)
                known = groups[0].labels[0, at : at + count] if groups else None
                parts.append(self._part(inputs, known, len(group)))
                at += count
            groups.append(_joined(parts, axis=1))
        self._load(self._groups[0])
        return self._made(_joined(groups, axis=0), np.concatenate(true) if true else None)

    def _made(self, part: _Part, y: Ints | None) -> ScoreTable:
        kappas = {self._kappa.name: part.kappa[::-1]}
        labels = part.labels[::-1]
        return ScoreTable.trusted(kappas, labels, part.labels[0], self.epochs, part.logits, y)

    def _part(self, inputs: Any, y_hat: Ints | None, epochs: int | None = None) -> _Part:
        """One batch through the snapshots that are loaded, or the first so many of them."""
        modules = self.modules[: None if epochs is None else epochs * len(self._members)]
        score = self._by_networks if self._watches else self._by_logits
        with torch.inference_mode():
            inputs = to_device(inputs, self.device)
            try:
                if self._spoils is None:
                    self._try(modules[0], inputs)
                return score(inputs, modules, y_hat)
            except InvalidInput:
                refuse_infinite(inputs, "batch")
                raise
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, TypeError) as error:  # what PyTorch says of shapes and types
                raise not_taken("batch", inputs, error, modules[0]) from error

    def _by_logits(self, inputs: Any, modules: list[nn.Module], y_hat: Ints | None) -> _Part:
        """κ that knows the logits alone: of all snapshots at once."""
        members = len(self._members)
        logits = self._logits(inputs, modules).cpu().double()  # as all that follows asks for
        if self._own_labels:
            labels = self._labels(logits)
        else:
            said = self._labels(logits[:members])[0] if y_hat is None else y_hat
            labels = said[None].repeat(len(modules) // members, axis=0)
        answers = (labels[0] if y_hat is None else y_hat)[None].repeat(len(modules), axis=0)
        values = self._kappa.score(Logits(logits.flatten(0, 1)), answers.ravel(), None)
        if members == 1:
            final = logits[0].numpy() if self._own_labels else None
            return _Part(values.reshape(len(modules), -1), labels, final)
        by_member = values.reshape(-1, members, logits.shape[1])
        kappa = mean_kappa([by_member[:, member] for member in range(members)])
        return _Part(kappa, labels, None)

    def _logits(self, inputs: Any, modules: list[nn.Module]) -> Tensor:
        """Logits of each network, (networks, rows, classes)."""
        rows, spoils = row_count(inputs), self._spoils
        if isinstance(inputs, Tensor) and not spoils:  # with few questions, the most usual case
            each = [module(inputs) for module in modules]
            if all(type(one) is Tensor for one in each) and each[0].ndim == 2:
                joined = torch.cat(each)
                if len(joined) == rows * len(modules):
                    return finite(joined).view(len(modules), rows, -1)
        each = [called(module, cloned(inputs) if spoils else inputs, rows) for module in modules]
        return finite(torch.cat(each)).view(len(modules), rows, -1)

    def _labels(self, logits: Tensor) -> Ints:
        """What each snapshot predicts, all of its members together, (snapshots, rows)."""
        members = len(self._members)
        each = [logits[member::members].flatten(0, 1) for member in range(members)]
        return vote(each).reshape(-1, logits.shape[1])

    def _by_networks(self, inputs: Any, modules: list[nn.Module], y_hat: Ints | None) -> _Part:
        """κ that asks for more of a pass: snapshot by snapshot."""
        members = len(self._members)
        if not self._networks:
            with torch.inference_mode(False):
                sample = cloned(first_rows(inputs))
                self._networks = [
                    watched(module, [self._kappa], sample, self.device) for module in self.modules
                ]
        found = []
        for at in range(0, len(modules), members):
            networks = self._networks[at : at + members]
            columns, _ = columns_of(networks, [self._kappa], [[None]] * members, inputs, y_hat)
            y_hat = columns["labels"] if y_hat is None else y_hat
            found.append(columns)
        kappa = np.stack([columns[self._kappa.name] for columns in found])
        return _Part(kappa, np.stack([columns["labels"] for columns in found]), None)

    def _try(self, module: nn.Module, inputs: Any) -> None:
        """See once whether it gives logits, and leaves its inputs as they are."""
        with torch.inference_mode(False), torch.no_grad():
            tried = cloned(inputs)
            before = versions(tried)
            logits = finite(called(module, tried))
            refuse_probabilities(logits)
            if logits.shape[1] == 1:
                raise one_logit("(rows, 1)")
            self.classes = logits.shape[1]
            self._spoils = versions(tried) != before

    def _load(self, group: Sequence[int]) -> None:
        slots = ((member, epoch) for epoch in group for member in self._members)
        for module, (member, epoch) in zip(self.modules, slots, strict=False):
            if member.sha256(epoch) != self._hashes[id(member), epoch]:
                raise CorruptFile(
                    f"snapshot of epoch {epoch} in {member.path} must stay as it was, got another: "
                    "load the predictor again"
                )
            member.load_into(module, epoch)

    def write(self, folders: Sequence[Path]) -> dict[str, dict[str, str]]:
        """Save the snapshots, each member's in its folder, and give their hashes."""
        hashes = {}
        scratch = copy.deepcopy(self.modules[0])  # one that is not watched
        for folder, member in zip(folders, self._members, strict=True):
            store = SnapshotStore(folder)
            for epoch in self.epochs.tolist():
                member.load_into(scratch, epoch)
                store.save(scratch, epoch)
            hashes[folder.name] = {str(epoch): store.sha256(epoch) for epoch in store.epochs}
            del store  # and with it the lock
            for lock in folder.glob(".lock*"):
                lock.unlink()
        return hashes


def _joined(parts: Sequence[_Part], axis: int) -> _Part:
    """Of more rows (axis 1) or of more snapshots (axis 0)."""
    logits = [part.logits for part in parts if part.logits is not None]
    return _Part(
        np.concatenate([part.kappa for part in parts], axis=axis),
        np.concatenate([part.labels for part in parts], axis=axis),
        (np.concatenate(logits) if axis else logits[0]) if logits else None,
    )
