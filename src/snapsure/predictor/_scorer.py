"""κ of new inputs by the snapshots that an estimator needs."""

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from snapsure._types import Floats, Ints
from snapsure.errors import InvalidInput
from snapsure.kappas._base import Kappa
from snapsure.networks._data import BATCH, Digest, Rows, is_words, refuse_infinite, row_count
from snapsure.networks._forward import Logits
from snapsure.networks._network import TURN
from snapsure.networks._runner import (
    Columns,
    Runner,
    Slot,
    describe_logits,
    group_epochs,
    mean_kappa,
    vote,
)
from snapsure.networks._ways import Way
from snapsure.snapshots._base import Snapshots
from snapsure.snapshots._weights import unwrap
from snapsure.table import ScoreTable

# Texts to what a network takes; those of Hugging Face are called with their usual options.
Tokenizer = Callable[..., Any]
# Rows that are scored together where the snapshots do not fit into memory at once.
_CHUNK = 1 << 16


class _Part(NamedTuple):
    """The scores of some rows by some snapshots, the latest first."""

    kappa: Floats  # (snapshots, rows)
    labels: Ints  # (snapshots, rows)
    logits: Floats | None  # of the first snapshot, where asked for, and it has no other members
    final: Floats | None  # five numbers of its logits, where asked for


