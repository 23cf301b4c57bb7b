"""A score table on disk.

One `.npy` file per (κ, snapshot, shard of the examples), and the manifest `table.json`, which has
the SHA-256 of each of them and of itself. A table that replaces another is written beside it, and
counts from the moment that `table.json` names it.
"""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
from msgspec import Meta

from snapsure import _arrays, _files, _json
from snapsure._types import Array
from snapsure.errors import CorruptFile, InvalidInput

TABLE = "table.json"
# What a table may have once per example, and what `table.json` calls having it.
_HAS = {
    "y": "has_labels",
    "logits": "has_logits",
    "final": "has_final",
    "averaged": "has_averaged",
}
RESERVED = tuple(sorted([*_HAS, "labels", "y_hat"]))
_FORMAT = "snapsure scores 2"
_BESIDE = "pieces-2"  # no κ has this name
_MANIFEST = re.compile(re.escape(TABLE))
_PIECE = re.compile(r"(?:all|epoch-\d{6,})\.\d{5,}\.npy")
_AGAIN = "score again (everything else is kept), or restore it"
_RESTORE = "restore it, or delete the folder and score again"

Layout = dict[str, Any]  # the content of `table.json`
_FolderName = Annotated[str, Meta(pattern=r"\A\w+\Z")]
_Shard = Annotated[str, Meta(pattern=r"\A\d{1,9}\Z")]
_Rows = Annotated[int, Meta(ge=1, le=2**63 - 1)]


class _Part(TypedDict):
    """One table of `table.json`."""

    format: Literal["snapsure scores 2"]
    finished: bool
    names: Annotated[list[_FolderName], Meta(min_length=1)]
    epochs: Annotated[list[_json.Integer], Meta(min_length=1)]
    shards: Annotated[list[_Rows], Meta(min_length=1)]
    has_labels: bool
    has_logits: bool
    has_final: bool
    has_averaged: bool
    place: Literal["", "pieces-2"]
    provenance: dict[str, Any]
    inputs: dict[_Shard, str]
    hashes: dict[str, str]


class _TableFile(_Part):
    """What `table.json` holds."""

    other: NotRequired[_Part]


def make_layout(
    names: Sequence[str],
    epochs: Sequence[int],
    shards: Sequence[int],
    columns: Container[str],
    provenance: Mapping[str, Any],
    *,
    finished: bool = True,
) -> Layout:
    """Describe a table whose pieces lie in the folder itself, none of them written yet."""
    return {
        "format": _FORMAT,
        "finished": finished,
        "names": list(names),
        "epochs": list(epochs),
        "shards": list(shards),
        **{has: column in columns for column, has in _HAS.items()},
        "place": "",
        "provenance": dict(provenance),
        "inputs": {},  # by shard, the digest of the examples that it was scored on
        "hashes": {},  # by file, the SHA-256
    }


def list_columns(layout: Layout) -> list[str]:
    """List what a table has once per example."""
    return ["y_hat", *(column for column, has in _HAS.items() if layout[has])]


def read_layout(folder: Path) -> Layout | None:
    """Read `table.json`, or return None if there is none."""
    try:
        return {**_json.load(folder / TABLE, "the manifest of a score table", _TableFile, _RESTORE)}
    except FileNotFoundError:
        return None


def write_layout(folder: Path, layout: Layout, *, durable: bool = True) -> None:
    """Replace `table.json`.

    `other` describes a table of which pieces may lie in the other place: the one that was
    replaced, or one that was never finished.
    """
    _files.write_bytes(folder / TABLE, _json.text(layout), durable=durable)


