"""What is to be scored, cut into pieces that can be done in any order, apart from the first ones.

A piece is a group of snapshots (of every member) and one shard of the rows, which are read once for
the group. The final snapshot's group comes first: it gives y_hat. A folder remembers what it holds
the scores of, so that a second start does only what is missing, and scores of other inputs are
never mixed in.
"""

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from snapsure import _files
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.kappas._base import Kappa
from snapsure.networks._data import Rows
from snapsure.networks._network import refuse_no_network
from snapsure.networks._runner import group_epochs
from snapsure.scoring._claim import KEPT, PREPARED, Claim
from snapsure.scoring._code import model_digest
from snapsure.snapshots._base import Snapshots
from snapsure.snapshots._store import open_snapshots
from snapsure.table._pieces import TableWriter, layout_in

_WHOLE = "whole"
_SHARD = 10_000
# A group is so many snapshots, or fewer if their weights are large.
_GROUP, _GROUP_BYTES = 8, 1 << 30


@dataclass(frozen=True)
class Piece:
    """Some snapshots, and one shard; or None, for what κ functions prepare once per snapshot."""

    epochs: tuple[int, ...]  # the latest first
    shard: int | None

    def without(self, epoch: int) -> "Piece":
        """The others of its snapshots."""
        return Piece(tuple(other for other in self.epochs if other != epoch), self.shard)

    def singles(self) -> list["Piece"]:
        """The same, snapshot by snapshot."""
        return [Piece((epoch,), self.shard) for epoch in self.epochs]


@dataclass(frozen=True)
class Plan:
    """All that scoring needs to know."""

    members: Sequence[Snapshots]
    kappas: list[Kappa]
    data: Rows
    epochs: list[int]
    bounds: list[tuple[int, int]]
    groups: list[tuple[int, ...]]
    table: TableWriter
    claim: Claim

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What the scores are of."""
        return self.claim.identity

    @property
    def names(self) -> list[str]:
        """The κ of the table to be."""
        return [kappa.name for kappa in self.kappas]

    @property
    def has_labels(self) -> bool:
        """Whether the data comes with labels."""
        return bool(self.data.identity()["labelled"])

    @property
    def final(self) -> int:
        """The epoch of the classifier itself."""
        return self.epochs[-1]

    def todo(self) -> list[Piece]:
        """What is missing: group by group, the final snapshot's first, each prepared before."""
        pieces = []
        for group in self.groups:
            shards = [self.missing(Piece(group, shard)) for shard in range(len(self.bounds))]
            needed = {epoch for piece in shards for epoch in piece.epochs}
            before = self.missing(Piece(tuple(e for e in group if e in needed), None))
            pieces += [piece for piece in (before, *shards) if piece.epochs]
        return pieces

    def missing(self, piece: Piece) -> Piece:
        """The piece, without what has been done of it."""
        shard = piece.shard
        left = (e for e in piece.epochs if not self._done(e, shard))
        return Piece(tuple(left), shard)

    def is_over(self, piece: Piece) -> bool:
        """Whether nothing is left to do of it, or for what it prepares, whoever has done it."""
        shards = range(len(self.bounds)) if piece.shard is None else [piece.shard]
        return not any(self.missing(Piece(piece.epochs, shard)).epochs for shard in shards)

    def begun(self) -> list[int]:
        """The shards of which it is known of what inputs their scores are."""
        shards = range(len(self.bounds)) if self.claim.held else ()
        return [shard for shard in shards if self.table.read_digest(shard) is not None]

    def finished(self, todo: Sequence[Piece]) -> list[int]:
        """The shards of which nothing is to be done."""
        unfinished = {piece.shard for piece in todo}
        return [shard for shard in range(len(self.bounds)) if shard not in unfinished]

    def check_inputs(self, shards: Sequence[int], advance: Callable[[int], None]) -> None:
        """Refuse data that is not what these shards were scored of. No network runs.

        Other shards are compared while they are scored.
        """
        for shard in shards:
            low, high = self.bounds[shard]
            if self.data.digest(low, high, advance) != self.table.read_digest(shard):
                raise InvalidInput(
                    f"`out` must hold scores of the same inputs, got {self.table.folder} with "
                    f"other data in rows {low}…{high - 1}: choose another folder, or replace these "
                    "by overwrite=True (--overwrite on the command line)"
                )

    def note_inputs(self, shard: int, digest: str) -> None:
        """Remember what a shard is scored of; the scores of all snapshots must be of the same."""
        known = self.table.read_digest(shard)
        if known is None:
            self.table.write_digest(shard, digest)
        elif known != digest:
            low, high = self.bounds[shard]
            raise InvalidInput(
                f"`{self.data.name}` must give the same rows at every pass, got other values in "
                f"rows {low}…{high - 1} than the scores in {self.table.folder} are of: switch off "
                "shuffling and random augmentation; if the data has changed, choose another folder"
            )

    def rows(self, piece: Piece) -> int:
        """Rows to go through a network."""
        rows = 0 if piece.shard is None else self.table.shards[piece.shard]
        return rows * len(piece.epochs) * len(self.members)

    def described(self, piece: Piece) -> str:
        """A piece in words."""
        which = f"epoch {', '.join(map(str, piece.epochs))}"
        if piece.shard is None:
            return f"{which}, the reference"
        low, high = self.bounds[piece.shard]
        return f"{which}, rows {low}…{high - 1}"

    def folder(self, kappa: Kappa, member: int, epoch: int) -> Path:
        """Where a κ function's preparations for a snapshot lie."""
        return self.table.folder / PREPARED / f"{epoch}" / f"{member}" / kappa.name

    def note_prepared(self, epoch: int) -> None:
        """Preparations count from here on."""
        _files.write_bytes(self.table.folder / PREPARED / f"{epoch}" / _WHOLE, b"")

    def forget_prepared(self, epoch: int) -> None:
        """Preparations can be large: they go when their snapshot is scored."""
        (self.table.folder / PREPARED / f"{epoch}" / _WHOLE).unlink(missing_ok=True)
        shutil.rmtree(self.table.folder / PREPARED / f"{epoch}", ignore_errors=True)

    def kept_folder(self, shard: int) -> Path:
        """Where the rows of a shard wait that are scored before all of them are."""
        return self.table.folder / KEPT / f"{shard:05d}"

    def finish(self) -> None:
        """Make the folder a table, without what was prepared, kept or left half-written."""
        self.claim.confirm()
        self.table.remove_partial(self.names)
        for name in (PREPARED, KEPT):
            shutil.rmtree(self.table.folder / name, ignore_errors=True)
        self.table.finish(self.names, has_labels=self.has_labels, provenance=self.provenance)

    def _done(self, epoch: int, shard: int | None) -> bool:
        """Whether this has been done, and all of its files are whole."""
        if not self.claim.held:
            return shard is None and not any(kappa.prepares for kappa in self.kappas)
        if shard is None:
            whole = self.table.folder / PREPARED / f"{epoch}" / _WHOLE
            return whole.exists() or not any(kappa.prepares for kappa in self.kappas)
        if self.table.read_digest(shard) is None:
            return False
        try:
            for name in ("labels", *self.names):
                self.table.read(name, epoch, shard)
            if epoch == self.final:
                for name in ("y_hat", "y") if self.has_labels else ("y_hat",):
                    self.table.read(name, None, shard)
        except CorruptFile:
            return False
        return True


