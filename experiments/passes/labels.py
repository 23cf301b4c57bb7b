"""How much should a student learn from labels? `python -m experiments.passes.labels runs words`.

Protocol, written before the first training:

- Tasks, in this order: words, clothes, cifar10, cifar100; their recipes are those of
  `experiments.passes`. Seeds 0, 1, 2 of each.
- Per seed: a teacher (its snapshots of every second epoch); a second network by the same recipe
  from other first weights; four students of that teacher, with weights of the labels 0, 0.25, 0.5
  and 0.75; and the averaged weights of the teacher's snapshots from 40 % of the training on.
- Judged on 10,000 test examples that nothing learned from: the error rate and AURC of each as a
  classifier of its own (one pass); AURC of its κ of the teacher's answers, and of the mean of its
  κ and the teacher's (two passes).
- Gain: percent less AURC than the teacher's final softmax on the same examples. The default of
  `Student(labels=)` is the weight with the highest mean gain as a classifier of its own: the mean
  over seeds of each task, then over tasks. Every task that finished counts; the result is no proof
  of the default on these tasks, because it is chosen on them.

Finished trainings are kept, and the same command resumes. `--results` writes
what is finished.
"""

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from experiments.contest.packing import DONE, Packages, Seeds, Threads, train_once
from experiments.contest.runs import predict
from experiments.passes.__main__ import NAMES, make_task
from experiments.passes.tasks import Task
from experiments.passes.trainings import PLAIN, SECOND, Taught, locate_training, teach, train
from snapsure import _files
from snapsure.estimators.registry import AVERAGED
from snapsure.kappas._base import softmax_of
from snapsure.metrics import aurc
from snapsure.scoring import average_weights
from snapsure.snapshots import SnapshotStore

STUDENTS = [Taught(f"student {weight:g}", labels=weight) for weight in (0, 0.25, 0.5, 0.75)]
TRAINED = [PLAIN.name, SECOND.name, *(student.name for student in STUDENTS)]

SEEDS = range(3)


def main(
    out: Annotated[Path, typer.Argument(help="Folder for trainings.")],
    names: Annotated[list[str], typer.Argument(help=f"Some of {', '.join(NAMES)}.")],
    packages: Packages = Path("node_modules"),
    cifar: Annotated[Path | None, typer.Option(help="CIFAR-100, as for `snapsure train`.")] = None,
    seed: Seeds = None,
    results: Annotated[Path | None, typer.Option(help="Write what is finished here.")] = None,
    threads: Threads = 1,
) -> None:
    """Train what is not trained, task by task and seed by seed."""
    torch.set_num_threads(threads)
    finished: dict[str, dict[str, Any]] = {}
    for name in names:
        task = make_task(name, packages, cifar)
        for one in seed or SEEDS:
            folder = out / name / f"seed-{one}"
            if results is None:
                train_all(task, one, folder)
            elif all((locate_training(folder, way) / DONE).exists() for way in TRAINED):
                finished.setdefault(name, {})[str(one)] = judge_all(task, folder)
    if results is not None:
        text = json.dumps({"test_examples": 10_000, "tasks": finished}, indent=1)
        _files.write_bytes(results, text.encode() + b"\n")


def train_all(task: Task, seed: int, folder: Path) -> None:
    """Train the teacher, the second network and the students of one seed."""
    plain = locate_training(folder, PLAIN.name)
    for way in (PLAIN, SECOND):
        path = locate_training(folder, way.name)
        train_once(path, partial(train, task, way, seed, path))
    for student in STUDENTS:
        path = locate_training(folder, student.name)
        train_once(path, partial(teach, task, student, seed, plain, path))


def judge_all(task: Task, folder: Path) -> dict[str, dict[str, float]]:
    """Return the error rate and AURC of each way of one seed, alone and of the teacher's answers.

    `aurc` is that of a classifier of its own, `aurc_of_final` that of its κ of the teacher's
    answers, and `aurc_beside_final` that of the mean of its κ and the teacher's.
    """
    logits = {
        name: torch.from_numpy(np.load(locate_training(folder, name) / "logits.npy"))
        for name in TRAINED
    }
    store = SnapshotStore(locate_training(folder, PLAIN.name) / "snapshots")
    logits[AVERAGED] = predict(average_weights(task.network(), store, task.train), task.test[0])

    y = task.test[1].numpy()
    final = logits[PLAIN.name]
    y_hat = final.argmax(dim=1).numpy()
    old, wrong = softmax_of(final, y_hat), y_hat != y
    found = {}
    for name, each in logits.items():
        answers = each.argmax(dim=1).numpy()
        kappa = softmax_of(each, y_hat)
        found[name] = {
            "error": float((answers != y).mean()),
            "aurc": aurc(softmax_of(each, answers), answers != y),
            "aurc_of_final": aurc(kappa, wrong),
            "aurc_beside_final": aurc((kappa + old) / 2, wrong),
        }
    return found


if __name__ == "__main__":
    typer.run(main)
