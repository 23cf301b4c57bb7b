"""`snapsure compare`."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from snapsure.cli import _inputs as inputs
from snapsure.cli._app import app, told
from snapsure.errors import InvalidInput


@app.command()
def compare(
    tables: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of score tables; those of the same points are seeds."),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="A packed contest, such as results/contest.")
    ] = None,
    apart: Annotated[
        bool, typer.Option("--apart", help="Every table is a data set of its own, no seed.")
    ] = False,
    reference: Annotated[
        str | None, typer.Option(help="What gains are against; the first κ if not given.")
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            help="What methods are ranked by: eaurc, augrc, or aurc, which counts errors."
        ),
    ] = "eaurc",
    resamples: Annotated[int, typer.Option(min=1, help="Resamples of the bootstrap.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for halves and bootstrap.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(help="A picture of quality against price, to be written.")
    ] = None,
    wide: Annotated[
        bool, typer.Option("--wide", help="All columns, for a wide terminal: 200 characters.")
    ] = False,
    form: Annotated[
        str, typer.Option("--format", help="terminal, markdown, latex or json.")
    ] = "terminal",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Rank every way to a confidence on the same checkpoints, with its price and intervals."""
    with told("run the same command again"):
        from snapsure.evaluation import compare as rank
        from snapsure.report import leaderboard

        forms = ("terminal", "markdown", "latex", "json")
        form = "json" if as_json else form
        if form not in forms:
            raise InvalidInput(
                f"--format must be one of {', '.join(forms)}, got {form!r}: choose one"
            )
        if plot is not None and plot.suffix not in (".png", ".svg", ".pdf"):
            raise InvalidInput(f"--plot must end in .png, .svg or .pdf, got {plot}: name it so")
        runs = inputs.contest_runs(tables or [], source, apart=apart)
        with Console(stderr=True).status("resampling …"):
            outcome = rank(runs, reference=reference, metric=metric, resamples=resamples, seed=seed)
        if plot is not None:
            leaderboard.plot(outcome, plot)
            typer.echo(f"written: {plot}", err=True)
        if form == "json":
            typer.echo(json.dumps(outcome.as_dict(), indent=1))
        elif form == "terminal":
            console = Console(width=max(Console().width, 200 if wide else 80))
            for board in leaderboard.boards_of(outcome):
                table = leaderboard.as_table(board, outcome)
                console.print(table if wide else _narrow(table, board.measure))
            if not wide:
                typer.echo("--wide shows all columns, p-values and verdicts.", err=True)
        else:
            written = leaderboard.as_markdown if form == "markdown" else leaderboard.as_latex
            typer.echo(written(outcome), nl=False)


def _narrow(table: Table, measure: str) -> Table:
    """The columns that tell most, for 80 characters."""
    heads = ("method", measure, "passes", "gain")
    chosen = [column for column in table.columns if column.header in heads]
    narrow = Table(title=table.title, title_justify="left", title_style="")
    for column in chosen:
        # A long name takes two lines, so that numbers are never cut.
        narrow.add_column(column.header, justify=column.justify, no_wrap=column.header != "method")
    for cells in zip(*(column.cells for column in chosen), strict=True):
        narrow.add_row(*cells)
    return narrow
