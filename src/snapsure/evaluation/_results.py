"""Results of an evaluation: a `Result` per method, in a `Board`, in a `Comparison` of boards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from snapsure import _display
from snapsure.errors import InvalidInput
from snapsure.estimators.registry import FINAL
from snapsure.metrics import Interval

Outcome = Literal["reference", "better", "worse", "no difference"]
Key = str | tuple[str, str | None]
_INTERVALS = ("difference", "gain", "behind")


@dataclass(frozen=True)
class Result:
    """One method on one board. Areas are fractions; numbers are means over parts and runs.

    Examples
    --------
    >>> import numpy as np
    >>> from snapsure import ScoreTable, evaluate
    >>> kappa = np.random.default_rng(0).random((10, 400))
    >>> result = evaluate(ScoreTable.from_kappa(kappa, errors=kappa.mean(axis=0) < 0.4))["AES"]
    >>> result.outcome, result.gain.low > 0, result.passes
    ('better', True, 7.0)
    """

    method: str
    kappa: str | None  # the κ that it works on; None if it uses none
    eaurc: float
    aurc: float
    augrc: float
    nll: float
    brier: float
    error: float  # of the classifier whose answers it scores
    passes: float  # forward passes per answer
    snapshots: float  # to keep
    trainings: float  # training cost, in trainings of the reference's classifier
    bytes: float | None  # of the snapshots to keep, where known
    standard_error: float | None  # of E-AURC over the parts, if there are several
    reference_eaurc: float  # of the reference on the same examples
    # The method's metric less the reference's: the board's, or AURC where `evaluate` compares
    # different answers. Of the same answers, AURC and E-AURC differ by the same.
    difference: Interval
    gain: Interval | None  # percent of the reference's metric that is saved; None if that is 0
    gains: tuple[float | None, ...]  # of each run, percent
    outcome: Outcome  # against the reference
    verdict: str  # the outcome in words
    p: float | None = None  # two-sided, of the paired bootstrap
    p_holm: float | None = None  # corrected for all methods of the board
    behind: Interval | None = None  # percent above the best method's metric

    @property
    def saved(self) -> Interval:
        """The gain, on boards whose reference leaves something to gain."""
        assert self.gain is not None
        return self.gain

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers and words, for JSON."""
        return {
            name: value._asdict() if isinstance(value, Interval) else value
            for name, value in vars(self).items()
        }

    def flat(self) -> dict[str, Any]:
        """Return one row of a table: an interval is three columns, gains of runs are left out."""
        row: dict[str, Any] = {}
        for name, value in vars(self).items():
            if name in _INTERVALS:
                row[name], row[f"{name}_low"], row[f"{name}_high"] = value or (None, None, None)
            elif name != "gains":
                row[name] = value
        return row


