"""What each way came to on every training that is committed: numbers for `tools.choice_tables`.

Each test set is halved as in `compare`: what learns does so on one half and is judged on the other,
and the other way round. No intervals are drawn, so that this takes seconds and not minutes.

To add tasks, put a packed contest (`contest.json` and its runs) under `results` and name its folder
in `STUDIES`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from snapsure._types import Floats
from snapsure.estimators import SPTD
from snapsure.evaluation._archive import open_contest
from snapsure.evaluation._compare import list_every_candidate
from snapsure.evaluation._engine import Candidate, Judged, judge_all
from snapsure.evaluation._protocol import Halves
from snapsure.evaluation._run import Run
from snapsure.metrics import aurc, eaurc, risk_at_coverage

ROOT = Path(__file__).parent.parent
STUDIES = ("contest", "passes", "regime", "labels", "intents", "images")

FINAL, AES, LES, LES3 = (
    *("final", "AES"),
    *("LES", "LES (3 passes)"),
)
EMBEDDED = "error predictor with embedding"
UNTIED = "SPTD, ties by softmax"
FIVE = "five networks, answering together"
POWERS = (1, 2, 3)  # SPTD's k, over the range that its author's thesis finds best
COVERAGES = (0.5, 0.8, 0.95)
CHOSEN = (
    *(FINAL, AES, LES, LES3, "LES (2 passes)", "MaxLogit-pNorm", "error predictor"),
    *(EMBEDDED, "mean weights", "both networks, answering together", FIVE, "SAT", "student", "gen"),
)


@dataclass(frozen=True)
class Numbers:
    """One way on one training, means over the halves."""

    aurc: float
    eaurc: float
    error: float
    accuracy: tuple[float, ...]  # of the answers that are accepted, at COVERAGES
    passes: float
    trainings: float


@dataclass(frozen=True)
class Task:
    """A data set and recipe, with its trainings."""

    name: str  # study/task, such as contest/words-weak
    right: Sequence[float]  # in training, of each
    ways: dict[str, list[Numbers]] = field(default_factory=dict)
    undoubted: list[float] = field(default_factory=list)  # share, of each training

    def gains(self, way: str) -> list[float]:
        """Percent less AURC than the final softmax, of each training."""
        both = zip(self.ways[way], self.ways[FINAL], strict=True)
        return [100 * (1 - ours.aurc / final.aurc) for ours, final in both]

    def gain(self, way: str) -> float:
        """Percent less, of the means over the trainings: what `compare(metric="aurc")` says."""
        return 100 * (1 - self.mean(way, "aurc") / self.mean(FINAL, "aurc"))

    def mean(self, way: str, number: str) -> float:
        """Mean of a number over the trainings."""
        return float(np.mean([getattr(one, number) for one in self.ways[way]]))

    def accuracy(self, way: str) -> Floats:
        """Mean selective accuracy at each of the coverages."""
        found: Floats = np.mean([one.accuracy for one in self.ways[way]], axis=0)
        return found


def tasks() -> list[Task]:
    """All that is committed."""
    found = []
    for study in STUDIES:
        about = json.loads((ROOT / "results" / study / "contest.json").read_text())
        again = about.get("known", {}).values()  # boards of the same trainings, on more points
        for name, runs in open_contest(ROOT / "results" / study).items():
            if name not in again:
                found.append(task(f"{study}/{name}", _right(about, name), runs))
    return found


def _right(about: dict[str, Any], name: str) -> list[float]:
    """The share of the training points that each plain network answers rightly at its end."""
    plain = [one["ways"]["plain"] if "ways" in one else one for one in about["trainings"][name]]
    return [float(one["training_accuracy"]) for one in plain]


def task(name: str, right: Sequence[float], runs: Sequence[Run]) -> Task:
    """Every way that all the runs have."""
    made = Task(name, right)
    each = [_judged(run) for run in runs]
    for way in each[0]:
        if all(way in one for one in each):
            made.ways[way] = [_numbers(one[way]) for one in each]
    for run in runs:
        made.undoubted.append(float((run.table.labels == run.table.y_hat).all(axis=0).mean()))
    return made


def _judged(run: Run) -> dict[str, list[Judged]]:
    every = list_every_candidate(run, None, "softmax")
    ways = [one for one in every if one.method in CHOSEN and one.kappa in (None, "softmax")]
    ways += [Candidate(f"SPTD, k = {k}", None, partial(SPTD, float(k))) for k in POWERS]
    found: dict[str, list[Judged]] = {}
    for learn, rest in Halves().parts(run.y.size):
        one, other = run.rows(learn), run.rows(rest)
        for way, judged in zip(ways, judge_all(ways, one, other), strict=True):
            found.setdefault(way.method, []).append(judged)
        found.setdefault(UNTIED, []).append(
            _untied(found[f"SPTD, k = {POWERS[1]}"][-1], found[FINAL][-1])
        )
    return found


def _untied(judged: Judged, final: Judged) -> Judged:
    """The same order, and among equals that of the final softmax."""
    pairs = np.column_stack((judged.score, final.score))
    place = np.unique(pairs, axis=0, return_inverse=True)[1].ravel().astype(np.float64)
    return Judged(
        place, judged.errors, judged.p, judged.passes, judged.kept, trainings=judged.trainings
    )


def _numbers(halves: Sequence[Judged]) -> Numbers:
    def mean(values: Iterator[Any]) -> float:
        return float(np.mean(list(values)))

    return Numbers(
        mean(aurc(one.score, one.errors) for one in halves),
        mean(eaurc(one.score, one.errors) for one in halves),
        mean(one.errors.mean() for one in halves),
        tuple(
            mean(1 - risk_at_coverage(one.score, one.errors, share) for one in halves)
            for share in COVERAGES
        ),
        mean(one.passes for one in halves),
        mean(one.trainings for one in halves),
    )
