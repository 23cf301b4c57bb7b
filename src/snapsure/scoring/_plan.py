"""What to score, cut into pieces that can be done in any order once the first ones are done.

A piece is a group of snapshots (of every member) and one shard of the rows, which are read once for
the group. The final snapshot's group comes first, because it gives y_hat. The process that runs
`score` is the only one that writes the manifest, `table.json`. It says what the scores are of, so
that a second start does only what is missing, and scores of other inputs are never mixed in.
"""

import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from snapsure import _files
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.kappas._base import Kappa
from snapsure.kappas._softmax import SoftmaxResponse
from snapsure.networks._code import model_digest
from snapsure.networks._data import Rows, first_rows, row_count, to_device
from snapsure.networks._network import call, choose_device
from snapsure.networks._runner import group_epochs
from snapsure.networks._trace import clone
from snapsure.networks._ways import Speed, Way, copy_sharing, read_way
from snapsure.snapshots._base import Snapshots
from snapsure.snapshots._store import open_snapshots, refuse_empty
from snapsure.snapshots._weights import list_some, unwrap
from snapsure.table._pieces import (
    TABLE,
    Layout,
    Pieces,
    clear_table,
    make_layout,
    read_layout,
    write_layout,
)

LOCK = ".lock"
_MANIFEST = re.compile(re.escape(TABLE))
_PREPARED, _READY = "prepared", "ready"
_EVERY = 30.0  # seconds between two writings of the manifest
# A group is so many networks, or fewer if their weights take more bytes.
_GROUP, _GROUP_BYTES = 8, 1 << 30
# A shard has at most so many rows, and fewer where a group would need more operations than this for
# them: about a minute on one slow core. It must not depend on the speed of the machine.
_SHARD, _OPERATIONS = 10_000, 2 * 10**12
_REMEDY = (
    "Choose another folder, or replace these by overwrite=True (--overwrite on the command line)."
)


class Piece(NamedTuple):
    """Some snapshots, and one shard; or None, for what κ functions prepare once per snapshot."""

    epochs: tuple[int, ...]  # the latest first
    shard: int | None


class Done(NamedTuple):
    """What a worker has written: the hash of each file, and the digest of each shard's rows."""

    hashes: dict[str, str]
    inputs: dict[str, str]
    classes: int | None = None


