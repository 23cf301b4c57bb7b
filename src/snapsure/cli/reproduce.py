"""`snapsure reproduce`."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from snapsure.cli._app import app, teller, told, wide_console
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
def reproduce(
    what: Annotated[str, typer.Argument(help="table1 … table4, saturation, figures, or all.")],
    dataset: DataSet = "cifar100",
    scale: Scale = "cpu",
    data: Data = None,
    out: Out = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Of a network, once for each; as many as the scale has if none."),
    ] = None,
    beside: Annotated[
        Path | None,
        typer.Option(help="Results of other seeds, from another machine: theirs come first."),
    ] = None,
    softmax_only: Annotated[
        bool,
        typer.Option(
            "--softmax-only",
            help="Score nothing more: κ that are scored already, and softmax response.",
        ),
    ] = False,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Results of an earlier run: nothing is trained, seconds."),
    ] = None,
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    precision: Precision = "32-true",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """The paper's tables and figures, ours beside its: from a training, or from its results.

    The paper's text and its authors' code differ: --scale paper follows the text where it says
    something (0.1 halved every 20 epochs, plain momentum, the logits as they are) and the code for
    the augmentation. The page "The paper's tables" of the documentation lists every difference.
    """
    with told("run the same command again: networks and scores that are done are kept"):
        from snapsure.paper import outcome
        from snapsure.paper.archive import Experiment

        names = outcome.select_parts(what)
        if source is None:
            from snapsure.paper import run
            from snapsure.training._fabric import launched

            wanted = study(dataset, scale, data, out)
            earlier = None if beside is None else Experiment.open(beside, "--beside")
            fabric = launched(accelerator, devices, precision)
            tell = teller(Console(stderr=True))
            done = run.run(wanted, fabric, tell, seed, softmax_only=softmax_only, beside=earlier)
            if done is None:  # another process of the same training has it
                return
            source = out = wanted.out / "results"
            done.save(source)
        experiment = Experiment.open(source)
        shown = outcome.compute(experiment, names)
        written = [] if out is None else outcome.write(experiment, names, shown, out)
        if as_json:
            typer.echo(json.dumps({name: part.content for name, part in shown.items()}, indent=1))
            return
        for part in shown.values():
            wide_console().print(part.display())
        for path in written:
            typer.echo(f"written: {path}")
