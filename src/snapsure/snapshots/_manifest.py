"""The manifest of a store: the snapshots it holds, and the files about to be removed.

A file that the manifest does not name may be somebody's own. It is neither removed nor replaced,
unless its bytes prove that the store wrote it.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

from msgspec import Meta

from snapsure import _files, _json
from snapsure.errors import InvalidInput
from snapsure.snapshots import _weights
from snapsure.snapshots._adopt import Checkpoint, list_checkpoint_files
from snapsure.snapshots._lock import WRITER, WriterLock

MANIFEST = "manifest.json"
_FORMAT = "snapsure snapshots 1"
_SNAPSHOT = re.compile(r"epoch-([0-9]{1,19})(?:-again)?\.safetensors")
_WRITTEN = re.compile(
    rf"epoch-[0-9]{{6,}}(?:-again)?\.safetensors|{re.escape(MANIFEST)}|{re.escape(WRITER)}"
)


class Entry(TypedDict):
    """A snapshot's file. Its name is the store's own, because files may be removed by it."""

    file: Annotated[str, Meta(pattern=rf"\A(?:{_SNAPSHOT.pattern})\Z")]
    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    bytes: _json.Count


class _ManifestFile(TypedDict):
    """What `manifest.json` holds."""

    format: Literal["snapsure snapshots 1"]
    snapshots: dict[str, Entry]
    leaving: NotRequired[list[Entry]]


class Manifest(NamedTuple):
    """Snapshots by epoch, and removed files that may still be there after a crash."""

    entries: dict[int, Entry]
    leaving: list[Entry]


def read(folder: Path) -> Manifest | None:
    """Read the manifest of a folder, if it has one."""
    path, what = folder / MANIFEST, "a manifest of snapshots"
    remedy = f"restore it, or write it again by `snapsure rebuild {shlex.quote(str(folder))}`"
    try:
        content = _json.load(path, what, _ManifestFile, remedy)
    except FileNotFoundError:
        return None
    wrong = [
        f"`snapshots.{epoch}` must be of that epoch, got {entry['file']}"
        for epoch, entry in content["snapshots"].items()
        if str(_get_epoch(entry["file"])) != epoch
    ]
    held = {entry["file"] for entry in content["snapshots"].values()}
    wrong += [  # which would be removed
        f"`leaving` must name no snapshot that is held, got {entry['file']}"
        for entry in content.get("leaving", [])
        if entry["file"] in held
    ]
    if wrong:
        raise _json.corrupt(path, what, f"something else ({wrong[0]})", remedy)
    entries = {int(epoch): entry for epoch, entry in content["snapshots"].items()}
    return Manifest(entries, content.get("leaving", []))


def write(
    folder: Path, lock: WriterLock, entries: Mapping[int, Entry], leaving: Sequence[Entry] = ()
) -> tuple[bytes, Manifest]:
    """Replace the manifest, then remove the files that leave; return it and its bytes.

    The manifest names these files until it is replaced again: if a crash prevents their removal,
    the next writer removes them.
    """
    content: dict[str, Any] = {
        "format": _FORMAT,
        "snapshots": {str(epoch): entries[epoch] for epoch in sorted(entries)},
    }
    if leaving:
        content["leaving"] = list(leaving)
    text = _json.text(content)
    lock.replace(text)
    for entry in leaving:
        _files.remove(folder / entry["file"])
    return text, Manifest(dict(entries), list(leaving))


def finish_interrupted(folder: Path) -> None:
    """Remove what a crash left: temporary files, and files that were leaving."""
    manifest = read(folder)
    if manifest is None:
        return
    _files.remove_partial(folder, _WRITTEN)
    for entry in manifest.leaving:
        path = folder / entry["file"]
        same = path.is_file() and path.stat().st_size == entry["bytes"]
        if same and _files.sha256(path) == entry["sha256"]:  # not a later file of that name
            _files.remove(path)


def choose_name(folder: Path, epoch: int, gone: Sequence[Entry]) -> str:
    """Choose a file name for a snapshot; one that it replaces exists beside it for a moment.

    An unnamed file that a crash left there is replaced; any other is refused.
    """
    name = f"epoch-{epoch:06d}.safetensors"
    if any(entry["file"] == name for entry in gone):
        name = f"epoch-{epoch:06d}-again.safetensors"
    path = folder / name
    if path.exists() and not _weights.is_own_file(path):
        raise InvalidInput(
            f"`epoch` must have no other file in its place, got {path}, which this store did not "
            "write. Move it away."
        )
    return name


def refuse_lost_snapshots(folder: Path) -> None:
    """Refuse to write where checkpoints have no manifest: they may be somebody's only copy."""
    names = list_checkpoint_files(folder)
    if not names or (folder / MANIFEST).exists():  # another writer may have begun meanwhile
        return
    ours = [name for name in names if _SNAPSHOT.fullmatch(name)]
    first, *more = ours or names
    got = first + (f" and {len(more)} more" if more else "")
    rebuild = f"`snapsure rebuild {shlex.quote(str(folder))}` writes it again from them; "
    raise InvalidInput(
        f"{folder} must be a new folder or a store of snapshots, got {got} and no {MANIFEST}. "
        f"{rebuild if ours else ''}SnapshotStore.adopt reads them as they are. Or record into "
        "another folder."
    )


def rebuild_entries(folder: Path) -> dict[int, Entry]:
    """Make the entries of a lost manifest from the files: each is read and hashed."""
    found: dict[int, str] = {}
    for name in list_checkpoint_files(folder):
        epoch = _get_epoch(name)
        if epoch is None:
            raise InvalidInput(
                "`folder` must hold snapshots alone (epoch-1.safetensors, epoch-2.safetensors …), "
                f"got {name} in {folder}. Move it away."
            )
        if epoch in found:
            raise InvalidInput(
                f"`folder` must hold one snapshot of each epoch, got {found[epoch]} and {name} in "
                f"{folder}. Move away the one that you do not need."
            )
        found[epoch] = name
    if not found:
        raise InvalidInput(
            "`folder` must hold snapshots (epoch-1.safetensors, epoch-2.safetensors …), got none "
            f"in {folder}. Check the path."
        )

    entries: dict[int, Entry] = {}
    for epoch, name in sorted(found.items()):
        path = folder / name
        Checkpoint(path.stem, (path,)).read()  # refuses what is not whole
        entries[epoch] = {
            "file": name,
            "sha256": _files.sha256(path),
            "bytes": path.stat().st_size,
        }
    return entries


def _get_epoch(name: str) -> int | None:
    """Get the epoch in the name of a snapshot's file."""
    match = _SNAPSHOT.fullmatch(name)
    return None if match is None else int(match[1])
