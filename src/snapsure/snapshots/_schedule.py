"""When to take a snapshot, and which to remove.

A schedule is asked before each snapshot, and decides from what the store holds. It has no memory of
its own, so a training that was interrupted resumes as if it had not been.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from snapsure import _validate
from snapsure._spacing import beginning, evenly_spaced
from snapsure.errors import InvalidInput


class Schedule(ABC):
    """The contract of all schedules.

    Examples
    --------
    >>> class Odd(Schedule):
    ...     def wants(self, epoch):
    ...         return epoch % 2 == 1
    >>> [epoch for epoch in range(1, 7) if Odd().wants(epoch)]
    [1, 3, 5]
    """

    @abstractmethod
    def wants(self, epoch: int) -> bool:
        """Say whether to take a snapshot of this epoch."""

    def surplus(self, held: Sequence[int], epoch: int) -> list[int]:
        """Name the held epochs to remove when the snapshot of `epoch` is added."""
        return []


class EveryEpoch(Schedule):
    """A snapshot of every epoch.

    Examples
    --------
    >>> EveryEpoch().wants(17)
    True
    """

    def wants(self, epoch: int) -> bool:
        """Want every epoch."""
        return True


class Evenly(Schedule):
    """`k` snapshots evenly spaced from the fraction `start` of training to its end, both included.

    Parameters
    ----------
    total : int
        Epochs of the whole training.
    k : int
        Snapshots to take; with fewer epochs than that, each is taken once.
    start : float
        Where to begin, in [0, 1): the paper begins at 0.4.
    first : int
        The number of the first epoch: 1, or 0 for loops over `range(total)`.

    Examples
    --------
    >>> [epoch for epoch in range(1, 11) if Evenly(total=10, k=4).wants(epoch)]
    [4, 6, 8, 10]
    """

    def __init__(self, total: int, k: int = 30, start: float = 0.4, *, first: int = 1) -> None:
        self._total = _validate.count(total, "total")
        self._first = _validate.count(first, "first", least=0)
        begin = beginning(self._total, _validate.share(start, "start"), 1)
        wanted = evenly_spaced(begin, self._total, _validate.count(k, "k"))
        self._wanted = frozenset((wanted + self._first - 1).tolist())

    def wants(self, epoch: int) -> bool:
        """Want the epochs on the grid."""
        last = self._first + self._total - 1
        if not self._first <= epoch <= last:
            remedy = "first=0 to count from 0" if epoch == 0 else "the total number of epochs"
            raise InvalidInput(
                f"`epoch` must lie in {self._first}…{last} by Evenly(total={self._total}, "
                f"first={self._first}), got {epoch}. Pass {remedy}."
            )
        return epoch in self._wanted


class Budget(Schedule):
    """At most `keep` snapshots of a training of unknown length.

    After any number of epochs, the snapshots are about evenly spaced from the fraction `start` of
    the training so far: no gap is wider than about twice the ideal, (1 − start) · epoch /
    (keep − 1), nor three times the narrowest. The latest is always among them.

    Parameters
    ----------
    keep : int
        The most that may be on disk at any time, at least 2.
    start : float
        Snapshots before this fraction of the training so far are removed first.

    Examples
    --------
    >>> schedule, held = Budget(keep=4), []
    >>> for epoch in range(1, 101):
    ...     held = sorted({*held, epoch} - {*schedule.surplus(held, epoch)})
    >>> len(held), held[-1]
    (4, 100)
    """

    def __init__(self, keep: int, start: float = 0.4) -> None:
        self._keep = _validate.count(keep, "keep", least=2)
        self._start = _validate.share(start, "start")

    def wants(self, epoch: int) -> bool:
        """Want every epoch; another snapshot makes room."""
        return True

    def surplus(self, held: Sequence[int], epoch: int) -> list[int]:
        """Name the last if it came too soon, else one too old, else the most crowded."""
        left = sorted({*held} - {epoch})
        gone = []
        while len(left) >= self._keep:
            gone.append(left.pop(self._find_least_useful(left, epoch)))
        return gone

    def _find_least_useful(self, left: list[int], epoch: int) -> int:
        points = [*left, epoch]
        step = (1 - self._start) * epoch / (self._keep - 1)
        if left[-1] - left[-2] < step:
            return len(left) - 1
        # The oldest goes only if the next still reaches back to the start of the stretch.
        if points[1] <= self._start * epoch:
            return 0
        gaps = [points[i + 1] - points[i - 1] for i in range(1, len(left))]
        return 1 + gaps.index(min(gaps))
