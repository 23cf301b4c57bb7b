"""The numbers behind the tables of `tools/results.py`, computed from the archives in `results/`.

To add a study, put a packed contest (`contest.json` and its runs) under `results` and name its
folder in `STUDIES`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from snapsure._logit_scores import LogitScores
from snapsure._types import Bools, Floats, Ints
from snapsure.estimators import AES as AveragedEarlyStopping
from snapsure.estimators import SPTD
from snapsure.evaluation import Comparison, Halves, Rival, Run, compare
from snapsure.evaluation._archive import open_contest
from snapsure.evaluation._compare import list_every_candidate
from snapsure.evaluation._engine import Candidate, Judged, judge_all
from snapsure.metrics import aurc, eaurc, risk_at_coverage
from snapsure.paper.archive import Experiment
from snapsure.table import ScoreTable

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
STUDIES = ("contest", "passes", "regime", "labels", "intents", "images")

# Names of methods as `compare` has them.
FINAL, AES, LES = "final", "AES", "LES"
LES4, LES3, LES2 = (f"LES ({passes} passes)" for passes in (4, 3, 2))
BOTH, FIVE = "both networks, answering together", "five networks, answering together"
PNORM, PREDICTOR, EMBEDDED = "MaxLogit-pNorm", "error predictor", "error predictor with embedding"
UNTIED = "SPTD, ties by softmax"
THINNED, THINNED_UNTIED = "SPTD, every second snapshot", "the same, ties by softmax"

POWERS = (1, 2, 3)  # SPTD's k, over the range that its author's thesis finds best
COVERAGES = (0.5, 0.8, 0.95)
STARTS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of AES; the first is its default
_JUDGED = (
    *(FINAL, AES, LES, LES3, LES2, PNORM, PREDICTOR, EMBEDDED, BOTH, FIVE),
    *("averaged weights", "SAT", "student", "gen"),
)

About = dict[str, list[dict[str, Any]]]
T = TypeVar("T")


def open_study(name: str) -> dict[str, list[Run]]:
    """Read the runs of a study, by task."""
    return open_contest(RESULTS / name)


def read_trainings(study: str) -> About:
    """Read what a study's trainings recorded about themselves, by task."""
    found: About = json.loads((RESULTS / study / "contest.json").read_text())["trainings"]
    # A training of few passes is the plain one among several ways to train.
    return {
        name: [one.get("ways", {}).get("plain", one) for one in some]
        for name, some in found.items()
    }


@dataclass(frozen=True)
class Numbers:
    """One method on one training, means over the halves."""

    aurc: float
    eaurc: float
    error: float
    accuracy: tuple[float, ...]  # of the accepted answers, at COVERAGES
    passes: float
    trainings: float


@dataclass(frozen=True)
class Task:
    """A data set and recipe, with its trainings."""

    name: str  # study/task, such as contest/words-weak
    right: Sequence[float]  # training accuracy of each
    methods: dict[str, list[Numbers]] = field(default_factory=dict)
    undoubted: list[float] = field(default_factory=list)  # share of labels that never changed

    def gains(self, method: str) -> list[float]:
        """Return how many percent less AURC than the final softmax each training has."""
        both = zip(self.methods[method], self.methods[FINAL], strict=True)
        return [100 * (1 - ours.aurc / final.aurc) for ours, final in both]

    def gain(self, method: str) -> float:
        """Return the same of the means, as `compare(metric="aurc")` does."""
        return 100 * (1 - self.mean(method, "aurc") / self.mean(FINAL, "aurc"))

    def mean(self, method: str, number: str) -> float:
        """Return the mean of a number over the trainings."""
        return float(np.mean([getattr(one, number) for one in self.methods[method]]))

    def accuracy(self, method: str) -> Floats:
        """Return the mean accuracy of accepted answers at each of the coverages."""
        found: Floats = np.mean([one.accuracy for one in self.methods[method]], axis=0)
        return found


def judge_tasks() -> list[Task]:
    """Judge the methods of the tables that go over every study, without intervals.

    Each test set is halved as in `compare`: a method learns on one half and is judged on the other.
    """
    found = []
    for study in STUDIES:
        about = json.loads((RESULTS / study / "contest.json").read_text())
        repeated = about.get("known", {}).values()  # the same trainings, on more examples
        trainings = read_trainings(study)
        for name, runs in open_study(study).items():
            if name not in repeated:
                right = [float(one["training_accuracy"]) for one in trainings[name]]
                found.append(_judge_task(f"{study}/{name}", right, runs))
    return found


