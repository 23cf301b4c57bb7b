"""`snapsure train`."""

from typing import Annotated

import typer
from rich.console import Console

from snapsure.cli._app import app, teller, told
from snapsure.cli._training import (
    Accelerator,
    Data,
    DataSet,
    Devices,
    Out,
    Precision,
    Scale,
    study,
)


@app.command()
def train(
    dataset: DataSet = "cifar100",
    scale: Scale = "cpu",
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the training.")] = 0,
    data: Data = None,
    out: Out = None,
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    precision: Precision = "32-true",
) -> None:
    """Train a network of the paper, a snapshot per epoch; stopped, the same command resumes."""
    with told("run the same command again: whole epochs are kept"):
        from snapsure.paper import run
        from snapsure.training._fabric import launched

        what = study(dataset, scale, data, out)
        run.claim(what)
        tell = teller(Console(stderr=True))
        fabric = launched(accelerator, devices, precision)
        run.train_one(what, seed, what.parts(tell), fabric, tell)
        if fabric.is_global_zero:
            typer.echo(f"snapshots: {what.folder(seed) / 'snapshots'}")
