"""A score table on disk.

One `.npy` per (κ, snapshot, shard of the points), and `table.json`, which names them and has their
hashes. A table that replaces another is written beside it, and counts from the moment that
`table.json` does.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
from msgspec import Meta

from snapsure import _files, _json, _sealed
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
_AGAIN = "score again, the rest is kept; or restore it"
_RESTORE = "restore it, or delete the folder and score again"

Layout = dict[str, Any]  # what `table.json` says
_FolderName = Annotated[str, Meta(pattern=r"\A\w+\Z")]
_Numbers = Annotated[list[_json.Integer], Meta(min_length=1)]


class _Part(TypedDict):
    """One table of `table.json`."""

    format: Literal["snapsure scores 1"]
    names: Annotated[list[_FolderName], Meta(min_length=1)]
    epochs: _Numbers
    shards: _Numbers
    has_labels: bool
    has_logits: bool
    pieces: Literal["", "pieces-2"]
    provenance: dict[str, Any]
    hashes: dict[str, str]


class _TableFile(_Part):
    """What `table.json` holds."""

    other: NotRequired[_Part]


class _InputsFile(TypedDict):
    """What the digest of a shard's inputs holds."""

    inputs: str


class TableWriter:
    """The files of a table: pieces in any order, and at the end the table's own file.

    They lie in the folder itself, or in a `place` in it, beside those that they replace.
    """

    def __init__(
        self, folder: Path, epochs: Sequence[int], shards: Sequence[int], place: str = ""
    ) -> None:
        self.folder, self.epochs, self.shards = folder, list(epochs), list(shards)
        self.hashes: dict[str, str] = {}  # of pieces that are known, by their files' names
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
        _files.make_inner(path.parent)
        _files.write_bytes(path, _json.text({"inputs": digest}))

    def read_digest(self, shard: int) -> str | None:
        """Of which inputs a shard was scored, if that is known."""
        path = self.digest_file(shard)
        try:
            told = _json.load(path, "the digest of a shard's inputs", _InputsFile, _RESTORE)
        except (FileNotFoundError, CorruptFile):  # nobody knows: scored again, nothing is lost
            return None
        return told["inputs"] or None

    def write(self, name: str, epoch: int | None, shard: int, values: Array) -> None:
        """Write a piece, whole or not at all."""
        path = self.file(name, epoch, shard)
        _files.make_inner(path.parent)
        _sealed.write_array(path, values)
        self.hashes.pop(self._key(path), None)

    def read(self, name: str, epoch: int | None, shard: int) -> Array:
        """Read a piece, after checking that it is as it was written."""
        path = self.file(name, epoch, shard)
        values, found = _sealed.read_array(path, _AGAIN)
        known = self.hashes.get(self._key(path), found)
        if known != found:
            raise CorruptFile(
                f"{path} must be the piece that {TABLE} names, got another (its SHA-256 differs): "
                f"{_AGAIN}"
            )
        dimensions = 2 if name == "logits" else 1
        if values.shape[:1] != (self.shards[shard],) or values.ndim != dimensions:
            raise CorruptFile(
                f"{path} must hold {self.shards[shard]} values, got shape {values.shape}: {_AGAIN}"
            )
        return values

    def read_row(self, name: str, epoch: int | None) -> Array:
        """All shards of one snapshot."""
        return np.concatenate([self.read(name, epoch, i) for i in range(len(self.shards))])

    def read_all(self, name: str) -> Array:
        """All shards of all snapshots, (T, n)."""
        first = self.read_row(name, self.epochs[0])
        every = np.empty((len(self.epochs), *first.shape), first.dtype)
        every[0] = first
        ends = np.cumsum(self.shards)[:-1]
        for row, epoch in zip(every[1:], self.epochs[1:], strict=True):
            for shard, part in enumerate(np.split(row, ends)):
                piece = self.read(name, epoch, shard)
                if piece.dtype != part.dtype:
                    raise CorruptFile(
                        f"{self.file(name, epoch, shard)} must hold {part.dtype} as the others, "
                        f"got {piece.dtype}: {_AGAIN}"
                    )
                part[:] = piece
        return every

    def has_pieces(self, names: Sequence[str], shard: int) -> bool:
        """Whether anything of a shard is there."""
        return any(path.exists() for path in self._of_shard(names, shard))

    def _of_shard(self, names: Sequence[str], shard: int) -> Iterator[Path]:
        """Where the pieces of a shard lie, or would."""
        for name in (*names, "labels"):
            yield from (self.file(name, epoch, shard) for epoch in self.epochs)
        yield from (self.file(name, None, shard) for name in ("y_hat", "y", "logits"))

    def remove(self, names: Sequence[str], shard: int) -> None:
        """Remove the pieces of a shard."""
        with _files.writing(f"to {self.folder}"):
            for path in (*self._of_shard(names, shard), self.digest_file(shard)):
                _files.refuse_link(path.parent)
                path.unlink(missing_ok=True)

    def flush(self) -> None:
        """Make the folders of the pieces survive a power cut."""
        _files.flush_folder(self._place)

    def remove_partial(self, names: Sequence[str]) -> None:
        """Remove what a crash left half-written, among the pieces of these names or beside them."""
        _files.remove_partial(self.folder, _WHOLE)
        for name in (*names, *RESERVED, _INPUTS):
            _files.remove_partial(self._place / name, _PIECE)

    def hashed(self, layout: Layout) -> Layout:
        """A layout, with the hash of every piece that is there."""
        kinds: list[tuple[str, int | None]] = [
            (name, epoch) for name in (*layout["names"], "labels") for epoch in self.epochs
        ]
        kinds += [(name, None) for name in ("y_hat", *_further(layout))]
        every = [self.file(*kind, i) for kind in kinds for i in range(len(self.shards))]
        return {
            **layout,
            "hashes": {self._key(path): _sealed.sha256(path, _AGAIN) for path in every},
        }

    def _key(self, path: Path) -> str:
        """A piece's name in `hashes`."""
        return path.relative_to(self._place).as_posix()

    def finish(
        self, names: Sequence[str], *, has_labels: bool, provenance: Mapping[str, Any]
    ) -> None:
        """Write the file that makes the folder a table."""
        told = described(names, self.epochs, self.shards, has_labels, provenance=provenance)
        _write_layout(self.folder, self.hashed(told))


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
    new = writer.hashed(new)
    (folder / PLAN).unlink(missing_ok=True)  # the scores that it tells of are no more
    if old is not None:
        _write_layout(folder, {**new, "other": old})
        _remove_pieces(folder, old)
    _write_layout(folder, new)


