"""Do the pieces of a plan: a worker does one, a queue says which can be done, an executor does all.

To add an executor, write a subclass of `Executor`.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from snapsure import _validate
from snapsure._types import Array, Ints
from snapsure.errors import ScoringFailed
from snapsure.networks._data import Digest, count_bytes, first_rows, row_count, to_device
from snapsure.networks._network import find_device
from snapsure.networks._runner import Columns, Runner, Slot
from snapsure.networks._trace import clone
from snapsure.networks._ways import Way
from snapsure.scoring._plan import Done, Piece, Plan

# A snapshot runs batches of so many logits, or bytes of inputs, before the next one does. Switching
# between networks costs time, and so do the scores of few logits.
_LOGITS, _BYTES = 1 << 15, 1 << 24
_NAMED = 8  # failures and causes that an error message names


class _Batch(NamedTuple):
    """Rows from `start` to before `end`, and their labels where there are any."""

    inputs: Any
    y: Ints | None
    start: int
    end: int


class Worker:
    """Do pieces. A group of snapshots stays loaded until other snapshots are needed."""

    def __init__(self, plan: Plan, model: nn.Module, device: torch.device | None = None) -> None:
        self._plan = plan
        self._runner = Runner(
            model,
            plan.members,
            plan.epochs,
            plan.kappas,
            device=device,
            way=plan.way,
            rows=plan.rows,
        )
        self._prepared: dict[Slot, list[Any]] = {}
        self._sample: Any = None

    def do(self, piece: Piece, advance: Callable[[int], None], way: Way | None = None) -> Done:
        """Do a piece, write its files, and return their hashes.

        `way` is how its passes run, where this worker's plan does not say it.
        """
        self._runner.way = way or self._runner.way
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

    def choose(self) -> Way:
        """Return how passes run, by measuring on the first rows, before any piece is done.

        Where that fails, pieces will fail too, and say why.
        """
        plan, runner = self._plan, self._runner
        try:
            runner.load([plan.final])
            runner.probe([plan.final], next(plan.data.batches(*plan.bounds[0]))[0])
        except Exception:
            runner.way = "eager"
        return runner.way or "eager"

    def _score(self, epochs: tuple[int, ...], shard: int, advance: Callable[[int], None]) -> Done:
        """Run every batch of a shard through every snapshot."""
        plan, runner, members = self._plan, self._runner, range(len(self._plan.members))
        low, high = plan.bounds[shard]
        # Rows that are read once for all snapshots, and never again, are compared with nothing.
        is_only = plan.is_temporary and len(epochs) == len(plan.epochs)
        digest, hashes = None if is_only else Digest(), dict[str, str]()
        known = None if plan.final in epochs else plan.table.read_new("y_hat", None, shard)
        true: list[Ints] = []
        parts: dict[int, list[Columns]] = {epoch: [] for epoch in epochs}

        for block in self._read_blocks(low, high, digest):
            start, end = block[0].start, block[-1].end
            y = [batch.y for batch in block if batch.y is not None]
            true += y
            y_hat = None if known is None else known[start - low : end - low]
            for epoch in epochs:  # the final one is the first of its group
                prepared = [self._prepared[member, epoch] for member in members]
                if runner.watches:
                    (batch,) = block
                    columns = runner.score(epoch, batch.inputs, y_hat, prepared, start)
                else:
                    logits = [runner.logits([epoch], batch.inputs, batch.start) for batch in block]
                    columns = runner.score_logits(torch.cat(logits, dim=1), y_hat, prepared)
                plan.way = runner.way  # chosen at the first batch; the manifest records it
                if y and epoch == epochs[0] and runner.classes is not None:
                    labels = np.concatenate(y)
                    _validate.in_range(labels, runner.classes, "labels of `data`", start)
                y_hat = columns["labels"] if y_hat is None else y_hat
                parts[epoch].append(columns)
                advance((end - start) * len(members))
                # At once, because a block may take long, and what is written is not lost.
                if end == high:
                    hashes |= self._write(epoch, shard, parts[epoch], true, digest)
        return Done(hashes, _name_digest(shard, digest), runner.classes)

    def _read_blocks(self, low: int, high: int, digest: Digest | None) -> Iterator[list[_Batch]]:
        """Yield blocks of batches: each snapshot runs a whole block before the next snapshot does.

        A block is one batch until the number of classes is known, and where κ functions watch the
        passes.
        """
        runner, block, nbytes = self._runner, list[_Batch](), 0
        for batch, y in self._plan.data.batches(low, high):
            if digest is not None:
                digest.add(batch, y)
            start, low = low, low + row_count(batch)
            inputs = to_device(batch, runner.device)
            nbytes += count_bytes(inputs)
            rows = low - (block[0].start if block else start)
            logits = rows * (runner.classes or _LOGITS)
            is_full = runner.watches or logits >= _LOGITS or nbytes >= _BYTES or low == high
            # What waits is copied: a loader may use its memory again, or keep a file open for it.
            block.append(_Batch(inputs if is_full else clone(inputs), y, start, low))
            if is_full:
                yield block
                block, nbytes = [], 0

    def _write(
        self,
        epoch: int,
        shard: int,
        parts: list[Columns],
        true: list[Ints],
        digest: Digest | None,
    ) -> dict[str, str]:
        """Write all columns of a snapshot on a shard, and record and return their hashes."""
        plan = self._plan
        if digest is not None:
            plan.check_digest(shard, digest.hex())
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
        plan.record(Done(hashes, _name_digest(shard, digest), self._runner.classes))
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


def _name_digest(shard: int, digest: Digest | None) -> dict[str, str]:
    """Return the digest of a shard's rows by its number, where there is one."""
    return {} if digest is None else {str(shard): digest.hex()}


