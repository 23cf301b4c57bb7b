"""`snapsure distill`."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from snapsure.cli import _data, _models, _options
from snapsure.cli._app import command
from snapsure.cli._options import option
from snapsure.errors import InvalidInput


def _training(text: str, **more: Any) -> Any:
    return option(text, rich_help_panel="Training", **more)


@command(
    "Study", "snapsure distill --model nets.py:make --snapshots run --data train.npz --out student"
)
def distill(
    model: _options.Model,
    snapshots: _options.Snapshots,
    data: Annotated[
        str, option("Training data: package.module:function, or an .npz with x (and y).")
    ],
    out: Annotated[Path, option("Folder for the student.")],
    unlabelled: Annotated[
        str | None, option("More inputs to learn from, in a form of --data.")
    ] = None,
    held_out: Annotated[
        str | None, option("Labelled examples to compare answers on, in a form of --data.")
    ] = None,
    labels: Annotated[
        float, option("Weight of the labels in the loss, in [0, 1); 0 learns from none.")
    ] = 0.75,
    start: Annotated[float, option("Use snapshots from this fraction of the training on.")] = 0.4,
    state: _options.State = None,
    trust: _options.Trust = False,
    epochs: Annotated[int, _training("Epochs to train.", min=1)] = 30,
    batch_size: Annotated[int, _training("Examples per step.", min=1)] = 128,
    optimizer: Annotated[Literal["sgd", "adamw"], _training("What moves the weights.")] = "sgd",
    learning_rate: Annotated[
        float | None, _training("At the start.", show_default="0.05 for sgd, 0.0003 for adamw")
    ] = None,
    weight_decay: Annotated[float, _training("Of the optimizer.", min=0)] = 5e-4,
    augment: Annotated[
        str | None, _training("package.module:function that varies a batch of inputs.")
    ] = None,
    seed: _options.Seed = 0,
    accelerator: _options.Accelerator = "auto",
    devices: _options.Devices = 1,
    precision: _options.Precision = "32-true",
    as_json: _options.Json = False,
) -> None:
    """Train one network on labels and the mean of all snapshots; it answers in one pass, or in two.

    This takes one more training. An interrupted training resumes by the same command.
    """
    from torch import optim

    from snapsure.training import Student
    from snapsure.training._epochs import launch_fabric

    if learning_rate is not None and not learning_rate > 0:
        raise InvalidInput(
            f"--learning-rate must be above 0, got {learning_rate}. Use a positive number."
        )
    make_optimizer: Any = partial(optim.SGD, lr=0.05, momentum=0.9, nesterov=True)
    if optimizer == "adamw":
        make_optimizer = partial(optim.AdamW, lr=3e-4)
    given = {} if learning_rate is None else {"lr": learning_rate}
    _models.search_working_folder()
    examples = None if held_out is None else _data.load_data(held_out, "--held-out")
    more = None if unlabelled is None else _data.load_data(unlabelled, "--unlabelled")
    fabric = launch_fabric(accelerator, devices, precision)
    if fabric.is_global_zero and not out.exists():  # not if it resumes
        typer.echo(
            "Averaged weights answer in one pass too, without a training, and a student can lose "
            "to them. Compare them first: snapsure score --average.",
            err=True,
        )
    student = Student(
        model,
        _models.open_snapshots(snapshots, model, state, trust),
        _data.load_data(data, "--data"),
        out,
        labels=labels,
        start=start,
        unlabelled=more,
        epochs=epochs,
        batch_size=batch_size,
        optimizer=partial(make_optimizer, weight_decay=weight_decay, **given),
        augment=None if augment is None else _models.import_name(augment, "--augment"),
        seed=seed,
        fabric=fabric,
    ).fit()
    if not fabric.is_global_zero:
        return
    difference = None if examples is None else student.difference(examples)

    if as_json:
        content = {"student": str(out), "snapshots": student.teachers}
        typer.echo(json.dumps(content | ({} if difference is None else vars(difference))))
        return
    if difference is not None:
        typer.echo(f"The student answering itself: {difference}.")
    typer.echo(
        f"An answer takes one forward pass ({out / 'itself'}), or two if the old network keeps "
        f"answering ({out / 'final'}).\n"
        f"The mean of the snapshots takes {student.teachers} passes.\n"
        f"Now: snapsure score --model {model} --snapshots {out / 'itself'} --data held-out.npz "
        f"--out scores\n"
        f"     snapsure fit scores --model {model} --risk 0.02 --out predictor"
    )
