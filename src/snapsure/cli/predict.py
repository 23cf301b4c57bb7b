"""`snapsure predict`."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from snapsure.cli import _data, _models
from snapsure.cli._app import command
from snapsure.cli._options import BatchSize, Device, Json, option


@command("Use", "snapsure predict predictor --model nets.py:make --data new.npz --out answers.csv")
def predict(
    predictor: Annotated[Path, typer.Argument(help="Folder that `snapsure fit` wrote.")],
    data: Annotated[
        str,
        option("package.module:function that returns the inputs, .npz with x (and y), or .npy."),
    ],
    out: Annotated[Path, option("Answers: .csv, .jsonl or .parquet.")],
    model: Annotated[str | None, option("package.module:factory that makes the network.")] = None,
    trust: Annotated[
        bool, option("Without --model, import the factory that the folder names.", "--trust")
    ] = False,
    group: Annotated[
        str | None,
        option(
            "Array of the .npz file with each input's group, for thresholds by group.",
            metavar="NAME",
        ),
    ] = None,
    monitor: Annotated[
        Path | None, option("File of a monitor of the promise, which continues from run to run.")
    ] = None,
    raw: Annotated[
        bool,
        option(
            "Write class names into .csv as they are. By default, those that a spreadsheet "
            "would compute, such as =1+1, get an apostrophe.",
            "--raw",
        ),
    ] = False,
    batch_size: BatchSize = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Write a label, a confidence and a decision for every input.

    An interrupted run resumes by the same command.
    """
    from snapsure.decisions import Monitor
    from snapsure.networks._data import Rows
    from snapsure.predictor import Predictor
    from snapsure.predictor._answers import refuse_unknown_form, write_answers

    refuse_unknown_form(out)
    _models.search_working_folder()
    rows = Rows.of(_data.load_data(data, "--data"), "data", batch_size)
    groups = None if group is None else _data.load_array(data, group, "--group")
    console = Console(stderr=True)
    with console.status("loading …"):
        loaded = Predictor.load(predictor, model, trust=trust, device=device)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("answering", total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        counts = write_answers(loaded, rows, out, advance, monitor, groups, raw)
    watching = None if monitor is None else Monitor.load(monitor)

    alarms = [] if watching is None else [str(alarm) for alarm in watching.alarms]
    if as_json:
        more = {} if watching is None else {"alarms": alarms}
        typer.echo(json.dumps({"answers": str(out), **counts, **more}))
        return
    typer.echo(
        f"{counts['inputs']} answers in {out}: {counts['accepted']} accepted "
        f"({counts['accepted'] / counts['inputs']:.1%})"
    )
    if "errors" in counts:
        typer.echo(
            f"By the labels in the data, {counts['errors']} of all answers are wrong, and "
            f"{counts['accepted errors']} of the accepted ones."
        )
    if watching is not None:
        typer.echo(f"Monitor: {'; '.join(alarms) or f'no alarm in {watching.seen} answers so far'}")
