"""`Run`: one training as `compare` sees it, with scores that a table has no room for."""

from collections.abc import Mapping
from typing import Any

from snapsure import _validate
from snapsure._types import Array, Floats, Ints
from snapsure.errors import InvalidInput
from snapsure.estimators.registry import AVERAGED
from snapsure.table import ScoreTable

_DROPOUT, _PASSES = "mc_dropout", 100  # the name of `MCDropout`, and its default


class Run:
    """One training: its score table, and what rivals need beside it.

    Parameters
    ----------
    table : ScoreTable
        κ of every snapshot, with true labels.
    others : mapping of name to κ (n,) or (κ, y_hat), optional
        Scores of other methods; with `y_hat`, of another classifier. Averaged weights that the
        table has are among them.
    passes : mapping of name to int, optional
        Forward passes per answer and snapshot, of a κ or one of the `others`. By default what the
        table's scoring recorded, else 100 for MC-dropout and 1 for all others.
    kept : mapping of name to int, optional
        Snapshots to keep for one of the `others`; 1 if not given.
    trainings : mapping of name to float, optional
        Training cost of one of the `others`, in trainings of the table's own network, itself
        included; 1 if not given.
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
        kept: Mapping[str, int] | None = None,
        trainings: Mapping[str, float] | None = None,
        snapshot_bytes: int | None = None,
    ) -> None:
        table.errors  # noqa: B018 - refuses a table without labels
        self.table = table
        if table.averaged is not None:
            own = {AVERAGED: (table.averaged.kappa, table.averaged.labels)}
            others = own | dict(others or {})
        taken = [name for name in others or {} if name in table.names]
        if taken:
            raise InvalidInput(
                f"`others` must not repeat a κ of the table, got {taken[0]!r}. Rename it."
            )
        self.others = {name: _check(name, value, table) for name, value in (others or {}).items()}

        scores = [*table.names, *self.others]
        for argument, given, known in (
            ("passes", passes, scores),
            ("kept", kept, list(self.others)),
            ("trainings", trainings, list(self.others)),
        ):
            unknown = [name for name in given or {} if name not in known]
            if unknown:
                raise InvalidInput(
                    f"`{argument}` must name scores of this run, got {unknown[0]!r}. The run has "
                    f"{', '.join(known) or 'none'}."
                )
        usual = {name: _PASSES if name.startswith(_DROPOUT) else 1 for name in scores}
        self.passes = usual | _read_passes(table) | dict(passes or {})
        self.kept = dict.fromkeys(self.others, 1) | dict(kept or {})
        self.trainings = dict.fromkeys(self.others, 1.0) | dict(trainings or {})
        self.snapshot_bytes = snapshot_bytes

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
        return Run(
            self.table.rows(index),
            others={name: (k[index], y[index]) for name, (k, y) in self.others.items()},
            passes=self.passes,
            kept=self.kept,
            trainings=self.trainings,
            snapshot_bytes=self.snapshot_bytes,
        )


def _read_passes(table: ScoreTable) -> dict[str, int]:
    """Return what an answer costs by the table's provenance: passes of dropout, times members."""
    members = len(table.provenance.get("snapshots", [[]]))
    settings = table.provenance.get("kappas", {})
    return {
        name: members * int(settings[name].get("passes", 1))
        for name in table.names
        if name in settings
    }


def _check(name: str, value: Any, table: ScoreTable) -> tuple[Floats, Ints]:
    kappa, y_hat = value if isinstance(value, tuple) else (value, table.y_hat)
    scores = _validate.scores(kappa, f"others[{name!r}]")
    labels = _validate.class_numbers(y_hat, f"y_hat of others[{name!r}]")
    _validate.same_length(f"others[{name!r}]", scores.shape, "table", table.y_hat.size)
    _validate.same_length(f"y_hat of others[{name!r}]", labels.shape, "table", table.y_hat.size)
    return scores, labels
