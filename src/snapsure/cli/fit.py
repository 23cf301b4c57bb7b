"""`snapsure fit`."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from snapsure.cli import _inputs as inputs
from snapsure.cli._app import Prefix, Trust, app, told


@app.command()
def fit(
    table: Annotated[Path, typer.Argument(help="Folder of a score table of held-out points.")],
    out: Annotated[Path, typer.Option(help="Folder for the predictor.")],
    risk: Annotated[
        float | None,
        typer.Option(help="Error rate to promise among accepted inputs, such as 0.02."),
    ] = None,
    delta: Annotated[float, typer.Option(help="How often the promise may be broken.")] = 0.05,
    passes: Annotated[
        int | None, typer.Option(help="The most forward passes that an answer may take.")
    ] = None,
    kappa: Annotated[str, typer.Option(help="Which κ of the table.")] = "softmax",
    model: Annotated[
        str | None,
        typer.Option(help="package.module:factory; what the table was scored with if left out."),
    ] = None,
    snapshots: Annotated[
        str | None,
        typer.Option(help="Folder of snapshots; what the table was scored with if left out."),
    ] = None,
    prefix: Prefix = None,
    trust: Trust = False,
    classes: Annotated[
        Path | None, typer.Option(help="Names of the classes, one per line.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the halves and splits.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line for programs.")] = False,
) -> None:
    """Choose the best estimator within so many passes, promise a risk, write what to deploy.

    The choice needs labels. Without them, AES is a bet.
    """
    with told("run the same command again"):
        from snapsure.predictor import Predictor
        from snapsure.table import ScoreTable

        scores = ScoreTable.open(table)
        factory = inputs.source_of(table, model, "model")
        folder = inputs.source_of(table, snapshots, "snapshots")
        inputs.search_here()
        store = inputs.snapshots_of(folder, inputs.prefix_of(table, prefix), trust)
        names = None if classes is None else inputs.lines(classes, "--classes")
        with Console(stderr=True).status("comparing estimators …"):
            predictor = Predictor.fit(
                factory,
                store,
                scores,
                risk=risk,
                delta=delta,
                passes=passes,
                kappa=kappa,
                classes=names,
                seed=seed,
            )
        predictor.save(out)
    threshold = predictor.threshold
    if as_json:
        content = {
            "predictor": str(out),
            "estimator": repr(predictor.estimator),
            "passes": predictor.passes,
            "reason": predictor.reason,
            "threshold": threshold and threshold.as_dict(),
        }
        typer.echo(json.dumps(content))
        return
    count = "one forward pass" if predictor.passes == 1 else f"{predictor.passes} forward passes"
    typer.echo(f"{predictor.estimator!r}, {count} per answer")
    typer.echo(f"Why: {predictor.reason}.")
    if threshold is None:
        typer.echo("No risk is promised: every answer is accepted. --risk 0.02 would promise one.")
    else:
        typer.echo(
            f"Accepts {threshold.coverage:.1%} of the held-out points; among accepted inputs the "
            f"error rate stays under {risk:g}, with probability {1 - delta:g}."
        )
    command = f"snapsure predict {out} --model {factory} --data new.npz --out answers.csv"
    typer.echo(f"Now: {command}")
