"""What the snapshots believe, on the mean, of every training point: a student's targets.

They are computed once, each batch being read once for all snapshots in memory, and lie in files,
part by part, as float16: all classes where they are few, else the most probable ones.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from snapsure import _files, _sealed
from snapsure._spacing import choose
from snapsure._types import Array, Floats, Ints
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.networks._data import Rows, row_count
from snapsure.networks._forward import exponentials
from snapsure.networks._runner import Runner, group_epochs
from snapsure.snapshots._base import Snapshots

_PART = 1 << 12  # rows of a file …
_LONG_PART = 1 << 16  # … where snapshots do not fit into memory, and are loaded anew for each
MOST = 256  # classes that are all kept; of more …
_KEPT = 64  # … so many

_WRITTEN = re.compile(r"part-\d{9}\.(values|classes)\.npy")

Advance = Callable[[int], None]


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
            _files.remove_partial(self.folder, _WRITTEN)
        members = snapshots.members
        groups = group_epochs(model, epochs, len(members), memory)
        runner = Runner(model, members, epochs, name=self.rows.name)
        rows = _PART if len(groups) == 1 else _LONG_PART
        length = max(1, rows // self.rows.batch_size) * self.rows.batch_size
        for low in range(0, self.rows.n, length):
            high = min(low + length, self.rows.n)
            if low // length % world == rank and not self._file(low).exists():
                self._write(low, self._mean(runner, groups, low, high, advance))
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
