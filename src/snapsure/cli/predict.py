"""`snapsure predict`."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from snapsure.cli import _inputs as inputs
from snapsure.cli._app import BatchSize, Device, app, told


@app.command()
def predict(
    predictor: Annotated[Path, typer.Argument(help="Folder that `snapsure fit` wrote.")],
    data: Annotated[
        str,
        typer.Option(
            help="package.module:function that gives the inputs, .npz with x (and y), or .npy."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Answers: .csv, .jsonl or .parquet.")],
    model: Annotated[
        str | None, typer.Option(help="package.module:factory that makes the network.")
    ] = None,
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Import the factory that the folder names, without --model."),
    ] = False,
    monitor: Annotated[
        Path | None,
        typer.Option(help="Watch the promise: a file that is made, or goes on from run to run."),
    ] = None,
    batch_size: BatchSize = None,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line for programs.")] = False,
) -> None:
    """Label, confidence and accept or not for new inputs; interrupted, the same command resumes."""
    with told("run the same command again: answers that were given are kept"):
        from snapsure._files import sha256
        from snapsure.decisions import Monitor
        from snapsure.predictor import Predictor
        from snapsure.predictor._answers import refuse_unknown_form, write_answers
        from snapsure.predictor._folder import CONTENT

        refuse_unknown_form(out)
        inputs.search_here()
        rows = inputs.inputs_of(data, "--data", batch_size)
        with Console(stderr=True).status("loading …"):
            loaded = Predictor.load(predictor, model, trust=trust, device=device)
        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("answering", total=None)

            def advance(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            # It names the hashes of its snapshots.
            identity = f"{sha256(predictor / CONTENT)} {model or ''}"
            summary = write_answers(loaded, rows, out, identity, advance, monitor)
        watching = None if monitor is None else Monitor.load(monitor)
    alarms = [] if watching is None else [str(alarm) for alarm in watching.alarms]
    if as_json:
        told_alarms = {} if watching is None else {"alarms": alarms}
        typer.echo(json.dumps({"answers": str(out), **summary, **told_alarms}))
        return
    typer.echo(
        f"{summary['inputs']} answers in {out}: {summary['accepted']} accepted "
        f"({summary['accepted'] / summary['inputs']:.1%})"
    )
    if "errors" in summary:
        typer.echo(
            f"With the labels that came with them: {summary['errors']} of all are wrong, "
            f"{summary['accepted errors']} of those accepted"
        )
    if watching is not None:
        typer.echo(f"Monitor: {'; '.join(alarms) or f'no alarm in {watching.seen} answers so far'}")
