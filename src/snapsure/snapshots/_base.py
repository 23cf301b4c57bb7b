"""What can be read as the snapshots of one training, whoever wrote them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from torch import Tensor, nn


class Snapshots(ABC):
    """Weights by epoch, in a folder."""

    path: Path

    def __repr__(self) -> str:
        """The folder it stands for."""
        return f"{type(self).__name__}({str(self.path)!r})"

    @property
    @abstractmethod
    def epochs(self) -> list[int]:
        """Epochs held, in order."""

    def __len__(self) -> int:
        """How many snapshots there are."""
        return len(self.epochs)

    def __iter__(self) -> Iterator[int]:
        """Epochs in order."""
        return iter(self.epochs)

    def __contains__(self, epoch: object) -> bool:
        """Whether a snapshot of this epoch is held."""
        return epoch in self.epochs

    @abstractmethod
    def load(self, epoch: int) -> dict[str, Tensor]:
        """Read a snapshot's state dict, on the CPU."""

    @abstractmethod
    def load_into(self, model: nn.Module, epoch: int) -> None:
        """Load a snapshot into a model; names and shapes must be the same."""

    @abstractmethod
    def sha256(self, epoch: int) -> str:
        """The hash of a snapshot's bytes."""

    @abstractmethod
    def verify(self) -> None:
        """Refuse the first snapshot that is gone, truncated or changed."""


def unknown_epoch(path: Path, held: list[int], epoch: int) -> str:
    """The sentence for an epoch that is not there."""
    known = f"epochs {min(held)}…{max(held)}" if held else "nothing"
    return (
        f"`epoch` must be one of those in {path} ({len(held)} held: {known}), got {epoch}: "
        "see .epochs"
    )
