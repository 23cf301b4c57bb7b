"""Logits that were kept in training, epoch by epoch."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from snapsure import _files, _sealed
from snapsure._types import Ints
from snapsure.errors import InvalidInput

_LABELS = "labels.npy"
_AGAIN = "restore it, or record the training again"


class RecordedLogits:
    """Logits of the same points, epoch by epoch, in a folder; their labels beside them."""

    def __init__(self, folder: str | Path, epochs: Iterable[int] | None = None) -> None:
        self.folder = Path(folder)
        self._selected = None if epochs is None else sorted({*epochs})

    @property
    def epochs(self) -> list[int]:
        """Epochs held, in order, or those selected of them."""
        held = sorted(int(path.stem[6:]) for path in self.folder.glob("epoch-*.npy"))
        return held if self._selected is None else self._selected

    def select(self, epochs: Iterable[int]) -> "RecordedLogits":
        """Some of the epochs; nothing is copied."""
        return RecordedLogits(self.folder, epochs)

    def write(self, epoch: int, logits: NDArray[np.float32], labels: Ints) -> None:
        """Keep an epoch's logits (n, classes), which must be of the same points as the others."""
        _files.make_folder(self.folder)
        known = self.folder / _LABELS
        if not known.exists():
            _sealed.write_array(known, labels)
        elif not np.array_equal(self.labels(), labels):
            raise InvalidInput(
                f"validation data must be the same points in the same order at every epoch, got "
                f"other labels at epoch {epoch} than in {known}: do not shuffle them, and record "
                "each training into a folder of its own"
            )
        _sealed.write_array(self._file(epoch), logits)

    def read(self, epoch: int) -> Tensor:
        """An epoch's logits."""
        return torch.from_numpy(_sealed.read_array(self._file(epoch), _AGAIN).values)

    def labels(self) -> Ints:
        """The points' labels."""
        return _sealed.read_array(self.folder / _LABELS, _AGAIN).values

    def rewind(self, epoch: int) -> None:
        """Remove what was kept after an epoch."""
        for later in self.epochs:
            if later > epoch:
                with _files.writing(f"to {self.folder}"):
                    self._file(later).unlink()

    def _file(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch:06d}.npy"
