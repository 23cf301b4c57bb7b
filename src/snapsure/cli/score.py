"""`snapsure score`."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from snapsure.cli import _inputs as inputs
from snapsure.cli._app import BatchSize, Device, Prefix, Trust, app, told


@app.command()
def score(
    model: Annotated[
        str,
        typer.Option(help="package.module:factory that makes the network, or file.py:factory."),
    ],
    snapshots: Annotated[
        Path, typer.Option(help="Folder of snapshots, or of another tool's checkpoints.")
    ],
    data: Annotated[
        str,
        typer.Option(help="package.module:function that gives the data, .npz of x and y, or .npy."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the score table.")],
    kappa: Annotated[
        str,
        typer.Option(
            help="κ functions, separated by commas: softmax, nn_distance, mc_dropout, "
            "mc_dropout_variance, mc_dropout_entropy, mc_dropout_mutual_information, entropy, "
            "margin, energy, max_logit, doctor, gen, deep_knn, or one that the module of --model "
            "registers."
        ),
    ] = "softmax",
    reference: Annotated[
        str | None,
        typer.Option(help="Training data for nn_distance, deep_knn; given as --data."),
    ] = None,
    executor: Annotated[
        str, typer.Option(help="local: this process; ray: this machine's cores, or a cluster.")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="Address of the Ray cluster: auto, host:port, ray://host:port."),
    ] = None,
    batch_size: BatchSize = None,
    device: Device = None,
    prefix: Prefix = None,
    trust: Trust = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace other scores in --out; nothing else is touched."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line for programs.")] = False,
) -> None:
    """Score every point with every snapshot; interrupted, the same command resumes."""
    with told("run the same command again: what is scored is kept"):
        from snapsure.scoring import score as run

        by = inputs.executor(executor, address, device)
        network = inputs.named(model, "--model")  # first, because it may register a κ
        kappas = inputs.kappas(kappa.split(","), reference)
        points = inputs.data_of(data, "--data")
        source = inputs.snapshots_of(snapshots, prefix, trust)
        with redirect_stdout(sys.stderr):  # where Ray tells of lost nodes is for the answer
            table = run(
                network,
                source,
                points,
                kappas,
                out=out,
                executor=by,
                batch_size=batch_size,
                overwrite=overwrite,
            )
        inputs.note_source(out, model, snapshots, prefix)
    summary = {"table": str(out), "names": table.names, "shape": list(table.labels.shape)}
    typer.echo(json.dumps(summary) if as_json else f"{table}\nNow: snapsure evaluate {out}")
