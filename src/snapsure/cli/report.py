"""`snapsure report`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from snapsure.cli import _inputs as inputs
from snapsure.cli._app import app, told


@app.command()
def report(
    tables: Annotated[list[Path], typer.Argument(help="Folders of score tables.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    kappa: Annotated[str | None, typer.Option(help="Which κ; the first if not given.")] = None,
    risk: Annotated[
        float | None,
        typer.Option(help="The risk to promise, such as 0.02; a round one if not given."),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="The points as pictures: the .npz that was scored, or an .npy."),
    ] = None,
    texts: Annotated[Path | None, typer.Option(help="The points as text, one per line.")] = None,
    fields: Annotated[
        Path | None, typer.Option(help="The points as rows of a .csv with a header.")
    ] = None,
    classes: Annotated[
        Path | None, typer.Option(help="Names of the classes, one per line.")
    ] = None,
    contest: Annotated[
        bool, typer.Option("--contest", help="Add every way to a confidence, as compare does.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for splits and bootstrap.")] = 0,
) -> None:
    """One HTML page: what to use, what to accept, where training spoilt it, which points to see."""
    with told("run the same command again"):
        from snapsure.report.page import Report, origin_of
        from snapsure.table import ScoreTable

        inputs.refuse_twice(tables)
        opened = {str(path): ScoreTable.open(path) for path in tables}
        origin = {"command": shlex.join(["snapsure", *sys.argv[1:]])}
        for name, scores in opened.items():
            origin |= origin_of(scores, name)
        names = None if classes is None else inputs.lines(classes, "--classes")
        said = None if texts is None else inputs.lines(texts, "--texts")
        pixels = None if images is None else inputs.images_of(images)
        columns = None if fields is None else inputs.columns(fields, "--fields")
        from snapsure.evaluation import compare as rank

        with Console(stderr=True).status("resampling …"):
            found = rank(inputs.contest_runs(tables, None), seed=seed) if contest else None
            page = Report(
                next(iter(opened.values())) if len(opened) == 1 else opened,
                kappa=kappa,
                risk=risk,
                images=pixels,
                texts=said,
                fields=columns,
                classes=names,
                origin=origin,
                contest=found,
                seed=seed,
            ).save(out)
        typer.echo(f"written: {page}")