class Plan:
    """All that scoring needs to know, and the manifest of what is done."""

    def __init__(
        self,
        folder: Path,
        layout: Layout,
        *,
        members: Sequence[Snapshots],
        kappas: list[Kappa],
        data: Rows,
        groups: list[tuple[int, ...]],
        replaces: bool,
        is_temporary: bool,
    ) -> None:
        self.members, self.kappas, self.data, self.groups = members, kappas, data, groups
        self.folder, self.table = folder, Pieces(folder, layout, durable=not is_temporary)
        self.names = [kappa.name for kappa in kappas]
        self.epochs: list[int] = layout["epochs"]
        self.final = self.epochs[-1]  # of the classifier itself
        self.is_temporary = is_temporary
        self.replaces = replaces  # whether there are other scores, to be removed
        self.is_driver = True  # the only process that writes the manifest
        ends = [sum(layout["shards"][: i + 1]) for i in range(len(layout["shards"]))]
        self.bounds = list(zip([0, *ends[:-1]], ends, strict=True))
        self._saved = 0.0  # when the manifest was written, by the clock that never goes back

    @property
    def way(self) -> Way | None:
        """How passes run, the same for all pieces of a table; None before that is chosen."""
        return read_way(self.table.layout["provenance"])

    @way.setter
    def way(self, way: Way | None) -> None:
        self.table.layout["provenance"]["way"] = way

    @property
    def rows(self) -> int:
        """How many rows go through a network, for all of the table."""
        return len(self.epochs) * self.data.n * len(self.members)

    def todo(self) -> list[Piece]:
        """Return what is missing: group by group, the final snapshot's first."""
        prepares = any(kappa.prepares for kappa in self.kappas)
        pieces = []
        for group in self.groups:
            shards = [
                Piece(tuple(e for e in group if not self._is_done(e, shard)), shard)
                for shard in range(len(self.bounds))
            ]
            needed = {epoch for piece in shards for epoch in piece.epochs if prepares}
            unprepared = tuple(
                e
                for e in group
                if e in needed and (self.replaces or not (self._prepared(e) / _READY).exists())
            )
            pieces += [p for p in (Piece(unprepared, None), *shards) if p.epochs]
        return pieces

    def _is_done(self, epoch: int, shard: int) -> bool:
        """Whether a snapshot is scored on a shard, and all of its files are whole."""
        wanted: list[tuple[str, int | None]] = [(name, epoch) for name in ("labels", *self.names)]
        if epoch == self.final:
            wanted += [("y_hat", None), ("final", None)]
            wanted += [("y", None)] if self.table.layout["has_labels"] else []
        try:
            for name, of in wanted:
                self.table.read(name, of, shard)
        except CorruptFile:
            return False
        return str(shard) in self.table.layout["inputs"]

    def record(self, done: Done) -> None:
        """Take what a worker has written into the manifest, which is saved every half minute."""
        for shard, digest in done.inputs.items():
            self.check_digest(int(shard), digest)
        if done.classes is not None:
            self.table.layout["provenance"]["classes"] = done.classes
        self.table.layout["inputs"].update(done.inputs)
        self.table.hashes.update(done.hashes)
        if self.is_driver and time.monotonic() - self._saved >= _EVERY:
            self.save()

    def begin(self) -> None:
        """Take the folder, before the first piece is written: other scores go."""
        if self.is_driver and not self._saved:
            if self.replaces:
                self.clear()
            self.save()

    def save(self) -> None:
        """Write the manifest."""
        write_layout(self.folder, self.table.layout, durable=self.table.durable)
        self._saved = time.monotonic()

    def clear(self) -> None:
        """Remove all scores in the folder, and nothing else."""
        shutil.rmtree(self.folder / _PREPARED, ignore_errors=True)
        clear_table(self.folder)
        self.table.hashes.clear()
        self.table.layout["inputs"].clear()
        self.table.layout["has_averaged"] = False
        self.table.layout["provenance"].pop("average", None)
        self.replaces = False

    def leave(self) -> None:
        """Save what is done; a run that has scored nothing leaves the folder as it was."""
        if not self._saved:
            return
        if self.table.hashes or any((self.folder / _PREPARED).glob("*")):
            self.save()
        else:
            with suppress(OSError):
                (self.folder / _PREPARED).rmdir()
            clear_table(self.folder)

    def finish(self) -> None:
        """Make the folder a table, without what was prepared or left half-written."""
        self.table.remove_partial()
        shutil.rmtree(self.folder / _PREPARED, ignore_errors=True)
        layout = self.table.layout
        changed = not layout["finished"] or layout != read_layout(self.folder)
        layout["finished"] = True
        if changed:
            for key in ("inputs", "hashes"):  # the same bytes in whichever order pieces came
                for name in sorted(layout[key]):
                    layout[key][name] = layout[key].pop(name)
            self.save()

    def check_inputs(self, shards: Sequence[int], advance: Callable[[int], None]) -> None:
        """Refuse data that is not what these shards were scored on. No network runs.

        Other shards are compared while they are scored.
        """
        for shard in shards:
            low, high = self.bounds[shard]
            if self.data.digest(low, high, advance) != self.table.layout["inputs"][str(shard)]:
                raise InvalidInput(
                    f"`out` must hold scores of the same inputs, got {self.folder} with other data "
                    f"in rows {low}…{high - 1}. {_REMEDY}"
                )

    def check_digest(self, shard: int, digest: str) -> None:
        """Refuse rows that differ from those that other snapshots were scored on."""
        if self.table.layout["inputs"].get(str(shard), digest) != digest:
            low, high = self.bounds[shard]
            raise InvalidInput(
                f"`{self.data.name}` must give the same rows at every pass, got other values in "
                f"rows {low}…{high - 1} than the scores in {self.folder} are of. Switch off "
                "shuffling and random augmentation; if the data has changed, choose another folder."
            )

    def count_rows(self, piece: Piece) -> int:
        """Return how many rows go through a network."""
        rows = 0 if piece.shard is None else self.table.shards[piece.shard]
        return rows * len(piece.epochs) * len(self.members)

    def describe(self, piece: Piece) -> str:
        """Describe a piece in words."""
        epochs = f"epoch {', '.join(map(str, piece.epochs))}"
        if piece.shard is None:
            return f"{epochs}, the reference"
        low, high = self.bounds[piece.shard]
        return f"{epochs}, rows {low}…{high - 1}"

    def preparation(self, kappa: Kappa, member: int, epoch: int) -> Path:
        """Return the folder of a κ function's preparations for a snapshot."""
        return self._prepared(epoch) / f"{member}" / kappa.name

    def note_prepared(self, epoch: int) -> None:
        """Mark the preparations of a snapshot as complete."""
        _files.make_folder(self._prepared(epoch))
        _files.write_bytes(self._prepared(epoch) / _READY, b"")

    def forget_prepared(self, epoch: int) -> None:
        """Remove preparations, which can be large, when their snapshot is scored."""
        (self._prepared(epoch) / _READY).unlink(missing_ok=True)
        shutil.rmtree(self._prepared(epoch), ignore_errors=True)

    def _prepared(self, epoch: int) -> Path:
        return self.folder / _PREPARED / f"{epoch}"


