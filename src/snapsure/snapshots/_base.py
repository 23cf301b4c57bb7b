"""What can be read as the snapshots of one training, whoever wrote them."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from torch import Tensor, nn

from snapsure.errors import InvalidInput
from snapsure.snapshots import _weights


class Snapshots(ABC):
    """Weights by epoch, in a folder.

    Examples
    --------
    >>> import tempfile
    >>> from snapsure import SnapshotStore
    >>> store = SnapshotStore(tempfile.mkdtemp())
    >>> for epoch in (1, 2, 3):
    ...     store.save(nn.Linear(3, 2), epoch)
    >>> store.select([1, 3]).epochs
    [1, 3]
    """

    path: Path

    def __repr__(self) -> str:
        """Show the folder."""
        return f"{type(self).__name__}({str(self.path)!r})"

    @property
    @abstractmethod
    def epochs(self) -> list[int]:
        """Epochs of the snapshots, in order."""

    @property
    def members(self) -> Sequence["Snapshots"]:
        """The trainings that answer together: itself alone, or those of an `Ensemble`."""
        return [self]

    def __len__(self) -> int:
        """Count the snapshots."""
        return len(self.epochs)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the epochs in order."""
        return iter(self.epochs)

    def __contains__(self, epoch: object) -> bool:
        """Say whether there is a snapshot of this epoch."""
        return epoch in self.epochs

    @abstractmethod
    def load(self, epoch: int) -> dict[str, Tensor]:
        """Read a snapshot's state dict, on the CPU."""

    @abstractmethod
    def sha256(self, epoch: int) -> str:
        """Return the hash of a snapshot's bytes."""

    def base(self, epoch: int) -> str | None:
        """Return the hash of the frozen weights that a snapshot leaves out; None if it is whole.

        Snapshots with one base have tensors of the same names.
        """
        return None

    def load_into(self, model: nn.Module, epoch: int, *, has_base: bool = False) -> None:
        """Load a snapshot into a model; names and shapes must be the same.

        Where the snapshot leaves out frozen weights, the model must have them. `has_base` skips
        that check: another snapshot of the same base has been loaded into the model.

        Raises
        ------
        WrongArchitecture
            Naming what differs.
        InvalidInput
            If the model's frozen weights are others.
        """
        state, origin = self.load(epoch), f"Snapshot of epoch {epoch} in {self.path}"
        base = self.base(epoch)
        required = None if has_base else base
        _weights.load_strictly(model, state, origin, is_part=base is not None, base=required)

    def verify(self) -> None:
        """Read every snapshot.

        Raises
        ------
        CorruptFile
            For the first that is missing, truncated or changed.
        """
        for epoch in self.epochs:
            self.load(epoch)

    def select(self, epochs: Iterable[int]) -> "Snapshots":
        """Select some of the snapshots, to be read only; nothing is copied.

        Snapshots that no estimator uses need no scoring:
        `score(model, store.select(AES().snapshots(store.epochs)), data)`.

        Raises
        ------
        InvalidInput
            If an epoch has no snapshot, or none is named.
        """
        return Selection(self, epochs)


class Selection(Snapshots):
    """Some snapshots of another source."""

    def __init__(self, source: Snapshots, epochs: Iterable[int]) -> None:
        self._source, self.path = source, source.path
        self._epochs = sorted({int(epoch) for epoch in epochs})
        if not self._epochs:
            raise InvalidInput("`epochs` must name at least one snapshot, got none. Name some.")
        for epoch in self._epochs:
            refuse_missing(epoch, source.epochs, self.path)

    def __repr__(self) -> str:
        """Show the source and the epochs."""
        return f"{self._source!r}.select({self._epochs})"

    @property
    def epochs(self) -> list[int]:
        """The selected epochs."""
        return list(self._epochs)

    def load(self, epoch: int) -> dict[str, Tensor]:
        """Read the state dict of a selected snapshot."""
        return self._find(epoch).load(epoch)

    def base(self, epoch: int) -> str | None:
        """Return the base of a selected snapshot."""
        return self._find(epoch).base(epoch)

    def load_into(self, model: nn.Module, epoch: int, *, has_base: bool = False) -> None:
        """Load a selected snapshot into a model."""
        self._find(epoch).load_into(model, epoch, has_base=has_base)

    def sha256(self, epoch: int) -> str:
        """Return the hash of a selected snapshot."""
        return self._find(epoch).sha256(epoch)

    def _find(self, epoch: int) -> Snapshots:
        refuse_missing(epoch, self._epochs, self.path)
        return self._source


def refuse_missing(epoch: int, epochs: Collection[int], path: Path) -> None:
    """Refuse an epoch that has no snapshot."""
    if epoch not in epochs:
        known = f"epochs {min(epochs)}…{max(epochs)}" if epochs else "no epochs"
        raise InvalidInput(
            f"`epoch` must be one of the {len(epochs)} in {path} ({known}), got {epoch}. "
            "See .epochs."
        )
