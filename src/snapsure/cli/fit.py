"""`snapsure fit`."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from snapsure.cli import _data, _models, _tables
from snapsure.cli._app import command
from snapsure.cli._options import Classes, Delta, Json, Risk, Seed, State, option, read_risk


@command("Use", "snapsure fit scores --model nets.py:make --risk 0.02 --passes 5 --out predictor")
def fit(
    table: Annotated[Path, typer.Argument(help="Folder of a score table of held-out examples.")],
    out: Annotated[Path, option("Folder for the predictor.")],
    risk: Risk = None,
    delta: Delta = 0.05,
    passes: Annotated[int | None, option("Largest number of forward passes for an answer.")] = None,
    kappa: Annotated[str, option("Which κ; of several, with commas, one is chosen.")] = "softmax",
    answers: Annotated[
        Literal["final", "any"],
        option(
            "final: the final network answers; any: averaged weights may answer instead, if "
            "they are scored (score --average) and significantly better."
        ),
    ] = "final",
    reference: Annotated[
        str | None, option("Training data, as for score --average, for --answers any.")
    ] = None,
    model: Annotated[str | None, option("package.module:factory that makes the network.")] = None,
    snapshots: Annotated[
        str | None, option("Folder of snapshots.", show_default="that of `snapsure score`")
    ] = None,
    state: State = None,
    trust: Annotated[
        bool,
        option(
            "Without --model, import the factory that the table's folder names. Also read "
            "checkpoints that can run code of their author.",
            "--trust",
        ),
    ] = False,
    classes: Classes = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Choose a method within so many passes, promise an error limit, and save what to deploy."""
    from snapsure.estimators.registry import AVERAGED
    from snapsure.predictor import Predictor
    from snapsure.table import ScoreTable

    scores = ScoreTable.open(table)
    factory, folder, state = _tables.read_source(table, model, snapshots, state, trust=trust)
    _models.import_name(factory, "--model")  # which may register a κ
    store = _models.open_snapshots(folder, factory, state, trust)
    names = None if classes is None else _data.read_lines(classes, "--classes")
    with Console(stderr=True).status("comparing methods …"):
        predictor = Predictor.fit(
            factory,
            store,
            scores,
            risk=read_risk(risk),
            delta=delta,
            passes=passes,
            kappa=kappa.split(","),
            answers=answers,
            reference=reference and _data.load_data(reference, "--reference"),
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
    is_averaged = predictor.provenance.get("method") == AVERAGED
    method = AVERAGED if is_averaged else repr(predictor.estimator)
    typer.echo(f"{method}, {count} per answer")
    typer.echo(f"Why: {predictor.reason}.")
    if threshold is None or threshold.risk is None:
        typer.echo(
            "Every answer is accepted: there is no error limit. Add --risk 0.02 to promise one."
        )
    else:
        typer.echo(
            f"Accepts {threshold.coverage:.1%} of the held-out examples. At most "
            f"{100 * threshold.risk:g}% of the accepted answers are wrong, with probability "
            f"{100 - 100 * delta:g}%."
        )
    typer.echo(f"Now: snapsure predict {out} --model {factory} --data new.npz --out answers.csv")
