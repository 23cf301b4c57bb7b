"""`snapsure score`."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from snapsure.cli import _data, _models, _tables
from snapsure.cli._app import command
from snapsure.cli._options import BatchSize, Device, Json, Model, Snapshots, State, Trust


@command("Use", "snapsure score --model nets.py:make --snapshots run --data test.npz --out scores")
def score(
    model: Model,
    snapshots: Snapshots,
    data: Annotated[
        str,
        typer.Option(
            help="package.module:function that returns the data, .npz with x and y, or .npy."
        ),
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
    average: Annotated[
        bool,
        typer.Option("--average", help="Score the averaged weights of the snapshots too."),
    ] = False,
    reference: Annotated[
        str | None,
        typer.Option(
            help="Training data, in a form of --data: for nn_distance, deep_knn, and --average of "
            "networks with batch normalisation."
        ),
    ] = None,
    executor: Annotated[
        str, typer.Option(help="local: this process; ray: this machine's cores, or a cluster.")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="Address of the Ray cluster: auto, host:port or ray://host:port."),
    ] = None,
    batch_size: BatchSize = None,
    device: Device = None,
    state: State = None,
    trust: Trust = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace other scores in --out.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Score every example with every snapshot. An interrupted run resumes by the same command."""
    from snapsure.scoring import score as run

    network = _models.call_factory(model, "--model")  # first, because it may register a κ
    executor_ = _models.make_executor(executor, address, device)
    kappas = _models.make_kappas(kappa.split(","), reference)
    examples = _data.load_data(data, "--data")
    training = None
    if average and reference is not None:
        training = _data.load_data(reference, "--reference")
    source = _models.open_snapshots(snapshots, model, state, trust)
    with redirect_stdout(sys.stderr):  # Ray reports lost nodes on stdout
        table = run(
            network,
            source,
            examples,
            kappas,
            average=average,
            reference=training,
            out=out,
            executor=executor_,
            batch_size=batch_size,
            overwrite=overwrite,
        )
    _tables.write_source(out, model, snapshots, state)
    summary = {"table": str(out), "names": table.names, "shape": list(table.labels.shape)}
    if as_json:
        typer.echo(json.dumps(summary))
    elif table.y is None:
        typer.echo(f"{table}\nWithout labels, no method can be judged: score data that has them.")
    else:
        typer.echo(f"{table}\nNow: snapsure evaluate {out}")
