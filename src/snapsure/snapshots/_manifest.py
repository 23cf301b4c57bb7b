"""The manifest of a store: what it holds, and what is on its way out; and the files it is made of.

Whatever the manifest does not name may be somebody's own, and is neither removed nor replaced,
unless its bytes prove that the store wrote it.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from snapsure import _files, _json
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.snapshots import _weights
from snapsure.snapshots._adopted import Checkpoint, checkpoint_names
from snapsure.snapshots._lock import WRITER, WriterLock

MANIFEST = "manifest.json"
_FORMAT = "snapsure snapshots 1"
_SNAPSHOT = re.compile(r"epoch-([0-9]{1,18})(?:-again)?\.safetensors")
_WRITTEN = re.compile(
    rf"epoch-[0-9]{{6,}}(?:-again)?\.safetensors|{re.escape(MANIFEST)}|{re.escape(WRITER)}"
)

Entry = dict[str, Any]
# Files are named as the store names them: what a manifest says may be removed.
_ENTRY: Entry = {"file": _SNAPSHOT, "sha256": re.compile("[0-9a-f]{64}"), "bytes": int}
_SCHEMA: Entry = {"format": {_FORMAT}, "snapshots": {str: _ENTRY}, "leaving?": [_ENTRY]}


class Manifest(NamedTuple):
    """Snapshots by epoch, and files that were let go of but may still lie there after a crash."""

    entries: dict[int, Entry]
    leaving: list[Entry]


def read(folder: Path) -> Manifest | None:
    """The manifest of a folder, if it has one."""
    path, what = folder / MANIFEST, "a manifest of snapshots"
    remedy = f"restore it, or make it anew by `snapsure rebuild {shlex.quote(str(folder))}`"
    try:
        content = _json.load(path, what, _SCHEMA, remedy)
    except FileNotFoundError:
        return None
    wrong = [
        f"`snapshots.{epoch}` must be of that epoch, got {entry['file']}"
        for epoch, entry in content["snapshots"].items()
        if str(_epoch_of(entry["file"])) != epoch
    ]
    held = {entry["file"] for entry in content["snapshots"].values()}
    wrong += [  # which would be removed
        f"`leaving` must name no snapshot that is held, got {entry['file']}"
        for entry in content.get("leaving", [])
        if entry["file"] in held
    ]
    if wrong:
        raise CorruptFile(f"{path} must be {what}, got something else ({wrong[0]}): {remedy}")
    entries = {int(epoch): entry for epoch, entry in content["snapshots"].items()}
    return Manifest(entries, content.get("leaving", []))


def write(
    folder: Path, lock: WriterLock, entries: Mapping[int, Entry], leaving: Sequence[Entry] = ()
) -> tuple[bytes, Manifest]:
    """Replace the manifest, and then remove the files that leave; gives it, and its bytes.

    They are named until the next time: if a crash comes between, the next writer removes them.
    """
    content: dict[str, Any] = {
        "format": _FORMAT,
        "snapshots": {str(epoch): entries[epoch] for epoch in sorted(entries)},
    }
    if leaving:
        content["leaving"] = list(leaving)
    written = _json.text(content)
    lock.replace(written)
    for entry in leaving:
        _files.remove(folder / entry["file"])
    return written, Manifest(dict(entries), list(leaving))


def clear_up(folder: Path, lock: WriterLock) -> None:
    """Finish what a crash interrupted: remove temporaries, and files that were leaving."""
    manifest = read(folder)
    if manifest is None:
        return
    if lock.works:  # else they may be those of a second writer
        _files.remove_partial(folder, _WRITTEN)
    for entry in manifest.leaving:
        path = folder / entry["file"]
        same = path.is_file() and path.stat().st_size == entry["bytes"]
        if same and _files.sha256(path) == entry["sha256"]:  # not what came under its name since
            _files.remove(path)


def free_name(folder: Path, epoch: int, gone: Sequence[Entry]) -> str:
    """A file name for a snapshot, which may be replacing another: both exist for a moment.

    What a crash left there unnamed is replaced; anything else is refused.
    """
    name = f"epoch-{epoch:06d}.safetensors"
    if any(entry["file"] == name for entry in gone):
        name = f"epoch-{epoch:06d}-again.safetensors"
    path = folder / name
    if path.exists() and not _weights.written_by_us(path):
        raise InvalidInput(
            f"`epoch` must have no file of others in its place, got {path}, which this store did "
            "not write: move it away"
        )
    return name


def refuse_lost_snapshots(folder: Path) -> None:
    """Refuse to write where checkpoints lie without a manifest: they may be all there is left."""
    names = checkpoint_names(folder) if folder.is_dir() else []
    if not names:
        return
    ours = [name for name in names if _SNAPSHOT.fullmatch(name)]
    adopt = "SnapshotStore.adopt reads them as they are"
    remedy = f"`snapsure rebuild {shlex.quote(str(folder))}` makes it one from them, {adopt}"
    raise InvalidInput(
        f"{folder} must be a new folder or a store of snapshots, got {_counted(ours or names)} and "
        f"no {MANIFEST}: {remedy if ours else adopt}; or record into another folder"
    )


def rebuilt(folder: Path) -> dict[int, Entry]:
    """The entries of a manifest that was lost, from the files: each is read and hashed."""
    names = checkpoint_names(folder) if folder.is_dir() else []
    found: dict[int, str] = {}
    for name in names:
        epoch = _epoch_of(name)
        if epoch is None:
            raise InvalidInput(
                f"`folder` must hold snapshots alone (epoch-1.safetensors, epoch-2.safetensors …), "
                f"got {name} in {folder}: move it away"
            )
        if epoch in found:
            raise InvalidInput(
                f"`folder` must hold one snapshot of each epoch, got {found[epoch]} and {name} in "
                f"{folder}: move the one away that is not wanted"
            )
        found[epoch] = name
    if not found:
        raise InvalidInput(
            "`folder` must hold snapshots (epoch-1.safetensors, epoch-2.safetensors …), got none "
            f"in {folder}: check the path"
        )
    return {epoch: _entry(folder / name) for epoch, name in sorted(found.items())}


def _epoch_of(name: str) -> int | None:
    """The epoch that a snapshot's file is named after."""
    match = _SNAPSHOT.fullmatch(name)
    return None if match is None else int(match[1])


def _entry(path: Path) -> Entry:
    Checkpoint(path.stem, (path,)).state()  # refuses what is not whole
    return {"file": path.name, "sha256": _files.sha256(path), "bytes": path.stat().st_size}


def _counted(names: Sequence[str]) -> str:
    more = len(names) - 1
    return names[0] if not more else f"{names[0]} and {more} more"