class Queue:
    """Hand out pieces that can be done now, and take their results.

    A piece needs y_hat of its shard, which the final snapshot gives, and the preparations of its
    snapshots. These can be large: at most `width` groups of snapshots are prepared before they are
    scored, and their preparations are removed afterwards.

    A group that fails is done again snapshot by snapshot, so that a damaged snapshot does not take
    the others with it, and a group that is too large for the memory can still be done.
    """

    def __init__(self, plan: Plan, todo: Sequence[Piece], width: int = 1) -> None:
        self.width = width
        self._plan, self._waiting, self._running = plan, list(todo), 0
        self._unprepared = {e for piece in todo if piece.shard is None for e in piece.epochs}
        self._unanswered = {piece.shard for piece in todo if plan.final in piece.epochs}
        self._left = _count_scorings(todo)
        self._prepared: set[int] = set()  # snapshots whose preparations this queue has started
        self._failed: dict[str, list[Piece]] = {}

    def next(self) -> Piece | None:
        """Return a piece to start, or None; preparations only where nothing can be scored."""
        scoring = (piece for piece in self._waiting if self._can_score(piece))
        preparing = (piece for piece in self._waiting if self._can_prepare(piece))
        piece = next(scoring, None) or next(preparing, None)
        if piece is not None:
            self._waiting.remove(piece)
            self._running += 1
            self._prepared.update(piece.epochs if piece.shard is None else ())
        return piece

    def _can_score(self, piece: Piece) -> bool:
        answered = self._plan.final in piece.epochs or piece.shard not in self._unanswered
        return piece.shard is not None and answered and self._unprepared.isdisjoint(piece.epochs)

    def _can_prepare(self, piece: Piece) -> bool:
        room = self.width * max(map(len, self._plan.groups))
        return piece.shard is None and (not self._running or len(self._prepared) < room)

    def done(self, piece: Piece, done: Done) -> None:
        """Record what a worker has done, so that pieces can start that waited for it."""
        self._running -= 1
        self._plan.record(done)
        if piece.shard is None:
            self._unprepared.difference_update(piece.epochs)
            return
        if self._plan.final in piece.epochs:
            self._unanswered.discard(piece.shard)
        self._release(_count_scorings([piece]))

    def failed(self, piece: Piece, cause: str) -> None:
        """Do a piece again in parts, or drop it and what cannot be done without it."""
        self._running -= 1
        if len(piece.epochs) > 1:
            self._waiting[:0] = [Piece((epoch,), piece.shard) for epoch in piece.epochs]
            return
        self._failed.setdefault(cause, []).append(piece)
        (epoch,) = piece.epochs
        rest = self._waiting
        if epoch == self._plan.final:
            rest = [] if piece.shard is None else [p for p in rest if p.shard != piece.shard]
        elif piece.shard is None:
            rest = [Piece(tuple(e for e in p.epochs if e != epoch), p.shard) for p in rest]
        lost = _count_scorings([*self._waiting, piece]) - _count_scorings(rest)
        self._waiting = [other for other in rest if other.epochs]
        self._release(lost)

    def _release(self, scorings: Counter[int]) -> None:
        """Remove the preparations of snapshots that no other piece needs."""
        self._left.subtract(scorings)
        for epoch in scorings:
            if not self._left[epoch]:
                self._prepared.discard(epoch)
                self._plan.forget_prepared(epoch)

    def close(self) -> None:
        """Raise an error that names what has failed, if anything has."""
        if not self._failed:
            return
        causes = []
        for cause, pieces in list(self._failed.items())[:_NAMED]:
            named = [self._plan.describe(piece) for piece in pieces[:_NAMED]]
            more = [f"{len(pieces) - _NAMED} more"] if len(pieces) > _NAMED else []
            causes.append(f"{'; '.join(named + more)} ({cause})")
        if len(self._failed) > _NAMED:
            causes.append(f"{len(self._failed) - _NAMED} other causes")
        raise ScoringFailed(
            f"Every piece must be scored, got {sum(map(len, self._failed.values()))} that failed "
            f"at every try: {'; '.join(causes)}. Fix the cause and score again; the rest is kept."
        )


