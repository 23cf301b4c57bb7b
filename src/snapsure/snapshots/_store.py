"""A folder of snapshots: safetensors files, and a manifest with their hashes.

A file is written under a temporary name, flushed, renamed, and only then named in the manifest,
which is replaced in the same way. Wherever a crash happens, the manifest names whole files.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_args

from torch import Tensor, distributed, nn

from snapsure import _files, _validate
from snapsure._types import Precision
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.snapshots import _manifest, _weights
from snapsure.snapshots._adapters import Adapters
from snapsure.snapshots._adopt import READ, CheckpointFolder, describe_content, is_foreign
from snapsure.snapshots._base import Snapshots, refuse_missing
from snapsure.snapshots._lock import WriterLock, take_lock
from snapsure.snapshots._manifest import Entry, Manifest


class SnapshotStore(Snapshots):
    """Snapshots of one training, by epoch, in a folder.

    Parameters
    ----------
    path : str or Path
        The folder; the first snapshot creates it.

    Examples
    --------
    >>> import tempfile
    >>> store = SnapshotStore(tempfile.mkdtemp())
    >>> store.save(nn.Linear(3, 2), epoch=1)
    >>> store.epochs, sorted(store.load(1))
    ([1], ['bias', 'weight'])
    """

    def __init__(self, path: str | Path) -> None:
        self.path = _files.check_path(path, "path")
        self._lock: WriterLock | None = None
        self._known: tuple[bytes | None, Manifest | None] = (None, None)  # the manifest last read

    @staticmethod
    def adopt(
        folder: str | Path,
        *,
        model: nn.Module | Callable[[], nn.Module] | None = None,
        state: str | None = None,
        trust: bool = False,
    ) -> Snapshots:
        """Read what other tools left in a folder, without copying or changing it.

        Lightning's `.ckpt`, the `checkpoint-*` folders of Hugging Face's Trainer (sharded ones and
        adapters of `peft` too), plain `.pt`, `.pth`, `.pth.tar` and `.safetensors` state dicts,
        skorch's and timm's among them, Keras's `.weights.h5` and `.keras`. The result can be scored
        like a store, but is read-only.

        Epochs come from the files' names (`epoch=3`, `ep3`, `e3`) or their content; where an epoch
        has several checkpoints, they are numbered by steps (`step=50`, `it50`), else by a number or
        a date in the names. Weights are found under whatever prefix they have (`module.`, `model.`,
        `_orig_mod.`, the name of a LightningModule's attribute). A copy of another checkpoint
        (`best.pt`, `last.pt`) is left out; a file that is still being written is refused.

        Parameters
        ----------
        folder : str or Path
            The checkpoints of one training, or a folder above them.
        model : PeftModel, or a function that makes it, optional
            What adapters were trained in; its other weights are the base of them all. `score` and
            others pass their own model, if they get a path.
        state : str, optional
            Which weights, if the checkpoints hold several of the same architecture: the name of
            their entry ("model_ema", "ema.shadow"), or what precedes their names ("student"). A
            warning says so where there is a choice.
        trust : bool
            Read pickles that need more than tensors and everyday values (a class of yours, a whole
            network). Reading them can run any code that their author put in; a warning names each
            such file. Files may then also unpack to more than a hundred times their size.

        Raises
        ------
        InvalidInput
            If there are no checkpoints, their epochs are not known, or they are adapters that
            `model` does not fit.
        UnsafeFile
            If loading one could run code or fill the memory, and `trust` is not given.

        Examples
        --------
        >>> import tempfile, torch
        >>> folder = Path(tempfile.mkdtemp())
        >>> for epoch in (1, 2):
        ...     torch.save(nn.Linear(3, 2).state_dict(), folder / f"epoch-{epoch}.pt")
        >>> SnapshotStore.adopt(folder).epochs
        [1, 2]
        """
        if (_files.check_path(folder, "folder") / _manifest.MANIFEST).exists():
            raise InvalidInput(
                f"`folder` must hold checkpoints of other tools, got {folder}, which is a store "
                f"already. Open it by SnapshotStore({str(folder)!r})."
            )
        found = CheckpointFolder(folder, state=state, trust=trust)
        return Adapters(found, model) if found.adapter_configs else found

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path alone: other processes take their own lock."""
        return SnapshotStore, (self.path,)

    @property
    def epochs(self) -> list[int]:
        """Epochs of the snapshots, in order, including those that other processes add."""
        return sorted(self._entries())

    @property
    def nbytes(self) -> int:
        """Bytes that all snapshots take on the disk."""
        return sum(entry["bytes"] for entry in self._entries().values())

    def save(
        self,
        model_or_state_dict: nn.Module | Mapping[str, Tensor] | str | Path,
        epoch: int,
        *,
        dtype: Precision | None = None,
        trainable_only: bool | None = None,
        instead_of: Sequence[int] = (),
        trust: bool = False,
    ) -> None:
        """Save weights and buffers; an earlier snapshot of the epoch is replaced.

        Under `torch.distributed`, only rank 0 writes.

        Parameters
        ----------
        model_or_state_dict
            A network (also wrapped by DDP or `torch.compile`) or a state dict, on any device; or
            the path of a checkpoint (`.pt`, `.pth`, `.ckpt`, `.safetensors`) that holds one.
            Nothing in a pickle runs, unless `trust` is given.
        epoch : int
            0 or more, less than 2⁶³.
        dtype : "bfloat16", "float16" or "float32", optional
            "bfloat16" or "float16" halve the disk space: floating point numbers are rounded to it,
            and load in the type they had.
        trainable_only : bool, optional
            Leave out frozen weights (those without `requires_grad`), and save their hash instead:
            the snapshot loads only into a model that has them. Buffers are saved. By default,
            frozen weights are left out of networks with adapters of `peft`.
        instead_of : sequence of int
            Epochs to remove in the same step: the store never holds more, nor fewer if saving
            fails.
        trust : bool
            As for `adopt`, where a checkpoint's path is given.

        Raises
        ------
        InvalidInput
            If frozen weights are left out that differ from those of the other snapshots.
        StoreLocked
            If another process writes there.
        StorageError
            If the disk is full; what was there before is unchanged.
        UnsafeFile
            If loading the checkpoint could run code or fill the memory.
        """
        if not is_writer():
            return
        number = _validate.count(epoch, "epoch", least=0)
        if number >= 2**63:
            raise InvalidInput(
                f"`epoch` must be less than 2**63, got {number}. Use smaller numbers."
            )
        check_precision(dtype)
        part, base = _weights.select_trained(model_or_state_dict, trainable_only)
        state = _weights.get_state(part, trust=trust)
        with self._writing() as (lock, entries):
            gone = [entries.pop(held) for held in {number, *instead_of} if held in entries]
            self._refuse_other_base(base, entries)
            name = _manifest.choose_name(self.path, number, gone)
            with _files.replacing(self.path / name, lock.check) as file:
                sha256 = _weights.write(file, state, dtype, base)
                size = file.tell()
            entries[number] = {"file": name, "sha256": sha256(), "bytes": size}
            self._known = _manifest.write(self.path, lock, entries, leaving=gone)

    def load(self, epoch: int) -> dict[str, Tensor]:
        """Read a snapshot's state dict, on the CPU, after checking its hash.

        Raises
        ------
        InvalidInput
            If there is no snapshot of that epoch.
        CorruptFile
            If the file is missing, truncated or changed.
        """
        entry = self._entry(epoch)
        while True:
            try:
                return _weights.parse(self._read_file(epoch, entry), self.path / entry["file"])
            except CorruptFile:
                now = self._entry(epoch)
                if now == entry:
                    raise
                entry = now  # another process has replaced it

    def sha256(self, epoch: int) -> str:
        """Return the hash of a snapshot, as recorded when it was saved."""
        return str(self._entry(epoch)["sha256"])

    def base(self, epoch: int) -> str | None:
        """Return the hash of the frozen weights that a snapshot leaves out; None if it is whole."""
        return _weights.read_base(self.path / self._entry(epoch)["file"])

    def remove(self, epoch: int) -> None:
        """Remove a snapshot from the disk."""
        refuse_missing(epoch, self.epochs, self.path)
        with self._writing() as (lock, entries):
            gone = [entries.pop(epoch)] if epoch in entries else []
            self._known = _manifest.write(self.path, lock, entries, leaving=gone)

    def rewind(self, epoch: int) -> None:
        """Remove all snapshots after an epoch, before training resumes from there."""
        if not any(held > epoch for held in self.epochs):
            return
        with self._writing() as (lock, entries):
            gone = [entries.pop(held) for held in list(entries) if held > epoch]
            self._known = _manifest.write(self.path, lock, entries, leaving=gone)

    def check_writable(self) -> None:
        """Refuse a folder that cannot take snapshots, before there is one to save.

        Raises
        ------
        InvalidInput
            If it holds checkpoints of another tool, or snapshots without their manifest.
        StorageError
            If it cannot be written to.
        """
        if not is_writer():
            return
        if _manifest.read(self.path) is None:
            _manifest.refuse_lost_snapshots(self.path)
        there = self.path.exists()
        _files.make_writable(self.path)
        if not there:  # a recorder that never records leaves no folder
            with suppress(OSError):  # another process has begun to write there
                self.path.rmdir()

    def rebuild(self) -> None:
        """Write a lost or damaged manifest again, from the snapshots in the folder.

        Files are `epoch-000001.safetensors` and so on, as recorded, or `epoch-1.safetensors`.
        Each is read completely and hashed; none is changed.

        Raises
        ------
        InvalidInput
            If the folder has its manifest, holds no snapshots, two of an epoch, or other
            checkpoints too.
        CorruptFile
            For the first file that cannot be read.
        """
        try:
            held = _manifest.read(self.path)
        except CorruptFile:
            held = None
        if held is not None:
            raise InvalidInput(
                f"{self.path} must have lost its manifest to be rebuilt, got a whole one with "
                f"{len(held.entries)} snapshots. `.verify()` checks them."
            )
        entries = _manifest.rebuild_entries(self.path)
        lock = self._take_lock()
        with lock.turn:
            lock.begin(rebuild=True)
            self._known = _manifest.write(self.path, lock, entries)

    @contextmanager
    def _writing(self) -> Iterator[tuple[WriterLock, dict[int, Entry]]]:
        """Be the only writer, of all processes and threads; yield the current entries."""
        first = self._lock is None or not self._lock.is_ours
        if self._read() is None:
            _manifest.refuse_lost_snapshots(self.path)
        lock = self._take_lock()
        with lock.turn:
            lock.begin()
            if self._read() is None:
                _manifest.refuse_lost_snapshots(self.path)
                # So that no crash leaves snapshots without one.
                self._known = _manifest.write(self.path, lock, {})
            if first:
                _manifest.finish_interrupted(self.path)
            yield lock, self._entries()

    def _take_lock(self) -> WriterLock:
        if self._lock is None or not self._lock.is_ours:
            with _files.writing(f"snapshots to {self.path}"):
                self.path.mkdir(parents=True, exist_ok=True)
                self._lock = take_lock(self.path, self.path / _manifest.MANIFEST)
        return self._lock

    def _read(self) -> Manifest | None:
        """Read the manifest, and check it again only when it has changed."""
        path = self.path / _manifest.MANIFEST
        known, manifest = self._known
        content = _files.content_of(path)
        if content != known:
            manifest = _manifest.read(self.path)
            if content == _files.content_of(path):  # not replaced in between
                self._known = content, manifest
        return manifest

    def _entries(self) -> dict[int, Entry]:
        manifest = self._read()
        return {} if manifest is None else dict(manifest.entries)

    def _refuse_other_base(self, base: str | None, entries: Mapping[int, Entry]) -> None:
        """Refuse a snapshot that leaves out other frozen weights than the last one does."""
        if not entries:
            return
        last = max(entries)
        known = _weights.read_base(self.path / entries[last]["file"])
        if known != base:
            kinds = [f"base {one[:12]}" if one else "a whole network" for one in (known, base)]
            raise InvalidInput(
                f"A snapshot must leave out the same frozen weights as that of epoch {last} in "
                f"{self.path} ({kinds[0]}), got {kinds[1]}. If frozen weights change in training, "
                "record whole networks into a new folder: trainable_only=False."
            )

    def _entry(self, epoch: int) -> Entry:
        entries = self._entries()
        refuse_missing(epoch, entries, self.path)
        return entries[epoch]

    def _read_file(self, epoch: int, entry: Entry) -> bytes:
        """Read a snapshot's file, after comparing it with the manifest."""
        path = self.path / entry["file"]
        content = _files.content_of(path) if path.is_file() else None
        if content is None:
            got = "no file"
        elif len(content) != entry["bytes"]:
            got = f"{len(content)} bytes for {entry['bytes']}"
        elif hashlib.sha256(content).hexdigest() != entry["sha256"]:
            got = "other bytes (SHA-256 differs)"
        else:
            return content
        raise CorruptFile(
            f"Snapshot of epoch {epoch} ({path}) must be as it was saved, got {got}. Restore it "
            "from a copy, or `.remove` it."
        )


def check_precision(dtype: Precision | None) -> None:
    """Refuse a type that snapshots are not saved in."""
    if dtype is not None:
        _validate.choice(dtype, get_args(Precision), "dtype")


def open_snapshots(
    snapshots: Snapshots | str | Path, model: nn.Module | Callable[[], nn.Module] | None = None
) -> Snapshots:
    """Open the snapshots in a folder: a store's, or those that another tool left."""
    if isinstance(snapshots, Snapshots):
        return snapshots
    path = _files.check_path(snapshots, "snapshots")
    return SnapshotStore.adopt(path, model=model) if is_foreign(path) else SnapshotStore(path)


def refuse_empty(snapshots: Snapshots) -> None:
    """Refuse a source without snapshots, and say what is there instead."""
    if not snapshots.epochs:
        raise InvalidInput(
            f"`snapshots` must hold at least one snapshot, got none in {snapshots.path}"
            f"{describe_content(snapshots.path)}. Check the path, or record some; of other tools, "
            f"{READ} are read."
        )


def is_writer() -> bool:
    """Say whether this process writes: alone, or as rank 0 of `torch.distributed`."""
    together = distributed.is_available() and distributed.is_initialized()
    return not together or distributed.get_rank() == 0
