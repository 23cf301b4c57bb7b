"""`snapsure reproduce`."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from snapsure.cli import _options
from snapsure.cli._app import command, step_printer, wide_console
from snapsure.cli._options import option


@command("Study", "snapsure reproduce all --from results/cifar100-cpu-full")
def reproduce(
    what: Annotated[str, typer.Argument(help="table1 … table4, saturation, figures, or all.")],
    dataset: _options.DataSet = "cifar100",
    scale: _options.Scale = "cpu",
    data: _options.DataFolder = None,
    out: _options.StudyFolder = None,
    seed: Annotated[
        list[int] | None,
        option("Seed of a network; repeat it for more.", min=0, show_default="those of the scale"),
    ] = None,
    beside: Annotated[
        Path | None, option("Results of other seeds, from another machine, to put first.")
    ] = None,
    softmax_only: Annotated[
        bool, option("Score softmax alone; use other κ only if they are scored.", "--softmax-only")
    ] = False,
    source: Annotated[
        Path | None, option("Results of an earlier run. Takes seconds, trains nothing.", "--from")
    ] = None,
    accelerator: _options.Accelerator = "auto",
    devices: _options.Devices = 1,
    precision: _options.Precision = "32-true",
    as_json: _options.Json = False,
) -> None:
    """Show the paper's tables and figures beside ours, from a training or from its results.

    The paper's text and its authors' code differ: --scale paper follows the text where it is
    specific (0.1 halved every 20 epochs, plain momentum, the logits as they are) and the code for
    the augmentation. The page "The paper's tables" of the documentation lists every difference.
    """
    from snapsure.paper import tables
    from snapsure.paper.archive import Experiment
    from snapsure.report.tables import to_terminal

    names = tables.select_parts(what)
    if source is None:
        from snapsure.paper import run
        from snapsure.training._epochs import launch_fabric

        study = run.Study(dataset, scale, out or Path(f"snapsure-{dataset}-{scale}"), data)
        earlier = None if beside is None else Experiment.open(beside, "--beside")
        fabric = launch_fabric(accelerator, devices, precision)
        show = step_printer(Console(stderr=True))
        done = run.run(study, fabric, show, seed, softmax_only=softmax_only, beside=earlier)
        if done is None:  # another process of the same training has the results
            return
        source = out = study.out / "results"
        done.save(source)
    experiment = Experiment.open(source)
    parts = tables.compute(experiment, names)
    written = [] if out is None else tables.write(experiment, names, parts, out)
    if as_json:
        typer.echo(json.dumps({name: part.content for name, part in parts.items()}, indent=1))
        return
    for part in parts.values():
        wide_console().print(to_terminal(part.table))
    for path in written:
        typer.echo(f"written: {path}")
