"""Which points a method learns from, and which it is judged on."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from snapsure import _validate
from snapsure._types import Ints
from snapsure.errors import InvalidInput
from snapsure.table._table import random_cut

Parts = list[tuple[Ints, Ints]]  # (learnt from, judged on)


class Protocol(ABC):
    """A way to part the points."""

    whole: bool = False  # whether what learns nothing is judged on all points, not part by part

    @abstractmethod
    def parts(self, n: int) -> Parts:
        """Rows to learn from and rows to be judged on, as often as it parts them."""


@dataclass(frozen=True)
class Splits(Protocol):
    """Random splits, as in the paper's table 3: `share` of the points to learn from, ten times."""

    count: int = 10
    share: float = 0.7
    seed: int = 0
    whole: bool = True  # the splits overlap, so that all points say more

    def parts(self, n: int) -> Parts:
        """The first of each random order, and the rest of it."""
        cut = round(_validate.fraction(self.share, "share", open_above=True) * n)
        if not 0 < cut < n:
            raise InvalidInput(
                f"`share` must leave points on both sides, got {self.share} of {n}: "
                "choose another, or score more points"
            )
        count = _validate.count(self.count, "splits")
        return [random_cut(n, cut, self.seed + i) for i in range(count)]


@dataclass(frozen=True)
class Halves(Protocol):
    """Two halves, each judged by what was learnt on the other: every point is judged once."""

    seed: int = 0

    def parts(self, n: int) -> Parts:
        """One half and the other, and the other way round."""
        one, two = random_cut(n, n // 2, self.seed)
        return [(one, two), (two, one)]
