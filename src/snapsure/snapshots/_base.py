"""What can be read as the snapshots of one training, whoever wrote them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from torch import Tensor, nn

from snapsure.errors import InvalidInput


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

    @property
    def members(self) -> Sequence["Snapshots"]:
        """The trainings that answer together: itself alone, or those of an `Ensemble`."""
        return [self]

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

    def select(self, epochs: Iterable[int]) -> "Snapshots":
        """Some of the snapshots, to be read only; nothing is copied.

        Nobody needs to score snapshots that no estimator asks for:
        `score(model, store.select(AES().snapshots(store.epochs)), data)`.

        Raises
        ------
        InvalidInput
            For an epoch that is not held, or for none at all.
        """
        return Selected(self, epochs)


class Selected(Snapshots):
    """Some of the snapshots of others."""

    def __init__(self, source: Snapshots, epochs: Iterable[int]) -> None:
        self._source, self.path = source, source.path
        self._epochs = sorted({int(epoch) for epoch in epochs})
        if not self._epochs:
            raise InvalidInput("`epochs` must name at least one snapshot, got none: name some")
        for epoch in self._epochs:
            self._held(epoch, source.epochs)

    def __repr__(self) -> str:
        """How it was made."""
        return f"{self._source!r}.select({self._epochs})"

    @property
    def epochs(self) -> list[int]:
        """Those selected."""
        return list(self._epochs)

    def load(self, epoch: int) -> dict[str, Tensor]:
        """Read the state dict of one that is selected."""
        return self._source.load(self._held(epoch, self._epochs))

    def load_into(self, model: nn.Module, epoch: int) -> None:
        """Load one that is selected."""
        self._source.load_into(model, self._held(epoch, self._epochs))

    def sha256(self, epoch: int) -> str:
        """The hash of one that is selected."""
        return self._source.sha256(self._held(epoch, self._epochs))

    def verify(self) -> None:
        """Verify all of the source's."""
        self._source.verify()

    def _held(self, epoch: int, held: list[int]) -> int:
        if epoch not in held:
            raise InvalidInput(unknown_epoch(self.path, held, epoch))
        return epoch


def unknown_epoch(path: Path, held: list[int], epoch: int) -> str:
    """The sentence for an epoch that is not there."""
    known = f"epochs {min(held)}…{max(held)}" if held else "nothing"
    return (
        f"`epoch` must be one of those in {path} ({len(held)} held: {known}), got {epoch}: "
        "see .epochs"
    )
