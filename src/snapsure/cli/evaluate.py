"""`snapsure evaluate`."""

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from snapsure.cli._app import command, wide_console
from snapsure.cli._options import Json, Seed, option

if TYPE_CHECKING:
    from snapsure.table import ScoreTable


@command("Use", "snapsure evaluate scores")
def evaluate(
    table: Annotated[Path, typer.Argument(help="Folder of a score table.")],
    splits: Annotated[int, option("Random 70/30 splits, for methods that learn.")] = 10,
    seed: Seed = 0,
    examples: Annotated[
        Path | None,
        option(
            "Write a CSV file: the probability that each answer is right, by every method, "
            "fitted on the other half of the examples."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare averaged (AES), learned (LES) and pointwise (PES) early stopping with softmax."""
    from snapsure.evaluation import Splits
    from snapsure.evaluation import evaluate as judge
    from snapsure.report.tables import summarise_board, to_terminal
    from snapsure.table import ScoreTable

    scores = ScoreTable.open(table)
    with Console(stderr=True).status("resampling …"):
        result = judge(scores, protocol=Splits(splits, seed=seed), seed=seed)
    if examples is not None:
        _write_examples(examples, scores, seed)
        typer.echo(f"written: {examples}", err=True)
    if as_json:
        content = {
            "examples": scores.y_hat.size,
            "snapshots": scores.epochs.size,
            "error": float(scores.errors.mean()),
            **result.as_dict(),
        }
        typer.echo(json.dumps(content, indent=1))
        return
    typer.echo(
        f"{scores.y_hat.size} examples, {scores.errors.mean():.1%} wrong, "
        f"{scores.epochs.size} snapshots"
    )
    for board in result.every:
        wide_console().print(to_terminal(summarise_board(board, result)))


def _write_examples(path: Path, scores: "ScoreTable", seed: int) -> None:
    """Write a line per example: row, y, y_hat, wrong, and the probability by each method."""
    from snapsure import _files
    from snapsure.evaluation import confidences

    assert scores.y is not None  # a table without labels is refused by `evaluate`
    columns = {
        "row": range(scores.y.size),
        "y": scores.y.tolist(),
        "y_hat": scores.y_hat.tolist(),
        "wrong": scores.errors.astype(int).tolist(),
        **{
            method if kappa == scores.names[0] else f"{method} of {kappa}": p.tolist()
            for kappa in scores.names
            for method, p in confidences(scores, kappa=kappa, seed=seed).items()
        },
    }
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows(zip(*columns.values(), strict=True))
    _files.write_bytes(path, text.getvalue().encode())
