"""A folder of snapshots: safetensors files, and a manifest with their hashes.

A file is written under a temporary name, flushed, renamed, and only then entered in the manifest,
which is replaced in the same way. Whatever happens in between, the manifest names whole files.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn

from snapsure import _files, _validate
from snapsure.errors import CorruptFile, InvalidInput, StorageError, StoreLocked
from snapsure.snapshots import _weights
from snapsure.snapshots._adopted import Adopted, is_foreign
from snapsure.snapshots._base import Snapshots, unknown_epoch
from snapsure.snapshots._lock import WriterLock, lock

_MANIFEST = "manifest.json"
_FORMAT = "snapsure snapshots 1"
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}

Entry = dict[str, Any]


class SnapshotStore(Snapshots):
    """Snapshots of one training, by epoch, in a folder.

    Parameters
    ----------
    path : str or Path
        The folder; it is made when the first snapshot is saved.

    Examples
    --------
    >>> import tempfile
    >>> store = SnapshotStore(tempfile.mkdtemp())
    >>> store.save(nn.Linear(3, 2), epoch=1)
    >>> store.epochs, sorted(store.load(1))
    ([1], ['bias', 'weight'])
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock: WriterLock | None = None

    @staticmethod
    def adopt(folder: str | Path, *, prefix: str | None = None) -> Snapshots:
        """Read what other tools left in a folder, without copying or changing it.

        Lightning's `.ckpt`, the `checkpoint-*` folders of Hugging Face's Trainer (sharded too),
        plain `.pt`, `.pth` and `.safetensors` state dicts, Keras's `.weights.h5`. What comes back
        can be scored like a store, and not be written to.

        Epochs are taken from the names as they stand there, or from inside; where an epoch has
        several checkpoints, the steps are. Weights are found under whatever prefix they have
        (`module.`, `model.`, `_orig_mod.`, the name of a LightningModule's attribute).

        Parameters
        ----------
        folder : str or Path
            The checkpoints of one training, or a folder above them.
        prefix : str, optional
            Which network, if the checkpoints hold several of the same architecture.

        Raises
        ------
        InvalidInput
            If there are no checkpoints, or their epochs cannot be told.
        UnsafeFile
            If loading one could run code: pickles are read with `weights_only=True`.

        Examples
        --------
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for epoch in (1, 2):
        ...     torch.save(nn.Linear(3, 2).state_dict(), folder / f"epoch-{epoch}.pt")
        >>> SnapshotStore.adopt(folder).epochs
        [1, 2]
        """
        if (Path(folder) / _MANIFEST).exists():
            raise InvalidInput(
                f"`folder` must hold checkpoints of other tools, got {folder}, which is a store "
                f"already: open it by SnapshotStore({str(folder)!r})"
            )
        return Adopted(folder, prefix=prefix)

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to other processes by path: who may write there is this process's own."""
        return SnapshotStore, (self.path,)

    @property
    def epochs(self) -> list[int]:
        """Epochs held, in order; what another process adds is seen."""
        return sorted(self._entries())

    def save(
        self,
        model_or_state_dict: nn.Module | Mapping[str, Tensor] | str | Path,
        epoch: int,
        *,
        dtype: str | None = None,
        instead_of: Sequence[int] = (),
    ) -> None:
        """Save weights and buffers; an earlier snapshot of the epoch is replaced.

        Under `torch.distributed`, only rank 0 writes.

        Parameters
        ----------
        model_or_state_dict
            A network (also wrapped by DDP or `torch.compile`) or a state dict, on any device; or
            the path of a checkpoint (`.pt`, `.pth`, `.ckpt`, `.safetensors`) that holds one.
            Pickles are read with `weights_only=True`: nothing in them runs.
        epoch : int
            0 or more.
        dtype : str, optional
            "bfloat16" or "float16" halve the disk: floating point numbers are rounded to it, and
            come back in the type they had.
        instead_of : sequence of int
            Epochs to let go of in the same step: the store never holds more, nor less if saving
            fails.

        Raises
        ------
        StoreLocked
            If another process writes there.
        StorageError
            If the disk is full; what was there before is whole.
        UnsafeFile
            If loading the checkpoint could run code.
        """
        if not writes_here():
            return
        number = _validate.count(epoch, "epoch", least=0)
        if dtype is not None and dtype not in _DTYPES:
            raise InvalidInput(
                f"`dtype` must be one of {', '.join(_DTYPES)}, got {dtype!r}: choose one, or None"
            )
        state = _weights.state_of(model_or_state_dict)
        self._become_writer()
        entries = self._entries()
        gone = [entries.pop(held) for held in {number, *instead_of} if held in entries]
        name = f"epoch-{number:06d}.safetensors"
        if any(entry["file"] == name for entry in gone):  # both exist until the manifest turns
            name = f"epoch-{number:06d}-again.safetensors"
        with _files.replacing(self.path / name) as file:
            digest = _weights.write(file, state, _DTYPES[dtype] if dtype else None)
            size = file.tell()
        entry = {"file": name, "sha256": digest(), "bytes": size}
        self._write_manifest({**entries, number: entry})
        for old in gone:
            (self.path / old["file"]).unlink(missing_ok=True)

    def load(self, epoch: int) -> dict[str, Tensor]:
        """Read a snapshot's state dict, on the CPU, after checking its hash.

        Raises
        ------
        InvalidInput
            If there is no snapshot of that epoch.
        CorruptFile
            If the file is gone, truncated or changed.
        """
        entry = self._entry(epoch)
        while True:
            try:
                self._check(epoch, entry)
                return _weights.read(self.path / entry["file"])
            except (CorruptFile, FileNotFoundError):
                now = self._entry(epoch)
                if now == entry:
                    raise
                entry = now  # it was replaced meanwhile

    def load_into(self, model: nn.Module, epoch: int) -> None:
        """Load a snapshot into a model; names and shapes must be the same.

        Raises
        ------
        WrongArchitecture
            Naming what differs.
        """
        _weights.fit(model, self.load(epoch), f"snapshot of epoch {epoch} in {self.path}")

    def sha256(self, epoch: int) -> str:
        """The hash of a snapshot, as recorded when it was saved."""
        return str(self._entry(epoch)["sha256"])

    def verify(self) -> None:
        """Hash every file again and compare.

        Raises
        ------
        CorruptFile
            For the first snapshot that is gone, truncated or changed.
        """
        for epoch, entry in sorted(self._entries().items()):
            self._check(epoch, entry)

    def remove(self, epoch: int) -> None:
        """Remove a snapshot, for good."""
        entry = self._entry(epoch)
        self._become_writer()
        entries = self._entries()
        del entries[epoch]
        self._write_manifest(entries)
        (self.path / entry["file"]).unlink(missing_ok=True)

    def rewind(self, epoch: int) -> None:
        """Remove all snapshots after an epoch: what to do before training goes on from there."""
        for later in [held for held in self.epochs if held > epoch]:
            self.remove(later)

    def _become_writer(self) -> None:
        if self._lock is not None and self._lock.ours:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = lock(self.path)
        except StoreLocked:
            raise
        except OSError as error:
            raise StorageError(
                error.errno,
                f"cannot write snapshots to {self.path} ({error.strerror}): choose a folder that "
                "can be written to",
            ) from None
        _files.remove_partial(self.path)
        named = {entry["file"] for entry in self._entries().values()}
        for path in self.path.glob("epoch-*.safetensors"):  # what a crash left unnamed
            if path.name not in named:
                path.unlink(missing_ok=True)

    def _entries(self) -> dict[int, Entry]:
        try:
            manifest = json.loads((self.path / _MANIFEST).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except ValueError:
            manifest = None
        known = isinstance(manifest, dict) and manifest.get("format") == _FORMAT
        if not known or not isinstance(manifest.get("snapshots"), dict):
            raise CorruptFile(
                f"{self.path / _MANIFEST} must be a manifest of snapshots, got something else: "
                "restore it, or record into another folder"
            )
        return {int(epoch): entry for epoch, entry in manifest["snapshots"].items()}

    def _entry(self, epoch: int) -> Entry:
        entries = self._entries()
        if epoch not in entries:
            raise InvalidInput(unknown_epoch(self.path, list(entries), epoch))
        return entries[epoch]

    def _write_manifest(self, entries: dict[int, Entry]) -> None:
        content = {
            "format": _FORMAT,
            "snapshots": {str(epoch): entries[epoch] for epoch in sorted(entries)},
        }
        _files.write_bytes(self.path / _MANIFEST, json.dumps(content, indent=1).encode())

    def _check(self, epoch: int, entry: Entry) -> None:
        path = self.path / entry["file"]
        expected = f"snapshot of epoch {epoch} ({path}) must be as it was saved"
        remedy = "restore it from a copy, or `.remove` it"
        if not path.is_file():
            raise CorruptFile(f"{expected}, got no file: {remedy}")
        size = path.stat().st_size
        if size != entry["bytes"]:
            raise CorruptFile(f"{expected}, got {size} bytes for {entry['bytes']}: {remedy}")
        if _files.sha256(path) != entry["sha256"]:
            raise CorruptFile(f"{expected}, got other bytes (SHA-256 differs): {remedy}")


def opened(snapshots: Snapshots | str | Path) -> Snapshots:
    """Snapshots as they are, or those in a folder: a store's, or what another tool left."""
    if isinstance(snapshots, Snapshots):
        return snapshots
    path = Path(snapshots)
    return SnapshotStore.adopt(path) if is_foreign(path) else SnapshotStore(path)


def writes_here() -> bool:
    """Whether this process is the one that writes: alone, or rank 0 of `torch.distributed`."""
    together = distributed.is_available() and distributed.is_initialized()
    return not together or distributed.get_rank() == 0
