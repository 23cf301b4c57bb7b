"""`snapsure demo`."""

from pathlib import Path
from typing import Annotated

import typer

from snapsure.cli._app import app, teller, told, wide_console


@app.command()
def demo(
    words: Annotated[
        list[str] | None, typer.Argument(help="Words for a finished demo to answer.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for snapshots, scores and the page.")] = Path(
        "snapsure-demo"
    ),
) -> None:
    """Which language is a word from? Three small networks, the whole way, in about a minute."""
    console = wide_console()
    with told("run the same command again: trained networks are kept"):
        from snapsure.paper import demo as steps

        if words:
            steps.answer(out, words, console)
        else:
            tell = teller(console)
            steps.run(out, console, tell)
