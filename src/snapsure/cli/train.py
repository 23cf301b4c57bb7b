"""`snapsure train`."""

from pathlib import Path

import typer
from rich.console import Console

from snapsure.cli import _options
from snapsure.cli._app import command, step_printer


@command("Study", "snapsure train --dataset cifar10 --scale cpu --seed 1")
def train(
    dataset: _options.DataSet = "cifar100",
    scale: _options.Scale = "cpu",
    seed: _options.Seed = 0,
    data: _options.DataFolder = None,
    out: _options.StudyFolder = None,
    accelerator: _options.Accelerator = "auto",
    devices: _options.Devices = 1,
    precision: _options.Precision = "32-true",
) -> None:
    """Train a network of the paper, with a snapshot per epoch.

    An interrupted training resumes by the same command.
    """
    from snapsure.paper import run
    from snapsure.snapshots import SnapshotStore
    from snapsure.training._epochs import launch_fabric

    study = run.Study(dataset, scale, out or Path(f"snapsure-{dataset}-{scale}"), data)
    run.claim(study)
    show = step_printer(Console(stderr=True))
    fabric = launch_fabric(accelerator, devices, precision)
    run.train_one(study, seed, study.load(show), fabric, show)
    if fabric.is_global_zero:
        store = SnapshotStore(study.folder(seed) / "snapshots")
        show(f"{len(store)} snapshots, {store.nbytes / 1e6:.1f} MB")
        typer.echo(f"snapshots: {study.folder(seed) / 'snapshots'}")
