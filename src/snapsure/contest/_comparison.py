"""The outcome of a contest: boards of rows, best first, as plain numbers and words."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from snapsure.metrics import Interval


@dataclass(frozen=True)
class Row:
    """One method on one board. Areas are fractions; means over halves and runs."""

    method: str
    eaurc: float
    aurc: float
    augrc: float
    nll: float
    brier: float
    error: float  # of the classifier that it speaks of
    passes: float  # through a network, per answer
    snapshots: float  # that must be kept
    bytes: float | None  # that these take, where it is known
    gain: Interval  # percent of the reference's E-AURC that it saves
    p: float  # that the gain is 0, two-sided, of the paired bootstrap
    p_holm: float  # the same, corrected for all methods of the board
    behind: Interval  # percent that its E-AURC is above that of the best
    verdict: str


@dataclass(frozen=True)
class Board:
    """Methods in order, the least E-AURC first."""

    name: str
    reference: str
    runs: int
    points: int
    rows: Sequence[Row]

    def __getitem__(self, method: str) -> Row:
        """The row of a method."""
        return next(row for row in self.rows if row.method == method)


@dataclass(frozen=True)
class Comparison:
    """A board per data set, and over all of them if there are several.

    On the board over all, gains are geometric means of the data sets' ratios, each counting the
    same; all else is a plain mean.
    """

    boards: Mapping[str, Board]
    pooled: Board | None
    level: float
    resamples: int

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON."""
        shown = [*self.boards.values(), *([] if self.pooled is None else [self.pooled])]
        return {
            "level": self.level,
            "resamples": self.resamples,
            "boards": [_plain(board) for board in shown],
        }


def _plain(board: Board) -> dict[str, Any]:
    rows = [
        {**asdict(row), "gain": row.gain._asdict(), "behind": row.behind._asdict()}
        for row in board.rows
    ]
    return {**asdict(board), "rows": rows}
