"""Logits that training recorded, epoch by epoch."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TypedDict

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor

from snapsure import _arrays, _files, _json
from snapsure._types import Array, Ints
from snapsure.errors import CorruptFile, InvalidInput

_MANIFEST, _LABELS = "logits.json", "labels.npy"
_AGAIN = "restore it, or record the training again"
_FileName = Annotated[str, Meta(pattern=r"\A(labels|epoch-\d{6,})\.npy\Z")]


class _Manifest(TypedDict):
    """What `logits.json` holds."""

    hashes: dict[_FileName, str]


class RecordedLogits:
    """Logits of the same examples, epoch by epoch, in a folder with their labels."""

    def __init__(self, folder: str | Path, epochs: Iterable[int] | None = None) -> None:
        self.folder = Path(folder)
        self._selected = None if epochs is None else sorted({*epochs})

    @property
    def epochs(self) -> list[int]:
        """The epochs that are recorded, in order, or those selected of them."""
        if self._selected is not None:
            return self._selected
        return sorted(int(name[6:-4]) for name in self._read_hashes() if name != _LABELS)

    def select(self, epochs: Iterable[int]) -> "RecordedLogits":
        """Return some of the epochs; nothing is copied."""
        return RecordedLogits(self.folder, epochs)

    def write(self, epoch: int, logits: NDArray[np.float32], labels: Ints) -> None:
        """Record an epoch's logits (n, classes), of the same examples as the others."""
        _files.make_folder(self.folder)
        hashes = self._read_hashes()
        if _LABELS not in hashes:
            hashes[_LABELS] = _arrays.write(self.folder / _LABELS, labels)
        elif not np.array_equal(self.labels(), labels):
            raise InvalidInput(
                "Validation data must be the same examples in the same order at every epoch, got "
                f"other labels at epoch {epoch} than in {self.folder / _LABELS}. Do not shuffle "
                "them, and record each training into a folder of its own."
            )
        name = _name(epoch)
        hashes[name] = _arrays.write(self.folder / name, logits)
        self._write_hashes(hashes)

    def read(self, epoch: int) -> Tensor:
        """Read an epoch's logits."""
        return torch.from_numpy(self._read(_name(epoch)))

    def labels(self) -> Ints:
        """Read the labels of the examples."""
        return self._read(_LABELS)

    def rewind(self, epoch: int) -> None:
        """Remove what was recorded after an epoch."""
        hashes = self._read_hashes()
        later = [_name(one) for one in self.epochs if one > epoch and _name(one) in hashes]
        if later:
            self._write_hashes({name: sha for name, sha in hashes.items() if name not in later})
        for name in later:
            _files.remove(self.folder / name)

    def _read(self, name: str) -> Array:
        hashes = self._read_hashes()
        if name not in hashes:
            raise CorruptFile(
                f"{self.folder / _MANIFEST} must name {name}, got no hash of it. "
                f"{_files.instruct(_AGAIN)}"
            )
        return _arrays.read(self.folder / name, hashes[name], _AGAIN)

    def _read_hashes(self) -> dict[str, str]:
        path = self.folder / _MANIFEST
        try:
            return _json.load(path, "the manifest of recorded logits", _Manifest, _AGAIN)["hashes"]
        except FileNotFoundError:
            return {}

    def _write_hashes(self, hashes: dict[str, str]) -> None:
        _files.write_bytes(self.folder / _MANIFEST, _json.text({"hashes": hashes}))


def _name(epoch: int) -> str:
    return f"epoch-{epoch:06d}.npy"
