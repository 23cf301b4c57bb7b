"""`snapsure train`."""

from pathlib import Path

import typer
from rich.console import Console

from snapsure.cli._app import command, step_printer
from snapsure.cli._options import (
    Accelerator,
    DataFolder,
    DataSet,
    Devices,
    Precision,
    Scale,
    Seed,
    StudyFolder,
)


@command("Study", "snapsure train --dataset cifar10 --scale cpu --seed 1")
def train(
    dataset: DataSet = "cifar100",
    scale: Scale = "cpu",
    seed: Seed = 0,
    data: DataFolder = None,
    out: StudyFolder = None,
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    precision: Precision = "32-true",
) -> None:
    """Train a network of the paper, with a snapshot per epoch.

    An interrupted training resumes by the same command.
    """
    from snapsure.paper import run
    from snapsure.training._epochs import launch_fabric

    study = run.Study(dataset, scale, out or Path(f"snapsure-{dataset}-{scale}"), data)
    run.claim(study)
    show = step_printer(Console(stderr=True))
    fabric = launch_fabric(accelerator, devices, precision)
    run.train_one(study, seed, study.load(show), fabric, show)
    if fabric.is_global_zero:
        typer.echo(f"snapshots: {study.folder(seed) / 'snapshots'}")
