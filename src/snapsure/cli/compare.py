"""`snapsure compare`."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from snapsure.cli import _tables
from snapsure.cli._app import command
from snapsure.cli._options import Json, Seed, option
from snapsure.errors import InvalidInput

_PICTURES = (".png", ".svg", ".pdf")


@command("Study", "snapsure compare seed-0/scores seed-1/scores --plot methods.png")
def compare(
    tables: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of score tables; those of the same examples are seeds."),
    ] = None,
    source: Annotated[
        Path | None, option("A packed contest, such as results/contest.", "--from")
    ] = None,
    apart: Annotated[
        bool, option("Treat every table as a data set, none as a seed.", "--apart")
    ] = False,
    reference: Annotated[str, option("Method that the others are compared with.")] = "final",
    kappa: Annotated[str | None, option("κ of the reference.", show_default="the first")] = None,
    metric: Annotated[
        str, option("Rank methods by eaurc, augrc, or aurc, which counts errors.")
    ] = "eaurc",
    resamples: Annotated[int, option("Resamples of the bootstrap.", min=1)] = 2000,
    seed: Seed = 0,
    plot: Annotated[
        Path | None, option("Write a picture of quality against cost to this file.")
    ] = None,
    wide: Annotated[
        bool, option("Show all columns, for a terminal of 200 characters.", "--wide")
    ] = False,
    form: Annotated[
        Literal["terminal", "markdown", "latex", "json"], option("Of the boards.", "--format")
    ] = "terminal",
    as_json: Json = False,
) -> None:
    """Rank every confidence method on the same checkpoints, with its cost and intervals."""
    from snapsure.evaluation import compare as rank
    from snapsure.report.tables import tabulate_board, to_latex, to_markdown, to_terminal

    form = "json" if as_json else form

    if plot is not None and plot.suffix not in _PICTURES:
        raise InvalidInput(
            f"--plot must end in {', '.join(_PICTURES)}, got {plot}. Choose one of these."
        )
    runs = _tables.open_runs(tables or [], source, apart=apart)
    with Console(stderr=True).status("resampling …"):
        outcome = rank(
            runs, reference=reference, kappa=kappa, metric=metric, resamples=resamples, seed=seed
        )
    if plot is not None:
        outcome.plot().save(plot)
        typer.echo(f"written: {plot}", err=True)
    if form == "json":
        typer.echo(json.dumps(outcome.as_dict(), indent=1))
        return

    boards = [tabulate_board(board, outcome) for board in outcome.every]
    if form == "terminal":
        heads = ("method", outcome.every[0].measure, "passes", "gain, %")
        console = Console(width=max(Console().width, 200 if wide else 80))
        for board in boards:
            console.print(to_terminal(board if wide else board.select(heads)))
        if not wide:
            typer.echo("--wide shows all columns, p-values and verdicts.", err=True)
    elif form == "markdown":
        text = "\n".join(f"{board.title}\n\n{to_markdown(board)}" for board in boards)
        typer.echo(text, nl=False)
    else:
        # Verdicts are too long for a column of a paper.
        typer.echo("\n\n".join(to_latex(board.select(board.heads[:-1])) for board in boards))
