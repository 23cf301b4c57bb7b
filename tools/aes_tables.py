"""When AES hurts: its gain from other starts, and beside it what the training's record says.

`python -m tools.aes_tables` writes the tables of docs/results/when-aes-hurts.md anew from all that
is committed; a test compares them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from snapsure._types import Floats
from snapsure.estimators import AES
from snapsure.evaluation import Board, Comparison, Run, compare
from snapsure.evaluation._archive import ABOUT, open_contest
from snapsure.paper.archive import Experiment
from snapsure.table import ScoreTable
from tools.passes_tables import gain, percent, replaced

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
PAGE = ROOT / "docs" / "results" / "when-aes-hurts.md"
TUNED = ("intents", "images")  # studies of fine-tuned networks
PASSES, REGIME = " (few passes)", " (all images)"  # end the names of these studies' tasks
# Networks that do not fit their training set, whose snapshots' labels are not kept.
CONTRASTS = {f"cifar100-underfitted{REGIME}": "cifar100-cpu-full-underfitted"}
FEWEST = 4  # tasks that a correlation is taken of
STARTS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # the first is AES's own

Runs = Mapping[str, Sequence[Run]]


def networks() -> dict[str, list[Run]]:
    """All that are committed with their snapshots' κ, by task."""
    contrasts = {name: Experiment.open(RESULTS / folder) for name, folder in CONTRASTS.items()}
    passes, regime = (open_contest(RESULTS / folder) for folder in ("passes", "regime"))
    return {
        **{name: runs for study in TUNED for name, runs in open_contest(RESULTS / study).items()},
        **open_contest(RESULTS / "contest"),
        **{name: [Run(table) for table in one.tables] for name, one in contrasts.items()},
        **{f"{name}{PASSES}": runs for name, runs in passes.items()},
        **{_all_images(name): runs for name, runs in regime.items()},
    }


def _all_images(name: str) -> str:
    return name.removesuffix("-cpu-full") + REGIME


def about(study: str) -> dict[str, list[dict[str, Any]]]:
    """What the trainings of a study say of themselves, by size or task."""
    told = json.loads((RESULTS / study / ABOUT).read_text())
    found: dict[str, list[dict[str, Any]]] = told["trainings"]
    return found


def _logged() -> dict[str, list[dict[str, Any]]]:
    """What trainings say of themselves that have kept a log, by task."""
    tuned = {name: told for study in TUNED for name, told in about(study).items()}
    tuned |= {name: told for name, told in about("contest").items() if "log" in told[0]}
    return {**tuned, **{_all_images(name): told for name, told in about("regime").items()}}


def starting(run: Run) -> Run:
    """A run whose rivals are AES from other starts, and nothing else."""
    kappa, epochs = run.table.kappa("softmax"), run.table.epochs
    y_hat = run.table.y_hat
    # Without the snapshots' own labels and logits, other rivals stay away.
    table = ScoreTable(
        {"softmax": kappa},
        np.broadcast_to(y_hat, kappa.shape),
        run.y,
        y_hat=y_hat,
        epochs=epochs,
    )
    made = {_from(start): AES(start=start) for start in STARTS}
    passes = {name: len(aes.snapshots(epochs)) for name, aes in made.items()}
    return Run(
        table,
        others={name: aes.confidence(table) for name, aes in made.items()},
        passes=passes,
        kept=passes,
    )


def _from(start: float) -> str:
    return f"from {start}"


def starts(runs: Runs) -> Comparison:
    """AES from every start on every board."""
    moved = {name: [starting(run) for run in some] for name, some in runs.items()}
    return compare(moved, methods=("final", *map(_from, STARTS)))


def starts_table(found: Comparison) -> list[str]:
    """What AES gains from each start, task by task."""
    heads = " | ".join(_from(start) for start in STARTS)
    lines = [
        f"| gain of AES, % | networks | {heads} | best start |",
        f"|---|--:|{'--:|' * len(STARTS)}--:|",
    ]
    for board in found.boards.values():
        cells = [gain(board[_from(start)]) for start in STARTS]
        lines.append(f"| {board.name} | {board.runs} | {' | '.join(cells)} | {best_start(board)} |")
    return lines


def best_start(board: Board) -> str:
    """The start with the largest gain, or none where every one of them loses."""
    best = max(STARTS, key=lambda start: board[_from(start)].saved.estimate)
    return str(best) if board[_from(best)].saved.estimate > 0 else "none"


@dataclass(frozen=True)
class Record:
    """What is known of each training of a task, and what AES gained on it; NaN: not kept."""

    task: str
    gain: str
    gains: Floats  # percent, of each network
    accuracy: Floats  # of the final network on its training set
    loss: Floats  # (networks, 3): of training, first, at 0.4 T, last
    error: Floats  # (networks, 2): held-out, at 0.4 T, last

    @property
    def fall(self) -> Floats:
        """The share of the training loss's fall that comes after 0.4 T."""
        first, at, last = self.loss.T
        share: Floats = (at - last) / (first - last)
        return share

    @property
    def improved(self) -> Floats:
        """By what share of itself the held-out error falls after 0.4 T."""
        share: Floats = 1 - self.error[:, 1] / self.error[:, 0]
        return share


