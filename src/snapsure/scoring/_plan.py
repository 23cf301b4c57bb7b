"""What is to be scored, cut into pieces that can be done in any order, apart from the first ones.

A piece is one snapshot (of every member) and one shard of the rows. The final snapshot's pieces
come first: they give y_hat. A folder remembers what it holds the scores of, so that a second start
does only what is missing, and scores of other inputs are never mixed in.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from snapsure import _files
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.scores._base import Kappa
from snapsure.scores._data import Rows
from snapsure.scores._ensemble import Ensemble
from snapsure.snapshots import SnapshotStore
from snapsure.table import TableWriter

_PLAN = "plan.json"
_SHARD = 10_000


@dataclass(frozen=True)
class Piece:
    """One snapshot, one shard."""

    epoch: int
    shard: int


@dataclass(frozen=True)
class Plan:
    """All that scoring needs to know."""

    members: list[SnapshotStore]
    kappas: list[Kappa]
    data: Rows
    epochs: list[int]
    bounds: list[tuple[int, int]]
    table: TableWriter

    @property
    def names(self) -> list[str]:
        """The κ of the table to be."""
        return [kappa.name for kappa in self.kappas]

    @property
    def has_labels(self) -> bool:
        """Whether the data comes with labels."""
        return bool(self.data.identity()["labelled"])

    def pieces(self) -> list[Piece]:
        """All pieces, the final snapshot's first."""
        return [
            Piece(epoch, shard)
            for epoch in reversed(self.epochs)
            for shard in range(len(self.bounds))
        ]

    def done(self, piece: Piece) -> bool:
        """Whether a piece has been scored, and all of its files are whole."""
        try:
            for name in ("labels", *self.names):
                self.table.read(name, piece.epoch, piece.shard)
            if piece.epoch == self.epochs[-1]:
                for name in ("y_hat", "y") if self.has_labels else ("y_hat",):
                    self.table.read(name, None, piece.shard)
        except CorruptFile:
            return False
        return True


def make_plan(
    model: nn.Module,
    snapshots: SnapshotStore | str | Path | None,
    data: Any,
    kappas: Kappa | Sequence[Kappa],
    folder: Path,
) -> Plan:
    """Check that all fits together, and claim the folder."""
    wanted = [kappas] if isinstance(kappas, Kappa) else list(kappas)
    members = _members(snapshots, wanted)
    epochs = _common_epochs(members)
    rows = Rows.of(data, "data")
    size = max(1, _SHARD // rows.batch_size) * rows.batch_size if rows.divisible else rows.n
    bounds = [(low, min(low + size, rows.n)) for low in range(0, rows.n, size)]
    table = TableWriter(folder, epochs, [high - low for low, high in bounds])
    _claim(folder, _identity(model, members, epochs, rows, wanted))
    return Plan(members, wanted, rows, epochs, bounds, table)


def _members(
    snapshots: SnapshotStore | str | Path | None, kappas: list[Kappa]
) -> list[SnapshotStore]:
    if not kappas or not all(isinstance(kappa, Kappa) for kappa in kappas):
        raise InvalidInput(
            f"`kappas` must be κ functions, got {kappas!r}: pass e.g. [SoftmaxResponse()]"
        )
    names = [kappa.name for kappa in kappas]
    if len({*names}) < len(names):
        raise InvalidInput(f"`kappas` must have different names, got {names}: score one per call")
    ensembles = [kappa for kappa in kappas if isinstance(kappa, Ensemble)]
    if not ensembles:
        if snapshots is None:
            raise InvalidInput("`snapshots` must be a store or its folder, got None: pass one")
        return [snapshots if isinstance(snapshots, SnapshotStore) else SnapshotStore(snapshots)]
    stores = [[store.path.resolve() for store in kappa.stores] for kappa in ensembles]
    if len(ensembles) < len(kappas) or any(paths != stores[0] for paths in stores):
        raise InvalidInput(
            "`kappas` must be of one classifier, got an Ensemble beside others: its y_hat is "
            "another; score it in a call of its own"
        )
    return ensembles[0].stores


def _common_epochs(members: list[SnapshotStore]) -> list[int]:
    epochs = members[0].epochs
    if not epochs:
        raise InvalidInput(
            f"`snapshots` must hold at least one snapshot, got none in {members[0].path}: "
            "check the path, or record some"
        )
    for store in members[1:]:
        if store.epochs != epochs:
            raise InvalidInput(
                f"members must have snapshots of the same epochs, got {store.path} with "
                f"{len(store)} that differ from the {len(epochs)} in {members[0].path}: "
                "record them by one schedule"
            )
    return epochs


def _identity(
    model: nn.Module,
    members: list[SnapshotStore],
    epochs: list[int],
    rows: Rows,
    kappas: list[Kappa],
) -> dict[str, Any]:
    return {
        "snapshots": [[store.sha256(epoch) for epoch in epochs] for store in members],
        "epochs": epochs,
        "data": rows.identity(),
        "kappas": {kappa.name: kappa.settings for kappa in kappas},
        "model": hashlib.sha256(repr(model).encode()).hexdigest()[:16],
    }


def _claim(folder: Path, identity: Mapping[str, Any]) -> None:
    """Take a folder for these scores, or go on in it; refuse another's."""
    path = folder / _PLAN
    folder.mkdir(parents=True, exist_ok=True)
    _files.remove_partial(folder)
    if not path.exists():
        if any(folder.iterdir()):
            raise InvalidInput(
                f"`out` must be a new folder or one of earlier scores, got {folder} with other "
                "things in it: choose another"
            )
        _files.write_bytes(path, json.dumps(identity, indent=1).encode())
        return
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        raise CorruptFile(f"{path} must be the plan of earlier scores, got no JSON") from None
    differing = [key for key in identity if found.get(key) != json.loads(json.dumps(identity[key]))]
    if differing:
        raise InvalidInput(
            f"`out` must hold scores of the same inputs, got {folder} with other "
            f"{' and '.join(differing)}: choose another folder, or delete this one"
        )
