"""`snapsure score`."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Literal

import typer

from snapsure.cli import _data, _models, _tables
from snapsure.cli._app import command
from snapsure.cli._options import (
    BatchSize,
    Device,
    Json,
    Model,
    Snapshots,
    Speed,
    State,
    Trust,
    option,
)


@command("Use", "snapsure score --model nets.py:make --snapshots run --data test.npz --out scores")
def score(
    model: Model,
    snapshots: Snapshots,
    data: Annotated[
        str, option("package.module:function that returns the data, .npz with x and y, or .npy.")
    ],
    out: Annotated[Path, option("Folder for the score table.")],
    kappa: Annotated[
        str,
        option(
            "κ functions, separated by commas: softmax, nn_distance, mc_dropout, "
            "mc_dropout_variance, mc_dropout_entropy, mc_dropout_mutual_information, entropy, "
            "margin, energy, max_logit, doctor, gen, deep_knn, or one that the module of --model "
            "registers."
        ),
    ] = "softmax",
    average: Annotated[
        bool, option("Score the averaged weights of the snapshots too.", "--average")
    ] = False,
    reference: Annotated[
        str | None,
        option(
            "Training data, in a form of --data: for nn_distance, deep_knn, and --average of "
            "networks with batch normalisation."
        ),
    ] = None,
    executor: Annotated[
        Literal["local", "ray"],
        option("local: this process; ray: this machine's cores, or a cluster."),
    ] = "local",
    address: Annotated[
        str | None, option("Address of the Ray cluster: auto, host:port or ray://host:port.")
    ] = None,
    batch_size: BatchSize = None,
    device: Device = None,
    speed: Speed = "auto",
    state: State = None,
    trust: Trust = False,
    overwrite: Annotated[bool, option("Replace other scores in --out.", "--overwrite")] = False,
    as_json: Json = False,
) -> None:
    """Score every example with every snapshot. An interrupted run resumes by the same command."""
    from snapsure.scoring import score as run

    network = _models.call_factory(model, "--model")  # first, because it may register a κ
    runner = _models.make_executor(executor, address, device)
    kappas = _models.make_kappas(kappa.split(","), reference)
    training = _data.load_data(reference, "--reference") if average and reference else None
    with redirect_stdout(sys.stderr):  # Ray reports lost nodes on stdout
        table = run(
            network,
            _models.open_snapshots(snapshots, model, state, trust),
            _data.load_data(data, "--data"),
            kappas,
            average=average,
            reference=training,
            out=out,
            executor=runner,
            batch_size=batch_size,
            overwrite=overwrite,
            speed=speed,
        )
    _tables.write_source(out, model, snapshots, state)
    summary = {"table": str(out), "names": table.names, "shape": list(table.labels.shape)}
    if as_json:
        typer.echo(json.dumps(summary))
    elif table.y is None:
        typer.echo(f"{table}\nWithout labels, no method can be judged: score data that has them.")
    else:
        typer.echo(f"{table}\nNow: snapsure evaluate {out}")
