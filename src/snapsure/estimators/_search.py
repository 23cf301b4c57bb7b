"""The penalty of LES, and its greedy search for the snapshots that help most in few passes."""

from collections.abc import Sequence

import numpy as np

from snapsure._logistic import fit_logistic, summed_losses
from snapsure._types import Bools, Floats, Ints

FEW = 30  # errors, and right examples, that it takes to learn weights
# Weight of Σ w² / 2 beside the sum of log-losses. Features resemble each other, so weights learnt
# from few errors follow noise: below _SCARCE errors the penalty rises.
_PENALTY, _SCARCE = 30.0, 300.0
# The same for the final snapshot's log-odds: so little that few errors leave the order of the final
# κ. With 0, a κ that separates right from wrong would have no finite weight.
_OF_FINAL = 0.3
_FOLDS = 5
_KNOTS = 257
_TOGETHER = 1 << 17  # numbers fitted at once: what a core's cache holds


def count_fewer(wrong: Bools) -> int:
    """Return how many examples are wrong, or right, whichever are fewer."""
    return min(int(wrong.sum()), int((~wrong).sum()))


def scarcity(wrong: Bools) -> float:
    """Return the factor by which penalties rise where errors are few."""
    return max(1.0, (_SCARCE / count_fewer(wrong)) ** 0.5)


def penalties(is_final: Sequence[bool], wrong: Bools) -> Floats:
    """Return the penalty of each weight: small for the final log-odds, none for the intercept."""
    on_each = _PENALTY * scarcity(wrong)
    return np.array([*(_OF_FINAL if final else on_each for final in is_final), 0.0])


class Search:
    """Chooses rows of standardised features x one by one: fewer rows are the beginning of more.

    It keeps its last path, and continues it when asked about the same data again. So it does with
    the normal scores of each feature.
    """

    def __init__(self) -> None:
        self._last: _Path | None = None
        self._scores: dict[str, tuple[Floats, tuple[Floats, Floats, Floats]]] = {}

    def to_normal_scores(self, name: str, x: Floats) -> tuple[Floats, Floats, Floats]:
        """Return knots, their standardised normal scores, and x mapped through these."""
        from scipy.special import ndtri  # type: ignore[import-untyped]

        if name in self._scores and np.array_equal(self._scores[name][0], x):
            return self._scores[name][1]
        ordered = np.sort(x)
        places = np.linspace(0, x.size - 1, min(_KNOTS, x.size))
        knots = np.unique(ordered[np.rint(places).astype(np.int64)])
        rank = (ordered.searchsorted(knots) + ordered.searchsorted(knots, "right") + 1) / 2
        scores = ndtri(rank / (x.size + 1))
        mapped = np.interp(x, knots, scores)
        center, spread = mapped.mean(), mapped.std()
        if knots.size == 1:  # its spread may be a rounding error
            spread = 1.0
        found = knots, (scores - center) / spread, (mapped - center) / spread
        self._scores[name] = x, found
        return found

    def rows(self, x: Floats, wrong: Bools, most: int) -> list[int]:
        """Return at most so many rows, sorted: the last one, and those that help it most."""
        path = self._last
        if path is None or not path.is_of(x, wrong):
            path = self._last = _Path(x, wrong)
        while len(path.chosen) < most and path.lengthen():
            pass
        return sorted(path.chosen[:most])


class _Path:
    """The chosen rows in their order: the final snapshot first, where its penalty is."""

    def __init__(self, x: Floats, wrong: Bools) -> None:
        self._x, self._wrong = x, wrong
        # By rank, so that folds are alike, whatever the order of the examples.
        fold: Ints = np.empty(wrong.size, np.int64)
        fold[np.lexsort((x[-1], wrong))] = np.arange(wrong.size) % _FOLDS
        self._out = [fold == number for number in range(_FOLDS)]
        self.chosen: list[int] = []
        self._weights = np.zeros((_FOLDS, 1))  # learnt without each fold
        self._least = np.inf
        self._try([len(x) - 1])

    def is_of(self, x: Floats, wrong: Bools) -> bool:
        """Say whether the path was found from these data."""
        return np.array_equal(x, self._x) and np.array_equal(wrong, self._wrong)

    def lengthen(self) -> bool:
        """Add the row that lowers the loss of examples left out most, if one does."""
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
        """Return losses of examples by weights learnt without their fold, and these weights.

        One for each of these rows beside the chosen ones. One row more changes the weights little,
        so they start from what they are without it.
        """
        held = len(self.chosen)
        rows, total, found = self._x[[*self.chosen, *some]], np.zeros(len(some)), []
        on_each = penalties([True] + [False] * held, self._wrong)
        for out, known in zip(self._out, self._weights, strict=True):
            weights = fit_logistic(
                _beside(rows[:, ~out], held).swapaxes(1, 2),
                (~self._wrong[~out]).astype(np.float64),
                on_each,
                np.tile(np.insert(known, held, 0.0), (len(some), 1)),
            )
            z = (weights[:, None, :] @ _beside(rows[:, out], held))[:, 0]
            total += summed_losses(z, (~self._wrong[out]).astype(np.float64))
            found.append(weights)
        return total, np.array(found)


def _beside(rows: Floats, held: int) -> Floats:
    """Return features (rows, held + 2, n): those held, one of the others, and ones."""
    others = rows[held:]
    features = np.ones((len(others), held + 2, rows.shape[1]))
    features[:, :held] = rows[:held]
    features[:, held] = others
    return features
