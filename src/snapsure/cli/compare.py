"""`snapsure compare`."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

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
        str, typer.Option(help="The method that the others are compared with.")
    ] = "final",
    kappa: Annotated[
        str | None, typer.Option(help="The κ of the reference; the first if not given.")
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
        from snapsure.report.tables import tabulate_board, to_latex, to_markdown, to_terminal

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
            outcome = rank(
                runs,
                reference=reference,
                kappa=kappa,
                metric=metric,
                resamples=resamples,
                seed=seed,
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
            typer.echo(
                "\n".join(f"{board.title}\n\n{to_markdown(board)}" for board in boards),
                nl=False,
            )
        else:
            # Verdicts are too long for a column of a paper.
            typer.echo("\n\n".join(to_latex(board.select(board.heads[:-1])) for board in boards))