def make_plan(
    model: nn.Module,
    snapshots: Snapshots | str | Path,
    data: Any,
    kappas: Kappa | Sequence[Kappa] | None,
    folder: Path,
    group: int | None = None,
    *,
    batch_size: int | None = None,
    overwrite: bool = False,
    speed: Speed = "auto",
    is_temporary: bool = False,
) -> Plan:
    """Check that all arguments fit together, and that the folder can be used for them.

    A temporary folder is removed when scoring ends, however that is: no run resumes from it.
    """
    wanted = list_kappas(kappas)
    source = open_snapshots(snapshots, model)
    refuse_empty(source)
    members, epochs, rows = source.members, source.epochs, Rows.of(data, "data", batch_size)
    identity = {
        "snapshots": [[store.sha256(epoch) for epoch in epochs] for store in members],
        "epochs": epochs,
        "data": rows.identity(),
        "kappas": {kappa.name: kappa.settings for kappa in wanted},
        "model": model_digest(model),
    }
    if speed == "exact" or any(k.prepares or k.layers or k.sampling for k in wanted):
        identity["way"] = "eager"

    _files.refuse_link(folder / _PREPARED)
    layout = make_layout(
        [kappa.name for kappa in wanted],
        epochs,
        [rows.n],
        ["final", "y"] if rows.identity()["labelled"] else ["final"],
        json.loads(json.dumps(identity)),
        finished=False,
    )
    found = _find_scores(folder, layout, overwrite=overwrite)
    replaces = found is None and read_layout(folder) is not None
    if found is None:
        bounds = rows.cut(_count_shard_rows(model, rows, wanted))
        layout["shards"] = [high - low for low, high in bounds]
    limits = (_GROUP_BYTES, _GROUP) if group is None else (sys.maxsize, group)
    return Plan(
        folder,
        found or layout,
        members=members,
        kappas=wanted,
        data=rows,
        groups=group_epochs(model, members, epochs[::-1], *limits),
        replaces=replaces,
        is_temporary=is_temporary,
    )


def list_kappas(kappas: Kappa | Sequence[Kappa] | None) -> list[Kappa]:
    """List κ functions, which must have different names; softmax by default."""
    if kappas is None:
        return [SoftmaxResponse()]
    wanted = [kappas] if isinstance(kappas, Kappa) else list(kappas)
    if not wanted or not all(isinstance(kappa, Kappa) for kappa in wanted):
        got = repr(kappas) if isinstance(kappas, str) else list_some([repr(one) for one in wanted])
        raise InvalidInput(
            f"`kappas` must be κ functions, got {got or 'none'}. Pass for example "
            "[SoftmaxResponse()]; labels belong to the data: (inputs, labels)."
        )
    names = [kappa.name for kappa in wanted]
    if len({*names}) < len(names):
        raise InvalidInput(f"`kappas` must have different names, got {names}. Score one per call.")
    return wanted


def _find_scores(folder: Path, wanted: Layout, *, overwrite: bool) -> Layout | None:
    """Return the manifest of earlier scores of the same; refuse a folder of anything else."""
    _files.remove_partial(folder, _MANIFEST)
    found = read_layout(folder)
    if found is None:
        if {*_files.things_in(folder, _MANIFEST)} - {LOCK}:
            raise _files.other_things(folder, "`out`", "earlier scores")
        return None
    different = _describe_differences(found["provenance"], wanted["provenance"])
    if found["finished"] and not found["inputs"]:
        different = "a finished table"
    elif not different and sum(found["shards"]) != sum(wanted["shards"]):
        different = "other shards"
    elif not different and any(
        found[key] != wanted[key] for key in ("names", "epochs", "has_labels", "place")
    ):
        different = "another layout"
    if not different:
        return found
    if not overwrite:
        raise InvalidInput(
            f"`out` must hold scores of the same inputs, got {folder} with {different}. {_REMEDY}"
        )
    return None


def _describe_differences(found: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Describe in which parts other scores differ; return nothing if they do not."""
    keys = [key for key in own if found.get(key) != own[key]]
    data = found.get("data")
    if keys == ["data"] and isinstance(data, dict):
        sizes = data.get("batch_size"), own["data"]["batch_size"]
        if sizes[0] != sizes[1] and data.get("n") == own["data"]["n"]:
            return f"other batches (of {sizes[0]} rows, not {sizes[1]})"
    return f"other {' and '.join(keys)}" if keys else ""


def _count_shard_rows(model: nn.Module, rows: Rows, kappas: Sequence[Kappa]) -> int:
    """Return how many rows a group of snapshots can score in about a minute on a slow core."""
    samplings = {kappa.sampling for kappa in kappas if kappa.sampling}
    passes = 1 + sum(sampling.passes for sampling in samplings)
    operations = 2 * sum(weights.numel() for weights in model.parameters())
    # Scoring explains what is wrong with a network that fails here.
    with suppress(Exception):
        device = choose_device(model)
        module = copy_sharing(unwrap(model)).to(device).eval()
        inputs = clone(first_rows(next(rows.batches(*rows.cut(1)[0]))[0]))
        counts: list[int] = []  # not by `FlopCounterMode`, which imports PyTorch's compiler

        def count(layer: nn.Module, args: Any, output: Any) -> None:
            values = next(leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)).numel()
            for weights in layer.parameters(recurse=False):
                if weights.ndim > 1:  # as many products per output as a row of weights has
                    counts.append(2 * values * (weights.numel() // len(weights)))

        for layer in module.modules():
            layer.register_forward_hook(count)
        with torch.no_grad():
            call(module, to_device(inputs, device))
        operations = max(operations, sum(counts) // row_count(inputs))
    return min(_SHARD, _OPERATIONS // max(1, operations * passes * _GROUP))
