"""Commands that people wait for, each in a process of its own; a bare Python is what must be."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness import Case
from snapsure import ScoreTable

ROOT = Path(__file__).parents[1]


def cases() -> Iterator[Case]:
    """Every row of the table."""
    yield _case(["--help"], "snapsure --help", within=0.3, rounds=11)
    contest = ["compare", "--from", str(ROOT / "results" / "contest")]
    yield _case(contest, "snapsure compare --from results/contest", within=15, rounds=3)
    with tempfile.TemporaryDirectory() as folder:
        table, page = Path(folder) / "table", Path(folder) / "report.html"
        _million().save(table)
        report = ["report", str(table), "--out", str(page)]
        yield _case(report, "snapsure report, 5 snapshots × 10⁶ examples", within=15, rounds=3)


def memory() -> dict[str, float]:
    """Not measured."""
    return {}


def _case(arguments: list[str], name: str, *, within: float, rounds: int) -> Case:
    ours = partial(_run, ["-m", "snapsure", *arguments])
    bare = partial(_run, ["-c", "pass"])
    return Case(name, "a bare Python", ours, bare, at_most_more=within, rounds=rounds)


def _run(arguments: list[str]) -> None:
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, cwd=ROOT)


def _million() -> ScoreTable:
    """Scores that grow less noisy; a point is wrong the more often, the less sure it is."""
    rng = np.random.default_rng(0)
    sure = rng.random(10**6)
    kappa = [np.clip(sure + rng.normal(0, 0.2 / (s + 1), sure.size), 0, 1) for s in range(5)]
    return ScoreTable.from_kappa(np.array(kappa), rng.random(sure.size) > sure**0.2)
