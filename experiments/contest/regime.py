"""The paper's own regime on the contest's boards: networks of all images of CIFAR.

    snapsure reproduce all --dataset cifar100 --scale cpu-full --data cifar100 --out runs/cifar100
    python -m experiments.contest.regime runs/cifar100 results/regime --data cifar100
    snapsure compare --from results/regime

Trains nothing: every rival's scores on the first 5,000 test images, of the networks whose training
is finished, from seed 0 on. What is packed already is kept.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from experiments.contest.runs import Training, make_lean_run
from snapsure.evaluation._archive import ABOUT, finish, pack, place
from snapsure.paper.run import Study
from snapsure.paper.train import Parts, build, is_finished
from snapsure.training._epochs import read_history

POINTS = 5_000  # of the test images, those that are packed


def main(
    runs: Annotated[Path, typer.Argument(help="The --out of `snapsure reproduce`.")],
    packed: Annotated[Path, typer.Argument(help="Folder for the contest.")],
    data: Annotated[Path | None, typer.Option(help="Its --data.")] = None,
    dataset: Annotated[str, typer.Option(help="cifar10 or cifar100.")] = "cifar100",
    scale: Annotated[str, typer.Option(help="cpu-full or its contrast.")] = "cpu-full",
    threads: Annotated[int, typer.Option(help="Of PyTorch.")] = 1,
) -> None:
    """Pack what is finished and is not packed yet."""
    torch.set_num_threads(threads)
    study = Study(dataset, scale, runs, data)
    parts = study.load(lambda line: typer.echo(line, err=True))
    path, name = packed / ABOUT, f"{dataset}-{scale}"
    about: dict[str, Any] = json.loads(path.read_text())["trainings"] if path.exists() else {}
    known = about.setdefault(name, [])
    while is_finished(study.recipe, study.folder(len(known))):
        seed = len(known)
        run = make_lean_run(_training(study, seed, parts), points=POINTS, keep_logits=False)
        pack(run, place(packed, name, seed))
        log = read_history(study.folder(seed))
        known.append(
            {
                "task": name,
                "seed": seed,
                "training_accuracy": log[-1]["training_accuracy"],
                "test_error": log[-1]["test_error"],
                "log": log,
            }
        )
        typer.echo(f"{name}, seed {seed}: packed", err=True)
    finish({one: len(some) for one, some in about.items()}, {"trainings": about}, packed)


def _training(study: Study, seed: int, parts: Parts) -> Training:
    train = (parts.train.pixels, parts.train.labels)
    return Training(study.folder(seed), build(study.recipe, parts), train, parts.test.pixels)


if __name__ == "__main__":
    typer.run(main)