def _count_scorings(pieces: Sequence[Piece]) -> Counter[int]:
    """Count the pieces that score each snapshot."""
    return Counter(epoch for p in pieces if p.shard is not None for epoch in p.epochs)


class Executor(ABC):
    """Do all pieces of a plan, each once.

    Examples
    --------
    >>> isinstance(LocalExecutor(), Executor)
    True
    """

    @property
    @abstractmethod
    def group(self) -> int | None:
        """Snapshots per pass over the data; None leaves it to the plan."""

    @abstractmethod
    def run(
        self, plan: Plan, model: nn.Module, todo: Sequence[Piece], advance: Callable[[int], None]
    ) -> None:
        """Do all of `todo`, in an order that a `Queue` allows.

        Give the queue what `Worker.do` returns. Call `advance` with the number of rows as they are
        scored. Where workers in several processes do pieces and `plan.way` is None, let one of them
        `choose` it first, and pass it to each `Worker.do`.
        """

    @staticmethod
    def queue(plan: Plan, todo: Sequence[Piece], width: int = 1) -> Queue:
        """Return a queue that allows `width` groups of snapshots to be prepared at once."""
        return Queue(plan, todo, width)

    @staticmethod
    def worker(plan: Plan, model: nn.Module, device: torch.device | None = None) -> Worker:
        """Return a worker for this process, on a device or the best there is."""
        return Worker(plan, model, device)


class LocalExecutor(Executor):
    """Do one piece after the other in this process. Errors are raised at once.

    Parameters
    ----------
    group : int, optional
        Snapshots per pass over the data, which is then read and decoded once for all of them. Each
        is a copy of the network in memory, and members of an ensemble count one by one. By default
        8, or fewer where their weights would take more than 1 GiB.
    device : str or torch.device, optional
        Where networks run: "cpu", "cuda:1", "mps". By default, where the model is, or on an
        accelerator if there is one.

    Examples
    --------
    >>> LocalExecutor(group=4, device="cpu").group
    4
    """

    def __init__(
        self, group: int | None = None, *, device: str | torch.device | None = None
    ) -> None:
        self._group = None if group is None else _validate.count(group, "group")
        self._device = find_device(device)

    @property
    def group(self) -> int | None:
        """Snapshots per pass over the data."""
        return self._group

    def run(
        self, plan: Plan, model: nn.Module, todo: Sequence[Piece], advance: Callable[[int], None]
    ) -> None:
        """Do the pieces in the order given."""
        worker, queue = self.worker(plan, model, self._device), self.queue(plan, todo)
        while piece := queue.next():
            queue.done(piece, worker.do(piece, advance))
