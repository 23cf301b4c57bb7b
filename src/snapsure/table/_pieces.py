"""A score table on disk.

One `.npy` per (κ, snapshot, shard of the points), and `table.json`, which names them. A table that
replaces another is written beside it, and counts from the moment that `table.json` does.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from snapsure import _files
from snapsure._types import Array
from snapsure.errors import CorruptFile, InvalidInput

PLAN = "plan.json"  # what a folder of scores holds the scores of
TABLE = "table.json"
RESERVED = ("labels", "logits", "y", "y_hat")
_FORMAT = "snapsure scores 1"
_INPUTS = "inputs"
_BESIDE = "pieces-2"  # no κ has this name
_WHOLE = re.compile(r"(?:table|plan)\.json")
_PIECE = re.compile(r"(?:all|epoch-\d{6,})\.\d{5,}\.npy|\d{5,}\.digest")

Layout = dict[str, Any]  # what `table.json` says


class TableWriter:
    """The files of a table: pieces in any order, and at the end the table's own file.

    They lie in the folder itself, or in a `place` in it, beside those that they replace.
    """

    def __init__(
        self, folder: Path, epochs: Sequence[int], shards: Sequence[int], place: str = ""
    ) -> None:
        self.folder, self.epochs, self.shards = folder, list(epochs), list(shards)
        self._place = folder / place

    def file(self, name: str, epoch: int | None, shard: int) -> Path:
        """Where a piece lies."""
        stem = "all" if epoch is None else f"epoch-{epoch:06d}"
        return self._place / name / f"{stem}.{shard:05d}.npy"

    def digest_file(self, shard: int) -> Path:
        """Where the digest of the inputs that a shard was scored of lies."""
        return self._place / _INPUTS / f"{shard:05d}.digest"

    def write_digest(self, shard: int, digest: str) -> None:
        """Note of which inputs a shard is scored."""
        path = self.digest_file(shard)
        _files.make_folder(path.parent)
        _files.write_bytes(path, digest.encode())

    def read_digest(self, shard: int) -> str | None:
        """Of which inputs a shard was scored, if that is known."""
        try:
            return self.digest_file(shard).read_text() or None
        except FileNotFoundError:
            return None

    def write(self, name: str, epoch: int | None, shard: int, values: Array) -> None:
        """Write a piece, whole or not at all."""
        path = self.file(name, epoch, shard)
        _files.make_folder(path.parent)
        _files.write_array(path, values)

    def read(self, name: str, epoch: int | None, shard: int) -> Array:
        """Map a piece into memory, after checking that it is whole."""
        path = self.file(name, epoch, shard)
        try:
            values: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise CorruptFile(
                f"{path} must be a whole piece of a score table, got one that cannot be read "
                f"({error}): delete it and score again, the rest is kept"
            ) from None
        if values.shape[:1] != (self.shards[shard],) or values.ndim != (
            2 if name == "logits" else 1
        ):
            raise CorruptFile(
                f"{path} must hold {self.shards[shard]} values, got shape {values.shape}: "
                "delete it and score again, the rest is kept"
            )
        return values

    def read_row(self, name: str, epoch: int | None) -> Array:
        """All shards of one snapshot."""
        return np.concatenate([self.read(name, epoch, i) for i in range(len(self.shards))])

    def read_all(self, name: str) -> Array:
        """All shards of all snapshots, (T, n)."""
        return np.stack([self.read_row(name, epoch) for epoch in self.epochs])

    def remove(self, names: Sequence[str], shard: int) -> None:
        """Remove the pieces of a shard."""
        numbered = [(name, epoch) for name in (*names, "labels") for epoch in self.epochs]
        for name, epoch in (*numbered, ("y_hat", None), ("y", None), ("logits", None)):
            self.file(name, epoch, shard).unlink(missing_ok=True)
        self.digest_file(shard).unlink(missing_ok=True)

    def flush(self) -> None:
        """Make the folders of the pieces survive a power cut."""
        _files.flush_folder(self._place)

    def remove_partial(self, names: Sequence[str]) -> None:
        """Remove what a crash left half-written, among the pieces of these names or beside them."""
        _files.remove_partial(self.folder, _WHOLE)
        for name in (*names, *RESERVED, _INPUTS):
            _files.remove_partial(self._place / name, _PIECE)

    def finish(
        self, names: Sequence[str], *, has_labels: bool, provenance: Mapping[str, Any]
    ) -> None:
        """Write the file that makes the folder a table."""
        told = described(names, self.epochs, self.shards, has_labels, provenance=provenance)
        _write_layout(self.folder, told)


@contextmanager
def replacing(folder: Path, layout: Layout) -> Iterator[TableWriter]:
    """Write a table's pieces; on leaving, they take the place of the table that is there.

    Killed at any moment, the old table or the new one is there, whole; what else is left of them,
    `table.json` names as `other`, and the next to replace it removes it.
    """
    old, new = layout_in(folder), layout
    if old is None and (folder / PLAN).exists():
        raise InvalidInput(
            f"`path` must be a new folder or one of a finished table, got {folder}, where "
            "scoring has not ended: choose another"
        )
    if old is not None:
        new = {**layout, "pieces": "" if old["pieces"] else _BESIDE}
        _files.remove_partial(folder, _WHOLE)
        _remove_pieces(folder, old.pop("other", None))
        _write_layout(folder, {**old, "other": new})
    writer = writer_of(folder, new)
    yield writer
    writer.flush()
    (folder / PLAN).unlink(missing_ok=True)  # the scores that it tells of are no more
    if old is not None:
        _write_layout(folder, {**new, "other": old})
        _remove_pieces(folder, old)
    _write_layout(folder, new)


def writer_of(folder: Path, layout: Layout) -> TableWriter:
    """The files of the table that a layout describes."""
    return TableWriter(folder, layout["epochs"], layout["shards"], layout["pieces"])


def described(
    names: Sequence[str],
    epochs: list[int],
    shards: list[int],
    has_labels: bool,
    *,
    has_logits: bool = False,
    provenance: Mapping[str, Any],
) -> Layout:
    """The layout of a table whose pieces lie in the folder itself."""
    return {
        "format": _FORMAT,
        "names": list(names),
        "epochs": epochs,
        "shards": shards,
        "has_labels": has_labels,
        "has_logits": has_logits,
        "pieces": "",
        "provenance": dict(provenance),
    }


def layout_in(folder: Path) -> Layout | None:
    """What `table.json` says, if there is one."""
    try:
        content = json.loads((folder / TABLE).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        content = None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise CorruptFile(f"{folder / TABLE} must name a score table, got something else")
    return {"pieces": "", "has_logits": False, "provenance": {}, **content}


def _write_layout(folder: Path, layout: Layout) -> None:
    """Replace `table.json`.

    `pieces` is the place of its pieces; `other` describes a table of which pieces may lie in the
    other place: the one that was replaced, or one that never came to be.
    """
    _files.write_bytes(folder / TABLE, json.dumps(layout, indent=1).encode())


def clear(folder: Path, names: Sequence[str] = ()) -> None:
    """Remove a table, or what scoring has left of one of these names, and nothing of others."""
    layout = layout_in(folder) or {}
    told = (layout, layout.get("other") or {})
    known = {*names, *RESERVED, _INPUTS}.union(*(part.get("names", ()) for part in told))
    for place in (folder, folder / _BESIDE):
        for path in (place / name for name in sorted(known)):
            _files.remove_partial(path, _PIECE)
            for file in path.iterdir() if path.is_dir() else ():
                if _PIECE.fullmatch(file.name):
                    file.unlink()
            _remove_empty(path)
    _remove_empty(folder / _BESIDE)
    for name in (TABLE, PLAN):
        (folder / name).unlink(missing_ok=True)


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _remove_pieces(folder: Path, layout: Layout | None) -> None:
    """Remove the pieces of a table that is no more, and folders that they leave empty."""
    if layout is None:
        return
    writer = writer_of(folder, layout)
    writer.remove_partial(layout["names"])
    for shard in range(len(writer.shards)):
        writer.remove(layout["names"], shard)
    place = folder / layout["pieces"]
    empty = [place / name for name in (*layout["names"], *RESERVED, _INPUTS)]
    for path in empty if place == folder else [*empty, place]:
        _remove_empty(path)
