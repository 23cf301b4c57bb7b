"""What an evaluation found: boards of results, as plain numbers and words."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from snapsure import _display
from snapsure.metrics import Interval


@dataclass(frozen=True)
class Result:
    """One method on one board. Areas are fractions; means over parts and runs."""

    method: str
    kappa: str | None  # which it works on, if on one
    eaurc: float
    aurc: float
    augrc: float
    nll: float
    brier: float
    error: float  # of the classifier that it speaks of
    passes: float  # through a network, per answer
    snapshots: float  # that must be kept
    trainings: float  # that it takes, in units of the reference's
    bytes: float | None  # that these take, where it is known
    standard_error: float | None  # of E-AURC, over the parts, where there are several
    reference_eaurc: float  # of the reference on the same points
    difference: (
        Interval  # of the board's metric, E-AURC if not asked otherwise, less the reference's
    )
    gain: Interval | None  # percent of the reference's that it saves; None if that is 0
    gains: tuple[float | None, ...]  # of each run, percent
    verdict: str
    p: float | None = None  # that the gain is 0, two-sided, of the paired bootstrap
    p_holm: float | None = None  # the same, corrected for all methods of the board
    behind: Interval | None = None  # percent that it is above the best

    @property
    def saved(self) -> Interval:
        """The gain, where there is one: on every board of `compare`."""
        assert self.gain is not None
        return self.gain

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON."""
        intervals = {
            name: None if each is None else each._asdict()
            for name, each in (
                ("difference", self.difference),
                ("gain", self.gain),
                ("behind", self.behind),
            )
        }
        return {**asdict(self), **intervals}

    def flat(self) -> dict[str, Any]:
        """The same in one row: an interval is three columns, gains of each run are left out."""
        row: dict[str, Any] = {}
        for name, value in self.as_dict().items():
            if name in ("difference", "gain", "behind"):
                ends = value or dict.fromkeys(Interval._fields)
                row[name] = ends["estimate"]
                row |= {f"{name}_{end}": ends[end] for end in ("low", "high")}
            elif name != "gains":
                row[name] = value
        return row


@dataclass(frozen=True)
class Board:
    """Methods on the same points."""

    name: str
    reference: str
    runs: int
    points: int
    rows: Sequence[Result]
    metric: str = "eaurc"  # that methods are ranked by, and gains are of

    @property
    def measure(self) -> str:
        """The metric's name, for people."""
        return {"eaurc": "E-AURC"}.get(self.metric, self.metric.upper())

    def __getitem__(self, method: str) -> Result:
        """The result of a method."""
        return next(row for row in self.rows if row.method == method)

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON."""
        return {**asdict(self), "rows": [row.as_dict() for row in self.rows]}


@dataclass(frozen=True, repr=False)
class Comparison:
    """A board per data set (`compare`) or per κ (`evaluate`), and over all data sets if several.

    On the board over all, gains are geometric means of the data sets' ratios, each counting the
    same; all else is a plain mean.

    Attributes
    ----------
    boards : mapping of str to Board
        By the name of the data set, or of the κ. `board.rows` are its methods, and
        `board["LES"]` is one of them.
    pooled : Board or None
        Over all data sets.
    level, resamples
        Of the intervals.
    """

    boards: Mapping[str, Board]
    pooled: Board | None
    level: float
    resamples: int

    def __repr__(self) -> str:
        """Names and sizes; the numbers are in `to_frame()`, and in `boards`."""
        names = ", ".join(self.boards)
        return f"<Comparison: {names}; {len(self.every[0].rows)} methods>"

    @property
    def every(self) -> list[Board]:
        """All boards, the one over all data sets first."""
        return [*([] if self.pooled is None else [self.pooled]), *self.boards.values()]

    def to_frame(self) -> Any:
        """All results as a `pandas.DataFrame`: a row per board and method, which are the index.

        Columns are the fields of a result. `difference`, `gain` and `behind` have their intervals'
        ends beside them (`gain_low`, `gain_high`); gains of each run are in `.boards` alone.
        """
        rows = [{"board": board.name, **row.flat()} for board in self.every for row in board.rows]
        return _display.to_frame(rows).set_index(["board", "method"])

    def plot(self) -> _display.Display:
        """Draw gain against price, a panel per board; `.save("methods.png")` writes it.

        Raises
        ------
        InvalidInput
            If the reference ranks perfectly: there is nothing to gain.
        """
        return _display.draw("boards", self.every, self.level)

    def _repr_html_(self) -> str:
        return _display.to_html("comparison", self)

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON."""
        shown = [*self.boards.values(), *([] if self.pooled is None else [self.pooled])]
        return {
            "level": self.level,
            "resamples": self.resamples,
            "boards": [board.as_dict() for board in shown],
        }
