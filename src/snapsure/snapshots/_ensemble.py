"""Several trainings that answer together."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from torch import Tensor

from snapsure.errors import InvalidInput
from snapsure.snapshots._base import Snapshots
from snapsure.snapshots._store import open_snapshots


class Ensemble(Snapshots):
    """Networks trained alike, as one: given to `score` as `snapshots`, with any κ.

    The classifier is the ensemble: y_hat is the class of the members' mean softmax, and κ is the
    mean over the members of their own κ of that class.

    Parameters
    ----------
    stores : sequence of Snapshots or paths
        One per member, all with snapshots of the same epochs.

    Examples
    --------
    >>> import tempfile
    >>> from torch import nn
    >>> from snapsure.snapshots import SnapshotStore
    >>> stores = [SnapshotStore(tempfile.mkdtemp()) for _ in range(2)]
    >>> for store in stores:
    ...     store.save(nn.Linear(3, 2), epoch=1)
    >>> Ensemble(stores).epochs
    [1]
    """

    def __init__(self, stores: Sequence[Snapshots | str | Path]) -> None:
        stores = [stores] if isinstance(stores, str | Path) else stores
        self._members = [open_snapshots(store) for store in stores]
        if len(self._members) < 2:
            raise InvalidInput(
                f"`stores` must name at least 2 members, got {len(self._members)}. Train more "
                "networks, or score the one by itself."
            )
        self.path = self._members[0].path

    def __repr__(self) -> str:
        """Show the members."""
        return f"Ensemble({self._members!r})"

    @property
    def members(self) -> Sequence[Snapshots]:
        """One per training."""
        return self._members

    @property
    def epochs(self) -> list[int]:
        """Epochs of the members' snapshots, which must be the same."""
        first, *others = self._members
        for other in others:
            if other.epochs != first.epochs:
                raise InvalidInput(
                    f"`stores` must have snapshots of the same epochs, got {len(other)} in "
                    f"{other.path} that differ from the {len(first)} in {first.path}. Record them "
                    "by one schedule."
                )
        return first.epochs

    def select(self, epochs: Iterable[int]) -> "Ensemble":
        """Select some of the snapshots of every member; nothing is copied."""
        wanted = list(epochs)
        return Ensemble([member.select(wanted) for member in self._members])

    def load(self, epoch: int) -> dict[str, Tensor]:
        """Refuse: each member has its own weights."""
        raise InvalidInput(
            f"An ensemble must be loaded member by member, got {len(self._members)} of them at "
            "once. Use .members."
        )

    def sha256(self, epoch: int) -> str:
        """Return the hashes of all members, separated by spaces."""
        return " ".join(member.sha256(epoch) for member in self._members)

    def verify(self) -> None:
        """Verify every member."""
        for member in self._members:
            member.verify()
