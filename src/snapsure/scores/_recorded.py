"""Softmax response from logits that were kept in training: κ without a pass through a network."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from snapsure import _files
from snapsure.errors import InvalidInput
from snapsure.scores._base import softmax_of
from snapsure.table import ScoreTable

_LABELS = "labels.npy"


class RecordedLogits:
    """Logits of the same points, epoch by epoch, in a folder; their labels beside them."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def epochs(self) -> list[int]:
        """Epochs held, in order."""
        return sorted(int(path.stem[6:]) for path in self.folder.glob("epoch-*.npy"))

    def write(self, epoch: int, logits: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        """Keep an epoch's logits (n, classes), which must be of the same points as the others."""
        self.folder.mkdir(parents=True, exist_ok=True)
        known = self.folder / _LABELS
        if not known.exists():
            _write(known, labels)
        elif not np.array_equal(np.load(known), labels):
            raise InvalidInput(
                f"validation data must be the same points in the same order at every epoch, got "
                f"other labels at epoch {epoch} than in {known}: do not shuffle them, and record "
                "each training into a folder of its own"
            )
        _write(self._file(epoch), logits)

    def read(self, epoch: int) -> Tensor:
        """An epoch's logits."""
        return torch.from_numpy(np.load(self._file(epoch)))

    def labels(self) -> NDArray[np.int64]:
        """The points' labels."""
        labels: NDArray[np.int64] = np.load(self.folder / _LABELS)
        return labels

    def rewind(self, epoch: int) -> None:
        """Remove what was kept after an epoch."""
        for later in self.epochs:
            if later > epoch:
                self._file(later).unlink()

    def _file(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch:06d}.npy"


def recorded(*networks: RecordedLogits) -> ScoreTable:
    """The table of one training; of several, of their ensemble.

    An ensemble predicts the class of its members' mean softmax; κ is the mean of theirs in it.
    """
    epochs = networks[0].epochs
    if not epochs or any(other.epochs != epochs for other in networks):
        raise InvalidInput(
            f"logits must be of the same epochs in each folder, and of one at least, got "
            f"{[len(network.epochs) for network in networks]} in {networks[0].folder} …: let the "
            "trainings finish an epoch with validation"
        )
    y_hat = _votes([network.read(epochs[-1]) for network in networks])
    kappa, labels = [], []
    for epoch in epochs:
        logits = [network.read(epoch) for network in networks]
        kappa.append(np.mean([softmax_of(each, y_hat).numpy() for each in logits], axis=0))
        labels.append(_votes(logits))
    name = "softmax" if len(networks) == 1 else "ensemble"
    y = networks[0].labels()
    return ScoreTable({name: np.array(kappa)}, np.array(labels), y, y_hat=y_hat, epochs=epochs)


def _votes(logits: Sequence[Tensor]) -> NDArray[np.int64]:
    """What networks predict together: the class of their mean softmax."""
    mean = torch.stack([each.double().softmax(dim=1) for each in logits]).mean(dim=0)
    chosen: NDArray[np.int64] = mean.argmax(dim=1).numpy()
    return chosen


def _write(path: Path, values: NDArray[np.generic]) -> None:
    with _files.replacing(path) as file:
        np.save(file, np.ascontiguousarray(values), allow_pickle=False)