class Pieces:
    """The files of a table: pieces in any order. Their hashes go into its layout.

    `durable` is whether pieces that are written must survive a power cut.
    """

    def __init__(self, folder: Path, layout: Layout, *, durable: bool = True) -> None:
        self.folder, self.layout, self.durable = folder, layout, durable
        self.epochs: list[int] = layout["epochs"]
        self.shards: list[int] = layout["shards"]
        self.hashes: dict[str, str] = layout["hashes"]
        self._place = folder / layout["place"]

    @staticmethod
    def key(name: str, epoch: int | None, shard: int) -> str:
        """Return the name of a piece's file: the epoch is None for one value per example."""
        return f"{name}/{'all' if epoch is None else f'epoch-{epoch:06d}'}.{shard:05d}.npy"

    def write(self, name: str, epoch: int | None, shard: int, values: Array) -> None:
        """Write a piece, whole or not at all."""
        key = self.key(name, epoch, shard)
        _files.make_inner((self._place / key).parent)
        self.hashes[key] = _arrays.write(self._place / key, values, durable=self.durable)

    def read(self, name: str, epoch: int | None, shard: int) -> Array:
        """Read a piece, after comparing it with the manifest."""
        key = self.key(name, epoch, shard)
        if key not in self.hashes:
            raise CorruptFile(
                f"{self.folder / TABLE} must name {key}, got no hash. {_files.instruct(_AGAIN)}"
            )
        return self.read_new(name, epoch, shard)

    def read_new(self, name: str, epoch: int | None, shard: int) -> Array:
        """Read a piece that another process may have written since the manifest was read."""
        key = self.key(name, epoch, shard)
        values = _arrays.read(self._place / key, self.hashes.get(key), _AGAIN)
        dimensions = 2 if name in ("averaged", "final", "logits") else 1
        if values.shape[:1] != (self.shards[shard],) or values.ndim != dimensions:
            raise CorruptFile(
                f"{self._place / key} must hold {self.shards[shard]} values, got shape "
                f"{values.shape}. {_files.instruct(_AGAIN)}"
            )
        return values

    def read_row(self, name: str, epoch: int | None) -> Array:
        """Read all shards of one snapshot."""
        return np.concatenate([self.read(name, epoch, i) for i in range(len(self.shards))])

    def read_all(self, name: str) -> Array:
        """Read all shards of all snapshots, (T, n)."""
        first = self.read_row(name, self.epochs[0])
        every = np.empty((len(self.epochs), *first.shape), first.dtype)
        every[0] = first
        ends = np.cumsum(self.shards)[:-1]
        for row, epoch in zip(every[1:], self.epochs[1:], strict=True):
            for shard, part in enumerate(np.split(row, ends)):
                piece = self.read(name, epoch, shard)
                if piece.dtype != part.dtype:
                    raise CorruptFile(
                        f"{self._place / self.key(name, epoch, shard)} must hold {part.dtype} as "
                        f"the others, got {piece.dtype}. {_files.instruct(_AGAIN)}"
                    )
                part[:] = piece
        return every

    def flush(self) -> None:
        """Make the folders of the pieces survive a power cut."""
        _files.flush_folder(self._place)

    def remove(self) -> None:
        """Remove the pieces, what a crash left half-written among them, and empty folders."""
        with _files.writing(f"to {self.folder}"):
            for name in (*self.layout["names"], *RESERVED):
                folder = self._place / name
                _files.refuse_link(folder)
                _files.remove_partial(folder, _PIECE)
                for file in folder.glob("*"):
                    if _PIECE.fullmatch(file.name):
                        file.unlink(missing_ok=True)
                _remove_if_empty(folder)
            if self._place != self.folder:
                _remove_if_empty(self._place)

    def remove_partial(self) -> None:
        """Remove what a crash left half-written."""
        _files.remove_partial(self.folder, _MANIFEST)
        for name in (*self.layout["names"], *RESERVED):
            _files.remove_partial(self._place / name, _PIECE)


@contextmanager
def replace_table(folder: Path, layout: Layout) -> Iterator[Pieces]:
    """Write a table's pieces; on leaving, they replace the table that is there.

    Killed at any moment, the old table or the new one is there, whole. `table.json` names what is
    left of the other one, and the next to replace it removes that.
    """
    old, new = read_layout(folder), layout
    if old is not None and not old["finished"]:
        raise InvalidInput(
            f"`path` must be a new folder or one of a finished table, got {folder}, where scoring "
            "has not ended. Choose another folder."
        )
    if old is not None:
        new = {**layout, "place": "" if old["place"] else _BESIDE}
        _files.remove_partial(folder, _MANIFEST)
        if "other" in old:
            Pieces(folder, old.pop("other")).remove()
        write_layout(folder, {**old, "other": new})
    pieces = Pieces(folder, new)
    yield pieces
    pieces.flush()
    if old is not None:
        write_layout(folder, {**new, "other": old})
        Pieces(folder, old).remove()
    write_layout(folder, new)


def clear_table(folder: Path) -> None:
    """Remove a table, finished or not. Other files stay."""
    layout = read_layout(folder)
    if layout is None:
        return
    for part in (layout, layout.get("other", layout)):
        for place in ("", _BESIDE):
            Pieces(folder, {**part, "place": place}).remove()
    with _files.writing(f"to {folder}"):
        (folder / TABLE).unlink(missing_ok=True)


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
