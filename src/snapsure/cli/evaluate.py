"""`snapsure evaluate`."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from snapsure.cli._app import app, told, wide_console


@app.command()
def evaluate(
    table: Annotated[Path, typer.Argument(help="Folder of a score table.")],
    splits: Annotated[int, typer.Option(help="70/30 splits for PES, LES and Platt.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for splits and bootstrap.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Compare AES, PES and LES with the final κ, with intervals."""
    with told("run the same command again"):
        from snapsure.evaluation import Splits
        from snapsure.evaluation import evaluate as judge
        from snapsure.report.display import results_table
        from snapsure.table import ScoreTable

        scores = ScoreTable.open(table)
        wait = Console(stderr=True).status("resampling …")
        with wait:
            found = judge(scores, protocol=Splits(splits, seed=seed), seed=seed)
        if as_json:
            content = {
                "points": scores.y_hat.size,
                "snapshots": scores.epochs.size,
                "error": float(scores.errors.mean()),
                **found.as_dict(),
            }
            typer.echo(json.dumps(content, indent=1))
            return
        title = (
            f"{scores.y_hat.size} points, {scores.errors.mean():.1%} wrong, "
            f"{scores.epochs.size} snapshots"
        )
        wide_console().print(results_table({"": found}, title))
