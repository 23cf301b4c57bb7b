"""A student's targets: the mean class probabilities of the snapshots for every training example.

They are computed once, each batch being read once for all snapshots in memory, and stored as
float16, part by part. Each process writes a manifest of the parts that it has computed.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypedDict

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor, nn

from snapsure import _arrays, _files, _json
from snapsure._types import Floats, Ints
from snapsure.errors import CorruptFile
from snapsure.networks._data import Rows, row_count
from snapsure.networks._forward import exponentials
from snapsure.networks._runner import Runner, group_epochs
from snapsure.snapshots._base import Snapshots

_PART = 1 << 12  # rows of a part …
_LONG_PART = 1 << 16  # … where snapshots do not fit into memory, and are loaded again for each

_FILES = re.compile(r"part-\d{9}\.npy|hashes-\d{3}\.json")


class _Manifest(TypedDict):  # of one process
    hashes: dict[Annotated[str, Meta(pattern=r"\Apart-\d{9}\.npy\Z")], str]


class Targets:
    """Mean class probabilities of some snapshots by row, in a folder; parts there are kept."""

    def __init__(self, folder: Path, rows: Rows) -> None:
        self.folder, self.rows = folder, rows
        self._again = f"remove {folder}, and run again"

    def compute(
        self,
        model: nn.Module,
        snapshots: Snapshots,
        epochs: Sequence[int],
        memory: int,
        advance: Callable[[int], None],
        rank: int = 0,
        world: int = 1,
    ) -> None:
        """Compute what is missing, of several processes each its parts; `advance` counts passes."""
        _files.make_folder(self.folder)
        if world == 1:
            _files.remove_partial(self.folder, _FILES)
        manifest = self.folder / f"hashes-{rank:03d}.json"
        hashes = self._read(manifest)["hashes"] if manifest.exists() else {}
        members = snapshots.members
        groups = group_epochs(model, members, epochs, memory)
        # Eager: a student follows from its seed, and not from what was fastest at the time.
        runner = Runner(model, members, epochs, name=self.rows.name)
        rows = _PART if len(groups) == 1 else _LONG_PART
        length = max(1, rows // self.rows.batch_size) * self.rows.batch_size

        for number, low in enumerate(range(0, self.rows.n, length)):
            high = min(low + length, self.rows.n)
            name = f"part-{low:09d}.npy"
            if number % world != rank or (name in hashes and (self.folder / name).exists()):
                advance((high - low) * len(epochs) * len(members))
                continue
            mean = self._average(runner, groups, low, high, advance)
            hashes[name] = _arrays.write(self.folder / name, mean.astype(np.float16))
            _files.write_bytes(manifest, _json.text({"hashes": hashes}))

    def _average(
        self,
        runner: Runner,
        groups: Sequence[Sequence[int]],
        low: int,
        high: int,
        advance: Callable[[int], None],
    ) -> Floats:
        """Return the mean class probabilities of some rows over all snapshots."""
        total, networks = np.zeros(()), 0
        for group in groups:
            runner.load(group)
            networks += len(runner.slots(group))
            at = 0
            for inputs, _ in self.rows.batches(low, high):
                for logits in runner.logits(group, inputs):
                    e = exponentials(logits)
                    total = total if total.ndim else np.zeros((high - low, e.shape[1]))
                    total[at : at + len(e)] += e / e.sum(axis=1, keepdims=True)
                    advance(len(e))
                at += row_count(inputs)
        return total / networks

    def open(self) -> "Targets":
        """Map the files of all processes, for `take`."""
        manifests = [self._read(path) for path in sorted(self.folder.glob("hashes-*.json"))]
        hashes = {name: sha for one in manifests for name, sha in one["hashes"].items()}
        self._parts = [
            _arrays.map_file(self.folder / name, hashes[name], self._again)
            for name in sorted(hashes)
        ]
        self._ends = np.cumsum([len(part) for part in self._parts])
        held = sum(map(len, self._parts))
        if held != self.rows.n or len({part.shape[1:] for part in self._parts}) != 1:
            raise CorruptFile(
                f"{self.folder} must hold targets of {self.rows.n} rows, got {held}. "
                f"{_files.instruct(self._again)}"
            )
        return self

    def take(self, index: Ints) -> Tensor:
        """Return the probabilities of some rows, (n, classes), float32."""
        number = np.searchsorted(self._ends, index, side="right")
        values = np.empty((len(index), self._parts[0].shape[1]), dtype=np.float32)
        for one in np.unique(number):
            part, at = self._parts[one], number == one
            values[at] = part[index[at] - (self._ends[one] - len(part))]
        return torch.from_numpy(values / values.sum(axis=1, keepdims=True))

    def _read(self, path: Path) -> _Manifest:
        return _json.load(path, "a manifest of targets", _Manifest, self._again)
