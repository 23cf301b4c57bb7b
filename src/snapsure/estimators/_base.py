"""The contract of estimators: from the κ of every snapshot to one confidence per point.

To add one: a file with a subclass, and a line in `__init__.py`; its test inherits
`EstimatorContract` (`snapsure.testing`). What fitting finds is a dictionary of JSON's types, which
`save` writes and `load` reads. Snapshots are known by their epochs, never by their places: a table
that holds only the snapshots an estimator needs gives the same answers.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypedDict

import numpy as np
from msgspec import Meta

from snapsure import _json, _validate
from snapsure._types import Floats, Ints
from snapsure.errors import CorruptFile, InvalidInput, NotFitted
from snapsure.table import ScoreTable

State = dict[str, Any]

# Areas nearer than this differ by rounding alone.
EQUAL = 1e-13


class Fitted(TypedDict):
    """What every fitted estimator saves."""

    kappa: str
    final: _json.Integer
    epochs: Annotated[list[_json.Integer], Meta(min_length=1)]


class _Saved(TypedDict):
    settings: dict[str, Any]
    fitted: dict[str, Any] | None


class Estimator(ABC):
    """One confidence per point from a score table."""

    learns: ClassVar[bool] = True  # from labelled points; else `fit` may be left out
    calibrated: bool = False  # whether its confidence is a probability of being right
    of_kappa: ClassVar[bool] = True  # else it works on labels or logits, whatever κ there is
    fitted_type: ClassVar[type] = Fitted  # what `_learn` gives: a `TypedDict` for `_json`

    def __init__(self) -> None:
        self._state: State | None = None

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What it was made with, by the names of its arguments, in JSON's types."""

    @abstractmethod
    def _learn(self, table: ScoreTable, kappa: str) -> State:
        """What answers need, in JSON's types; `epochs` in it are the snapshots they pass."""

    @abstractmethod
    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        """Confidence of each point, (n,)."""

    def __repr__(self) -> str:
        """How to make it."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return f"{type(self).__name__}({given})"

    def fit(self, table: ScoreTable, kappa: str = "softmax") -> Self:
        """Learn on held-out points what answers need.

        Parameters
        ----------
        table : ScoreTable
            With labels, where the estimator learns; the final snapshot last.
        kappa : str
            Which κ of the table it works on, now and in `confidence`.
        """
        refuse_no_table(table)
        if self.of_kappa:
            table.kappa(kappa)  # refuses a κ that is not there
        if self.learns:
            table.errors  # noqa: B018 - refuses a table without labels
        final = int(table.epochs[-1])
        self._state = {"kappa": kappa, "final": final, **self._learn(table, kappa)}
        return self

    def confidence(self, table: ScoreTable) -> Floats:
        """Confidence of each point, (n,), higher is surer.

        An estimator that learns nothing may be used without `fit`: on the table's only κ, or its
        softmax response.

        Raises
        ------
        NotFitted
            If it learns, and was not fitted.
        InvalidInput
            If the table lacks a snapshot or the κ that it was fitted with.
        """
        refuse_no_table(table)
        state = self._state
        if state is None and not self.learns:
            kappa = table.names[0] if len(table.names) == 1 else "softmax"
            return self._answer(table, kappa, self._learn(table, kappa))
        state = self.fitted
        return self._answer(table, state["kappa"], state)

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` was called."""
        return self._state is not None

    @property
    def fitted(self) -> State:
        """What fitting found."""
        if self._state is None:
            raise NotFitted(
                f"{type(self).__name__} must be fitted before it is used, got one that is not: "
                "call .fit"
            )
        return self._state

    def snapshots(self, epochs: Sequence[int] | Ints) -> list[int]:
        """Which of these epochs an answer needs, the final one among them: what to `select`."""
        return _among(rising(epochs), {*self.fitted["epochs"], self.fitted["final"]})

    def as_dict(self) -> dict[str, Any]:
        """What it was made with, and what fitting found, in JSON's types."""
        return {"settings": self.settings, "fitted": self.fitted if self.learns else self._state}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """What `as_dict` told of."""
        try:
            estimator = cls(**content["settings"])
        except (TypeError, OverflowError) as error:
            raise CorruptFile(
                f"settings of a saved {cls.__name__} must be its arguments, got others ({error}): "
                "save it again"
            ) from None
        estimator._state = content["fitted"]
        return estimator

    @classmethod
    def from_file(cls, content: Any, path: str | Path, what: str, remedy: str) -> Self:
        """Make what `as_dict` describes, after checking it; the texts are for `CorruptFile`."""
        saved = _json.convert(content, _Saved, path, what, remedy)
        if cls.learns or saved["fitted"] is not None:
            known: State = _json.convert(saved["fitted"], cls.fitted_type, path, what, remedy)
            saved["fitted"] = {**(saved["fitted"] or {}), **known}
        return cls.from_dict(saved)

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        _json.write(path, type(self).__name__, self.as_dict())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        what, remedy = f"a saved {cls.__name__}", "restore it, or save it again"
        content = _json.read(path, cls.__name__, dict[str, Any])
        return cls.from_file(content, path, what, remedy)


def refuse_no_table(table: Any) -> None:
    """Refuse what is no score table, and say how a bare array of κ becomes one."""
    if not isinstance(table, ScoreTable):
        raise InvalidInput(
            f"`table` must be a ScoreTable, got {type(table).__name__}: for an array of κ, "
            "(snapshots, points), pass ScoreTable.from_kappa(kappa, errors); for a folder, "
            "ScoreTable.open(folder)"
        )


def rows_of(table: ScoreTable, kappa: str, epochs: Sequence[int]) -> Floats:
    """κ of the snapshots of some epochs, (epochs, n)."""
    if table.epochs.tolist() == epochs:  # all of them, as in a predictor
        return table.kappa(kappa)
    places = {int(epoch): i for i, epoch in enumerate(table.epochs)}
    missing = [epoch for epoch in epochs if epoch not in places]
    if missing:
        raise InvalidInput(
            f"`table` must have the snapshots that were fitted, got none of epoch {missing[0]}: "
            "score the points with the same snapshots"
        )
    return table.kappa(kappa)[[places[epoch] for epoch in epochs]]


def best_snapshot(excess: Floats) -> int:
    """The snapshot of the least E-AURC; of equals (but for rounding), the latest."""
    return int(np.flatnonzero(excess <= excess.min() + EQUAL)[-1])


def rising(epochs: Sequence[int] | Ints) -> Ints:
    """Epochs in order."""
    x = _validate.whole_numbers(epochs, "epochs")
    if x.ndim != 1 or not x.size or (np.diff(x) <= 0).any():
        raise InvalidInput(
            f"`epochs` must be rising numbers, one per snapshot, got {x.tolist()}: "
            "pass the table's or the store's epochs"
        )
    return x


def _among(there: Ints, needed: set[int]) -> list[int]:
    missing = sorted(needed.difference(there.tolist()))
    if missing:
        raise InvalidInput(
            f"`epochs` must have the snapshots that were fitted, got none of epoch {missing[0]}: "
            "pass the epochs of the same training"
        )
    return sorted(needed)