def _judge_task(name: str, right: Sequence[float], runs: Sequence[Run]) -> Task:
    task = Task(name, right)
    each = [_judge_run(run) for run in runs]
    for method in each[0]:
        if all(method in one for one in each):
            task.methods[method] = [_average(one[method]) for one in each]

    for run in runs:
        task.undoubted.append(float((run.table.labels == run.table.y_hat).all(axis=0).mean()))
    return task


def _judge_run(run: Run) -> dict[str, list[Judged]]:
    every = list_every_candidate(run, None, "softmax")
    methods = [one for one in every if one.method in _JUDGED and one.kappa in (None, "softmax")]
    methods += [Candidate(f"SPTD, k = {k}", None, partial(SPTD, float(k))) for k in POWERS]
    table = run.table
    at = np.arange(len(table.epochs))[::-2][::-1]  # every second snapshot, the final one too
    half = ScoreTable(
        {"softmax": table.kappa("softmax")[at]},
        table.labels[at],
        y_hat=table.y_hat,
        epochs=table.epochs[at],
    )
    thinned = SPTD(float(POWERS[1])).fit(half).confidence(half)
    found: dict[str, list[Judged]] = {}
    for learn, rest in Halves().parts(run.y.size):
        one, other = run.rows(learn), run.rows(rest)
        for method, judged in zip(methods, judge_all(methods, one, other), strict=True):
            found.setdefault(method.method, []).append(judged)
        tied, final = found[f"SPTD, k = {POWERS[1]}"][-1], found[FINAL][-1]
        found.setdefault(UNTIED, []).append(_break_ties(tied, final))
        fewer = replace(tied, score=thinned[rest])
        found.setdefault(THINNED, []).append(fewer)
        found.setdefault(THINNED_UNTIED, []).append(_break_ties(fewer, final))
    return found


def _break_ties(judged: Judged, final: Judged) -> Judged:
    """Return the same order, with ties in the order of the final softmax."""
    pairs = np.column_stack((judged.score, final.score))
    place = np.unique(pairs, axis=0, return_inverse=True)[1].ravel().astype(np.float64)
    return replace(judged, score=place)


def _average(halves: Sequence[Judged]) -> Numbers:
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


# GEN, with its authors' γ and all classes up to 100, and with both chosen by labels.
PUBLISHED_GEN, CHOSEN_GEN = "GEN, γ = 0.1", "GEN, chosen"
GAMMAS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.99)
TOPS = (2, 3, 5, 10, 20, 50, 100)
Gen = tuple[float, int]  # γ, and how many of the largest probabilities count


def score_gen(table: ScoreTable) -> dict[Gen, Floats]:
    """Return GEN of the final logits for every γ and number of classes."""
    assert table.logits is not None
    scores = LogitScores(table.logits, table.y_hat)
    tops = [top for top in TOPS if top <= table.logits.shape[1]]
    return {(gamma, top): scores.gen(gamma, top) for gamma in GAMMAS for top in tops}


def choose_gen(grid: Mapping[Gen, Floats], wrong: Bools, learn: Ints) -> Gen:
    """Return γ and the number of classes with the least E-AURC on some examples."""
    return min(grid, key=lambda one: float(eaurc(grid[one][learn], wrong[learn])))


def compare_gen() -> tuple[Comparison, dict[str, list[Gen]]]:
    """Compare GEN, published and chosen by halves, with the final softmax; return what is chosen.

    Every archived training with logits takes part.
    """
    runs: dict[str, list[Run]] = {}
    chosen: dict[str, list[Gen]] = {}
    for study in STUDIES:
        for name, some in open_study(study).items():
            for table in (run.table for run in some if run.table.logits is not None):
                grid, best = score_gen(table), np.empty(table.y_hat.size)
                for learn, rest in Halves().parts(best.size):
                    key = choose_gen(grid, table.errors, learn)
                    best[rest] = grid[key][rest]
                    chosen.setdefault(f"{study}/{name}", []).append(key)
                final = {"softmax": table.kappa("softmax")[-1:]}
                bare = ScoreTable(final, table.y_hat[None], table.y, y_hat=table.y_hat)
                others = {PUBLISHED_GEN: grid[0.1, max(grid)[1]], CHOSEN_GEN: best}
                runs.setdefault(f"{study}/{name}", []).append(Run(bare, others=others))
    methods = (FINAL, PUBLISHED_GEN, CHOSEN_GEN)
    return compare(runs, methods=methods, resamples=1000), chosen


