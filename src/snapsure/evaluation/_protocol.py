"""Protocols: which examples a method learns from, and which it is judged on."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from snapsure import _validate
from snapsure._types import Ints
from snapsure.errors import InvalidInput
from snapsure.table._table import random_cut

Parts = list[tuple[Ints, Ints]]  # rows to learn from, rows to be judged on


class Protocol(ABC):
    """A way to divide the examples.

    Examples
    --------
    >>> Splits(count=1).parts(10)[0][0].size  # learn from 7 examples of 10
    7
    """

    whole: bool = False  # judge methods that learn nothing on all examples at once

    @abstractmethod
    def parts(self, n: int) -> Parts:
        """Return rows to learn from and rows to be judged on, for each division of n examples."""


@dataclass(frozen=True)
class Splits(Protocol):
    """Random splits, as in the paper's table 3: `share` of the examples to learn from.

    By default methods that learn nothing are judged on all examples, because the splits overlap.

    Examples
    --------
    >>> [(learn.size, rest.size) for learn, rest in Splits(count=3).parts(100)]
    [(70, 30), (70, 30), (70, 30)]
    """

    count: int = 10
    share: float = 0.7
    seed: int = 0
    whole: bool = True

    def parts(self, n: int) -> Parts:
        """Return the first examples of each random order, and the rest of it."""
        cut = round(_validate.fraction(self.share, "share", open_above=True) * n)
        if not 0 < cut < n:
            raise InvalidInput(
                f"`share` must leave examples on both sides, got {self.share} of {n}. Choose "
                "another share, or score more examples."
            )
        count = _validate.count(self.count, "splits")
        return [random_cut(n, cut, self.seed + i) for i in range(count)]


@dataclass(frozen=True)
class Folds(Protocol):
    """Cross-fitting: random folds, each judged by what was learnt on all the others.

    Examples
    --------
    >>> [(learn.size, rest.size) for learn, rest in Folds(count=3).parts(100)]
    [(66, 34), (67, 33), (67, 33)]
    """

    count: int = 5
    seed: int = 0

    def parts(self, n: int) -> Parts:
        """Return all other folds, and the fold, for each fold."""
        count = _validate.count(self.count, "count", least=2)
        if n < count:
            raise InvalidInput(
                f"`count` must leave an example for each fold, got {count} of {n}. Choose fewer "
                "folds, or score more examples."
            )
        order = np.random.default_rng(self.seed).permutation(n)
        folds = [np.sort(order[i::count]) for i in range(count)]
        return [(np.setdiff1d(order, fold), fold) for fold in folds]


@dataclass(frozen=True)
class Halves(Protocol):
    """Two random halves, each judged by what was learnt on the other.

    Examples
    --------
    >>> [(learn.size, rest.size) for learn, rest in Halves().parts(100)]
    [(50, 50), (50, 50)]
    """

    seed: int = 0

    def parts(self, n: int) -> Parts:
        """Return one half and the other, then the other way round."""
        one, two = random_cut(n, n // 2, self.seed)
        return [(one, two), (two, one)]
