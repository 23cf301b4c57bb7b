"""Which snapshots LES passes through when it may pass through few: a greedy search."""

import numpy as np

from snapsure._logistic import fit_logistic, summed_losses
from snapsure._types import Bools, Floats, Ints

# Weight of Σ w² / 2 beside the sum of log-losses. Snapshots resemble each other, so that weights
# learnt from few errors follow noise.
_PENALTY = 10.0
# The same on the weight of the final snapshot: so little that few labels leave Platt's curve on the
# final κ, which ranks as that does. With 10 on this one too they leave an average over the whole
# run, which is sometimes significantly worse (experiments/learning_curve.py); with none a κ that
# parts right from wrong would have a weight without end.
_OF_FINAL = 0.3
_FOLDS = 5
_TOGETHER = 1 << 17  # numbers that are fitted to at once: what a core's cache holds


class Search:
    """Rows of x to use, chosen one after the other: fewer are the beginning of more.

    What was found last is kept with what it was found from, and continued when asked of the same.
    """

    def __init__(self) -> None:
        self._last: _Path | None = None

    def rows(self, x: Floats, wrong: Bools, most: int) -> list[int]:
        """At most so many, in order: the last, and those that gain most beside it."""
        path = self._last
        if path is None or not path.is_of(x, wrong):
            path = self._last = _Path(x, wrong)
        while len(path.chosen) < most and path.lengthen():
            pass
        return sorted(path.chosen[:most])


class _Path:
    """Rows that were chosen, in that order: the final snapshot's first, by which its penalty is."""

    def __init__(self, x: Floats, wrong: Bools) -> None:
        self._x, self._wrong = x, wrong
        # By rank, so that folds are alike, and points may come in any order.
        fold: Ints = np.empty(wrong.size, np.int64)
        fold[np.lexsort((x[-1], wrong))] = np.arange(wrong.size) % _FOLDS
        self._out = [fold == number for number in range(_FOLDS)]
        self.chosen: list[int] = []
        self._weights = np.zeros((_FOLDS, 1))  # learnt without each fold: those chosen, the rest
        self._least = np.inf
        self._try([len(x) - 1])

    def is_of(self, x: Floats, wrong: Bools) -> bool:
        """Whether these are what it was found from."""
        return np.array_equal(x, self._x) and np.array_equal(wrong, self._wrong)

    def lengthen(self) -> bool:
        """Choose the row that makes the loss of points left out least, if one makes it less."""
        rest = [i for i in range(len(self._x)) if i not in self.chosen]
        return bool(rest) and self._try(rest)

    def _try(self, rest: list[int]) -> bool:
        together = max(1, _TOGETHER // (self._wrong.size * (len(self.chosen) + 2)))
        parts = [rest[low : low + together] for low in range(0, len(rest), together)]
        tried = [self._left_out(part) for part in parts]
        losses = np.concatenate([loss for loss, _ in tried])
        best = int(np.argmin(losses))
        if losses[best] >= self._least:
            return False
        self._least = losses[best]
        self._weights = np.concatenate([weights for _, weights in tried], axis=1)[:, best]
        self.chosen.append(rest[best])
        return True

    def _left_out(self, some: list[int]) -> tuple[Floats, Floats]:
        """Losses of points by weights that were learnt without their fold, and these weights.

        One for each of these rows beside the chosen ones. A row more changes weights little: they
        start from what they are without it.
        """
        held = len(self.chosen)
        rows, total, found = self._x[[*self.chosen, *some]], np.zeros(len(some)), []
        for out, known in zip(self._out, self._weights, strict=True):
            seen = rows[:, ~out]
            center, spread = standard(seen)
            weights = fit_logistic(
                _beside((seen - center) / spread, held).swapaxes(1, 2),
                (~self._wrong[~out]).astype(np.float64),
                penalty(held + 1, final=0),
                np.tile(np.insert(known, held, 0.0), (len(some), 1)),
            )
            left_out = _beside((rows[:, out] - center) / spread, held)
            z = (weights[:, None, :] @ left_out)[:, 0]
            total += summed_losses(z, (~self._wrong[out]).astype(np.float64))
            found.append(weights)
        return total, np.array(found)


def _beside(rows: Floats, held: int) -> Floats:
    """Features (rows, held + 2, n): those held, each of the others in turn, and ones."""
    others = rows[held:]
    features = np.ones((len(others), held + 2, rows.shape[1]))
    features[:, :held] = rows[:held]
    features[:, held] = others
    return features


def standard(x: Floats) -> tuple[Floats, Floats]:
    """Centre and spread of each row, (rows, 1)."""
    center, spread = x.mean(axis=1, keepdims=True), x.std(axis=1, keepdims=True)
    flat = x.min(axis=1) == x.max(axis=1)  # its std may be a rounding error
    center[flat, 0], spread[flat] = x[flat, 0], 1.0
    return center, spread


def penalty(features: int, final: int) -> Floats:
    """On each weight, little on that of the final snapshot, and none on the intercept."""
    on_each = np.append(np.full(features, _PENALTY), 0.0)
    on_each[final] = _OF_FINAL
    return on_each
