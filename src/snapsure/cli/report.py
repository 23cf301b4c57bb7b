"""`snapsure report`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from snapsure.cli import _data, _tables
from snapsure.cli._app import command
from snapsure.cli._options import Classes, Seed, option


@command("Use", "snapsure report scores --risk 0.02 --out report.html")
def report(
    tables: Annotated[list[Path], typer.Argument(help="Folders of score tables.")],
    out: Annotated[Path, option("The page to write.")] = Path("report.html"),
    kappa: Annotated[str | None, option("Which κ.", show_default="the first")] = None,
    risk: Annotated[
        float | None, option("Error limit to promise, such as 0.02.", show_default="a round one")
    ] = None,
    images: Annotated[
        str | None, option("The examples as pictures: the .npz that was scored, or an .npy.")
    ] = None,
    texts: Annotated[Path | None, option("The examples as text, one per line.")] = None,
    fields: Annotated[Path | None, option("The examples as rows of a .csv with a header.")] = None,
    classes: Classes = None,
    contest: Annotated[
        bool, option("Add every confidence method, as in compare.", "--contest")
    ] = False,
    seed: Seed = 0,
) -> None:
    """Write one HTML page: what to use, what to accept, and which examples to look at."""
    from snapsure.evaluation import compare
    from snapsure.report.page import Report, describe_origin
    from snapsure.table import ScoreTable

    _tables.refuse_repeats(tables)
    scores = {str(path): ScoreTable.open(path) for path in tables}
    origin = {"command": shlex.join(["snapsure", *sys.argv[1:]])}
    for name, table in scores.items():
        origin |= describe_origin(table, name)
    with Console(stderr=True).status("resampling …"):
        page = Report(
            next(iter(scores.values())) if len(scores) == 1 else scores,
            kappa=kappa,
            risk=risk,
            images=images and _data.load_data(images, "--images")[0],
            texts=None if texts is None else _data.read_lines(texts, "--texts"),
            fields=None if fields is None else _data.read_columns(fields, "--fields"),
            classes=None if classes is None else _data.read_lines(classes, "--classes"),
            origin=origin,
            contest=compare(_tables.open_runs(tables), seed=seed) if contest else None,
            folder=tables[0],
            model=_tables.read_model(tables[0]),
            seed=seed,
        ).save(out)
    typer.echo(f"written: {page}")