class Scorer:
    """Score new inputs with some snapshots, which stay in memory if they fit.

    Parameters
    ----------
    model : nn.Module
        A network of the snapshots' architecture. It is copied.
    snapshots : Snapshots
        The snapshots of one training, or of the members of an ensemble.
    epochs : sequence of int
        Which of them, in rising order. The last one predicts.
    kappa : Kappa
        A κ function that needs nothing but a pass over the input, with dropout or without.
    memory : int
        Bytes that weights may take. Beyond it, snapshots are loaded in turns.
    needs : set of str
        What the table has beside κ: each snapshot's own "labels" (otherwise, those of the final
        snapshot), the final "logits", or "final", five numbers of them.
    check_inputs : bool
        Whether to refuse inputs with NaN or infinity.
    device : torch.device, optional
        Where networks run, if not on the best device.
    way : str, optional
        How passes run; None chooses at the first batch.
    tokenizer : optional
        Turns texts into what the network takes.
    """

    def __init__(
        self,
        model: nn.Module,
        snapshots: Snapshots,
        epochs: Sequence[int],
        kappa: Kappa,
        memory: int,
        *,
        needs: Set[str],
        check_inputs: bool,
        device: torch.device | None,
        way: Way | None,
        tokenizer: Tokenizer | None,
    ) -> None:
        self.model, self._members, self._kappa = unwrap(model), snapshots.members, kappa
        self._needs, self.check_inputs = needs, check_inputs
        if tokenizer is not None and not callable(tokenizer):
            raise InvalidInput(
                f"`tokenizer` must be a tokenizer or a function of texts, got {tokenizer!r}. Load "
                "it first: AutoTokenizer.from_pretrained(name)."
            )
        self._tokenizer = tokenizer
        self._watches = bool(kappa.sampling or kappa.layers)
        self.epochs = np.array(epochs)
        self._groups = group_epochs(model, self._members, list(epochs)[::-1], memory)
        self._runner = Runner(
            model, self._members, epochs, [kappa], name="batch", device=device, way=way
        )
        self._runner.load(self._groups[0])

    def modules(self) -> Iterator[nn.Module]:
        """Yield the networks of the first group, the latest epoch first, as PyTorch runs them."""
        slots = self._runner.slots(self._groups[0])
        for slot, network in zip(slots, self._runner.networks(self._groups[0]), strict=True):
            yield self._runner.load_eager(slot) if network.is_form else network.module

    @property
    def way(self) -> Way | None:
        """How passes run; None before the first batch, where that decides."""
        return self._runner.way

    @way.setter
    def way(self, way: Way) -> None:
        self._runner.way = way

    @property
    def device(self) -> torch.device:
        """Where networks run."""
        return self._runner.device

    @property
    def classes(self) -> int | None:
        """How many classes there are; None before the first batch."""
        return self._runner.classes

    @property
    def in_turns(self) -> bool:
        """Whether the snapshots are not all in memory at once."""
        return len(self._groups) > 1

    def table(self, inputs: Any) -> ScoreTable | None:
        """Return the score table of one tensor of at most 256 rows, by the shortest way."""
        short = isinstance(inputs, Tensor) and inputs.ndim > 0 and 0 < len(inputs) <= BATCH
        return self._table(inputs, None, 0) if short and not self.in_turns else None

    def tables(self, rows: Rows, start: int = 0) -> Iterator[ScoreTable]:
        """Yield score tables of the rows from a multiple of the batch size on, part by part."""
        if not self.in_turns:
            for inputs, y in rows.batches(start):
                yield self._table(inputs, y, start)
                start += row_count(inputs)
            return
        for low, high in rows.cut(_CHUNK):
            if high > start:
                with TURN:
                    table = self._table_in_turns(rows, max(low, start), high)
                yield table

    def _table(self, inputs: Any, y: Ints | None, row: int) -> ScoreTable:
        """Return the score table of one batch, by snapshots that are all in memory."""
        with TURN if self._watches else nullcontext():
            return self._join(self._score(inputs, None, self._groups[0], row), y)

    def _table_in_turns(self, rows: Rows, low: int, high: int) -> ScoreTable:
        """Return the score table of many rows, by one group of snapshots after the other."""
        groups: list[_Part] = []
        true: list[Ints] = []
        for group in self._groups:
            self._runner.load(group)
            parts, at = [], 0
            for inputs, y in rows.batches(low, high):
                true += [] if y is None or groups else [y]
                count = row_count(inputs)
                y_hat = groups[0].labels[0, at : at + count] if groups else None
                parts.append(self._score(inputs, y_hat, group, low + at))
                at += count
            groups.append(_concatenate(parts, axis=1))
        return self._join(_concatenate(groups, axis=0), np.concatenate(true) if true else None)

    def _join(self, part: _Part, y: Ints | None) -> ScoreTable:
        kappas = {self._kappa.name: part.kappa[::-1]}
        labels = part.labels[::-1]
        return ScoreTable.trusted(
            kappas,
            labels,
            part.labels[0],
            self.epochs,
            y=y,
            logits=part.logits,
            final=part.final,
        )

    def _score(self, inputs: Any, y_hat: Ints | None, epochs: Sequence[int], row: int) -> _Part:
        """Score one batch, whose first input is number `row`, with snapshots that are loaded."""
        inputs = self.tokenize(inputs, row)
        if self.check_inputs:
            refuse_infinite(inputs, "batch", row)
        device = self.device.type
        if torch.is_autocast_enabled(device):  # the caller's, which would change the answers
            with torch.autocast(device, enabled=False):
                return self._score(inputs, y_hat, epochs, row)
        if not self._watches:
            return self._score_logits(self._runner.logits(epochs, inputs, row), y_hat)
        columns: list[Columns] = []
        for epoch in epochs:
            columns.append(self._runner.score(epoch, inputs, y_hat, row=row))
            y_hat = columns[0]["labels"] if y_hat is None else y_hat
        kappa = np.stack([column[self._kappa.name] for column in columns])
        labels = np.stack([column["labels"] for column in columns])
        return _Part(kappa, labels, None, columns[0].get("final"))

    def tokenize(self, inputs: Any, row: int = 0) -> Any:
        """Turn texts into what the network takes; other inputs, and those it takes, stay."""
        if self._tokenizer is None or not is_words(inputs):
            return inputs
        options: dict[str, Any] = {}
        if hasattr(self._tokenizer, "model_max_length"):  # Hugging Face's
            options = {"padding": True, "return_tensors": "pt"}
            # Those without a limit have a number that nobody writes, and warn.
            options["truncation"] = self._tokenizer.model_max_length < 1 << 30
        missing = [row for row, text in enumerate(inputs) if not isinstance(text, str)]
        if missing:
            raise InvalidInput(
                f"`batch` must hold texts alone, got {inputs[missing[0]]!r} in row "
                f"{row + missing[0]}. Drop or correct it."
            )
        made = self._tokenizer(list(inputs), **options)
        rows = Rows.of((made, None), "tokenizer", batch_size=len(inputs))
        if rows.n != len(inputs):
            raise InvalidInput(
                f"`tokenizer` must return one row per text, got {rows.n} for {len(inputs)}. "
                "Correct it."
            )
        return next(rows.batches())[0]

    @property
    def tokenizer_digest(self) -> str | None:
        """What identifies the tokenizer: its result for some texts."""
        if self._tokenizer is None:
            return None
        digest = Digest()
        digest.add(self.tokenize(["One short text.", "Zwölf – a longer text, 3 signs!"]), None)
        return digest.hex()[:16]

    def _score_logits(self, logits: Tensor, y_hat: Ints | None) -> _Part:
        """Score the logits (networks, rows, classes) of all snapshots at once."""
        members, networks = len(self._members), len(logits)
        logits = logits.cpu().double()  # once, because all that follows needs it
        if "labels" in self._needs:
            labels = self._vote(logits)
        else:
            answer = self._vote(logits[:members])[0] if y_hat is None else y_hat
            labels = answer[None].repeat(networks // members, axis=0)
        answers = (labels[0] if y_hat is None else y_hat)[None].repeat(networks, axis=0)
        values = self._kappa.score(Logits(logits.flatten(0, 1)), answers.ravel(), None)
        final = None
        if "final" in self._needs and y_hat is None:
            final = describe_logits(list(logits[:members]), labels[0])
        if members == 1:
            kept = logits[0].numpy() if "logits" in self._needs and y_hat is None else None
            return _Part(values.reshape(networks, -1), labels, kept, final)
        by_member = values.reshape(-1, members, logits.shape[1])
        kappa = mean_kappa([by_member[:, member] for member in range(members)])
        return _Part(kappa, labels, None, final)

    def _vote(self, logits: Tensor) -> Ints:
        """Return what each snapshot predicts, all of its members together, (snapshots, rows)."""
        members = len(self._members)
        each = [logits[member::members].flatten(0, 1) for member in range(members)]
        return vote(each).reshape(-1, logits.shape[1])

    def states(self) -> Iterator[tuple[Slot, dict[str, Tensor]]]:
        """Yield member, epoch and weights of each snapshot that answers."""
        return self._runner.states(self.epochs.tolist())


def _concatenate(parts: Sequence[_Part], axis: int) -> _Part:
    """Join parts of more rows (axis 1) or of more snapshots (axis 0)."""

    def join(values: list[Floats | None]) -> Floats | None:
        known = [value for value in values if value is not None]  # of the final snapshot's group
        return np.concatenate(known) if known else None

    return _Part(
        np.concatenate([part.kappa for part in parts], axis=axis),
        np.concatenate([part.labels for part in parts], axis=axis),
        join([part.logits for part in parts]),
        join([part.final for part in parts]),
    )
