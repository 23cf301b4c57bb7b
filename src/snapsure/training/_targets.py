"""What the snapshots believe, on the mean, of every training point: a student's targets.

They are computed once, each batch being read once for all snapshots in memory, and lie in files,
part by part, as float16: all classes where they are few, else the most probable ones.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from snapsure import _files, _sealed
from snapsure._spacing import choose
from snapsure._types import Array, Floats, Ints
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.kappas._base import exponentials
from snapsure.networks._data import Rows, first_rows, row_count
from snapsure.networks._network import Network, not_taken, private_copy
from snapsure.networks._replay import cloned
from snapsure.snapshots._base import Snapshots

_PART = 1 << 12  # rows of a file …
_LONG_PART = 1 << 16  # … where snapshots do not fit into memory, and are loaded anew for each
MOST = 256  # classes that are all kept; of more …
_KEPT = 64  # … so many

_WRITTEN = re.compile(r"part-\d{9}\.(values|classes)\.npy")

Advance = Callable[[int], None]


class Slot(NamedTuple):
    """One snapshot of one member."""

    member: Snapshots
    epoch: int


class Targets:
    """Mean class probabilities of some snapshots, by row.

    Parameters
    ----------
    folder : path
        For the files; those that are there are kept.
    rows : Rows
        The points.
    """

    def __init__(self, folder: Path, rows: Rows) -> None:
        self.folder, self.rows = folder, rows
        self._classes = 0

    def compute(
        self,
        model: nn.Module,
        slots: Sequence[Slot],
        memory: int,
        advance: Advance,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        """What is missing of them; `advance` is told of rows times snapshots.

        Of several processes, each does every so many of the parts.
        """
        _files.make_folder(self.folder)
        if world == 1:
            _files.remove_partial(self.folder, _WRITTEN)
        bytes_each = sum(value.nbytes for value in model.state_dict().values())
        size = max(1, memory // max(1, bytes_each))
        groups = [slots[i : i + size] for i in range(0, len(slots), size)]
        networks: list[Network] = []
        length = _whole_batches(_PART if len(groups) == 1 else _LONG_PART, self.rows.batch_size)
        for low in range(0, self.rows.n, length):
            high = min(low + length, self.rows.n)
            mine = low // length % world == rank
            if mine and not self._file(low).exists():
                mean = self._mean(model, groups, networks, low, high, advance)
                self._write(low, mean)
            else:
                advance((high - low) * len(slots))

    def _mean(
        self,
        model: nn.Module,
        groups: Sequence[Sequence[Slot]],
        networks: list[Network],
        low: int,
        high: int,
        advance: Advance,
    ) -> Floats:
        total: Floats | None = None
        for group in groups:
            if len(groups) > 1 or not networks:
                self._load(model, group, networks)
            at = 0
            for inputs, _ in self.rows.batches(low, high):
                for network in networks[: len(group)]:
                    with torch.inference_mode():
                        e = exponentials(network.run(inputs).logits)
                    if total is None:
                        total = np.zeros((high - low, e.shape[1]))
                    total[at : at + len(e)] += e / e.sum(axis=1, keepdims=True)
                    advance(len(e))
                at += row_count(inputs)
        assert total is not None
        return total / sum(map(len, groups))

    def _load(self, model: nn.Module, group: Sequence[Slot], networks: list[Network]) -> None:
        sample = cloned(first_rows(next(iter(self.rows.batches(0, min(self.rows.n, 2))))[0]))
        for i, slot in enumerate(group):
            module = private_copy(model) if i == len(networks) else networks[i].module
            slot.member.load_into(module, slot.epoch)
            if i < len(networks):
                continue
            try:
                networks.append(Network(module, sample))
            except (RuntimeError, TypeError) as error:
                raise not_taken(self.rows.name, sample, error) from error

    def _write(self, low: int, mean: Floats) -> None:
        classes = mean.shape[1]
        if classes > MOST:
            chosen = np.argpartition(mean, -_KEPT, axis=1)[:, -_KEPT:]
            mean = np.take_along_axis(mean, chosen, axis=1)
            small = np.min_scalar_type(classes - 1)
            _sealed.write_array(self._file(low, "classes"), chosen.astype(small))
        _sealed.write_array(self._file(low), mean.astype(np.float16))

    def open(self, classes: int) -> "Targets":
        """Map the files, for `take`; `classes` are those of the network."""
        lows = sorted(int(path.name[5:14]) for path in self.folder.glob("part-*.values.npy"))
        self._starts = np.array(lows, dtype=np.int64)
        again = f"remove {self.folder}, and run again"
        self._values = [_sealed.map_array(self._file(low), again) for low in lows]
        few = classes <= MOST
        self._chosen = [
            None if few else _sealed.map_array(self._file(low, "classes"), again) for low in lows
        ]
        self._classes = classes
        held = sum(map(len, self._values))
        width = classes if few else _KEPT
        if held != self.rows.n or any(part.shape[1] != width for part in self._values):
            raise CorruptFile(
                f"{self.folder} must hold targets of {self.rows.n} rows and {classes} classes, got "
                f"{held} rows or other columns: remove it, and run again"
            )
        return self

    def take(self, index: Ints) -> Tensor:
        """Probabilities of some rows, (n, classes), float32."""
        part = np.searchsorted(self._starts, index, side="right") - 1
        found = np.empty((len(index), self._classes), dtype=np.float32)
        for number in np.unique(part):
            at = np.flatnonzero(part == number)
            rows = index[at] - self._starts[number]
            found[at] = self._spread(self._values[number][rows], self._chosen[number], rows)
        return torch.from_numpy(found / found.sum(axis=1, keepdims=True))

    def _spread(self, values: Array, chosen: Array | None, rows: Ints) -> Array:
        """All classes: those that were not kept share what is left evenly."""
        if chosen is None:
            return values
        kept = values.astype(np.float32)
        left = np.maximum(0, 1 - kept.sum(axis=1, keepdims=True))
        every = np.repeat(left / (self._classes - kept.shape[1]), self._classes, axis=1)
        np.put_along_axis(every, chosen[rows].astype(np.int64), kept, axis=1)
        return every

    def _file(self, low: int, what: str = "values") -> Path:
        return self.folder / f"part-{low:09d}.{what}.npy"


def _whole_batches(rows: int, batch: int) -> int:
    return max(1, rows // batch) * batch


def slots_of(snapshots: Snapshots, start: float) -> list[Slot]:
    """Every member's snapshot of each epoch from a fraction of the training on."""
    held = np.array(snapshots.epochs)
    if not held.size:
        raise InvalidInput(
            f"`snapshots` must hold at least one snapshot, got none in {snapshots.path}: "
            "check the path, or record some"
        )
    epochs = held[choose(held, held.size, start)].tolist()
    return [Slot(member, epoch) for epoch in epochs for member in snapshots.members]
