"""Add the ensemble of all seeds of a task to what is packed.

    python -m experiments.contest.ensembles results/contest

Each run gets one more score, of the classifier that answers by the mean of all seeds' softmaxes. It
costs as many passes and trainings as there are seeds.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from snapsure._logistic import log_odds, sigmoid
from snapsure._types import Floats, Ints
from snapsure.evaluation import Rival, Run
from snapsure.evaluation._archive import ABOUT, locate_run, open_contest, pack, write_manifest

MEMBERS = 5
FIVE = "five networks, answering together"


def main(folder: Annotated[Path, typer.Argument(help="A packed study, with logits.")]) -> None:
    """Pack every task of five seeds again, with the ensemble of its networks."""
    contest = open_contest(folder)
    for name, runs in contest.items():
        if len(runs) == MEMBERS and FIVE not in runs[0].others:
            for seed, run in enumerate(add_ensemble(runs)):
                pack(run, locate_run(folder, name, seed))
    about = json.loads((folder / ABOUT).read_bytes())
    about.pop("sha256")
    write_manifest({name: len(runs) for name, runs in contest.items()}, about, folder)


def add_ensemble(runs: Sequence[Run]) -> list[Run]:
    """Return the same runs, each with the ensemble of all of them."""
    several = len(runs)
    ensemble = Rival(*answer_together(runs), passes=several, kept=several, trainings=several)
    return [run.replace(run.table, {**run.others, FIVE: ensemble}) for run in runs]


def answer_together(runs: Sequence[Run]) -> tuple[Floats, Ints]:
    """Return κ and labels of the classifier that averages the runs' final softmaxes."""
    logits = [run.table.logits for run in runs if run.table.logits is not None]
    weights = [np.exp(each - each.max(axis=1, keepdims=True)) for each in logits]
    mean = np.mean([each / each.sum(axis=1, keepdims=True) for each in weights], axis=0)

    y_hat = mean.argmax(axis=1)
    return np.mean([sigmoid(log_odds(each, y_hat)) for each in logits], axis=0), y_hat


if __name__ == "__main__":
    typer.run(main)