def make_plan(
    model: nn.Module,
    snapshots: Snapshots | str | Path,
    data: Any,
    kappas: Kappa | Sequence[Kappa],
    folder: Path,
    group: int | None = None,
    *,
    batch_size: int | None = None,
    overwrite: bool = False,
) -> Plan:
    """Check that all fits together, and that the folder can be taken."""
    refuse_no_network(model)
    wanted = _checked([kappas] if isinstance(kappas, Kappa) else list(kappas))
    source = open_snapshots(snapshots)
    members, epochs = source.members, _epochs(source)
    rows = Rows.of(data, "data", batch_size)
    size = max(1, _SHARD // rows.batch_size) * rows.batch_size if rows.divisible else rows.n
    bounds = [(low, min(low + size, rows.n)) for low in range(0, rows.n, size)]
    table = TableWriter(folder, epochs, [high - low for low, high in bounds])
    identity = _identity(model, members, epochs, rows, wanted)
    _files.make_writable(folder)
    for name in (PREPARED, KEPT):
        _files.refuse_link(folder / name)
    claim = Claim(folder, identity, overwrite=overwrite)
    if claim.held and (layout := layout_in(folder)):
        table.hashes = layout["hashes"]
    room = (_GROUP_BYTES, _GROUP) if group is None else (sys.maxsize, group)
    groups = group_epochs(model, epochs[::-1], len(members), *room)
    plan = Plan(members, wanted, rows, epochs, bounds, groups, table, claim)
    for shard in range(len(bounds)) if claim.held else ():
        # Nobody knows of which inputs its pieces are. In this order: a process that writes them
        # beside us has written the digest before.
        if table.has_pieces(plan.names, shard) and table.read_digest(shard) is None:
            table.remove(plan.names, shard)
    return plan


def _checked(kappas: list[Kappa]) -> list[Kappa]:
    if not kappas or not all(isinstance(kappa, Kappa) for kappa in kappas):
        raise InvalidInput(
            f"`kappas` must be κ functions, got {kappas!r}: pass e.g. [SoftmaxResponse()]"
        )
    names = [kappa.name for kappa in kappas]
    if len({*names}) < len(names):
        raise InvalidInput(f"`kappas` must have different names, got {names}: score one per call")
    return kappas


def _epochs(snapshots: Snapshots) -> list[int]:
    epochs = snapshots.epochs
    if not epochs:
        raise InvalidInput(
            f"`snapshots` must hold at least one snapshot, got none in {snapshots.path}: "
            "check the path, or record some"
        )
    return epochs


def _identity(
    model: nn.Module,
    members: Sequence[Snapshots],
    epochs: list[int],
    rows: Rows,
    kappas: list[Kappa],
) -> dict[str, Any]:
    return {
        "snapshots": [[store.sha256(epoch) for epoch in epochs] for store in members],
        "epochs": epochs,
        "data": rows.identity(),
        "kappas": {kappa.name: kappa.settings for kappa in kappas},
        "model": model_digest(model),
    }
