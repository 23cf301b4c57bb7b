"""How many labels LES needs, and whether it loses: `python -m experiments.learning_curve runs`.

Of every committed training, LES and LES in three passes learn from 100, 300, 1,000 and 3,000 of the
test points (20 draws of each, their seeds fixed) and are judged on the rest, beside the final
softmax. Two rules: the one in use, and the one before it, whose penalty was the same on the weight
of every snapshot, so that few labels gave an average of all and not the final one's order.

What is finished is kept, a file per training: stopped, the same command resumes. About an hour of
one core; `--workers 2` halves it. `results/learning-curve.json` has the tasks of which all
trainings are finished, and `make results` writes the docs' table from it.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import numpy as np
import typer

from snapsure import _files
from snapsure._types import Bools, Floats
from snapsure.estimators import LES, _search
from snapsure.evaluation._archive import open_contest
from snapsure.evaluation._run import Run
from snapsure.metrics import eaurc
from snapsure.metrics._bootstrap import bootstrap_values
from snapsure.table import ScoreTable
from snapsure.table._table import random_cut

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "learning-curve.json"
STUDIES = ("passes", "contest")

LABELS = (100, 300, 1000, 3000)
JUDGED = 1000  # points that must be left to judge by: results/contest has too few for 3,000 labels
DRAWS = range(20)  # the seeds of the draws, the same for every training of a task
RESAMPLES = 1000
METHODS: dict[str, int | None] = {"LES": None, "LES (3 passes)": 3}
# The penalty on the weight of the final snapshot, where that on the others is 10.
RULES = {"before": _search._PENALTY, "now": _search._OF_FINAL}


def main(
    out: Annotated[Path, typer.Argument(help="Folder for what is finished.")],
    workers: Annotated[int, typer.Option(help="Processes to run side by side.")] = 1,
    draws: Annotated[int, typer.Option(help="Draws of the labels.")] = len(DRAWS),
) -> None:
    """Run what is not finished, and write what all came to."""
    out.mkdir(parents=True, exist_ok=True)
    asked = [
        (study, name, i, out / f"{study}, {name}, seed {i}.json", draws)
        for study in STUDIES
        for name, count in _counts(study).items()
        for i in range(count)
    ]
    waiting = [each for each in asked if not each[3].exists()]
    paths: dict[str, list[Path]] = {}
    for study, name, _, path, _ in asked:
        paths.setdefault(f"{study}/{name}", []).append(path)
    with ProcessPoolExecutor(workers) as pool:
        for path in pool.map(_finished, waiting):
            print(path, flush=True)
            _gather(paths, draws)
    _gather(paths, draws)


def _gather(paths: dict[str, list[Path]], draws: int) -> None:
    """Write the tasks of which all trainings are finished into one file."""
    found = {
        name: [json.loads(path.read_text()) for path in some]
        for name, some in paths.items()
        if all(path.exists() for path in some)
    }
    told = {
        "draws": draws,
        "resamples": RESAMPLES,
        "penalty of the final snapshot": RULES,
        "tasks": {name: _together(runs) for name, runs in found.items()},
    }
    _files.write_bytes(RESULTS, (json.dumps(told, indent=1) + "\n").encode())


def _counts(study: str) -> dict[str, int]:
    about = json.loads((ROOT / "results" / study / "contest.json").read_text())
    return dict(about["runs"])


def _finished(asked: tuple[str, str, int, Path, int]) -> Path:
    study, name, seed, path, draws = asked
    run = open_contest(ROOT / "results" / study)[name][seed]
    _files.write_bytes(path, json.dumps(curve(run, range(draws))).encode())
    return path


def curve(run: Run, draws: range = DRAWS) -> list[dict[str, Any]]:
    """Every draw of one training: what was gained, and whether chance explains it."""
    found = []
    for labels in LABELS:
        if run.y.size - labels < JUDGED:
            continue
        for draw in draws:
            learn, rest = random_cut(run.y.size, labels, draw)
            judged = _judged(run.table.rows(learn), run.table.rows(rest))
            found += [{"labels": labels, "draw": draw, **each} for each in judged]
    return found


def _judged(learn: ScoreTable, rest: ScoreTable) -> Iterator[dict[str, Any]]:
    """Each method by each rule, on the same resamples of the points that none has learnt from."""
    final, asked, scores = rest.kappa("softmax")[-1], [], []
    for method, passes in METHODS.items():
        for rule, penalty in RULES.items():
            with mock.patch.object(_search, "_OF_FINAL", penalty):
                les = LES(passes=passes).fit(learn)
            asked.append((method, rule, les.fallback_))
            scores.append(les.confidence(rest))
    for (method, rule, fallback), (gain, low, high) in zip(
        asked, gains(final, scores, rest.errors), strict=True
    ):
        yield {
            "method": method,
            "rule": rule,
            "fallback": fallback,
            "gain": round(gain, 3),
            "low": round(low, 3),
            "high": round(high, 3),
        }


def gains(final: Floats, scores: list[Floats], wrong: Bools) -> Iterator[tuple[float, ...]]:
    """Percent of the final κ's E-AURC that each score saves, and the ends of its 95 % interval."""
    scored = [(each, wrong) for each in (final, *scores)]
    drawn = bootstrap_values(eaurc, scored, RESAMPLES, 0)
    base = float(eaurc(final, wrong))
    for score, values in zip(scores, drawn[1:], strict=True):
        saved = np.quantile(drawn[0] - values, [0.025, 0.975])
        yield tuple(100 * float(each) / base for each in (base - eaurc(score, wrong), *saved))


def _together(runs: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A row per number of labels, method and rule, over all draws of all trainings of a task."""
    each = [one for run in runs for one in run]
    rows = []
    for labels in LABELS:
        for method in METHODS:
            for rule in RULES:
                asked = (labels, method, rule)
                some = [o for o in each if (o["labels"], o["method"], o["rule"]) == asked]
                if not some:
                    continue
                rows.append(
                    {
                        "labels": labels,
                        "method": method,
                        "rule": rule,
                        "draws": len(some),
                        "fallback": sum(one["fallback"] for one in some),
                        "mean": round(float(np.mean([one["gain"] for one in some])), 2),
                        "worst": round(min(one["gain"] for one in some), 2),
                        "worse": sum(one["high"] < 0 for one in some),
                        "better": sum(one["low"] > 0 for one in some),
                    }
                )
    return rows


if __name__ == "__main__":
    typer.run(main)