def record_of(found: Comparison, runs: Runs) -> list[Record]:
    """Every task, where AES gains least first."""
    boards = [board for board in found.boards.values() if not board.name.endswith("-oos")]
    first = _from(STARTS[0])
    fitted = _accuracies()
    logged = _logged()
    records = []
    for board in sorted(boards, key=lambda board: board[first].saved.estimate):
        name, count = board.name, board.runs
        error = np.array([_errors(run) for run in runs[name]])
        loss = np.full((count, 3), np.nan)
        if name in CONTRASTS:  # their snapshots' errors are kept
            kept = _epochs(name)
            loss = np.array([_along([row["loss"] for row in epochs]) for epochs in kept])
            along = [_along([row["test_error"] for row in epochs]) for epochs in kept]
            error = np.array(along)[:, 1:]
        elif name in logged:
            kept = [[row for row in one["log"] if "loss" in row] for one in logged[name]]
            loss = np.array([_along([row["loss"] for row in rows]) for rows in kept])
        gains = np.array([np.nan if one is None else one for one in board[first].gains])
        records.append(Record(name, gain(board[first]), gains, fitted[name], loss, error))
    return records


def _accuracies() -> dict[str, Floats]:
    """The final networks' on their training sets, by task."""
    passes = about("passes")
    told = {
        **about("contest"),
        **_logged(),
        **{f"{name}{PASSES}": [one["ways"]["plain"] for one in passes[name]] for name in passes},
        **{name: [epochs[-1] for epochs in _epochs(name)] for name in CONTRASTS},
    }
    return {name: np.array([one["training_accuracy"] for one in told[name]]) for name in told}


def _epochs(name: str) -> list[list[dict[str, float]]]:
    """Every epoch of every network of `snapsure reproduce`."""
    told = json.loads((RESULTS / CONTRASTS[name] / "experiment.json").read_text())
    found: list[list[dict[str, float]]] = told["networks"]
    return found


def _along(values: Sequence[float]) -> tuple[float, float, float]:
    """The first, the one at 0.4 T and the last of values at even distances."""
    return values[0], values[round(STARTS[0] * len(values)) - 1], values[-1]


def _errors(run: Run) -> tuple[float, float]:
    """Error of the first snapshot that AES averages, and of the final one."""
    table = run.table
    at = table.epochs.tolist().index(AES().snapshots(table.epochs)[0])
    return float((table.labels[at] != run.y).mean()), float(table.errors.mean())


def record_table(records: Sequence[Record]) -> list[str]:
    """What the record says beside what AES gains."""
    lines = [
        "| record | right in training | training loss, first → 0.4 T → last | of its fall, after "
        "0.4 T | wrong in test, 0.4 T → T | of itself | gain of AES, % | gain of each, % |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for one in records:
        loss, error = one.loss.mean(axis=0), one.error.mean(axis=0)
        kept = bool(np.isfinite(loss).all())
        cells = [
            one.task,
            percent(one.accuracy.mean(), 1),
            " → ".join(f"{value:.2f}" for value in loss) if kept else "not kept",
            percent(one.fall.mean()) if kept else "",
            " → ".join(percent(value, 1) for value in error),
            percent(-one.improved.mean()),
            one.gain,
            " ".join(f"{value:+.1f}" for value in one.gains),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


RULES: dict[str, Callable[[Record], Floats]] = {
    "right in training": lambda one: one.accuracy,
    "the training loss's fall after 0.4 T": lambda one: -one.fall,
    "the held-out error's fall after 0.4 T": lambda one: -one.improved,
}


def rules_table(records: Sequence[Record]) -> list[str]:
    """Does a number of the record order tasks as AES's gain does? 1: exactly; 0: not at all."""
    lines = [
        "| rule | tasks that kept it | rank correlation with the gain, tasks | of networks | "
        "networks where AES loses, among as many worst by it |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, rule in RULES.items():
        kept = [one for one in records if np.isfinite(rule(one)).all()]
        value = np.array([rule(one).mean() for one in kept])
        gains = np.array([one.gains.mean() for one in kept])
        each = [np.concatenate(parts) for parts in zip(*_pairs(kept, rule), strict=True)]
        worst = np.argsort(each[0], kind="stable")[: int((each[1] < 0).sum())]
        found = f"{int((each[1][worst] < 0).sum())} of {len(worst)}"
        cells = [name, str(len(kept)), *["too few"] * 3]
        if len(kept) >= FEWEST:
            cells[2:] = [f"{_spearman(value, gains):+.2f}", f"{_spearman(*each):+.2f}", found]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _pairs(
    records: Sequence[Record], rule: Callable[[Record], Floats]
) -> list[tuple[Floats, Floats]]:
    return [(rule(one), one.gains) for one in records]


def _spearman(a: Floats, b: Floats) -> float:
    from scipy.stats import spearmanr  # type: ignore[import-untyped]

    return float(spearmanr(a, b).statistic)


def main() -> None:
    """Write the tables."""
    runs = networks()
    found = starts(runs)
    record = record_of(found, runs)
    text = PAGE.read_text()
    for table in (starts_table(found), record_table(record), rules_table(record)):
        text = replaced(text, table)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
