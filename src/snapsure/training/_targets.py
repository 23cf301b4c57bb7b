"""A student's targets: the mean class probabilities of the snapshots for every training example.

They are computed once, each batch being read once for all snapshots in memory, and stored as
float16, part by part: all classes where they are few, else the most probable ones. Each process
writes a manifest of the parts that it has computed.
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
from snapsure._spacing import choose
from snapsure._types import Array, Floats, Ints
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.networks._data import Rows, row_count
from snapsure.networks._forward import exponentials
from snapsure.networks._runner import Runner, group_epochs
from snapsure.snapshots._base import Snapshots

_PART = 1 << 12  # rows of a part …
_LONG_PART = 1 << 16  # … where snapshots do not fit into memory, and are loaded again for each
MOST = 256  # classes that are all stored; of more …
_STORED = 64  # … so many

_VALUES = re.compile(r"part-(\d{9})\.values\.npy")
_FILES = re.compile(r"part-\d{9}\.(values|classes)\.npy|hashes-\d{3}\.json")

Advance = Callable[[int], None]


class _Manifest(TypedDict):
    """What one process has computed."""

    classes: Annotated[int, Meta(ge=1, le=2**31)]
    hashes: dict[Annotated[str, Meta(pattern=r"\Apart-\d{9}\.\w+\.npy\Z")], str]


class Targets:
    """Mean class probabilities of some snapshots, by row.

    Parameters
    ----------
    folder : path
        For the files; parts that are there are not computed again.
    rows : Rows
        The examples.
    """

    def __init__(self, folder: Path, rows: Rows) -> None:
        self.folder, self.rows = folder, rows
        self._again = f"remove {folder}, and run again"

    def compute(
        self,
        model: nn.Module,
        snapshots: Snapshots,
        epochs: Sequence[int],
        memory: int,
        advance: Advance,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        """Compute the parts that are missing; `advance` counts rows times networks.

        Of several processes, each computes every `world`-th part.
        """
        _files.make_folder(self.folder)
        if world == 1:
            _files.remove_partial(self.folder, _FILES)
        manifest = self.folder / f"hashes-{rank:03d}.json"
        hashes = self._read(manifest)["hashes"] if manifest.exists() else {}
        members = snapshots.members
        groups = group_epochs(model, epochs, len(members), memory)
        runner = Runner(model, members, epochs, name=self.rows.name)
        rows = _PART if len(groups) == 1 else _LONG_PART
        length = max(1, rows // self.rows.batch_size) * self.rows.batch_size
        for low in range(0, self.rows.n, length):
            high = min(low + length, self.rows.n)
            there = _name(low) in hashes and (self.folder / _name(low)).exists()
            if low // length % world == rank and not there:
                mean = self._mean(runner, groups, low, high, advance)
                hashes.update(self._write(low, mean))
                content = {"classes": mean.shape[1], "hashes": hashes}
                _files.write_bytes(manifest, _json.text(content))
            else:
                advance((high - low) * len(epochs) * len(members))

    def _mean(
        self,
        runner: Runner,
        groups: Sequence[Sequence[int]],
        low: int,
        high: int,
        advance: Advance,
    ) -> Floats:
        """Return the mean class probabilities of some rows over all snapshots."""
        total: Floats | None = None
        networks = 0
        for group in groups:
            runner.load(group)
            networks += len(runner.slots(group))
            at = 0
            for inputs, _ in self.rows.batches(low, high):
                for logits in runner.logits(group, inputs):
                    e = exponentials(logits)
                    if total is None:
                        total = np.zeros((high - low, e.shape[1]))
                    total[at : at + len(e)] += e / e.sum(axis=1, keepdims=True)
                    advance(len(e))
                at += row_count(inputs)
        assert total is not None
        return total / networks

    def _write(self, low: int, mean: Floats) -> dict[str, str]:
        """Write a part, and return the hashes of its files."""
        hashes, classes = {}, mean.shape[1]
        if classes > MOST:
            chosen = np.argpartition(mean, -_STORED, axis=1)[:, -_STORED:]
            mean = np.take_along_axis(mean, chosen, axis=1)
            name, numbers = _name(low, "classes"), chosen.astype(np.min_scalar_type(classes - 1))
            hashes[name] = _arrays.write(self.folder / name, numbers)
        hashes[_name(low)] = _arrays.write(self.folder / _name(low), mean.astype(np.float16))
        return hashes

    def open(self) -> "Targets":
        """Map the files of all processes, for `take`."""
        manifests = [self._read(path) for path in sorted(self.folder.glob("hashes-*.json"))]
        hashes = {name: sha for one in manifests for name, sha in one["hashes"].items()}
        classes = {one["classes"] for one in manifests}
        lows = sorted(int(match[1]) for name in hashes if (match := _VALUES.fullmatch(name)))
        self._starts = np.array(lows, dtype=np.int64)
        self._values = [self._map(_name(low), hashes) for low in lows]
        held = sum(map(len, self._values))
        if held != self.rows.n or len(classes) != 1:
            raise CorruptFile(
                f"{self.folder} must hold targets of {self.rows.n} rows, got {held}. "
                f"{_files.instruct(self._again)}"
            )
        self._classes: int = classes.pop()
        few = self._classes <= MOST
        self._chosen = [None if few else self._map(_name(low, "classes"), hashes) for low in lows]
        return self

    def take(self, index: Ints) -> Tensor:
        """Return the probabilities of some rows, (n, classes), float32."""
        part = np.searchsorted(self._starts, index, side="right") - 1
        every = np.empty((len(index), self._classes), dtype=np.float32)
        for number in np.unique(part):
            at = np.flatnonzero(part == number)
            rows = index[at] - self._starts[number]
            every[at] = self._spread(self._values[number][rows], self._chosen[number], rows)
        return torch.from_numpy(every / every.sum(axis=1, keepdims=True))

    def _spread(self, values: Array, chosen: Array | None, rows: Ints) -> Array:
        """Return all classes: those that are not stored share what is left evenly."""
        if chosen is None:
            return values
        stored = values.astype(np.float32)
        left = np.maximum(0, 1 - stored.sum(axis=1, keepdims=True))
        every = np.repeat(left / (self._classes - stored.shape[1]), self._classes, axis=1)
        np.put_along_axis(every, chosen[rows].astype(np.int64), stored, axis=1)
        return every

    def _read(self, path: Path) -> _Manifest:
        return _json.load(path, "a manifest of targets", _Manifest, self._again)

    def _map(self, name: str, hashes: dict[str, str]) -> Array:
        if name not in hashes:
            raise CorruptFile(
                f"{self.folder} must hash {name}, got no hash. {_files.instruct(self._again)}"
            )
        return _arrays.map_file(self.folder / name, hashes[name], self._again)


def epochs_from(snapshots: Snapshots, start: float) -> list[int]:
    """Return the epochs from a fraction of the training on."""
    epochs = np.array(snapshots.epochs)
    if not epochs.size:
        raise InvalidInput(
            f"`snapshots` must hold at least one snapshot, got none in {snapshots.path}. Check the "
            "path, or record some."
        )
    chosen: list[int] = epochs[choose(epochs, epochs.size, start)].tolist()
    return chosen


def _name(low: int, what: str = "values") -> str:
    return f"part-{low:09d}.{what}.npy"
