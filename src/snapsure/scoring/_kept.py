"""What is scored of a shard before all of it is: on disk every half minute, so that it outlives us.

Pieces are too large to lose where a network is slow, and must not depend on how fast it is: the
same input gives the same files. So the rows that are done wait beside them.
"""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from snapsure import _files, _sealed
from snapsure._types import Array

EVERY = 30.0  # seconds
_DIGEST = "inputs digest"  # no κ has this name

Columns = dict[str, Array]


class _Rows(NamedTuple):
    """The first rows of a shard under one snapshot, and the digest of their inputs."""

    columns: Columns
    digest: str

    @property
    def stop(self) -> int:
        """The row after them."""
        return len(self.columns["labels"])


class OtherRows(Exception):
    """The rows that were kept are of other inputs."""


class Kept:
    """Columns of a shard's rows under some snapshots, batch by batch.

    Parameters
    ----------
    folder : path
        Of this shard alone.
    epochs : ints
        The snapshots.
    names : strs
        Of the columns.
    """

    def __init__(self, folder: Path, epochs: Sequence[int], names: Sequence[str]) -> None:
        self._folder, self._names = folder, names
        self._old = {epoch: old for epoch in epochs if (old := self._read(epoch)) is not None}
        self._parts: dict[int, list[Columns]] = {epoch: [] for epoch in epochs}
        self._digests = dict.fromkeys(epochs, "")
        self._last = time.monotonic()

    def known(self, epoch: int, at: int, rows: int) -> Columns | None:
        """Columns of some rows, if an interrupted run has left them."""
        old = self._old.get(epoch)
        if old is None or old.stop < at + rows:
            return None
        return {name: values[at : at + rows] for name, values in old.columns.items()}

    def add(self, epoch: int, columns: Columns, stop: int, digest: str) -> None:
        """Take the next batch of a snapshot, the digest being that of all rows up to its end.

        Raises
        ------
        OtherRows
            If it ends what an interrupted run has left, of other inputs.
        """
        old = self._old.get(epoch)
        if old is not None and old.stop == stop and old.digest != digest:
            raise OtherRows
        self._parts[epoch].append(columns)
        self._digests[epoch] = digest

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() - self._last >= EVERY

    def write(self) -> None:
        """Put what is there on disk."""
        _files.make_folder(self._folder)
        for epoch, parts in self._parts.items():
            if parts:
                with _sealed.replacing(self._file(epoch)) as file:
                    content = {**self._joined(parts), _DIGEST: np.array(self._digests[epoch])}
                    np.savez(file, allow_pickle=False, **content)
        self._last = time.monotonic()

    def columns(self) -> dict[int, Columns]:
        """All rows, by snapshot."""
        return {epoch: self._joined(parts) for epoch, parts in self._parts.items()}

    def forget(self) -> None:
        """Remove what was written."""
        for epoch in self._parts:
            self._file(epoch).unlink(missing_ok=True)
        if self._folder.is_dir() and not any(self._folder.iterdir()):
            shutil.rmtree(self._folder, ignore_errors=True)

    def _joined(self, parts: Sequence[Columns]) -> Columns:
        return {name: np.concatenate([part[name] for part in parts]) for name in self._names}

    def _read(self, epoch: int) -> _Rows | None:
        """What was written, if it is whole."""
        try:
            _sealed.check(self._file(epoch), "")
            _files.refuse_packed_bomb(self._file(epoch), "")
            with self._file(epoch).open("rb") as kept, np.load(kept, allow_pickle=False) as file:
                columns = {name: file[name] for name in self._names}
                digest = str(file[_DIGEST])
        except Exception:  # a file that is not there, or of which anything is damaged
            return None
        same = len({len(values) for values in columns.values()}) == 1
        return _Rows(columns, digest) if same else None

    def _file(self, epoch: int) -> Path:
        return self._folder / f"epoch-{epoch:06d}.npz"
