"""`snapsure distill`."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from snapsure.cli import _inputs as inputs
from snapsure.cli._app import Prefix, Trust, app, told
from snapsure.cli._training import Accelerator, Devices, Precision
from snapsure.errors import InvalidInput

_OPTIMIZERS = ("sgd", "adamw")


@app.command()
def distill(
    model: Annotated[str, typer.Option(help="package.module:factory that makes the network.")],
    snapshots: Annotated[
        Path, typer.Option(help="Folder of snapshots, or of another tool's checkpoints.")
    ],
    data: Annotated[
        str,
        typer.Option(help="The training data: package.module:function, or an .npz of x (and y)."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the student.")],
    unlabelled: Annotated[
        str | None, typer.Option(help="More inputs to learn from; given as --data.")
    ] = None,
    held_out: Annotated[
        str | None,
        typer.Option(help="Labelled points that tell how its answers differ; given as --data."),
    ] = None,
    start: Annotated[
        float, typer.Option(help="Fraction of the training from which on snapshots count.")
    ] = 0.4,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs to train.")] = 30,
    batch_size: Annotated[int, typer.Option(min=1, help="Points per step.")] = 128,
    optimizer: Annotated[str, typer.Option(help=f"{' or '.join(_OPTIMIZERS)}.")] = "sgd",
    learning_rate: Annotated[
        float | None, typer.Option(help="At the start; 0.05 for sgd, 0.0003 for adamw.")
    ] = None,
    weight_decay: Annotated[float, typer.Option(min=0, help="Of the optimizer.")] = 5e-4,
    augment: Annotated[
        str | None,
        typer.Option(help="package.module:function from a batch of inputs to one that is varied."),
    ] = None,
    prefix: Prefix = None,
    trust: Trust = False,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the training.")] = 0,
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    precision: Precision = "32-true",
    as_json: Annotated[bool, typer.Option("--json", help="Print a line for programs.")] = False,
) -> None:
    """Train one network on what all snapshots believe: answers in one pass, or in two.

    It takes one more training. Stopped, the same command resumes.
    """
    with told("run the same command again: targets and whole epochs are kept"):
        from snapsure.training import Student
        from snapsure.training._fabric import launched

        make_optimizer = _optimizer(optimizer, learning_rate, weight_decay)
        inputs.search_here()
        points = None if held_out is None else inputs.data_of(held_out, "--held-out")
        fabric = launched(accelerator, devices, precision)
        student = Student(
            model,
            inputs.snapshots_of(snapshots, prefix, trust),
            inputs.data_of(data, "--data"),
            out,
            start=start,
            unlabelled=None if unlabelled is None else inputs.data_of(unlabelled, "--unlabelled"),
            epochs=epochs,
            batch_size=batch_size,
            optimizer=make_optimizer,
            augment=None if augment is None else inputs.found(augment, "--augment"),
            seed=seed,
            fabric=fabric,
        ).fit()
        if not fabric.is_global_zero:
            return
        differs = None if points is None else student.difference(points)
    if as_json:
        content = {"student": str(out), "snapshots": student.teachers}
        typer.echo(json.dumps(content | ({} if differs is None else vars(differs))))
        return
    if differs is not None:
        typer.echo(f"The student answering itself: {differs}.")
    typer.echo(
        f"An answer takes one forward pass ({out / 'itself'}), or two that leave the old network's "
        f"answers as they are ({out / 'final'});"
    )
    typer.echo(
        f"the mean of the snapshots it learnt from takes {student.teachers}. The price: one more "
        f"training, of {epochs} epochs."
    )
    typer.echo(
        f"Now: snapsure score --model {model} --snapshots {out / 'itself'} --data held-out.npz "
        f"--out scores"
    )
    typer.echo("     snapsure fit scores --risk 0.02 --out predictor")


def _optimizer(name: str, rate: float | None, decay: float) -> Any:
    import torch

    if name not in _OPTIMIZERS:
        raise InvalidInput(
            f"--optimizer must be one of {', '.join(_OPTIMIZERS)}, got {name!r}: choose one"
        )
    if rate is not None and not rate > 0:
        raise InvalidInput(f"--learning-rate must be above 0, got {rate}: raise it")
    if name == "adamw":
        return partial(torch.optim.AdamW, lr=rate or 3e-4, weight_decay=decay)
    return partial(
        torch.optim.SGD, lr=rate or 0.05, momentum=0.9, weight_decay=decay, nesterov=True
    )
