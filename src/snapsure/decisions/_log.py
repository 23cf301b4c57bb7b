"""Read a log of any system: its confidences, whether each answer was right, and groups."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

import numpy as np

from snapsure._types import Array, Floats
from snapsure.errors import InvalidInput

_RIGHT = ("1", "1.0", "true", "yes", "right", "correct")
_WRONG = ("0", "0.0", "false", "no", "wrong", "incorrect")
_UNKNOWN = ("", "nan", "none", "null", "<na>")


class Frame(Protocol):
    """Columns by name: a dict of lists, or a table of pandas or polars."""

    def __getitem__(self, name: str, /) -> Iterable[object]:
        """Return a column."""


class Log(NamedTuple):
    """The columns of a log."""

    confidence: Floats
    errors: Floats  # 0 (right), 1 (wrong), NaN (not known)
    groups: Array | None


def read_log(
    frame: Frame, confidence: str, correct: str | None = None, group: str | None = None
) -> Log:
    """Return columns of a frame as numbers; cells may be strings, as in a CSV file."""

    def column(name: str, n: int | None = None) -> list[object]:
        try:
            cells = list(frame[name])
        except (KeyError, IndexError, TypeError):
            known = getattr(frame, "columns", frame if isinstance(frame, Mapping) else ())
            names = ", ".join(map(str, known)) or "none"
            raise InvalidInput(
                f"The log must have the column {name!r}, got {names}. Name a column that is there."
            ) from None
        if n is not None and len(cells) != n:
            raise InvalidInput(
                f"{name!r} must have a cell for each of {n} confidences, got {len(cells)}. Pass "
                "columns of one length."
            )
        return cells

    scores = []
    for row, cell in enumerate(column(confidence)):
        try:
            scores.append(float(cell))  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            raise InvalidInput(
                f"{confidence!r} must be a number in every row, got {cell!r} in row {row}. "
                "Leave out rows without a confidence."
            ) from None

    errors = [math.nan] * len(scores)
    for row, cell in enumerate([] if correct is None else column(correct, len(scores))):
        word = str(cell).strip().lower()
        if word not in (*_RIGHT, *_WRONG, *_UNKNOWN):
            raise InvalidInput(
                f"{correct!r} must be 1 (right), 0 (wrong) or empty in every row, got {cell!r} in "
                f"row {row}. Compare answers and labels first."
            )
        if word not in _UNKNOWN:
            errors[row] = float(word in _WRONG)
    groups = None
    if group is not None:
        groups = np.array([str(cell) for cell in column(group, len(scores))])
    return Log(np.array(scores), np.array(errors), groups)
