"""`Run`: one training as `compare` sees it, with scores that a table has no room for."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from snapsure import _validate
from snapsure._types import Array, Floats, Ints
from snapsure.errors import InvalidInput
from snapsure.estimators.registry import AVERAGED
from snapsure.table import ScoreTable

_DROPOUT, _PASSES = "mc_dropout", 100  # the name of `MCDropout`, and its default


class Rival(NamedTuple):
    """A score of another method or of another classifier, and what it costs.

    Examples
    --------
    >>> table = ScoreTable({"softmax": [[0.6, 0.9], [0.7, 0.8]]}, [[0, 1], [0, 1]], y=[0, 0])
    >>> run = Run(table, others={"a coin": Rival([0.1, 0.7], [0, 1], passes=2)})
    >>> run.others["a coin"].passes, run.others["a coin"].trainings
    (2, 1.0)
    """

    kappa: Floats
    y_hat: Ints  # the answers that it scores
    passes: int = 1  # forward passes per answer
    kept: int = 1  # snapshots to keep
    trainings: float = 1.0  # training cost, in trainings of the table's network, itself included


class Run:
    """One training: its score table, and what rivals need beside it.

    Parameters
    ----------
    table : ScoreTable
        κ of every snapshot, with true labels.
    others : mapping of name to κ (n,), (κ, y_hat) or Rival, optional
        Scores of other methods; with `y_hat`, of another classifier. Averaged weights that the
        table has are among them.
    passes : mapping of name to int, optional
        Forward passes per answer and snapshot, of a κ of the table. By default what the table's
        scoring recorded, else 100 for MC-dropout and 1 for all others.
    snapshot_bytes : int, optional
        Size of one snapshot on disk.

    Examples
    --------
    >>> table = ScoreTable({"softmax": [[0.6, 0.9], [0.7, 0.8]]}, [[0, 1], [0, 1]], y=[0, 0])
    >>> Run(table, others={"a coin": [0.1, 0.7]})
    <Run: softmax; a coin; 2 snapshots × 2 examples>
    """

    def __init__(
        self,
        table: ScoreTable,
        *,
        others: Mapping[str, Any] | None = None,
        passes: Mapping[str, int] | None = None,
        snapshot_bytes: int | None = None,
    ) -> None:
        table.errors  # noqa: B018 - refuses a table without labels
        self.table = table
        self.snapshot_bytes = snapshot_bytes

        self.passes = {name: _find_passes(table, name) for name in table.names}
        for name, count in (passes or {}).items():
            if name not in table.names:
                raise InvalidInput(
                    f"`passes` must name κ of the table, got {name!r}. The table has "
                    f"{', '.join(table.names)}; other scores have their cost in a Rival."
                )
            self.passes[name] = count

        self.others: dict[str, Rival] = {}
        average = table.averaged
        own = {} if average is None else {AVERAGED: (average.kappa, average.labels)}
        for name, value in {**own, **(others or {})}.items():
            if name in table.names:
                raise InvalidInput(
                    f"`others` must not repeat a κ of the table, got {name!r}. Rename it."
                )
            # A Rival is a tuple too, with its cost at the end.
            kappa, y_hat, *cost = value if isinstance(value, tuple) else (value, table.y_hat)
            what = f"others[{name!r}]"
            scores = _validate.scores(kappa, what)
            labels = _validate.class_numbers(y_hat, f"y_hat of {what}")
            _validate.same_length(what, scores.shape, "table", table.y_hat.size)
            _validate.same_length(f"y_hat of {what}", labels.shape, "table", table.y_hat.size)
            self.others[name] = Rival(scores, labels, *(cost or [_find_passes(table, name)]))

    def __repr__(self) -> str:
        """Name the scores and count snapshots and examples."""
        snapshots, n = self.table.labels.shape
        names = "; ".join(", ".join(part) for part in (self.table.names, list(self.others)) if part)
        return f"<Run: {names}; {snapshots} snapshots × {n} examples>"

    @property
    def y(self) -> Ints:
        """True labels."""
        assert self.table.y is not None
        return self.table.y

    def rows(self, index: Array) -> "Run":
        """Return the run with some of the examples alone."""
        others = {
            name: rival._replace(kappa=rival.kappa[index], y_hat=rival.y_hat[index])
            for name, rival in self.others.items()
        }
        return self.replace(self.table.rows(index), others)

    def replace(self, table: ScoreTable, others: Mapping[str, Any]) -> "Run":
        """Return a run of the same cost, with another table and other scores beside it."""
        return Run(table, others=others, passes=self.passes, snapshot_bytes=self.snapshot_bytes)


def _find_passes(table: ScoreTable, name: str) -> int:
    """Return what an answer costs: passes of dropout times members, where the scoring says so."""
    settings = table.provenance.get("kappas", {}).get(name)
    if settings is None:
        return _PASSES if name.startswith(_DROPOUT) else 1
    return len(table.provenance.get("snapshots", [[]])) * int(settings.get("passes", 1))