@dataclass(frozen=True, repr=False)
class Board:
    """Methods on the same examples, compared with one of them.

    `board["AES"]` is a method on the reference's κ, `board["AES", "entropy"]` on another.
    `print(board)` shows the table.

    Examples
    --------
    >>> import numpy as np
    >>> from snapsure import ScoreTable, evaluate
    >>> kappa = np.random.default_rng(0).random((10, 400))
    >>> table = ScoreTable.from_kappa(kappa, errors=kappa.mean(axis=0) < 0.4)
    >>> board = evaluate(table).boards["softmax"]
    >>> board.reference, board["AES"].outcome
    ('final', 'better')
    """

    name: str
    reference: str  # the method that the others are compared with
    kappa: str  # the reference's κ, or the table's first if that uses none
    runs: int
    examples: int
    rows: Sequence[Result]
    level: float  # of the intervals
    resamples: int
    metric: str = "eaurc"  # that ranks the methods, and that gains are of

    def __repr__(self) -> str:
        """Name the board and count its methods; `print` shows the numbers."""
        return f"<Board: {self.name}; {len(self.rows)} methods>"

    def __str__(self) -> str:
        return str(Comparison({self.name: self}, None))

    def _repr_html_(self) -> str:
        return Comparison({self.name: self}, None)._repr_html_()

    @property
    def measure(self) -> str:
        """The metric's name, for people."""
        return {"eaurc": "E-AURC"}.get(self.metric, self.metric.upper())

    @property
    def reference_label(self) -> str:
        """The reference in a sentence: "the final softmax", or the method's name."""
        return name_reference(self.reference, self.kappa)

    def label(self, row: Result) -> str:
        """Name a row for people: "AES", or "AES of entropy" for another κ than the reference's."""
        return row.method if row.kappa in (None, self.kappa) else f"{row.method} of {row.kappa}"

    def __getitem__(self, key: Key) -> Result:
        """Return the result of a method; an unknown one is refused with a list of those there."""
        return _find(self.rows, key, self.kappa)

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers and words, for JSON."""
        return {**vars(self), "rows": [row.as_dict() for row in self.rows]}


@dataclass(frozen=True, repr=False)
class Comparison:
    """A board per data set (`compare`) or per κ (`evaluate`), and over all data sets if several.

    `result["AES"]` is a method on the first κ, `result["AES", "entropy"]` on another; of several
    data sets, over all of them. `print(result)` shows the boards.

    Examples
    --------
    >>> import numpy as np
    >>> from snapsure import ScoreTable, evaluate
    >>> kappa = np.random.default_rng(0).random((10, 400))
    >>> result = evaluate(ScoreTable.from_kappa(kappa, errors=kappa.mean(axis=0) < 0.4))
    >>> list(result.boards), result["AES"].method
    (['softmax'], 'AES')
    """

    boards: Mapping[str, Board]  # by the name of the data set, or of the κ
    # Over all data sets: gains are geometric means of the data sets' ratios, each counting the
    # same; all else is a plain mean.
    pooled: Board | None

    def __repr__(self) -> str:
        """Name the boards and count the methods; `print` shows the numbers."""
        return f"<Comparison: {', '.join(self.boards)}; {len(self.every[0].rows)} methods>"

    def __str__(self) -> str:
        return _display.to_html("comparison text", self)

    def __getitem__(self, key: Key) -> Result:
        """Return the result of a method; an unknown one is refused with a list of those there."""
        boards = self.every if self.pooled is None else [self.pooled]
        rows = [row for board in boards for row in board.rows]
        return _find(rows, key, boards[0].kappa)

    @property
    def level(self) -> float:
        """The level of the intervals."""
        return self.every[0].level

    @property
    def resamples(self) -> int:
        """How many resamples the intervals are of."""
        return self.every[0].resamples

    @property
    def every(self) -> list[Board]:
        """All boards, the one over all data sets first."""
        return [*([self.pooled] if self.pooled else []), *self.boards.values()]

    def to_frame(self) -> Any:
        """Return all results as a `pandas.DataFrame`, indexed by board, method and κ.

        Columns are the fields of a result. `difference`, `gain` and `behind` have their intervals'
        ends beside them (`gain_low`, `gain_high`); gains of each run are in `.boards` alone.
        """
        rows = [{"board": board.name, **row.flat()} for board in self.every for row in board.rows]
        return _display.to_frame(rows).set_index(["board", "method", "kappa"])

    def plot(self) -> _display.Display:
        """Draw gain against cost, a panel per board; `.save("methods.png")` writes it.

        Raises
        ------
        InvalidInput
            If the reference ranks perfectly: there is nothing to gain.
        """
        return _display.draw("boards", self.every, self.level)

    def _repr_html_(self) -> str:
        return _display.to_html("comparison", self)

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers and words, for JSON."""
        boards = [*self.boards.values(), *([self.pooled] if self.pooled else [])]
        return {
            "level": self.level,
            "resamples": self.resamples,
            "boards": [board.as_dict() for board in boards],
        }


def name_reference(method: str, kappa: str) -> str:
    """Name a method on the reference's κ in a sentence: "the final softmax", "AES"."""
    return f"the final {kappa}" if method == FINAL else method


def _find(rows: Sequence[Result], key: Key, first: str) -> Result:
    """Return the row of a method, on the first κ if the key names none."""
    method, kappa = key if isinstance(key, tuple) else (key, first)
    same: dict[str | None, Result] = {}
    for row in rows:
        if row.method == method:
            same.setdefault(row.kappa, row)
    if not same:
        methods = ", ".join(dict.fromkeys(row.method for row in rows))
        raise InvalidInput(
            f"The method must be one of {methods}, got {method!r}. Choose one of these."
        )
    for found in (kappa, None):
        if found in same:
            return same[found]
    raise InvalidInput(
        f"The κ of {method} must be one of {', '.join(map(str, same))}, got {kappa!r}. "
        "Choose one of these."
    )