# Networks that do not fit their training set. Their snapshots' own labels are not archived.
CONTRAST, CONTRAST_FOLDER = (
    "cifar100-underfitted (all images)",
    RESULTS / "cifar100-cpu-full-underfitted",
)


def open_networks() -> dict[str, list[Run]]:
    """Read every archived network with κ of its snapshots, by task."""
    contrast = [Run(table) for table in Experiment.open(CONTRAST_FOLDER).tables]
    return {
        **_gather(open_study, "intents", "images", "contest"),
        CONTRAST: contrast,
        **_gather(open_study, "passes", "regime"),
    }


def _gather(read: Callable[[str], Mapping[str, T]], *names: str) -> dict[str, T]:
    """Return what is read of several studies, by task; a suffix tells tasks of one name apart."""
    suffix = {"passes": " (few passes)", "regime": " (all images)"}
    return {
        task.removesuffix("-cpu-full") + suffix.get(study, ""): found
        for study in names
        for task, found in read(study).items()
    }


def compare_starts(runs: Mapping[str, Sequence[Run]]) -> Comparison:
    """Compare AES from every start with the final softmax."""
    moved = {name: [_average_from_starts(run) for run in some] for name, some in runs.items()}
    return compare(moved, methods=("final", *(f"from {start}" for start in STARTS)))


def _average_from_starts(run: Run) -> Run:
    """Return a run whose only other scores are those of AES from every start."""
    kappa, epochs, y_hat = run.table.kappa("softmax"), run.table.epochs, run.table.y_hat
    # Without the snapshots' own labels and logits, `compare` has no other rivals.
    labels = np.broadcast_to(y_hat, kappa.shape)
    table = ScoreTable({"softmax": kappa}, labels, run.y, y_hat=y_hat, epochs=epochs)

    estimators = {f"from {start}": AveragedEarlyStopping(start=start) for start in STARTS}
    others = {}
    for name, aes in estimators.items():
        kept = len(aes.snapshots(epochs))
        others[name] = Rival(aes.confidence(table), y_hat, passes=kept, kept=kept)
    return Run(table, others=others)


@dataclass(frozen=True)
class Record:
    """What is known of each training of a task. NaN stands for what was not archived."""

    accuracy: Floats  # of the final network on its training set
    loss: Floats  # (networks, 3): training loss, first, at 0.4 T, last
    error: Floats  # (networks, 2): test error, at 0.4 T, last

    @property
    def fall(self) -> Floats:
        """Return the share of the training loss's fall that comes after 0.4 T."""
        first, at, last = self.loss.T
        share: Floats = (at - last) / (first - last)
        return share

    @property
    def improvement(self) -> Floats:
        """Return the share of itself by which the test error falls after 0.4 T."""
        share: Floats = 1 - self.error[:, 1] / self.error[:, 0]
        return share


def read_records(runs: Mapping[str, Sequence[Run]]) -> dict[str, Record]:
    """Read what is known of the trainings, by task."""
    trainings = _gather(read_trainings, "intents", "images", "contest", "passes", "regime")
    records = {}
    for name, some in trainings.items():
        logs = [[row["loss"] for row in one.get("log", ()) if "loss" in row] for one in some]
        records[name] = Record(
            np.array([one["training_accuracy"] for one in some]),
            np.array([_sample_along(log) if log else (np.nan,) * 3 for log in logs]),
            np.array([_read_errors(run) for run in runs[name]]),
        )

    about = json.loads((CONTRAST_FOLDER / "experiment.json").read_text())
    loss, error = (
        np.array([_sample_along([row[key] for row in epochs]) for epochs in about["networks"]])
        for key in ("loss", "test_error")
    )
    accuracy = np.array([epochs[-1]["training_accuracy"] for epochs in about["networks"]])
    return {**records, CONTRAST: Record(accuracy, loss, error[:, 1:])}


def _sample_along(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the first of evenly spaced values, the one at 0.4 T, and the last."""
    return values[0], values[round(STARTS[0] * len(values)) - 1], values[-1]


def _read_errors(run: Run) -> tuple[float, float]:
    """Return the error of the first snapshot that AES averages, and of the final one."""
    table = run.table
    at = table.epochs.tolist().index(AveragedEarlyStopping().snapshots(table.epochs)[0])
    return float((table.labels[at] != run.y).mean()), float(table.errors.mean())
