"""`Estimator`: the contract from κ of every snapshot to one confidence per example.

To add one, write a subclass and register it (`registry.py`); its test inherits `EstimatorContract`
(`snapsure.testing`). Fitting returns a dictionary of JSON's types, which `save` writes and `load`
reads. Snapshots are known by their epochs, never by their positions: a table that holds only the
snapshots an estimator needs gives the same answers.
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
    """Maps a score table to one confidence per example.

    Examples
    --------
    A confidence of your own, the median over the snapshots:

    >>> class Median(Estimator):
    ...     learns = False
    ...     settings = {}
    ...
    ...     def _learn(self, table, kappa):
    ...         return {"epochs": table.epochs.tolist()}
    ...
    ...     def _answer(self, table, kappa, state):
    ...         return np.median(table.kappa(kappa), axis=0)
    >>> Median().confidence(ScoreTable.from_kappa([[0.1, 0.9], [0.3, 0.8], [0.5, 0.4]])).tolist()
    [0.3, 0.8]
    """

    learns: ClassVar[bool] = True  # from labelled examples; else `fit` is optional
    calibrated: bool = False  # whether its confidence is a probability of being right
    of_kappa: ClassVar[bool] = True  # else it uses labels or logits, whatever κ there is
    fitted_type: ClassVar[type] = Fitted  # what `_learn` returns: a `TypedDict` for `_json`

    def __init__(self) -> None:
        self._state: State | None = None

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the arguments that make it again, by name, in JSON's types."""

    @abstractmethod
    def _learn(self, table: ScoreTable, kappa: str) -> State:
        """Return what answers need, in JSON's types; `epochs` are the snapshots in use."""

    @abstractmethod
    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        """Return the confidence of each example, (n,)."""

    def __repr__(self) -> str:
        """Return the expression that makes it."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return f"{type(self).__name__}({given})"

    @property
    def needs(self) -> set[str]:
        """What answers read beside κ: snapshots' own "labels", the final "logits" or "final"."""
        return set() if self.of_kappa else {"labels", "logits"}

    def fit(self, table: ScoreTable, kappa: str = "softmax") -> Self:
        """Learn from held-out examples what answers need.

        Parameters
        ----------
        table : ScoreTable
            With labels, if the estimator learns; the final snapshot last.
        kappa : str
            Which κ of the table to use, now and in `confidence`.
        """
        refuse_no_table(table)
        if self.of_kappa:
            table.kappa(kappa)  # refuses an unknown κ
        if self.learns:
            table.errors  # noqa: B018 - refuses a table without labels
        final = int(table.epochs[-1])
        self._state = {"kappa": kappa, "final": final, **self._learn(table, kappa)}
        return self

    def confidence(self, table: ScoreTable) -> Floats:
        """Return the confidence of each example, (n,); higher is surer.

        An estimator that learns nothing works without `fit`, on the table's only κ or its softmax
        response.

        Raises
        ------
        NotFitted
            If it learns, and is not fitted.
        InvalidInput
            If the table lacks a snapshot or the κ that it is fitted on.
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
        """The result of `fit`."""
        if self._state is None:
            raise NotFitted(
                f"{type(self).__name__} must be fitted before it is used, got one that is not. "
                "Call .fit first."
            )
        return self._state

    def snapshots(self, epochs: Sequence[int] | Ints) -> list[int]:
        """Return which of these epochs an answer needs, the final one included."""
        return _among(rising(epochs), {*self.fitted["epochs"], self.fitted["final"]})

    def as_dict(self) -> dict[str, Any]:
        """Return its settings and the result of `fit`, in JSON's types."""
        return {"settings": self.settings, "fitted": self.fitted if self.learns else self._state}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Make the estimator that `as_dict` describes."""
        try:
            estimator = cls(**content["settings"])
        except (TypeError, OverflowError) as error:
            raise CorruptFile(
                f"The settings of a saved {cls.__name__} must be its arguments, got others "
                f"({error}). Save it again."
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
        """Write the estimator as JSON."""
        _json.write(path, type(self).__name__, self.as_dict())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an estimator that `save` wrote."""
        what, remedy = f"a saved {cls.__name__}", "restore it, or save it again"
        content = _json.read(path, cls.__name__, dict[str, Any])
        return cls.from_file(content, path, what, remedy)


def refuse_no_table(table: Any) -> None:
    """Refuse anything but a score table, and say how an array of κ becomes one."""
    if not isinstance(table, ScoreTable):
        raise InvalidInput(
            f"`table` must be a ScoreTable, got {type(table).__name__}. For an array of κ, "
            "(snapshots, examples), pass ScoreTable.from_kappa(kappa, errors); for a folder, "
            "ScoreTable.open(folder)."
        )


def places_of(table: ScoreTable, epochs: Sequence[int]) -> list[int] | slice:
    """Return where the table has the snapshots of some epochs."""
    if table.epochs.tolist() == epochs:  # all, as in a predictor
        return slice(None)
    places = {int(epoch): i for i, epoch in enumerate(table.epochs)}
    missing = [epoch for epoch in epochs if epoch not in places]
    if missing:
        raise InvalidInput(
            f"`table` must have the snapshots that were fitted, got none of epoch {missing[0]}. "
            "Score the examples with the same snapshots."
        )
    return [places[epoch] for epoch in epochs]


def rows_of(table: ScoreTable, kappa: str, epochs: Sequence[int]) -> Floats:
    """Return κ of the snapshots of some epochs, (epochs, n)."""
    return table.kappa(kappa)[places_of(table, epochs)]


def best_snapshot(excess: Floats) -> int:
    """Return the snapshot with the least E-AURC; of equals (but for rounding), the latest."""
    return int(np.flatnonzero(excess <= excess.min() + EQUAL)[-1])


def rising(epochs: Sequence[int] | Ints) -> Ints:
    """Return the epochs as an array, and refuse any that do not rise."""
    x = _validate.whole_numbers(epochs, "epochs")
    if x.ndim != 1 or not x.size or (np.diff(x) <= 0).any():
        raise InvalidInput(
            f"`epochs` must be rising numbers, one per snapshot, got {x.tolist()}. Pass the "
            "epochs of the table or the store."
        )
    return x


def _among(there: Ints, needed: set[int]) -> list[int]:
    missing = sorted(needed.difference(there.tolist()))
    if missing:
        raise InvalidInput(
            f"`epochs` must have the snapshots that were fitted, got none of epoch {missing[0]}. "
            "Pass the epochs of the same training."
        )
    return sorted(needed)
