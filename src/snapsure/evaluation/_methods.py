"""Every way to a confidence, in one list. To add one: an estimator, and a line in `methods_of`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from snapsure._spacing import choose
from snapsure._types import Bools, Floats
from snapsure.errors import InvalidInput
from snapsure.estimators import (
    AES,
    LES,
    PES,
    SPTD,
    BestSnapshot,
    Estimator,
    Final,
    MaxLogitPNorm,
    Temperature,
)
from snapsure.estimators._base import State, rows_of
from snapsure.estimators._search import Search
from snapsure.evaluation._error_predictor import ErrorPredictor
from snapsure.evaluation._final_gen import FinalGEN
from snapsure.evaluation._run import Run
from snapsure.table import ScoreTable

FINAL = "final"
SHARED = 5  # snapshots of each κ, where LES sees them all

# What `evaluate` shows: the paper's methods, and ours, for every κ.
SHOWN = (FINAL, "AES k=10", "AES k=30", "AES k=50", "PES", "LES")
# What `compare` ranks. Of what differs by k, the paper's own choice: with every method more, the
# correction for many comparisons takes more from all.
BUDGETS = (4, 3, 2)
RANKED = (
    FINAL,
    "AES k=30",
    "PES",
    "LES",
    *(f"LES in {passes} passes" for passes in BUDGETS),
    "PES to the letter",
    "best snapshot",
    "rival",
)
_KINDS = tuple(dict.fromkeys((*SHOWN, *RANKED)))


@dataclass(frozen=True)
class Method:
    """A way to one confidence."""

    kind: str  # the same over every κ
    name: str  # among all methods of a run
    kappa: str | None
    make: Callable[[], Estimator]
    each: int = 1  # passes per snapshot
    other: str | None = None  # whose predictions it speaks of, if not the final classifier's
    kept: int | None = None  # snapshots, if not those that it passes through and the final one
    trainings: float = 1  # what it takes to have it, in trainings of the final classifier


def refuse_unknown(kinds: Sequence[str]) -> None:
    """Refuse a kind of method that there is not."""
    for kind in kinds:
        if kind not in _KINDS:
            raise InvalidInput(
                f"`methods` must be some of {', '.join(_KINDS)}, got {kind!r}: choose among these"
            )


def methods_of(run: Run, kinds: Sequence[str], *, alone: bool = False) -> list[Method]:
    """All of these kinds that can be had of a run, the final κ of each kind first.

    Of a run with one snapshot all are that snapshot's κ: they are left out, unless `alone`.
    """
    names, price = run.table.names, run.passes
    found = [Method(FINAL, name, name, Final, price[name]) for name in names]
    if run.table.logits is not None:
        found += OF_LOGITS
        if "gen" not in (*names, *run.others):
            found.append(_rival("gen", FinalGEN))
    found += [_other(name, run) for name in run.others]
    if len(run.table.epochs) > 1 or alone:
        for name in names:
            found += [_over(name, *each, price[name]) for each in _OF_EVERY_KAPPA]
        if len(names) > 1:
            all_of_them = sum(price[name] - 1 for name in names) + 1  # they share a pass
            stacked = partial(StackedLES, names, SHARED)
            found.append(Method("rival", "LES of all κ", None, stacked, all_of_them))
        found += [_over(names[0], *each, price[names[0]]) for each in (*_few(), *_OF_THE_FIRST)]
    if (run.table.labels != run.table.y_hat).any():  # packed tables may not have the snapshots' own
        found.append(_rival("SPTD", SPTD))
    return [method for method in found if method.kind in kinds]


Kind = tuple[str, str, Callable[[], Estimator]]

_OF_EVERY_KAPPA: list[Kind] = [
    ("AES k=10", "AES k=10", partial(AES, 10)),
    ("AES k=30", "AES", AES),
    ("AES k=50", "AES k=50", partial(AES, 50)),
    ("PES", "PES", PES),
    ("LES", "LES", LES),
]
_OF_THE_FIRST: list[Kind] = [
    ("PES to the letter", "PES to the letter", partial(PES, assign="paper")),
    ("best snapshot", "best snapshot", BestSnapshot),
]


def _few() -> list[Kind]:
    """LES in few passes, the most first: what the others choose is the beginning of that."""
    search = Search()

    def les(passes: int) -> LES:
        made = LES(passes=passes)
        made.search = search
        return made

    names = [f"LES in {passes} passes" for passes in BUDGETS]
    return [(name, name, partial(les, n)) for name, n in zip(names, BUDGETS, strict=True)]


def _over(kappa: str, kind: str, title: str, make: Callable[[], Estimator], each: int) -> Method:
    return Method(kind, f"{title} of {kappa}", kappa, make, each)


def _rival(name: str, make: Callable[[], Estimator]) -> Method:
    return Method("rival", name, None, make)


# What learns from the final logits.
OF_LOGITS = [
    _rival("temperature by NLL", partial(Temperature, "nll")),
    _rival("temperature by AURC", partial(Temperature, "aurc")),
    _rival("MaxLogit-pNorm", MaxLogitPNorm),
    _rival("error predictor", ErrorPredictor),
]


def _other(name: str, run: Run) -> Method:
    price, kept, trainings = run.passes[name], run.kept[name], run.trainings[name]
    return Method("rival", name, name, Final, price, name, kept, trainings)


class StackedLES(Estimator):
    """LES over several κ at once, a few snapshots of each."""

    calibrated = True
    of_kappa = False

    def __init__(self, names: Sequence[str], each: int) -> None:
        super().__init__()
        self.names, self.each = list(names), each

    @property
    def settings(self) -> dict[str, Any]:
        """Which κ, and how many snapshots of each."""
        return {"names": self.names, "each": self.each}

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        epochs = table.epochs[choose(table.epochs, self.each, 0.0)].tolist()
        stacked = ScoreTable.from_kappa(self._stack(table, epochs), table.errors)
        les = LES(len(stacked.epochs)).fit(stacked)
        used = epochs[-1:] if les.fallback_ else epochs
        return {"epochs": used, "stacked": epochs, "les": les.fitted}

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        stacked = ScoreTable.from_kappa(self._stack(table, state["stacked"]))
        les = LES(len(stacked.epochs))
        les._state = state["les"]
        return les.confidence(stacked)

    def _stack(self, table: ScoreTable, epochs: Sequence[int]) -> Floats:
        # The first κ comes last: LES shrinks towards its final snapshot, or falls back to that.
        return np.vstack([rows_of(table, name, epochs) for name in reversed(self.names)])


def errors_of(method: Method, run: Run) -> Bools:
    """Where the classifier that a method speaks of is wrong."""
    if method.other is None:
        return run.table.errors
    wrong: Bools = run.others[method.other][1] != run.y
    return wrong