def writer_of(folder: Path, layout: Layout) -> TableWriter:
    """The files of the table that a layout describes."""
    writer = TableWriter(folder, layout["epochs"], layout["shards"], layout["pieces"])
    writer.hashes = layout["hashes"]
    return writer


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
        "hashes": {},
    }


def _further(layout: Layout) -> list[str]:
    """Which columns of one value per point there are besides y_hat."""
    has = {"y": layout["has_labels"], "logits": layout["has_logits"]}
    return [name for name, there in has.items() if there]


def layout_in(folder: Path) -> Layout | None:
    """What `table.json` says, if there is one."""
    path = folder / TABLE
    try:
        return {**_json.load(path, "the description of a score table", _TableFile, _RESTORE)}
    except FileNotFoundError:
        return None


def _write_layout(folder: Path, layout: Layout) -> None:
    """Replace `table.json`.

    `pieces` is the place of its pieces; `other` describes a table of which pieces may lie in the
    other place: the one that was replaced, or one that never came to be.
    """
    _files.write_bytes(folder / TABLE, _json.text(layout))


def clear(folder: Path, names: Sequence[str] = ()) -> None:
    """Remove a table, or what scoring has left of one of these names, and nothing of others."""
    layout = layout_in(folder) or {}
    told = (layout, layout.get("other") or {})
    known = {*names, *RESERVED, _INPUTS}.union(*(part.get("names", ()) for part in told))
    with _files.writing(f"to {folder}"):
        for place in (folder, folder / _BESIDE):
            for path in (place / name for name in sorted(known)):
                _files.refuse_link(path)
                _files.remove_partial(path, _PIECE)
                for file in path.iterdir() if path.is_dir() else ():
                    if _PIECE.fullmatch(file.name):
                        file.unlink(missing_ok=True)
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
